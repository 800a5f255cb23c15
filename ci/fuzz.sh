#!/usr/bin/env bash
# Checks the fuzz targets. `--build` (on each change): replays the seeds and builds the targets; with a
# nightly compiler and cargo-fuzz as they are fuzzed, otherwise without instrumentation. A number (nightly):
# fuzzes each target for so many seconds.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

seconds="${1:---build}"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/../target}/fuzz"
targets=(idx_bytes cursor_bytes spec_layout sampler_params
    npy_bytes npz_bytes safetensors_bytes tar_bytes cifar_bytes open_bytes token_bytes
    tfrecord_bytes mds_bytes csv_bytes jsonl_bytes arrow_bytes parquet_bytes
    jpeg_bytes png_bytes webp_bytes bmp_bytes gif_bytes)

cargo test --locked --no-default-features --test replay
replayed="seeds of ${#targets[@]} targets replayed"

if ! cargo +nightly --version >/dev/null 2>&1 || ! command -v cargo-fuzz >/dev/null; then
    echo "not run: fuzzing (needs a nightly compiler and cargo-fuzz: cargo install cargo-fuzz --locked)"
    # Replaying the seeds is enough for --build; a nightly run must fuzz.
    [ "$seconds" = --build ] || exit 1
    if command -v c++ >/dev/null; then
        cargo build --locked --bins
        echo "fuzz: $replayed; ${#targets[@]} targets built, without instrumentation"
    else
        echo "not run: the build of the fuzz targets (libFuzzer needs a C++ compiler)"
        echo "fuzz: $replayed; no target was built"
    fi
    exit 0
fi

cargo +nightly fuzz build --fuzz-dir .
if [ "$seconds" = --build ]; then
    echo "fuzz: $replayed; ${#targets[@]} targets built"
    exit 0
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
for target in "${targets[@]}"; do
    # Check that the named target runs: only that one panics at its sentinel.
    if FEEDLINE_FUZZ_SENTINEL=1 cargo +nightly fuzz run --fuzz-dir . "$target" "corpus/$target/sentinel" >"$log" 2>&1 ||
        ! grep -q "sentinel: this is the target $target" "$log"; then
        echo "fuzz: $target did not panic at its sentinel: another target runs under this name" >&2
        exit 1
    fi
    rm -rf "artifacts/$target"
    # New inputs go to the first folder, so the seeds do not change; inputs of earlier runs are used again.
    found="$CARGO_TARGET_DIR/corpus/$target"
    mkdir -p "$found"
    cargo +nightly fuzz run --fuzz-dir . "$target" "$found" "corpus/$target" -- \
        -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 >"$log" 2>&1 || {
        grep -m 1 -A 5 'panicked at\|ERROR: ' "$log" >&2 || tail -n 60 "$log" >&2
        echo "fuzz: $target failed; the input is in fuzz/artifacts/$target" >&2
        exit 1
    }
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    echo "fuzz: $target, $runs inputs in $seconds s, none failed"
done
echo "fuzz: ${#targets[@]} targets, $seconds s each, none failed"
