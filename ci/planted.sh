#!/usr/bin/env bash
# Mutation tests: each planted bug removes or breaks one guard of the pipeline in a copy, and a named test
# must fail.
#
#   ci/planted.sh            all of them
#   ci/planted.sh NAME...    these
#   ci/planted.sh --check    builds nothing: says which rows have lost their text or their test
#
# Prints `planted N, caught N, seconds` at the end and fails if the two differ. The copy and its builds stay
# in target/planted.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v python3 >/dev/null || { echo "planted: needs python3" >&2; exit 1; }
exec python3 ci/planted.py "$@"
