#!/usr/bin/env bash
# All benchmarks and their peers on a GPU machine, in about five minutes: rows and a summary under $OUT, one table at the
# end. Needs the built programs, no cargo:
#
#   BIN=folder with `benches` and `mlp`   [bin beside this script's repository, or target/release]
#   DATA=folder with IDX files            [the built-in digits, drawn at the first use]
#   OUT=folder for the results            [out]
#   SCRATCH=folder for files of records   [/tmp]
#   PEERS=0                               to leave the peers out
#   ONLY="handoff train"                  to run some of the benches
set -uo pipefail
cd "$(dirname "$0")/.."

OUT=${OUT:-out}
SCRATCH=${SCRATCH:-/tmp}
BIN=${BIN:-$([ -x bin/benches ] && echo bin || echo target/release)}
MLP=$BIN/mlp
[ -x "$MLP" ] || MLP=$BIN/examples/mlp
ONLY=${ONLY:-handoff guards transfer train raw gather tiny epoch start idle noisy}
mkdir -p "$OUT"
rows=$OUT/rows.jsonl
log=$OUT/log.txt
: >"$rows"
: >"$log"
failed=()
data=(${DATA:+--data "$DATA"})

{
    date -u +%Y-%m-%dT%H:%MZ
    nvidia-smi --query-gpu=name,driver_version,pcie.link.gen.max,pcie.link.width.max --format=csv,noheader 2>&1
    grep -m1 "model name" /proc/cpuinfo
    nproc
    uname -r
    git rev-parse HEAD 2>/dev/null
    sha256sum "$BIN/benches" "$MLP" 2>&1
} >"$OUT/machine.txt"

# Runs a command with a limit in seconds; what it prints goes to the log.
step() {
    local limit=$1 name=$2
    shift 2
    local start=$SECONDS
    echo "\$ $*" >>"$log"
    if timeout --kill-after=5 "$limit" "$@" >>"$log" 2>&1; then
        echo "$name: $((SECONDS - start)) s"
    else
        echo "$name: FAILED with $? after $((SECONDS - start)) s"
        tail -n 5 "$log"
        failed+=("$name")
    fi
}

# The options of each benchmark, so that all of them take a few minutes.
for name in $ONLY; do
    case $name in
        raw) more=(--workers 4,8,16 --file-mib "${RAW_MIB:-8192}" --reps 5) ;;
        gather) more=(--workers 1,4,8,16 --file-mib 2048 --reps 5) ;;
        tiny) more=(--reps 5 --seconds 0.1) ;;
        start) more=(--mlp "$MLP") ;;
        *) more=() ;;
    esac
    step 120 "$name" "$BIN/benches" "$name" --device "${DEVICE:-auto}" --json "$rows" --scratch "$SCRATCH" \
        "${data[@]}" "${more[@]}"
done

if [ "${PEERS:-1}" != 0 ]; then
    # The digits that the benches drew, when no folder was given.
    if [ -z "${DATA:-}" ] && [ -d datasets/digits ]; then
        data=(--data datasets/digits)
    fi
    export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
    for peer in torch jax; do
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
[ ${#failed[@]} -eq 0 ] || echo "FAILED: ${failed[*]}; see $log"
