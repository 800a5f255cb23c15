#!/usr/bin/env bash
# Runs a command that runs tests of Rust, and fails also if it ran none, or none for a filter behind `--`: `cargo test`
# succeeds then.
#
#   ci/tested.sh cargo test --test threads -- ledger tune
set -euo pipefail

log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$@" | tee "$log"
grep -q '^test result: ok\. [1-9]' "$log" || { echo "tested: no test ran: $*" >&2; exit 1; }
command=$*
while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
shift $(($# > 0))
while [ $# -gt 0 ]; do
    case $1 in
    --skip | --test-threads) shift ;; # and its value
    -*) ;;
    *) grep -qF -- "$1" <(grep 'test .* \.\.\.' "$log") || { echo "tested: no test has $1 in its name: $command" >&2; exit 1; } ;;
    esac
    shift
done
