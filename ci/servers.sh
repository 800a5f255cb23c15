#!/usr/bin/env bash
# Checks the decode servers crates/servers/: lints, tests, and the two commands of its README. The workspace has its
# own lockfile and target folder; its first build takes ten minutes on two cores.
#
#   ci/servers.sh          lints, builds, tests
#   ci/servers.sh bench    measures: rates beside pyarrow and TCP (--release); bench SECONDS for each part
#
# FEEDLINE_PYTHON names an interpreter with pyarrow; without one the test of another client says "not run".
set -euo pipefail
cd "$(dirname "$0")/../crates/servers"

if [ "${1:-}" = bench ]; then
    cargo run --locked --release --example scale -- --seconds "${2:-5}"
    exit
fi

cargo fmt --check
cargo clippy --locked --all-targets -- -D warnings
../../ci/tested.sh cargo test --locked
RUSTDOCFLAGS=-Dwarnings cargo doc --locked --no-deps
if command -v cargo-deny >/dev/null; then
    cargo deny --locked check --config ../../deny.toml --hide-inclusion-graph bans licenses sources
else
    echo "not run: deny of servers (cargo install cargo-deny --locked)"
fi

# The two commands: the losses are the same with and without a server.
folder=$(mktemp -d)
trap 'kill "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 - "$folder" <<'PYTHON'
import pathlib, random, struct, sys
folder = pathlib.Path(sys.argv[1])
random.seed(1)
for name, count in [("train", 2000), ("t10k", 200)]:
    labels = bytes(random.randrange(10) for _ in range(count))
    pixels = (bytes(min(255, 25 * label + random.randrange(8)) for _ in range(16)) for label in labels)
    images = b"".join(pixels)
    (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, count, 4, 4) + images)
    (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">4BI", 0, 0, 8, 1, count) + labels)
PYTHON
cargo build --locked --examples --bins
target/debug/feedline-decode serve --data "$folder" --listen 127.0.0.1:0 >"$folder/server" &
server=$!
until grep -q 'listens at' "$folder/server"; do
    kill -0 "$server" || exit 1
    sleep 0.1
done
address=$(sed -n 's/.*listens at //p' "$folder/server")
for servers in "" "--servers $address"; do
    # Without quotes: none or two words.
    target/debug/examples/mlp --data "$folder" --device host --json "$folder/report${servers:+s}" $servers
done
python3 - "$folder" <<'PYTHON'
import json, pathlib, sys
alone, served = (json.loads((pathlib.Path(sys.argv[1]) / name).read_text()) for name in ["report", "reports"])
for figure in ["losses", "order_hash", "proof", "test_accuracy"]:
    assert alone[figure] == served[figure], (figure, alone[figure], served[figure])
print("filled by the server:", served["stalls"]["filler"])
PYTHON
kill "$server"
wait "$server"
cat "$folder/server"
