#!/usr/bin/env bash
# Checks what joins feedline to other libraries: the workspace crates/bridges/ (candle, burn), and DLPack against
# NumPy. The workspace has its own lockfile and target folder; its first build takes ten to twenty minutes on
# two cores.
#
#   ci/bridges.sh          builds, lints, tests; the tests run the examples
#   ci/bridges.sh bench    compares loops fed by feedline with the same loops fed the usual way (--release);
#                          bench SECONDS for the length of a run
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" = bench ]; then
    cd crates/bridges
    cargo run --locked --release -p feedline-candle --example candle_compare -- "${2:-3}"
    cargo run --locked --release -p feedline-burn --example burn_compare -- "${2:-3}"
    exit
fi

# NumPy in a folder of its own; without it the test says "not run".
python=target/ci/dlpack/bin/python
if [ ! -x "$python" ]; then
    python3 -m venv target/ci/dlpack && "$python" -m pip install --quiet 'numpy>=2.1' || echo "no NumPy: is there a network?"
fi
[ -x "$python" ] && export FEEDLINE_PYTHON=$PWD/$python
cargo build --locked -p feedline-dlpack --example dlpack_batches
ci/tested.sh cargo test --locked -p feedline-dlpack

cd crates/bridges
cargo fmt --all --check
../../ci/tested.sh cargo test --locked --workspace
cargo run --locked -p feedline-burn --example burn_compare -- 0.05 2 1
cargo clippy --locked --workspace --all-targets -- -D warnings
RUSTDOCFLAGS=-Dwarnings cargo doc --locked --workspace --no-deps
