#!/usr/bin/env bash
# ThreadSanitizer on the tests of the crates with threads: slots, backend (host), device, sim, decode, transfer, compute,
# feedline. It sees data races of the CPU on the paths that ran; what a GPU does it cannot see.
# Arguments go to `cargo test` in place of the packages; `--planted` shows instead that a race is found, and the one that
# a missing wait of the host for its copies makes.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "not run: tsan (it needs a nightly compiler)"
    exit 1
fi
target=x86_64-unknown-linux-gnu
folder="$(realpath -m "${CARGO_TARGET_DIR:-target}")/tsan"
mkdir -p "$folder"

# The standard library is not instrumented: the linker puts ci/tsan/std.c around its slow paths. Their real names
# carry a hash of the compiler, so they are looked up.
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
        echo "tsan: the standard library has not exactly one function $2: see ci/tsan/std.c" >&2
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
# The standard library's own locks around captured output and backtraces are not instrumented: neither is asked for.
export RUST_TEST_NOCAPTURE=1 RUST_BACKTRACE=0
# Open files are not counted (crates/testkit/src/leaks.rs): the sanitizer has some of its own.
export FEEDLINE_TSAN=1
export FEEDLINE_RANDOM_SECONDS=${FEEDLINE_RANDOM_SECONDS:-60}

if [ "${1:-}" = --planted ]; then
    expect() { # COMMAND: must end with a report of a race
        local log
        log=$(cargo +nightly test --target $target "$@" 2>&1) && { echo "tsan: no race found by $*" >&2; exit 1; }
        grep -q 'WARNING: ThreadSanitizer: data race' <<<"$log" || { echo "$log" >&2; exit 1; }
        echo "tsan: a race was found by $*"
    }
    expect -p feedline-slots --test sanitizers -- --exact --ignored race
    export RUSTFLAGS="$RUSTFLAGS --cfg planted=\"host_gate\""
    expect -p feedline-slots --test stress
    echo "tsan: planted 2, found 2"
    exit 0
fi

packages=(-p feedline-slots -p feedline-backend -p feedline-device -p feedline-sim -p feedline)
[ $# -eq 0 ] || packages=("$@")
# What these measure is the process's own memory, of which the sanitizer takes its part; one runs the compiler.
skipped=(--skip a_steady_pipeline_allocates_nothing --skip memory_is_flat --skip in_constant_memory
    --skip misuse_does_not_compile)
cargo +nightly test --target $target --tests --no-fail-fast "${packages[@]}" -- "${skipped[@]}"
echo "tsan: no data race in the tests of: ${packages[*]}"
