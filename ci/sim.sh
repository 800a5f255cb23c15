#!/bin/sh
# The hand-off on the simulated device, under many seeds. No GPU.
#
# FEEDLINE_SEEDS says how many: 1,000 when it is not set; 100,000 at night.
set -eu
cd "$(dirname "$0")/.."
FEEDLINE_SEEDS=${FEEDLINE_SEEDS:-1000}
export FEEDLINE_SEEDS
# Fewer tests than these would be a gap that nobody sees.
tests=6

log=$(mktemp)
trap 'rm -f "$log"' EXIT
cargo test -q -p feedline-device --release --test sim_seeds >"$log" 2>&1 || {
    cat "$log" >&2
    exit 1
}
grep -q "^test result: ok. $tests passed; 0 failed; 0 ignored" "$log" || {
    cat "$log" >&2
    echo "sim: not all $tests tests ran" >&2
    exit 1
}
echo "sim: $FEEDLINE_SEEDS seeds of 3 batches, with all waits and without each of 6: no false alarm, none missed"
