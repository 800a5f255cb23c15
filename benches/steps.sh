# What gpu.sh and gpu-data.sh share: their settings, and steps with a limit. The script names $rows and $log.
# shellcheck shell=bash
OUT=${OUT:-out}
SCRATCH=${SCRATCH:-/tmp}
BIN=${BIN:-$([ -x bin/benches ] && echo bin || echo target/release)}
mkdir -p "$OUT"
failed=()

# Runs a command with a limit in seconds; its output goes to the log.
step() {
    local limit=$1 name=$2
    shift 2
    local start=$SECONDS
    echo "\$ $*" >>"$log"
    if timeout --kill-after=5 "$limit" "$@" >>"$log" 2>&1; then
        echo "$name: $((SECONDS - start)) s"
    else
        echo "$name: FAILED with $? after $((SECONDS - start)) s"
        tail -n 5 "$log"
        failed+=("$name")
    fi
}
