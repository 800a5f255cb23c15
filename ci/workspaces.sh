#!/usr/bin/env bash
# Type-checks the workspaces beside the main one, with their tests and examples: python, servers and bridges. Each is
# checked when one of its inputs has changed since it last passed here: its own files, or the sources of the crates
# that it is built of. The tests of a workspace are those of ci/python.sh, ci/servers.sh and ci/bridges.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=$PWD/target/ci/workspaces
# One set of dependencies for all of them, without debug information.
export CARGO_PROFILE_DEV_DEBUG=false CARGO_INCREMENTAL=0
mkdir -p "$CARGO_TARGET_DIR"

# What all of them are built of. Tests of the main workspace are not among it.
shared=(crates/{core,device,feedline,dist,report,record,images,audio,template,tools,testkit,sim}/{src,Cargo.toml}
    crates/bridges/dlpack/{src,Cargo.toml} kernels/{src,Cargo.toml,compiler,pictures/src,pictures/Cargo.toml}
    datasets/{src,Cargo.toml} examples/{digits,mlp} Cargo.toml)
for workspace in python crates/servers crates/bridges; do
    stamp=$CARGO_TARGET_DIR/${workspace##*/}.passed
    # Contents, also of changes that are not committed, and the compiler.
    inputs=$({ git ls-files -z -- "$workspace/**.rs" "$workspace/*.toml" "$workspace/Cargo.lock" "${shared[@]}" | xargs -0 sha256sum
        rustc -vV; } | sha256sum)
    if [ -f "$stamp" ] && [ "$(<"$stamp")" = "$inputs" ]; then
        echo "workspaces: $workspace: its inputs are those that passed"
        continue
    fi
    start=$SECONDS
    (cd "$workspace" && cargo check --locked --workspace --all-targets)
    echo "$inputs" >"$stamp"
    echo "workspaces: $workspace: checked, $((SECONDS - start)) s"
done
