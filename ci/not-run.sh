#!/usr/bin/env bash
# Lists the tests that were not run and checks the number of GPU tests: each of those counted in
# ci/gpu-tests.txt must have been run or reported as not run.
#
#   FEEDLINE_NOT_RUN=$PWD/not-run.txt FEEDLINE_RAN=$PWD/ran.txt cargo test --workspace
#   ci/not-run.sh not-run.txt ran.txt
#
# A missing file counts as empty.
set -euo pipefail
cd "$(dirname "$0")/.."
not_run=${1:?the file that FEEDLINE_NOT_RUN named} ran=${2:-/dev/null}

lines() { # PATTERN FILE: the distinct lines that match
    [ -f "$2" ] || return 0
    sort -u "$2" | grep "$1" || true
}
lines '' "$not_run"
# Compare by the name of the test only: the reasons may differ.
not_run_names=$(lines '^not run: cuda' "$not_run" | sed 's/^not run: \(cuda[^(]*\).*/\1/' | sed 's/ *$//' | sort -u)
done=$(lines '^ran: cuda' "$ran" | sed 's/^ran: //; s/ *$//')
count() { grep -c . <<<"$1" || true; }
both=$(printf '%s\n%s\n' "$not_run_names" "$done" | sort -u)
wanted=$(cat ci/gpu-tests.txt)
echo "gpu tests: $(count "$done") ran, $(count "$not_run_names") not run, $wanted expected"
if [ "$(count "$both")" -lt "$wanted" ]; then
    echo "not-run: $((wanted - $(count "$both"))) GPU tests neither ran nor were reported as not run" >&2
    exit 1
fi
