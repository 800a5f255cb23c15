#!/usr/bin/env bash
# Type-checks the workspaces beside the main one, with their tests and examples: python, servers and bridges. Each is
# checked when one of its inputs has changed since it last passed: its own files, or the sources of the crates that it
# is built of. ci/workspaces.passed has a hash of these inputs; commit it with the change. A first build takes minutes.
#
#   ci/workspaces.sh          those whose inputs have changed
#   ci/workspaces.sh --all    each of them
#
# Their tests: ci/python.sh, ci/servers.sh, ci/bridges.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
# One set of dependencies for all of them, without debug information.
export CARGO_TARGET_DIR=$PWD/target/ci/workspaces CARGO_PROFILE_DEV_DEBUG=false CARGO_INCREMENTAL=0
passed=$PWD/ci/workspaces.passed

shared=(crates/{core,device,feedline,dist,report,record,images,audio,template,tools,testkit,sim}/{src,Cargo.toml}
    crates/bridges/dlpack/{src,Cargo.toml} kernels/{src,Cargo.toml,compiler,pictures/src,pictures/Cargo.toml}
    datasets/{src,Cargo.toml} examples/{digits,mlp} Cargo.toml)
for workspace in python crates/servers crates/bridges; do
    own=("$workspace/**.rs" "$workspace/**.toml" "$workspace/Cargo.lock")
    hash=$(git ls-files -z -- "${own[@]}" "${shared[@]}" | xargs -0 sha256sum | sha256sum | cut -c 1-32)
    if [ "${1:-}" != --all ] && grep -qx "$workspace $hash" "$passed"; then
        echo "workspaces: $workspace: its inputs are those that passed"
        continue
    fi
    start=$SECONDS
    (cd "$workspace" && cargo check --locked --workspace --all-targets)
    sed -i "s|^$workspace .*|$workspace $hash|" "$passed"
    echo "workspaces: $workspace: checked, $((SECONDS - start)) s"
done
