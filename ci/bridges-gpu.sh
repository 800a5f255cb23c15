#!/usr/bin/env bash
# The bridges on a machine that has a GPU, but maybe no cargo. crates/bridges/README.md says what a build needs.
#
#   ci/bridges-gpu.sh pack DIR [burn|candle]    here: builds tests and examples for CUDA, packs them into DIR
#   ci/bridges-gpu.sh run DIR [burn|candle]     there: tests first, then the examples, then the comparison
#
# `run` needs only DIR, which holds this script as run.sh. It fails if a test fails, if a test on the GPU did
# not run, or if the loss of an example does not fall. FEEDLINE_SECONDS is the length of a run in
# a comparison. FEEDLINE_BUILD_ARGUMENTS goes to cargo.
set -euo pipefail
mode=${1:?pack or run} dir=$(realpath -m "${2:?a folder}") only=${3:-burn candle}

pack() {
    local script built bridge name path
    script=$(realpath "$0")
    cd "$(dirname "$script")/../crates/bridges"
    mkdir -p "$dir"
    for bridge in $only; do
        built=$(cargo build --locked --profile gpu -p "feedline-$bridge" --features cuda --tests --examples \
            --message-format json-render-diagnostics ${FEEDLINE_BUILD_ARGUMENTS:-})
        # The tests of the examples start them themselves; `run` does that too.
        python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    kind, name = message.get("target", {}).get("kind"), message.get("target", {}).get("name")
    if message.get("executable") and kind in (["test"], ["example"]) and name != "example":
        print(name, message["executable"])' <<<"$built" | while read -r name path; do
            xz -T0 -c "$path" >"$dir/$bridge-$name.xz"
        done
    done
    cp "$script" "$dir/run.sh"
    du -ch "$dir"/*.xz | tail -1
}

# Where the driver's and the toolkit's libraries are: what candle is linked to, what burn loads.
find_cuda() {
    local packages
    packages=$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null || true)
    for folder in /usr/local/cuda ${CUDA_PATH:-}; do
        [ -d "$folder/include" ] && export CUDA_PATH=$folder
    done
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}:${CUDA_PATH:-/usr/local/cuda}/lib64
    for folder in "$packages"/*/lib; do
        LD_LIBRARY_PATH+=:$folder
    done
    export LD_LIBRARY_PATH
}

say() {
    printf '\n== %s\n' "$*"
}

# Runs a test binary; nothing may be left out.
tests() {
    say "$1"
    timeout 150 "./$1" --nocapture --test-threads 1 2>&1 | tee "$1.log" | grep -v '^$' | tail -40 || return 1
    # With one thread the name of the test comes before it on the line.
    if grep -q 'not run: ' "$1.log"; then
        echo "$1: a test did not run on the GPU"
        return 1
    fi
}

# Runs an example, and compares its first loss with its last one.
learns() {
    say "$1"
    timeout 120 "./$1" >"$1.log" 2>&1 || { tail -40 "$1.log"; return 1; }
    tail -32 "$1.log"
    case $1 in
        # step by step: "epoch 0 step 100 loss 0.4"
        candle*) grep -o 'loss [0-9.]*' "$1.log" | awk '{ l[NR] = $2 } END { exit !(l[NR] < l[1] / 2) }' ;;
        # the summary: "| Train | Loss | least | epoch | most | epoch |"
        burn*) grep 'Train' "$1.log" | grep 'Loss' | awk -F'|' '{ exit !($4 < 0.6 * $6) }' ;;
    esac || { echo "$1: the loss does not fall"; return 1; }
}

run() {
    local bridge failed=0 seconds=${FEEDLINE_SECONDS:-2}
    cd "$dir"
    find_cuda
    for bridge in $only; do
        ls "$bridge"-*.xz >/dev/null || { echo "no programs for $bridge in $dir"; return 1; }
        for packed in "$bridge"-*.xz; do
            xz -dc "$packed" >"${packed%.xz}"
            chmod +x "${packed%.xz}"
        done
    done
    # Correctness first: the figures of a wrong bridge are worth nothing.
    [[ $only != *candle* ]] || tests candle-cuda || failed=1
    [[ $only != *burn* ]] || tests burn-on_device || failed=1
    for bridge in $only; do
        tests "$bridge-tensors" || failed=1
    done
    for bridge in $only; do
        learns "$bridge-${bridge}_mlp" || failed=1
    done
    for bridge in $only; do
        say "$bridge: compare"
        timeout 200 "./$bridge-${bridge}_compare" "$seconds" 2>&1 | tee "$bridge-compare.log" || failed=1
    done
    say "$([ $failed = 0 ] && echo 'all passed' || echo FAILED)"
    return $failed
}

case $mode in
    pack) pack ;;
    run) run ;;
    *) echo "usage: ci/bridges-gpu.sh pack|run DIR [burn|candle]"; exit 2 ;;
esac
