#!/usr/bin/env bash
# Runs the tests of core and slots under miri with both of its borrow models. Prints NOT RUN if miri is not
# installed.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo +nightly miri --version > /dev/null 2>&1; then
    echo "miri: NOT RUN, because it is not installed (rustup +nightly component add miri)"
    exit 0
fi
# Strict provenance forbids pointers made from integers. Isolation is off, because tests read the clock and
# the environment.
strict="-Zmiri-strict-provenance -Zmiri-disable-isolation"
for model in "" "-Zmiri-tree-borrows"; do
    echo "miri: ${model:-stacked borrows (the default)}"
    MIRIFLAGS="$strict $model" cargo +nightly miri test --package feedline-core --package feedline-slots
done
echo "miri: core and slots passed"
