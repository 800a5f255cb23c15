#!/usr/bin/env bash
# Runs the tests of slots under valgrind memcheck; fails on an invalid access, a jump on uninitialised bytes
# or a leak. Uses small sizes: valgrind runs one thread at a time and is about 30 times slower.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v valgrind > /dev/null || { echo "valgrind: not installed: install valgrind to run this check" >&2; exit 1; }
export FEEDLINE_SMALL=1
log="$(mktemp -d)"
trap 'rm -rf "$log"' EXIT

cargo test --package feedline-device --no-default-features --lib --test slots --test sanitizers --no-run --message-format=json > "$log/cargo.json"
# One line per compiled test, with its path in the field "executable".
mapfile -t binaries < <(grep '"reason":"compiler-artifact"' "$log/cargo.json" |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')

for binary in "${binaries[@]}"; do
    echo "valgrind: $(basename "$binary")"
    # Definite leaks only: std keeps pointers into the interior of blocks, which memcheck reports as possible
    # leaks, and tests that leak on purpose keep the leaked memory reachable.
    valgrind --quiet --error-exitcode=1 --leak-check=full --show-leak-kinds=definite \
        --errors-for-leak-kinds=definite --fair-sched=yes "$binary" --test-threads=1
done
# An empty list must not pass.
test "${#binaries[@]}" -eq 3
echo "valgrind: ${#binaries[@]} test binaries, no error, no leak"
