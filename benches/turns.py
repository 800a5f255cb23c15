#!/usr/bin/env python3
"""Runs two builds of `benches` in turns, and prints their rows side by side.

    turns.py OLD NEW "handoff guards --reps 5" "train --batch 128,512" [--rounds 2] [--limit 60] [--out DIR]

Each text is one call of both programs. The order of the two changes with each call, so that both get the same
share of a machine's noise. Rows go to DIR/old.jsonl and DIR/new.jsonl, the output of the programs to DIR/log.txt,
and the table to DIR/table.txt. A call that fails, or exceeds the limit in seconds, is named, and the others go on.
Exit code 1 if one failed.
"""

import argparse
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

import summary


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("calls", nargs="+", metavar="CALL")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    for program in (options.old, options.new):
        if not program.is_file():
            parser.error(f"there is no program {program}: build it with cargo build --release -p benches")
    return options


def run(program, call, rows, log, limit):
    """Runs one call; returns why it failed, or None."""
    command = [program.resolve(), *shlex.split(call), "--json", rows]
    try:
        code = subprocess.run(command, stdout=log, stderr=log, timeout=limit).returncode
    except subprocess.TimeoutExpired:
        return f"took longer than {limit:g} s"
    return f"exit code {code}" if code else None


def table(files):
    """A line for each row of either program: the values of all rounds, and the median of their ratios."""
    found = {}
    for side, file in enumerate(files):
        for row in summary.load([file]):
            name = summary.title(row)
            found.setdefault((name, row["unit"]), ([], []))[side].append(row)
    yield f"{'row':44} {'old':>20} {'ratio':>7} {'new':>20} {'ratio':>7}  unit"
    for (name, unit), sides in found.items():
        cells = []
        for rows in sides:
            ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
            cells.append("/".join(summary.short(row["value"]) for row in rows) or "-")
            cells.append(f"{statistics.median(ratios):.3f}" if ratios else "-")
        yield f"{name:44} {cells[0]:>20} {cells[1]:>7} {cells[2]:>20} {cells[3]:>7}  {unit}"


def main():
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    files = [options.out / "old.jsonl", options.out / "new.jsonl"]
    for file in files:
        file.write_text("")
    sides = list(zip((options.old, options.new), files))
    failed = False
    with open(options.out / "log.txt", "w") as log:
        for number in range(options.rounds):
            for call in options.calls:
                for program, rows in sides:
                    why = run(program, call, rows, log, options.limit)
                    if why:
                        failed = True
                        print(f"round {number + 1}: {program} {call}: {why}, see {log.name}", file=sys.stderr)
                sides.reverse()
    lines = list(table(files))
    (options.out / "table.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
