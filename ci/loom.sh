#!/usr/bin/env bash
# Runs the loom models of slots: all interleavings with at most $1 preemptions (2 on each change, 3 nightly).
set -euo pipefail
cd "$(dirname "$0")/.."

preemptions="${1:-2}"
# A separate target folder, because the flags below would rebuild everything.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
export RUSTFLAGS="${RUSTFLAGS:-} --cfg loom"
export LOOM_MAX_PREEMPTIONS="$preemptions"

cargo test --release --package feedline-slots --test loom
echo "loom: every model passed with at most $preemptions preemptions"
