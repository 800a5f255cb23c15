#!/usr/bin/env bash
# Compares the public API of the published crates with that of the last release, by cargo-semver-checks: what
# breaks users must raise the version.
#
#   ci/semver.sh                     against the newest tag v*
#   BASELINE=REVISION ci/semver.sh   against another revision
#   ci/semver.sh feedline-core ...   some crates
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo semver-checks --version >/dev/null 2>&1; then
    echo "not run: semver (needs cargo-semver-checks: cargo install cargo-semver-checks --locked)"
    exit 0
fi
baseline=${BASELINE:-$(git tag --list 'v*' --sort=-version:refname | head -n 1)}
if [ -z "$baseline" ]; then
    echo "not run: semver (there is no release yet: set BASELINE to a revision)"
    exit 0
fi
crates=()
for name in "$@"; do crates+=(--package "$name"); done
[ $# -gt 0 ] || crates=(--workspace)
# Not with all features: those of two CUDA versions exclude each other.
cargo semver-checks --default-features --baseline-rev "$baseline" "${crates[@]}"
echo "semver: nothing breaks users since $baseline, or the version says so"
