#!/usr/bin/env bash
# The benchmarks of formats and of data on the device, on a GPU machine, in under four minutes; see gpu.sh.
# Writes rows to $OUT/data.jsonl and prints a short table.
#
#   BIN=folder with `benches`, built with --features formats   [bin in the repository, or target/release]
#   OUT=folder for the results                                 [out]
#   SCRATCH=folder for files: 5 GB                             [/tmp]
#   WORKERS=decode threads for packed and tokens               [all cores but one]
#   DEVICE=auto, cuda or host                                  [auto]
set -uo pipefail
cd "$(dirname "$0")/.."

source benches/steps.sh
WORKERS=${WORKERS:-$(($(nproc) > 1 ? $(nproc) - 1 : 1))}
rows=$OUT/data.jsonl
log=$OUT/data.log
: >"$rows"
: >"$log"

bench() {
    local limit=$1
    shift
    step "$limit" "$1" "$BIN/benches" "$@" --device "${DEVICE:-auto}" --json "$rows" --scratch "$SCRATCH"
}

bench 30 resident --file-mib 2048 --reps 5 --seconds 0.2
if python3 -c "import torch" 2>>"$log"; then
    PYTHONDONTWRITEBYTECODE=1 step 40 "torch.index_select" python3 benches/peers/index_select.py --file-mib 2048 \
        --reps 5 --seconds 0.2 --json "$rows" --scratch "$SCRATCH"
else
    echo "torch: not installed"
fi
bench 30 train --transfer-mode resident --reps 5 --seconds 0.2
bench 30 tokens --file-mib 1024 --workers "$WORKERS" --reps 5 --seconds 0.2
bench 40 packed --file-mib 4096 --workers "$WORKERS" --reps 5 --seconds 0.2
bench 100 readers --file-mib 64 --workers 1,4 --reps 2 --seconds 0.1

echo
python3 benches/summary.py "$rows"
[ ${#failed[@]} -eq 0 ] || echo "FAILED: ${failed[*]}; see $log"
