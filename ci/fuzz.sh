#!/usr/bin/env bash
# Fuzzes each target for $1 seconds (nightly: 120). Needs a nightly compiler and cargo-fuzz. On each change
# `cargo test --workspace` replays the seeds (`fuzz/tests/replay.rs`), and clippy compiles the targets.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

seconds="${1:?usage: ci/fuzz.sh SECONDS}"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/../target}/fuzz"
targets=(idx_bytes cursor_bytes spec_layout sampler_params
    npy_bytes npz_bytes safetensors_bytes tar_bytes cifar_bytes open_bytes token_bytes index_bytes template_bytes
    tfrecord_bytes mds_bytes csv_bytes jsonl_bytes arrow_bytes parquet_bytes zarr_bytes
    coco_bytes voc_bytes yolo_bytes
    jpeg_bytes png_bytes webp_bytes bmp_bytes gif_bytes
    sound_bytes)

if ! cargo +nightly --version >/dev/null 2>&1 || ! command -v cargo-fuzz >/dev/null; then
    echo "not run: fuzzing (needs a nightly compiler and cargo-fuzz: cargo install cargo-fuzz --locked)"
    exit 1
fi
cargo +nightly fuzz build --fuzz-dir . --features libfuzzer

log=$(mktemp)
trap 'rm -f "$log"' EXIT
for target in "${targets[@]}"; do
    # Check that the named target runs: only that one panics at its sentinel.
    if FEEDLINE_FUZZ_SENTINEL=1 cargo +nightly fuzz run --fuzz-dir . --features libfuzzer "$target" "corpus/$target/sentinel" >"$log" 2>&1 ||
        ! grep -q "sentinel: this is the target $target" "$log"; then
        echo "fuzz: $target did not panic at its sentinel: another target runs under this name" >&2
        exit 1
    fi
    rm -rf "artifacts/$target"
    # New inputs go to the first folder, so the seeds do not change; inputs of earlier runs are used again.
    found="$CARGO_TARGET_DIR/corpus/$target"
    mkdir -p "$found"
    cargo +nightly fuzz run --fuzz-dir . --features libfuzzer "$target" "$found" "corpus/$target" -- \
        -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 >"$log" 2>&1 || {
        grep -m 1 -A 5 'panicked at\|ERROR: ' "$log" >&2 || tail -n 60 "$log" >&2
        echo "fuzz: $target failed; the input is in fuzz/artifacts/$target" >&2
        exit 1
    }
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    echo "fuzz: $target, $runs inputs in $seconds s, none failed"
done
echo "fuzz: ${#targets[@]} targets, $seconds s each, none failed"
