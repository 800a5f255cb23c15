"""Shared by the peers' scripts: arguments, rows in the format of the benches, data and repetitions."""

import argparse
import gzip
import json
import pathlib
import statistics
import sys
import time
import traceback

import numpy as np

BATCHES = (128, 512, 4096)
HIDDEN, CLASSES = 512, 10


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", help="append the rows to this file, one JSON object per line")
    parser.add_argument("--data", help="folder with MNIST-style IDX files [random numbers]")
    parser.add_argument("--scratch", default="/tmp", help="folder for the file of raw records")
    parser.add_argument("--file-mib", type=int, default=1024, help="size of that file")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.25, help="length of one repetition")
    parser.add_argument("--batches", default=",".join(map(str, BATCHES)))
    parser.add_argument("--images", default=".", help="folder of JPEG files for jpeg_bench")
    parser.add_argument("--only", default="", help="comma-separated: step, loader, raw")
    options = parser.parse_args()
    options.batches = [int(batch) for batch in options.batches.split(",")]
    options.only = [name for name in options.only.split(",") if name]
    return options


class Report:
    """Appends rows. A part that fails is reported and skipped; the others still run."""

    def __init__(self, options, device, versions):
        self.path, self.device, self.versions = options.json, device, versions
        print(f"on {device}: {versions}", flush=True)

    def add(self, bench, parameters, values, unit, baseline=None, ratio=None, **more):
        row = {
            "bench": bench,
            "parameters": parameters,
            "value": statistics.median(values),
            "min": min(values),
            "max": max(values),
            "unit": unit,
            "baseline": baseline,
            "ratio": ratio,
            "target": "",
            "reached": None,
            "repetitions": len(values),
            "device": self.device,
            "more": {**more, "versions": self.versions},
        }
        name = f"{bench} {' '.join(str(value) for value in parameters.values())}"
        of = lambda x, digits: "-" if x is None else f"{x:.{digits}f}"
        print(f"{name:<52} {row['value']:>12.2f} {of(baseline, 2):>12} {of(ratio, 3):>7}  {unit}", flush=True)
        if self.path:
            with open(self.path, "a") as file:
                file.write(json.dumps(row) + "\n")

    def part(self, name, run):
        """Runs one part; a failure is printed in full and not raised."""
        try:
            return run()
        except Exception:
            print(f"FAILED {name}", file=sys.stderr, flush=True)
            traceback.print_exc()
            return None


def idx(path):
    """An IDX file of bytes: magic 00 00 08 rank, big-endian dimensions, data."""
    data = pathlib.Path(path).read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    rank = data[3]
    dims = [int.from_bytes(data[4 + 4 * n : 8 + 4 * n], "big") for n in range(rank)]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(dims).copy()


def training_set(options):
    """Images [n, 784] u8 and labels [n] u8."""
    if options.data:
        folder = pathlib.Path(options.data)
        found = {}
        for part in ("train-images", "train-labels"):
            files = sorted(folder.glob(part + "*ubyte*"))
            if not files:
                raise FileNotFoundError(f"no {part} in {folder}")
            found[part] = idx(files[0])
        images = found["train-images"]
        return images.reshape(len(images), -1), found["train-labels"]
    random = np.random.default_rng(1)
    images = random.integers(0, 256, (60_000, 784), np.uint8)
    return images, random.integers(0, CLASSES, 60_000, np.uint8)


def raw_file(options, row_bytes):
    """A file of random records in the page cache; the caller removes it."""
    rows = (options.file_mib << 20) // row_bytes
    path = pathlib.Path(options.scratch) / f"peers-{row_bytes}.records"
    random = np.random.default_rng(2)
    with open(path, "wb") as file:
        for start in range(0, rows, 1024):
            file.write(random.bytes(min(1024, rows - start) * row_bytes))
    return path, rows


def per_step(options, step, finish):
    """Microseconds per step of one repetition: runs `step` until the time is over, then `finish`."""
    count, start = 0, time.perf_counter()
    until = start + options.seconds
    while True:
        step()
        count += 1
        if time.perf_counter() >= until:
            break
    finish()
    return (time.perf_counter() - start) * 1e6 / count


def interleaved(options, value, baseline, finish):
    """Microseconds per step of both sides, alternating; the ratio is the median of baseline / value over the pairs."""
    values, baselines = [], []
    for turn in range(options.reps + 1):
        pair = per_step(options, value, finish), per_step(options, baseline, finish)
        if turn:
            values.append(pair[0])
            baselines.append(pair[1])
    ratio = statistics.median(b / a for a, b in zip(values, baselines))
    return values, statistics.median(baselines), ratio


def alone(options, step, finish):
    """Microseconds per step of each repetition, after one warm-up."""
    return [per_step(options, step, finish) for _ in range(options.reps + 1)][1:]
