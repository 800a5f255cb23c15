#!/usr/bin/env bash
# Packages every crate that is published, in the order of their dependencies, and fails on any warning: a
# missing description, licence or repository, a file that the package lacks, a dependency without a version.
#
#   ci/package.sh           also builds each package alone, against the packages before it: takes minutes
#   ci/package.sh --quick   packages only
#
# The crates of crates/bridges/ need feedline from the registry, so they are packaged, but not built, and without a
# Cargo.lock, until feedline is published.
set -euo pipefail
cd "$(dirname "$0")/.."

# One target folder for all packages, so that what they share is built once.
export CARGO_TARGET_DIR=$PWD/target/ci/package
build=()
[ "${1:-}" = --quick ] && build=(--no-verify)
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# What is not published, by the manifests themselves.
left_out=$(cargo metadata --format-version 1 --no-deps --locked | python3 -c '
import json, sys
for package in json.load(sys.stdin)["packages"]:
    if package["publish"] == []:
        print("--exclude", package["name"])')
# shellcheck disable=SC2086
cargo package --workspace $left_out --allow-dirty "${build[@]}" 2>&1 | tee "$log"
bridges=(--manifest-path crates/bridges/Cargo.toml --workspace --no-verify --exclude-lockfile)
cargo package "${bridges[@]}" --allow-dirty 2>&1 | tee -a "$log"
if grep -q '^warning' "$log"; then
    echo "package: there are warnings" >&2
    exit 1
fi
echo "package: $(grep -c ' Packaged ' "$log") crates, no warning"
