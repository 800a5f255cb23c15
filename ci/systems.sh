#!/usr/bin/env bash
# Checks that the crates compile for the systems of docs/systems.md that this machine is not.
#
#   ci/systems.sh          without features that compile C: on each change, up to a minute
#   ci/systems.sh --all    also every format, the pictures' crate and the programs; needs gcc-mingw-w64-x86-64 and
#                          g++-aarch64-linux-gnu (Debian's names), and for macOS zig (pip install ziglang)
set -euo pipefail
cd "$(dirname "$0")/.."

crates=(core slots backend device sim dist dlpack record report datasets images)
packages=(--package feedline)
for name in "${crates[@]}"; do packages+=(--package "feedline-$name"); done

installed=$(rustup target list --installed 2>/dev/null || true)
for target in aarch64-unknown-linux-gnu aarch64-apple-darwin x86_64-pc-windows-gnu; do
    if ! grep -qx "$target" <<<"$installed"; then
        echo "not run: systems, $target (rustup target add $target)"
        continue
    fi
    cargo check --quiet --locked --target "$target" "${packages[@]}"
    echo "systems: $target compiles"
    [ "${1:-}" = --all ] || continue
    case $target in
    aarch64-unknown-linux-gnu) compiler=aarch64-linux-gnu-gcc ;;
    x86_64-pc-windows-gnu) compiler=x86_64-w64-mingw32-gcc ;;
    aarch64-apple-darwin)
        compiler=$PWD/ci/zig-cc.sh
        if ! python3 -m ziglang version >/dev/null 2>&1; then
            echo "not run: systems, every format for $target (pip install ziglang)"
            continue
        fi
        ;;
    esac
    if ! command -v "$compiler" >/dev/null; then
        echo "not run: systems, every format for $target (no $compiler)"
        continue
    fi
    export "CC_${target//-/_}=$compiler"
    cargo check --quiet --locked --target "$target" --package feedline-datasets --all-features
    cargo check --quiet --locked --target "$target" --package feedline-tools --package feedline-examples
    echo "systems: every format and the programs for $target compile"
done
