#!/usr/bin/env bash
# Runs the loom models of the slots and of the workers' queue: all interleavings with at most $1 preemptions
# (2 on each change, 3 nightly).
set -euo pipefail
cd "$(dirname "$0")/.."

preemptions="${1:-2}"
# A target folder of its own: the flags below would rebuild every other one.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
export RUSTFLAGS="${RUSTFLAGS:-} --cfg loom"
export LOOM_MAX_PREEMPTIONS="$preemptions"
# The models run for seconds; an optimised build takes minutes.
export CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=false

ci/tested.sh cargo test --package feedline-device --no-default-features --test loom
ci/tested.sh cargo test --package feedline --no-default-features --test loom_queue
echo "loom: every model passed with at most $preemptions preemptions"
