#!/usr/bin/env bash
# Runs the tests of device (slots, host backend, safe layer), sim and feedline under AddressSanitizer and LeakSanitizer.
# Arguments replace the packages in the call of `cargo test`. `--planted` checks instead that an overrun, a
# use after free and a leak are detected.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "not run: asan (needs a nightly compiler)"
    exit 1
fi
packages=(-p feedline-device -p feedline-sim -p feedline)
[ $# -eq 0 ] || packages=("$@")
export CARGO_TARGET_DIR="$(realpath -m "${CARGO_TARGET_DIR:-target}")/asan"
# The standard library is not instrumented; the second flag says that this is intended. Its allocations are
# checked all the same, because the sanitizer replaces the whole allocator.
export RUSTFLAGS="${RUSTFLAGS:-} -Zsanitizer=address -Cunsafe-allow-abi-mismatch=sanitizer"
export ASAN_OPTIONS="detect_stack_use_after_return=1:strict_init_order=1 ${ASAN_OPTIONS:-}"
export FEEDLINE_RANDOM_SECONDS=${FEEDLINE_RANDOM_SECONDS:-60}
export LSAN_OPTIONS="suppressions=$PWD/ci/asan/leaks.txt:print_suppressions=0 ${LSAN_OPTIONS:-}"

if [ "${1:-}" = --planted ]; then
    expect() { # TEST REPORT: fails unless the test ends with the report
        local log
        log=$(cargo +nightly test --target x86_64-unknown-linux-gnu -p feedline-device --test sanitizers -- \
            --exact --ignored "$1" 2>&1) && { echo "asan: $1 was not found" >&2; exit 1; }
        grep -q "$2" <<<"$log" || { echo "$log" >&2; echo "asan: $1 ended without a report" >&2; exit 1; }
        echo "asan: $1: $(grep -m 1 -o "ERROR: [A-Za-z]*Sanitizer: [a-z-]* *[a-z]* *[a-z]*" <<<"$log")"
    }
    expect overrun 'AddressSanitizer: heap-buffer-overflow'
    expect use_after_free 'AddressSanitizer: heap-use-after-free'
    expect leak 'LeakSanitizer: detected memory leaks'
    echo "asan: planted 3, found 3"
    exit 0
fi

# The first two measure the memory of the process, which the sanitizer changes; the third runs the compiler.
skipped=(--skip memory_is_flat --skip in_constant_memory --skip misuse_does_not_compile)
# These leak on purpose, so they run separately without leak detection.
forgetful=(a_forgotten_ the_drop_of_a_loader_leaks_the_slots)
for name in "${forgetful[@]}"; do
    skipped+=(--skip "$name")
done
run() {
    ci/tested.sh cargo +nightly test --target x86_64-unknown-linux-gnu --tests --no-fail-fast "${packages[@]}" -- "$@"
}
run "${skipped[@]}"
ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" run "${forgetful[@]}"
echo "asan: no bad access and no leak in the tests of: ${packages[*]}"
