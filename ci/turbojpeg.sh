#!/usr/bin/env bash
# Tests feedline-images with the feature `turbojpeg`, whose build compiles libjpeg-turbo with cmake and nasm.
# Prints `not run` where they are not installed and TURBOJPEG_SOURCE names no other source.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -z "${TURBOJPEG_SOURCE:-}" ] && ! { command -v cmake && command -v nasm; } >/dev/null; then
    echo "not run: turbojpeg (needs cmake and nasm: apt-get install cmake nasm)"
    exit 0
fi
cargo clippy --locked --package feedline-images --features turbojpeg --all-targets -- -D warnings
ci/tested.sh cargo test --locked --package feedline-images --features turbojpeg
cargo check --locked --package benches --no-default-features --features turbojpeg
echo "turbojpeg: the tests of images pass with libjpeg-turbo"
