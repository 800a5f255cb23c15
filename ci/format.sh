#!/usr/bin/env bash
# Checks the format of Rust files: rustfmt, and no line above its max_width. rustfmt leaves longer ones in comments,
# strings and macros.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo fmt --all --check
width=$(sed -n 's/^max_width = //p' rustfmt.toml)
if git ls-files -z '*.rs' | LC_ALL=C.UTF-8 xargs -0 grep -HnE "^.{$((width + 1)),}"; then
    echo "these lines have more than $width characters: wrap them" >&2
    exit 1
fi
