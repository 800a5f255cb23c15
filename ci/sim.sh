#!/usr/bin/env bash
# Runs the hand-off alone and a training loop over a whole pipeline on the simulated device, with many seeds.
# Needs no GPU.
#
# FEEDLINE_SEEDS: the number of seeds, 1,000 by default; 100,000 nightly.
set -euo pipefail
cd "$(dirname "$0")/.."
export FEEDLINE_SEEDS=${FEEDLINE_SEEDS:-1000}

log=$(mktemp)
trap 'rm -f "$log"' EXIT

run() { # TESTS ARGUMENTS-OF-CARGO: fails unless exactly TESTS tests ran
    local tests=$1
    shift
    cargo test -q "$@" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
    grep -q "^test result: ok. $tests passed; 0 failed; 0 ignored" "$log" || {
        cat "$log" >&2
        echo "sim: not all $tests tests ran" >&2
        exit 1
    }
}

# `--workspace`, and not `--release`: `cargo test --workspace` has built both.
run 6 --workspace --test sim_seeds
echo "sim: $FEEDLINE_SEEDS seeds of 3 batches, with all waits and without each of 6: no false alarm, none missed"
run 3 --workspace --test simulated
echo "sim: $FEEDLINE_SEEDS seeds of a training loop over a whole pipeline, without lanes, with a device map and with lanes that read host slots: no race"
