#!/usr/bin/env bash
# Planted bugs: each removes or breaks one guard of the pipeline, in a copy, and a named test must turn red.
#
#   ci/planted.sh            all of them
#   ci/planted.sh NAME...    these
#
# Ends with `planted N, caught N`; fails when the two differ. The copy and its builds stay in target/planted.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v python3 >/dev/null || { echo "planted: it needs python3" >&2; exit 1; }
exec python3 ci/planted.py "$@"
