#!/usr/bin/env bash
# Runs every benchmark as briefly as possible and checks its rows, not its speed; then makes the table and the
# plot.
set -euo pipefail
cd "$(dirname "$0")/.."

export PYTHONDONTWRITEBYTECODE=1
rows=$(mktemp)
trap 'rm -f "$rows" "$rows.out"' EXIT
# `--workspace`, and a test: otherwise cargo would choose other features than for the tests, and build anew.
cargo build --quiet --workspace --bin benches --test gpu
"${CARGO_TARGET_DIR:-target}/debug/benches" all scale devices --smoke --device host --json "$rows"

python3 - "$rows" <<'PYTHON'
import json, math, sys

expected = "handoff transfer train raw gather tiny epoch start idle noisy scale devices".split()
rows = [json.loads(line) for line in open(sys.argv[1])]
wrong = []
for row in rows:
    numbers = [row["value"], row["min"], row["max"]] + [row[key] for key in ("baseline", "ratio") if row[key] is not None]
    if not all(math.isfinite(number) for number in numbers) or not row["smoke"]:
        wrong.append(f"{row['bench']}: an invalid row: {row}")
points = [row for row in rows if row["bench"] == "scale"]
wrong += [f"scale: a row without its point: {row}" for row in points if not row["parameters"]["x"]]
swept = {(row["parameters"]["of"], row["parameters"]["sweep"]) for row in points}
scaled = [name for name in [*expected, "guards"] if name not in ("scale", "devices")]
every = {(name, quantity) for name in scaled for quantity in ("workers", "batch", "depth")}
# guards runs on one thread without a loader, so it has no workers.
wrong += [f"scale: {name} is not swept over {quantity}" for name, quantity in every - swept - {("guards", "workers")}]
wrong += [f"{name}: no row" for name in expected if name not in {row["bench"] for row in rows}]
for line in wrong:
    print(f"bench-smoke: {line}", file=sys.stderr)
if wrong:
    sys.exit(1)
print(f"bench-smoke: {len(rows)} rows of {len(expected)} benchmarks")
PYTHON

python3 benches/summary.py "$rows" >"$rows.out"
python3 benches/plot.py "$rows" >"$rows.out"
python3 -c 'import sys, xml.dom.minidom as dom; dom.parse(sys.argv[1])' "$rows.out"
