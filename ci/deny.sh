#!/usr/bin/env bash
# Checks licences, sources and advisories of the dependencies with cargo-deny. Prints `not run` if it is not
# installed.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v cargo-deny >/dev/null; then
    echo "not run: deny (cargo install cargo-deny --locked)"
    exit 0
fi
cargo deny --locked check --hide-inclusion-graph bans licenses sources
# The advisory database is a git repository that not every machine can reach.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if cargo deny --locked check advisories >"$log" 2>&1; then
    echo "deny: dependencies satisfy deny.toml, no known advisory"
elif grep -q 'failed to fetch advisory database\|failed to open advisory database' "$log"; then
    echo "deny: dependencies satisfy deny.toml"
    echo "not run: advisories (cannot reach the advisory database)"
else
    cat "$log" >&2
    exit 1
fi
