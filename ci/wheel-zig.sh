#!/usr/bin/env bash
# zig for ci/wheels.sh; $FEEDLINE_ZIG is the real one. Links the module a second time, with zig's command line for
# LLD and what zig does not take. Only Python's entry can be seen from outside, so that the functions that libraries
# have for C are left out, with their tables; functions that are the same are kept once; and those that look alike
# lie side by side, where a zip file finds them.
set -euo pipefail
case ${1:-} in
cc | c++) ;;
*) exec "$FEEDLINE_ZIG" "$@" ;;
esac
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
rc=0
ZIG_VERBOSE_LINK=1 "$FEEDLINE_ZIG" "$@" 2>"$files/said" || rc=$?
grep -v '^ld\.lld ' "$files/said" >&2 || true
[ "$rc" = 0 ] || exit "$rc"
line=$(grep '^ld\.lld .* -o [^ ]*feedline[^ ]*\.so ' "$files/said" || true)
if [ -n "$line" ]; then
    echo '{ global: PyInit_*; local: *; };' >"$files/exports"
    read -ra line < <(sed 's/ -\{1,2\}version-script[ =][^ ]*//g' <<<"$line")
    "$FEEDLINE_ZIG" "${line[@]}" "--version-script=$files/exports" --icf=all --bp-compression-sort=both
fi
