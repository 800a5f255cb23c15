#!/usr/bin/env bash
# Checks that the workspace builds with the oldest compiler that Cargo.toml promises (rust-version).
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
: "${version:?no rust-version in Cargo.toml}"
if [ "$(rustc --version | cut -d' ' -f2 | cut -d. -f1-2)" = "$version" ]; then
    cargo=(cargo)
elif command -v rustup >/dev/null && rustup run "$version" cargo --version >/dev/null 2>&1; then
    cargo=(rustup run "$version" cargo)
else
    echo "not run: msrv (Rust $version is not installed: rustup toolchain install $version)"
    exit 0
fi
CARGO_TARGET_DIR=target/msrv "${cargo[@]}" check --workspace --locked
echo "msrv: the workspace builds with Rust $version"
