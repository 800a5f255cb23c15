#!/usr/bin/env python3
"""Draws the sweeps of `benches scale` as one SVG: plot.py ROWS.jsonl... > scale.svg."""

import html
import math
import sys

from summary import load

# For each quantity: the axis label, and whether the axis is logarithmic.
AXES = {
    "row_bytes": ("bytes per sample", True),
    "batch": ("samples per batch", True),
    "workers": ("workers", True),
    "depth": ("depth, batches on the device", True),
    "length": ("samples in the set", True),
    "batches": ("batches in a run", True),
    "bytes": ("bytes per batch", True),
}
TITLES = {
    "handoff": "hand-off of a batch",
    "guards": "leases and guards alone",
    "transfer": "to the device",
    "gather": "784-byte records of a file",
    "raw": "150,528-byte records of a file",
    "train": "training step",
    "tiny": "loader alone, per sample",
    "epoch": "from one epoch to the next",
    "start": "start and stop",
    "idle": "idle threads",
    "noisy": "steps next to busy cores",
}
# The panels of a benchmark are side by side in this order; its other quantities follow below.
COLUMNS = ("workers", "batch", "depth")
# Panels that do not exist, and why.
NONE = {("guards", "workers"): "one thread, no loader: no workers"}
# Colours of feedline and its baseline, for the first and the second series of a benchmark.
SERIES = (("#1f5fa8", "#c2571a"), ("#7b2d8e", "#c99a1a"))
RESIDENT, HELD, INK, GRID = "#57606a", "#2e8540", "#24292f", "#e4e7eb"
LEGEND = (
    (SERIES[0][0], "", "feedline (median; band: min to max)"),
    (SERIES[0][1], "5 3", "its baseline, same run"),
    (SERIES[1][0], "", "second series, as named"),
    (SERIES[1][1], "5 3", "its baseline"),
    (RESIDENT, "", "memory of the process"),
    (HELD, "5 3", "of the slots"),
)
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 392, 226, 62, 38, 22, 44
HEAD = 74


def number(value):
    """A short number: 0.5, 8192, 50k, 20M, 1e12."""
    if abs(value) < 10_000 and value == int(value):
        return str(int(value))
    if abs(value) >= 1e12:
        return f"{value:.0e}".replace("e+", "e")
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def binary(value):
    """A number of bytes: 16 B, 4 KiB, 32 MiB."""
    for size, unit in ((1 << 30, " GiB"), (1 << 20, " MiB"), (1 << 10, " KiB")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g} B"


class Axis:
    """Maps values to pixels, linearly from 0 or logarithmically."""

    def __init__(self, values, start, end, factors):
        low, high = min(values), max(values)
        self.factors, self.start, self.end = factors and low > 0, start, end
        if self.factors:
            low, high = math.log10(low), math.log10(high)
            space = (high - low) * 0.04 or 0.3
            self.low, self.high = low - space, high + space
        else:
            self.low, self.high = 0, high * 1.15 or 1

    def at(self, value):
        value = math.log10(value) if self.factors else value
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self):
        if self.factors:
            powers = range(math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9) + 1)
            ticks = [10.0**power for power in powers][:: max(1, len(powers) // 6)]
            if len(ticks) < 3:
                powers = range(math.floor(self.low), math.ceil(self.high) + 1)
                ticks = [part * 10.0**power for power in powers for part in (1, 2, 5)]
            return [tick for tick in ticks if self.low - 1e-9 <= math.log10(tick) <= self.high + 1e-9]
        step = 10 ** math.floor(math.log10(self.high / 4))
        step = next(step * m for m in (1, 2, 5, 10) if self.high / (step * m) <= 5)
        return [n * step for n in range(int(self.high / step) + 1)]


def text(x, y, what, anchor="middle", size=11, color=INK, more=""):
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text {where} fill="{color}"{more}>{html.escape(what)}</text>'


def stroke(x1, y1, x2, y2, color, more=""):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"{more}/>'


def panel(x0, y0, title, quantity, unit, lines, factors):
    """One plot. `lines` holds (color, dashes, points, bands, name); each band is (x, low, high)."""
    points = [point for _, _, line, _, _ in lines for point in line]
    values = [y for _, y in points] + [
        y for _, _, _, bands, _ in lines for _, low, high in bands for y in (low, high)
    ]
    about, x_factors = AXES.get(quantity, (quantity, False))
    left, right, top, bottom = x0 + LEFT, x0 + WIDTH - RIGHT, y0 + TOP, y0 + HEIGHT - BOTTOM
    across = Axis([x for x, _ in points], left, right, x_factors)
    up = Axis(values, bottom, top, factors)
    out = [text(left, y0 + 16, title, "start", 12, INK, ' font-weight="600"')]
    out.append(text(left, y0 + 31, unit, "start", 10, RESIDENT))
    at = right
    for color, _, _, _, name in reversed(lines):
        if name:
            out.append(text(at, y0 + 31, name, "end", 10, color, ' font-weight="600"'))
            at -= 6 * len(name) + 12
    for tick in up.ticks():
        y = up.at(tick)
        out.append(stroke(left, y, right, y, GRID))
        out.append(text(left - 6, y + 3.5, number(tick), "end", 10))
    # The x ticks are the measured points; a label that would touch its neighbour is omitted.
    free = -math.inf
    for x in sorted({x for x, _ in points}):
        at, name = across.at(x), binary(x) if "bytes" in quantity else number(x)
        out.append(stroke(at, top, at, bottom, GRID))
        half = 2.7 * len(name)
        if at - half > free:
            out.append(text(at, bottom + 15, name, size=10))
            free = at + half + 4
    out.append(text((left + right) / 2, bottom + 31, about))
    out.append(f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="#8c959f"/>')
    for color, dashes, line, bands, _ in lines:
        for x, low, high in bands:
            band = ' stroke-width="5" stroke-opacity="0.22" stroke-linecap="round"'
            out.append(stroke(across.at(x), up.at(low), across.at(x), up.at(high), color, band))
        path = " ".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in line)
        drawn = f'fill="none" stroke="{color}" stroke-width="1.8" stroke-dasharray="{dashes}"'
        out.append(f'<polyline points="{path}" {drawn}/>')
        dots = [(across.at(x), up.at(y)) for x, y in line]
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.8" fill="{color}"/>' for x, y in dots]
    return "\n".join(out)


def absent(x0, y0, title, why):
    """An empty panel, with the reason."""
    middle = (x0 + (LEFT + WIDTH - RIGHT) / 2, y0 + HEIGHT / 2)
    return text(x0 + LEFT, y0 + 16, title, "start", 12, RESIDENT) + text(
        *middle, why, size=11, color=RESIDENT
    )


def plain(quantity):
    """The name of a quantity in a title."""
    return AXES.get(quantity, (quantity,))[0].split(",")[0]


def sweeps(rows):
    """The rows of each series of each (bench, quantity), in order of appearance; the last row of a point
    counts."""
    found = {}
    for row in rows:
        parameters = row["parameters"]
        if row["bench"] == "scale" and parameters["x"] is not None:
            series = found.setdefault((parameters["of"], parameters["sweep"]), {})
            series.setdefault(parameters.get("what"), {})[parameters["x"]] = row
    ordered = lambda points: [points[x] for x in sorted(points)]
    return {key: {what: ordered(points) for what, points in series.items()} for key, series in found.items()}


def cost(key, series):
    """The panel of time or rate: feedline and its baseline."""
    bench, quantity = key
    lines, unit = [], next(iter(series.values()))[0]["unit"]
    for (what, rows), (color, of_baseline) in zip(series.items(), SERIES):
        ours, baseline, bands = [], [], []
        for row in rows:
            x, y = row["parameters"]["x"], row["value"]
            if bench == "tiny":
                # The row's value is the excess over the baseline; the plot shows full times.
                unit = "ns per sample"
                y = row["more"]["ns_per_sample"]
            else:
                bands.append((x, row["min"], row["max"]))
            ours.append((x, y))
            if row["baseline"] is not None:
                baseline.append((x, row["baseline"]))
        if baseline:
            lines.append((of_baseline, "5 3", baseline, [], None))
        lines.append((color, "", ours, bands, what if len(series) > 1 else None))
    values = [y for _, _, points, _, _ in lines for _, y in points]
    factors = min(values) > 0 and max(values) / min(values) > 30
    return (
        f"{TITLES.get(bench, bench)}, over {plain(quantity)}",
        quantity,
        unit.replace("us/", "us per "),
        lines,
        factors,
    )


def memory(key, series):
    """The panel of memory: resident bytes of the process, and bytes of the slots."""
    quantity, rows = key[1], next(iter(series.values()))
    of = lambda name: [(row["parameters"]["x"], row["more"][name]) for row in rows if row["more"].get(name)]
    held = [(x, y + dict(of("device_bytes")).get(x, 0)) for x, y in of("pinned_bytes")]
    lines = [line for line in ((RESIDENT, "", of("rss_bytes")), (HELD, "5 3", held)) if line[2]]
    return (
        f"memory of the loader alone, over {plain(quantity)}",
        quantity,
        "MiB",
        [
            (color, dashes, [(x, y / (1 << 20)) for x, y in points], [], None)
            for color, dashes, points in lines
        ],
        False,
    )


def lines_of(found, bench, draw):
    """The panels of a benchmark, line by line; `None` for a missing panel."""
    own = [key for key in found if key[0] == bench]
    main = [(bench, quantity) for quantity in COLUMNS]
    rest = [key for key in own if key not in main]
    lines = [main] if any(key in found for key in main) else []
    lines += [rest[n : n + len(COLUMNS)] for n in range(0, len(rest), len(COLUMNS))]
    return [[(key, draw(key, found[key]) if key in found else None) for key in line] for line in lines]


def main():
    found = sweeps(load(sys.argv[1:]))
    if not found:
        sys.exit("plot: no scale rows in the input: give files written by benches scale --json")
    benches = {key[0] for key in found}
    lines = [
        line for bench in [*TITLES, *sorted(benches - set(TITLES))] for line in lines_of(found, bench, cost)
    ]
    # Memory is drawn for `tiny` only, which has no device and whose baseline has one buffer.
    lines += lines_of(found, "tiny", memory)
    width, height = WIDTH * len(COLUMNS) + 20, HEIGHT * len(lines) + HEAD + 10
    every = [row for series in found.values() for rows in series.values() for row in rows]
    devices = sorted({row["device"] for row in every})
    legend, x = [], LEFT
    for color, dashes, name in LEGEND:
        legend.append(stroke(x, 46, x + 24, 46, color, f' stroke-width="1.8" stroke-dasharray="{dashes}"'))
        legend.append(text(x + 30, 50, name, "start"))
        x += 44 + 6.1 * len(name)
    title = f"How cost and memory grow, on {', '.join(devices)}"
    title += "; a smoke run: figures mean nothing" if any(row.get("smoke") for row in every) else ""
    print(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="Helvetica, Arial, sans-serif">'
    )
    print(f'<rect width="{width}" height="{height}" fill="#ffffff"/>')
    print(text(LEFT, 26, title, "start", 15, INK, ' font-weight="600"'))
    print("\n".join(legend))
    for n, line in enumerate(lines):
        for column, ((bench, quantity), drawn) in enumerate(line):
            at = (column * WIDTH, HEAD + n * HEIGHT)
            if drawn:
                print(panel(*at, *drawn))
            else:
                title = f"{TITLES.get(bench, bench)}, over {plain(quantity)}"
                print(absent(*at, title, NONE.get((bench, quantity), "not measured")))
    print("</svg>")


if __name__ == "__main__":
    main()
