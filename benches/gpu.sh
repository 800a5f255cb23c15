#!/usr/bin/env bash
# Runs all benchmarks and peers on a GPU machine in about six minutes. Writes rows and a summary to $OUT and
# prints one table at the end. Needs the built programs, not cargo:
#
#   BIN=folder with `benches` and `mlp`   [bin in the repository, or target/release]
#   DATA=folder with IDX files            [the built-in digits, drawn at the first use]
#   OUT=folder for the results            [out]
#   SCRATCH=folder for record files       [/tmp]
#   PEERS="torch jax rust"                peers to run, if installed; 0 for none
#   ROUNDS=3                              how often `tiny` and the Rust loaders alternate
#   ONLY="handoff train"                  benchmarks to run; ONLY=scale for the sweeps and their plot
#
# PyTorch and JAX run if python3 can import them, the Rust loaders if $BIN or target/peers/release has
# `peers`: cargo build --release --manifest-path benches/peers/rust/Cargo.toml --target-dir target/peers
set -uo pipefail
cd "$(dirname "$0")/.."

source benches/steps.sh
MLP=$BIN/mlp
[ -x "$MLP" ] || MLP=$BIN/examples/mlp
ONLY=${ONLY:-handoff guards transfer train raw gather tiny epoch start idle noisy}
rows=$OUT/rows.jsonl
log=$OUT/log.txt
: >"$rows"
: >"$log"
PEERS=${PEERS:-torch jax rust}
peers=
for path in "$BIN/peers" target/peers/release/peers; do
    [ -z "$peers" ] && [ -x "$path" ] && peers=$path
done
data=(${DATA:+--data "$DATA"})

{
    date -u +%Y-%m-%dT%H:%MZ
    if command -v nvidia-smi >/dev/null; then
        nvidia-smi --query-gpu=name,driver_version,pcie.link.gen.max,pcie.link.width.max --format=csv,noheader 2>&1
    else
        echo "no GPU"
    fi
    grep -m1 "model name" /proc/cpuinfo
    nproc
    echo "load at the start: $(cut -d' ' -f1-3 /proc/loadavg)"
    uname -r
    git rev-parse HEAD 2>/dev/null
    for program in "$BIN/benches" "$MLP" "$peers"; do
        [ -f "$program" ] && sha256sum "$program"
    done
} >"$OUT/machine.txt"

# The options of each benchmark: all together take a few minutes.
for name in $ONLY; do
    case $name in
        raw) more=(--workers 4,8,16 --file-mib "${RAW_MIB:-8192}" --reps 5) ;;
        gather) more=(--workers 1,4,8,16 --file-mib 2048 --reps 5) ;;
        tiny) more=(--reps 5 --seconds 0.1); tiny=1; [[ $PEERS == *rust* && $peers ]] && continue ;;
        start) more=(--mlp "$MLP") ;;
        scale) more=(--reps 2 --seconds 0.04 --limit 110) ;;
        *) more=() ;;
    esac
    step 180 "$name" "$BIN/benches" "$name" --device "${DEVICE:-auto}" --json "$rows" --scratch "$SCRATCH" \
        "${data[@]}" "${more[@]}"
done

# The Rust loaders are compared with `tiny`, alternately, so that a passing load affects both.
if [[ $PEERS == *rust* && ${tiny:-} ]]; then
    if [ "$peers" ]; then
        for ((round = 1; round <= ${ROUNDS:-3}; round++)); do
            step 120 "tiny, round $round" "$BIN/benches" tiny --device "${DEVICE:-auto}" --json "$rows" \
                --reps 5 --seconds 0.05
            step 150 "rust, round $round" "$peers" --json "$rows" --reps 3 --seconds 0.05
        done
    else
        echo "rust: not built"
    fi
fi

if [[ $PEERS == *torch* || $PEERS == *jax* ]]; then
    # Without DATA, use the digits that the benches drew.
    if [ -z "${DATA:-}" ] && [ -d datasets/digits ]; then
        data=(--data datasets/digits)
    fi
    export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
    for peer in torch jax; do
        [[ $PEERS == *$peer* ]] || continue
        if python3 -c "import $peer" 2>>"$log"; then
            step 150 "$peer" python3 "benches/peers/${peer}_bench.py" --json "$rows" --scratch "$SCRATCH" "${data[@]}" \
                --reps 4 --seconds 0.15
        else
            echo "$peer: not installed"
        fi
    done
fi

echo
python3 benches/summary.py "$rows" --markdown "$OUT/summary.md"
if grep -q '"bench":"scale"' "$rows"; then
    python3 benches/plot.py "$rows" >"$OUT/scale.svg"
fi
[ ${#failed[@]} -eq 0 ] || echo "FAILED: ${failed[*]}; see $log"
