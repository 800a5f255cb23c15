#!/usr/bin/env bash
# Runs tests under miri, with both of its borrow models: core, slots, the host backend, also through the safe layer, and
# the tensors of dlpack. Prints NOT RUN if miri is not installed.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo +nightly miri --version > /dev/null 2>&1; then
    echo "miri: NOT RUN, because it is not installed (rustup component add miri rust-src --toolchain nightly)"
    exit 0
fi
start=$SECONDS
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# The backtrace of a planned panic takes miri a minute.
export RUST_BACKTRACE=0
# Isolation is off, because tests read the clock and the environment.
check() {
    echo "miri: ${model:-stacked borrows (the default)}: ${*:2}"
    MIRIFLAGS="-Zmiri-disable-isolation $1 $model" ci/tested.sh cargo +nightly miri test "${@:2}" | tee -a "$log"
}

# Pointers made from integers are forbidden where there is no device.
strict=-Zmiri-strict-provenance
# An address of the host device is an integer, like one of a GPU.
device=-Zmiri-permissive-provenance
for model in "" -Zmiri-tree-borrows; do
    # The other tests of core count and sort ids: safe arithmetic, and hours under miri.
    check "$strict" --package feedline-core --lib
    check "$strict" --package feedline-core --test logic -- check:: compose:: packed:: proof::
    check "$strict" --package feedline-device --no-default-features --lib -- slots::
    check "$strict" --package feedline-device --no-default-features --test slots
    check "$device" --package feedline-device --no-default-features --lib -- backend::
    # `own_stream` fills queues of 1,024 commands.
    check "$device" --package feedline-device --no-default-features --test device -- host:: --skip own_stream
    # The other two run a whole loader, with its time-outs.
    check "$device" --package feedline-dlpack --no-default-features --lib --test tensors -- \
        --skip every_type --skip a_tensor_keeps
done
passed=$(awk '/^test result: ok/ { sum += $4 } END { print sum }' "$log")
echo "miri: $passed tests passed, $((SECONDS - start)) s"
