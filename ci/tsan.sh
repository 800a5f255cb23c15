#!/usr/bin/env bash
# Runs the tests of device (slots, host backend, safe layer), sim and feedline under ThreadSanitizer. It detects data
# races on the CPU on the paths that ran, but not on a GPU. Arguments replace the packages in the call of
# `cargo test`. `--planted` checks instead that a race is detected, and the race that results if the host does
# not wait for its copies.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "not run: tsan (needs a nightly compiler)"
    exit 1
fi
target=x86_64-unknown-linux-gnu
folder="$(realpath -m "${CARGO_TARGET_DIR:-target}")/tsan"
mkdir -p "$folder"

# The standard library is not instrumented, so the linker wraps its slow paths in the functions of
# ci/tsan/std.c. Their symbols contain a hash of the compiler and must be looked up.
names=$(readelf -sW "$(rustc +nightly --print sysroot)"/lib/rustlib/$target/lib/libstd-*.rlib 2>/dev/null |
    awk '$4 == "FUNC" && $7 != "UND" { print $8 }' | sort -u)
flags="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer -Zshare-generics=no -Clink-arg=$folder/std.o"
renames=()
wrap() { # NAME-IN-std.c SYMBOL
    local symbol=$2
    flags+=" -Clink-arg=-Wl,--wrap=$symbol"
    renames+=("--redefine-sym" "wrap_$1=__wrap_$symbol" "--redefine-sym" "real_$1=__real_$symbol")
}
wrap_std() { # NAME-IN-std.c END-OF-THE-SYMBOL
    local symbol
    symbol=$(grep -E "$2\$" <<<"$names" | grep -v Guard || true)
    if [ "$(grep -c . <<<"$symbol")" != 1 ]; then
        echo "tsan: expected exactly one function $2 in the standard library: adapt ci/tsan/std.c" >&2
        exit 1
    fi
    wrap "$1" "$symbol"
}
wrap_std lock_contended '5mutex5futex.*5Mutex14lock_contended'
wrap_std read_contended '6rwlock5futex.*6RwLock14read_contended'
wrap_std write_contended '6rwlock5futex.*6RwLock15write_contended'
wrap_std condvar_wait '7condvar5futex.*7Condvar4wait'
wrap_std condvar_wait_timeout '7condvar5futex.*7Condvar12wait_timeout'
wrap_std once_call '4once5futex.*4Once4call'
wrap_std scope_end '6scoped.*9ScopeData29decrement_num_running_threads'
wrap fetch_sub __tsan_atomic64_fetch_sub
wrap fence __tsan_atomic_thread_fence
gcc -c -O1 -o "$folder/std.o" ci/tsan/std.c
objcopy "${renames[@]}" "$folder/std.o"

export CARGO_TARGET_DIR="$folder" RUSTFLAGS="${RUSTFLAGS:-} $flags"
export TSAN_OPTIONS="suppressions=$PWD/ci/tsan/suppressions.txt:history_size=4 ${TSAN_OPTIONS:-}"
# No captured output and no backtraces: the standard library's locks around them are not instrumented.
export RUST_TEST_NOCAPTURE=1 RUST_BACKTRACE=0
# Do not count open files (crates/testkit/src/leaks.rs): the sanitizer opens some itself.
export FEEDLINE_TSAN=1
export FEEDLINE_RANDOM_SECONDS=${FEEDLINE_RANDOM_SECONDS:-60}

if [ "${1:-}" = --planted ]; then
    expect() { # COMMAND: fails unless it ends with the report of a race
        local log
        log=$(cargo +nightly test --target $target "$@" 2>&1) && { echo "tsan: no race found by $*" >&2; exit 1; }
        grep -q 'WARNING: ThreadSanitizer: data race' <<<"$log" || { echo "$log" >&2; exit 1; }
        echo "tsan: a race was found by $*"
    }
    expect -p feedline-device --test sanitizers -- --exact --ignored race
    export RUSTFLAGS="$RUSTFLAGS --cfg planted=\"host_gate\""
    expect -p feedline-device --test slots stress
    echo "tsan: planted 2, found 2"
    exit 0
fi

packages=(-p feedline-device -p feedline-sim -p feedline)
[ $# -eq 0 ] || packages=("$@")
# The first three measure the memory of the process, which the sanitizer changes; the last runs the compiler.
skipped=(--skip a_steady_pipeline_allocates_nothing --skip memory_is_flat --skip in_constant_memory
    --skip misuse_does_not_compile)
ci/tested.sh cargo +nightly test --target $target --tests --no-fail-fast "${packages[@]}" -- "${skipped[@]}"
echo "tsan: no data race in the tests of: ${packages[*]}"
