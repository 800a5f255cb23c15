#!/usr/bin/env bash
# Says which tests were not run, and counts those of a GPU: every one of ci/gpu-tests.txt was run, or said that it was not.
#
#   FEEDLINE_NOT_RUN=$PWD/not-run.txt FEEDLINE_RAN=$PWD/ran.txt cargo test --workspace
#   ci/not-run.sh not-run.txt ran.txt
#
# A missing file is an empty one.
set -euo pipefail
cd "$(dirname "$0")/.."
not_run=${1:?the file that FEEDLINE_NOT_RUN named} ran=${2:-/dev/null}

lines() { # PATTERN FILE: the different lines that match
    [ -f "$2" ] || return 0
    sort -u "$2" | grep "$1" || true
}
lines '' "$not_run"
# By the name of the test alone: the reasons may differ.
left_out=$(lines '^not run: cuda' "$not_run" | sed 's/^not run: \(cuda[^(]*\).*/\1/' | sed 's/ *$//' | sort -u)
done=$(lines '^ran: cuda' "$ran" | sed 's/^ran: //; s/ *$//')
count() { grep -c . <<<"$1" || true; }
both=$(printf '%s\n%s\n' "$left_out" "$done" | sort -u)
wanted=$(cat ci/gpu-tests.txt)
echo "gpu tests: $(count "$done") ran, $(count "$left_out") not run, $wanted are checked in"
if [ "$(count "$both")" -lt "$wanted" ]; then
    echo "not-run: $((wanted - $(count "$both"))) GPU tests were left out in silence" >&2
    exit 1
fi
