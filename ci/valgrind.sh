#!/usr/bin/env bash
# Runs the tests of slots under valgrind memcheck; fails on a bad access, a jump on uninitialised bytes or a leak.
# Small sizes: valgrind runs one thread at a time and some 30 times slower.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v valgrind > /dev/null || { echo "valgrind: not installed; install it to run this check" >&2; exit 1; }
export FEEDLINE_SMALL=1
log="$(mktemp -d)"
trap 'rm -rf "$log"' EXIT

cargo test --package feedline-slots --tests --no-run --message-format=json > "$log/cargo.json"
# One line a compiled test, its path in the field "executable".
mapfile -t binaries < <(grep '"reason":"compiler-artifact"' "$log/cargo.json" |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')

for binary in "${binaries[@]}"; do
    echo "valgrind: $(basename "$binary")"
    # Definite leaks only: std keeps pointers past the head of a block, which memcheck counts as possible leaks; and a
    # test that leaks on purpose keeps what it leaks reachable.
    valgrind --quiet --error-exitcode=1 --leak-check=full --show-leak-kinds=definite \
        --errors-for-leak-kinds=definite --fair-sched=yes "$binary" --test-threads=1
done
# An empty list would pass and test nothing.
test "${#binaries[@]}" -ge 6
echo "valgrind: ${#binaries[@]} test binaries, no error, no leak"
