#!/usr/bin/env bash
# The long versions of the checks, once per night; takes hours. Runs all of them, then lists the failed ones.
# Needs the same as .ci/run, and a nightly compiler, cargo-fuzz and valgrind.
set -uo pipefail
cd "$(dirname "$0")/.."
exec </dev/null

failed=()

step() { # NAME COMMAND...
    local name=$1 start=$SECONDS
    shift
    printf '\n== %s: %s\n' "$name" "$*"
    if "$@"; then
        printf '== ok: %s, %d s\n' "$name" $((SECONDS - start))
    else
        printf '== FAILED: %s, %d s\n' "$name" $((SECONDS - start))
        failed+=("$name")
    fi
}

step change env FEEDLINE_NIGHTLY=1 .ci/run
step msrv ci/msrv.sh
step features ci/features.sh
step turbojpeg ci/turbojpeg.sh
step systems ci/systems.sh --all
step arm ci/arm.sh
step wine ci/wine.sh
step semver ci/semver.sh
step package ci/package.sh
step killed env FEEDLINE_KILLS=50 ci/tested.sh cargo test -p feedline --test failing killed -- --nocapture
step recorded env FEEDLINE_KILLS=200 ci/tested.sh cargo test -p feedline-record --test record killed -- --nocapture
step metrics ci/tested.sh cargo test -p feedline --features metrics,tracing --test threads metrics
step object-store ci/tested.sh cargo test --package feedline-datasets --all-features --test object_store
step object-store-zoo ci/tested.sh cargo test --package feedline-tools --features object-store --test zoo
step object-store-page ci/tested.sh cargo test --package feedline-tools --features object-store --test tools -- page buckets
step bridges ci/bridges.sh
step python ci/python.sh
step wheels ci/wheels.sh
step servers ci/servers.sh
step launchers ci/tested.sh ci/slurm.sh cargo test -p feedline-examples --test training launchers
step loom ci/loom.sh 3
step sim env FEEDLINE_SEEDS=100000 ci/sim.sh
step random env FEEDLINE_RANDOM_SECONDS=1800 ci/tested.sh cargo test -p feedline --test batches -- random_loaders ragged_loaders --nocapture
step fuzz ci/fuzz.sh 120
step tsan ci/tsan.sh
step tsan-planted ci/tsan.sh --planted
step asan ci/asan.sh
step asan-planted ci/asan.sh --planted
step valgrind ci/valgrind.sh
step miri ci/miri.sh
step planted ci/planted.sh

if [ ${#failed[@]} -gt 0 ]; then
    printf '\n== nightly: failed: %s\n' "${failed[*]}"
    exit 1
fi
printf '\n== nightly: all passed, %d s\n' "$SECONDS"
