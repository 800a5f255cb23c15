#!/usr/bin/env bash
# Licences, sources and known defects of the dependencies, by cargo-deny. Says so where it is not installed.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v cargo-deny >/dev/null; then
    echo "not run: deny (cargo install cargo-deny --locked)"
    exit 0
fi
cargo deny --locked check --hide-inclusion-graph bans licenses sources
# The list of known defects is a git repository: not every machine gets to it.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if cargo deny --locked check advisories >"$log" 2>&1; then
    echo "deny: dependencies are as deny.toml asks, and none has a known defect"
elif grep -q 'failed to fetch advisory database\|failed to open advisory database' "$log"; then
    echo "deny: dependencies are as deny.toml asks"
    echo "not run: known defects (no way to the advisory database)"
else
    cat "$log" >&2
    exit 1
fi
