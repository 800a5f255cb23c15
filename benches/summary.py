#!/usr/bin/env python3
"""Prints one table of the rows of benches and peers, and one of the sweeps: summary.py ROWS.jsonl...
[--markdown FILE]."""

import json
import statistics
import sys

# Keys in rows of older runs, and their present names.
RENAMED = {"floor": "baseline", "ns_a_sample": "ns_per_sample", "us_a_step": "us_per_step"}


def load(paths):
    """The rows of these files."""
    rename = lambda fields: {RENAMED.get(name, name): value for name, value in fields}
    return [
        json.loads(text, object_pairs_hook=rename) for path in paths for text in open(path) if text.strip()
    ]


def short(number):
    return "-" if number is None else f"{number:.4g}" if abs(number) < 1e4 else f"{number:.0f}"


def title(row):
    """The benchmark and the parameters of a row."""
    return " ".join([row["bench"], *map(str, row["parameters"].values())])


def line(row):
    verdict = {True: "reached", False: "MISSED", None: ""}[row["reached"]]
    ratio = "-" if row["ratio"] is None else f"{row['ratio']:.3f}"
    figures = [short(row["value"]), short(row["baseline"]), ratio]
    return [title(row), *figures, row["unit"], row["target"], verdict]


def comparison(what, ours, theirs, unit, target, is_reached):
    """A table row of one figure of both; `is_reached` tells whether the ratio reaches the target."""
    ratio = ours / theirs
    verdict = "reached" if is_reached(ratio) else "MISSED"
    return [what, short(ours), short(theirs), f"{ratio:.3f}", unit, target, verdict]


def comparisons(rows):
    """Table rows that compare feedline with the peers in the same run."""
    table = []
    of = lambda bench, batch: [
        r for r in rows if r["bench"] == bench and r["parameters"].get("batch") == batch
    ]
    for batch in sorted({row["parameters"]["batch"] for row in rows if row["bench"] == "train"}):
        ours = min(of("train", batch), key=lambda row: row["value"])
        graph = [row for row in of("torch-step", batch) if row["parameters"]["mode"] == "graph"]
        if graph and ours["baseline"]:
            what, figures = f"step: ours / PyTorch graph {batch}", (ours["baseline"], graph[-1]["value"])
            table.append(comparison(what, *figures, "us/step", "ratio <= 0.5", lambda ratio: ratio <= 0.5))
        for name, bench in (("PyTorch", "torch-train"), ("JAX", "jax-train")):
            peers = of(bench, batch)
            if peers:
                best = min(peers, key=lambda row: row["value"])
                how = " ".join(str(v) for k, v in best["parameters"].items() if k not in ("batch", "workers"))
                what, figures = f"fed: ours / {name} {batch} ({how})", (ours["value"], best["value"])
                table.append(comparison(what, *figures, "us/step", "ratio < 1", lambda ratio: ratio < 1))
    table += tiny(rows)
    raw = [row for row in rows if row["bench"] == "raw"]
    peers = [row for row in rows if row["bench"] == "torch-raw"]
    if raw and peers:
        ours, best = (max(side, key=lambda row: row["value"]) for side in (raw, peers))
        figures = ours["value"], best["value"]
        table.append(comparison("raw: ours / PyTorch", *figures, "GB/s", "ratio > 1", lambda ratio: ratio > 1))
    return table


def middle(rows):
    """For each measurement that was made in several rounds, the row with the median value."""
    rounds = {}
    for row in rows:
        rounds.setdefault((row["bench"], json.dumps(row["parameters"], sort_keys=True)), []).append(row)
    return [sorted(same, key=lambda row: row["value"])[len(same) // 2] for same in rounds.values()]


def tiny(rows):
    """Loaders alone, per batch size: each side's best, as a multiple of the bare gather measured alternately
    with it."""
    # The median of the rounds of each setting, then the best setting.
    rounds, best = {}, {}
    for row in rows:
        if row["bench"] in ("tiny", "burn-tiny", "dataloader-rs-tiny"):
            rounds.setdefault((row["bench"], json.dumps(row["parameters"], sort_keys=True)), []).append(
                row["ratio"]
            )
    for (name, parameters), ratios in rounds.items():
        parameters = json.loads(parameters)
        side, at = (statistics.median(ratios), parameters), (name, parameters["batch"])
        best[at] = min(best.get(at, side), side, key=lambda side: side[0])
    table = []
    for (name, batch), (theirs, parameters) in best.items():
        if name == "tiny" or ("tiny", batch) not in best:
            continue
        ours, own = best["tiny", batch]
        how = f"{parameters['form']}, {parameters['workers']} workers; ours {own['workers']}"
        what = f"tiny: ours / {name.removesuffix('-tiny')} {batch} ({how})"
        table.append(comparison(what, ours, theirs, "x bare gather", "ratio < 1", lambda ratio: ratio < 1))
    return table


def growth(rows):
    """The growth of each `scale` sweep from its first point to its last: a header, then one line per
    sweep."""
    sweeps = {}
    for row in rows:
        parameters = row["parameters"]
        of = " ".join(parameters[key] for key in ("of", "what") if key in parameters)
        sweeps.setdefault((of, parameters["sweep"]), {})[parameters["x"]] = row
    table = (
        [["sweep", "from", "to", "first", "last", "grew", "its baseline", "process, MiB", "unit"]]
        if sweeps
        else []
    )
    times = lambda last, first: "-" if not last or not first else f"{last / first:.3g} x"
    for (of, quantity), points in sweeps.items():
        low, high = min(points), max(points)
        first, last = points[low], points[high]
        # The value of `tiny` is the excess over its baseline; the sweep shows the full time.
        value = lambda row: row["more"].get("ns_per_sample", row["value"])
        unit = "ns/sample" if "ns_per_sample" in first["more"] else first["unit"]
        memory = [(row["more"].get("rss_bytes") or 0) / (1 << 20) for row in (first, last)]
        table.append(
            [
                f"{of} over {quantity}",
                short(low),
                short(high),
                short(value(first)),
                short(value(last)),
                times(value(last), value(first)),
                times(last["baseline"], first["baseline"]),
                f"{memory[0]:.0f} to {memory[1]:.0f}",
                unit,
            ]
        )
    return table


def show(table, left, markdown):
    """Prints a table, with the columns `left` left-aligned, and appends it to the Markdown file."""
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        print(
            "  ".join(
                cell.ljust(width) if n in left else cell.rjust(width)
                for n, (cell, width) in enumerate(zip(row, widths))
            ).rstrip()
        )
    if markdown:
        for row in [table[0], ["---"] * len(table[0]), *table[1:]]:
            markdown.write("| " + " | ".join(row) + " |\n")


def main():
    arguments = sys.argv[1:]
    markdown = None
    if "--markdown" in arguments:
        at = arguments.index("--markdown")
        markdown = open(arguments[at + 1], "w")
        del arguments[at : at + 2]
    rows = load(arguments)
    swept = [row for row in rows if row["bench"] == "scale" and row["parameters"]["x"] is not None]
    rows = [row for row in rows if row["bench"] != "scale"]
    head = ["what", "value", "baseline", "ratio", "unit", "target", ""]
    peers = [row for row in rows if row["bench"].startswith(("torch", "jax", "burn", "dataloader-rs"))]
    table = [line(row) for row in middle([row for row in rows if row not in peers])] + comparisons(rows)
    # The peers' rows: their steps, and the best of each loader.
    best = {}
    for row in middle(peers):
        parameters = row["parameters"]
        key = (row["bench"], parameters.get("loader", parameters.get("form")), parameters.get("batch"))
        if row["bench"].endswith("step"):
            key += (parameters.get("mode"),)
        better = (lambda a, b: a > b) if row["unit"] == "GB/s" else (lambda a, b: a < b)
        if key not in best or better(row["value"], best[key]["value"]):
            best[key] = row
    table += [line(row) for row in best.values()]
    if table:
        show([head, *table], (0, 4, 5, 6), markdown)
    if table and swept:
        print()
        if markdown:
            markdown.write("\n")
    if swept:
        show(growth(swept), (0, 8), markdown)
    if markdown:
        markdown.close()


if __name__ == "__main__":
    main()
