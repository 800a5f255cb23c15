#!/usr/bin/env bash
# Runs the tests that need a GPU on a machine that has one, but maybe no cargo.
#
#   ci/gpu.sh pack DIR    here: builds the tests and the trainer into DIR and adds cargo-nextest to run them
#   ci/gpu.sh run DIR     there, in a copy of the repository: runs them, and compute-sanitizer if installed
#
# Fails if a test fails, if a GPU test was not run, or if fewer ran than ci/gpu-tests.txt says.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:?pack or run} dir=${2:?a folder}
EXAMPLES="mlp own_kernel own_dataset validation check_my_loop tokens doctor whatif"

pack() {
    mkdir -p "$dir"
    # Stripped, because the archive is copied to another machine.
    export CARGO_PROFILE_DEV_STRIP=symbols CARGO_PROFILE_DEV_DEBUG=false CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target/gpu}
    cargo nextest archive -p feedline-device -p feedline-kernel-compiler -p feedline-kernels -p feedline-pictures -p feedline \
        -p feedline-examples -p feedline-mlp -p feedline-dlpack -p feedline-dist \
        --features feedline-pictures/nvjpeg,feedline-examples/nvjpeg,feedline-mlp/formats \
        --archive-file "$dir/tests.tar.zst"
    cargo build --release -p feedline-examples -p feedline-mlp --examples --features feedline-mlp/formats
    for example in $EXAMPLES; do
        strip -o "$dir/$example" "$CARGO_TARGET_DIR/release/examples/$example"
    done
    cargo build -p feedline-dlpack --example dlpack_batches
    strip -o "$dir/libdlpack_batches.so" "$CARGO_TARGET_DIR/debug/examples/libdlpack_batches.so"
    cp "$(command -v cargo-nextest)" "$dir/"
}

run_tests() {
    export FEEDLINE_MLP=$PWD/$dir/mlp FEEDLINE_OWN_KERNEL=$PWD/$dir/own_kernel FEEDLINE_EXAMPLES=$PWD/$dir
    export FEEDLINE_DLPACK_BATCHES=$PWD/$dir/libdlpack_batches.so
    export FEEDLINE_RAN=$PWD/$dir/ran.txt FEEDLINE_NOT_RUN=$PWD/$dir/not-run.txt
    rm -f "$FEEDLINE_RAN" "$FEEDLINE_NOT_RUN"
    touch "$FEEDLINE_RAN" "$FEEDLINE_NOT_RUN"
    # One at a time: tests that measure with events must not share the GPU.
    mkdir -p "$dir/binaries"
    "$dir/cargo-nextest" nextest run --archive-file "$dir/tests.tar.zst" --extract-to "$dir/binaries" \
        --extract-overwrite --workspace-remap . --no-fail-fast --test-threads 1 -E "${FEEDLINE_GPU_FILTER:-all()}"
}

count() {
    local wanted ran not_run
    wanted=$(cat ci/gpu-tests.txt)
    ran=$(sort -u "$FEEDLINE_RAN" | grep -c '^ran: cuda' || true)
    not_run=$(grep -c '^not run: cuda' "$FEEDLINE_NOT_RUN" || true)
    echo "gpu tests: $ran ran, $not_run not run, $wanted expected"
    [ "$not_run" = 0 ] || { sort -u "$FEEDLINE_NOT_RUN"; echo "a GPU test was not run"; return 1; }
    [ "$ran" -ge "$wanted" ] || { echo "fewer GPU tests ran than ci/gpu-tests.txt says"; return 1; }
}

# Runs memcheck and racecheck of compute-sanitizer on the tests of the operators and on the trainer.
sanitize() {
    local sanitizer ops
    sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
    [ -n "$sanitizer" ] || { echo "not run: compute-sanitizer (not installed)"; return 0; }
    ops=$(find "$dir/binaries" -type f -name 'ops-*' -perm -u+x | head -1)
    [ -n "$ops" ] || { echo "compute-sanitizer: the archive lacks the tests of the operators (ops)"; return 1; }
    # A small model, because racecheck tracks every access to shared memory.
    local trainer="$dir/mlp --device cuda --batch 64 --hidden 64 --steps 40 --epochs 1 --quiet"
    trainer+=${FEEDLINE_GPU_DATA:+ --data $FEEDLINE_GPU_DATA}
    for tool in memcheck racecheck; do
        for subject in "$ops --test-threads 1" "$trainer --transfer-mode zero-copy" "$trainer --transfer-mode staged --optimizer adamw"; do
            # shellcheck disable=SC2086
            "$sanitizer" --tool "$tool" --error-exitcode 1 $subject >"$dir/sanitizer.log" 2>&1 ||
                { tail -40 "$dir/sanitizer.log"; echo "compute-sanitizer $tool: FAILED on ${subject%% *}"; return 1; }
            grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$dir/sanitizer.log" | tail -1 | sed "s|^|$tool ${subject%% *}: |"
        done
    done
}

case $mode in
    pack) pack ;;
    run) run_tests; count; sanitize ;;
    *) echo "usage: ci/gpu.sh pack|run DIR"; exit 2 ;;
esac
