#!/usr/bin/env bash
# Runs what uses several streams and several GPUs: the examples `branches`, `schedule` and `load`, and the
# benchmark `devices`, `raw` to all GPUs of the host at once. Takes about three minutes. Needs the built
# programs, not cargo:
#
#   BIN=folder with `branches`, `schedule`, `load` and `benches`   [target/release, and its folder examples]
#   OUT=folder for the results                                     [out]
#   SCRATCH=folder for a record file of 8 GiB                      [/tmp]
#   WORKERS="16,31"                                                [half the cores, all but one]
set -uo pipefail
cd "$(dirname "$0")/.."

OUT=${OUT:-out}
BIN=${BIN:-target/release}
cores=$(nproc)
mkdir -p "$OUT"
failed=()

# Runs a program with a limit in seconds; its output goes to a file and to the screen.
step() {
    local limit=$1 name=$2 program=$3
    shift 3
    local path=$BIN/$program
    [ -x "$path" ] || path=$BIN/examples/$program
    echo "== $name"
    timeout --kill-after=5 "$limit" "$path" "$@" 2>&1 | tee "$OUT/$name.txt"
    [ "${PIPESTATUS[0]}" -eq 0 ] || failed+=("$name")
}

{
    date -u +%Y-%m-%dT%H:%MZ
    nvidia-smi --query-gpu=name,driver_version,pci.bus_id --format=csv,noheader 2>&1
    lscpu | grep -i -E "model name|numa" 2>&1
    cat /sys/bus/pci/devices/*/numa_node 2>/dev/null | sort | uniq -c
    echo "$cores cores, load $(cut -d' ' -f1-3 /proc/loadavg)"
} | tee "$OUT/machine.txt"

step 60 branches branches
step 60 branches-small branches --rows 128 --width 512
step 60 branches-8 branches --branches 8
step 60 schedule schedule
step 120 load load --seconds 2
step 60 load-batch-1 load --seconds 2 --batch 1 --connections 64,256
step 60 load-large load --seconds 2 --batch 16 --hidden 4096 --connections 64,256
step 300 devices benches devices --device cuda --workers "${WORKERS:-$((cores / 2)),$((cores - 1))}" --file-mib 8192 \
    --reps 5 --transfer-mode staged --scratch "${SCRATCH:-/tmp}" --json "$OUT/rows.jsonl"
[ ${#failed[@]} -eq 0 ] || echo "FAILED: ${failed[*]}"
