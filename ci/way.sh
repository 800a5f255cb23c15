#!/usr/bin/env bash
# Counts the code that runs for each staged batch, and compares it with the table of docs/decisions/rooms.md and with
# [way] of ci/budget.toml; `ci/way.py` says how. Each run of the program ci/way is another: short and long batches,
# slow steps, reads and copies. Needs llvm-profdata and llvm-cov, which rustup adds if it can.
#
#   ci/way.sh           fails if they differ
#   ci/way.sh --rows    prints the rows that the table should have
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$(dirname "$(rustc --print target-libdir)")/bin
if [ ! -x "$tools/llvm-cov" ] && ! rustup --quiet component add llvm-tools; then
    echo "not run: way (needs llvm-profdata and llvm-cov: rustup component add llvm-tools)"
    # Each night it runs, or fails.
    [ "${FEEDLINE_NIGHTLY:-}" != 1 ]
    exit
fi

# A target folder of its own: the flags below would rebuild every other one.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/way"
export RUSTFLAGS="${RUSTFLAGS:-} -C instrument-coverage --cfg way"
# What a release runs: no debug assertions. Counters are placed before code is optimised, so that it need not be.
export CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=false CARGO_PROFILE_DEV_DEBUG_ASSERTIONS=false
# Build scripts are instrumented too, and would leave their counts in the tree.
LLVM_PROFILE_FILE=/dev/null cargo build --quiet --locked --package feedline-way

program="$CARGO_TARGET_DIR/debug/way" runs="$CARGO_TARGET_DIR/runs"
rm -rf "$runs"
mkdir -p "$runs"
number=0
for bytes in 16 16000; do
    # Times in microseconds: of a step, of a copy, of a read, and of a pause at the first read of a batch.
    for options in "" "--step 300" "--step 5000" "--late 300" "--late 3000" "--late 3000 --depth 2" \
        "--read 1" "--read 5 --late 3000" "--read 5 --step 5000 --depth 2" "--pause 3000"; do
        run="$runs/$((++number))"
        # shellcheck disable=SC2086 # the options are words
        LLVM_PROFILE_FILE="$run.profraw" timeout 60 "$program" --bytes "$bytes" $options
        "$tools/llvm-profdata" merge --text -o "$run.proftext" "$run.profraw"
    done
done
"$tools/llvm-profdata" merge -o "$runs/all.profdata" "$runs"/*.profraw
"$tools/llvm-cov" export --format=text --skip-expansions --skip-branches --instr-profile="$runs/all.profdata" \
    "$program" >"$runs/all.json"
python3 ci/way.py "${1:---counted}" "$runs"
