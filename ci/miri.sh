#!/usr/bin/env bash
# Runs the tests of core and slots under miri, with both of its borrow models. Says so when miri is not installed.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo +nightly miri --version > /dev/null 2>&1; then
    echo "miri: NOT RUN, because it is not installed (rustup +nightly component add miri)"
    exit 0
fi
# Strict provenance: no pointer is made from a number. Isolation off: tests read the clock and the environment.
strict="-Zmiri-strict-provenance -Zmiri-disable-isolation"
for model in "" "-Zmiri-tree-borrows"; do
    echo "miri: ${model:-stacked borrows (the default)}"
    MIRIFLAGS="$strict $model" cargo +nightly miri test --package feedline-core --package feedline-slots
done
echo "miri: core and slots passed"
