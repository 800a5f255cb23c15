"""Measures a shuffled table from memory, beside what a user would write.

    python benches/tables.py [--rows 2000000] [--rounds 3] [--workers 2]

A Parquet file of 20 columns of float32 and a label of int64, in batches of 256 as torch tensors, in rows per second
of an epoch: by `feedline.table`, which decodes the table once within its budget; the same arrays handed to feedline;
by hand (pyarrow reads the table into NumPy arrays, a batch takes the rows of a permutation); and by DataLoader over
these arrays with `__getitems__`. In turns; prints the first epoch, with decoding, and the median of the others.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import torch

import feedline

COLUMNS, BATCH = 20, 256


def made(path: Path, rows: int) -> None:
    chance = np.random.default_rng(7)
    columns = {f"x{i}": chance.random(rows, dtype=np.float32) for i in range(COLUMNS)}
    columns["label"] = chance.integers(0, 10, rows)
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=65536)


def stacked(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    table = pyarrow.parquet.read_table(path)
    x = np.stack([table[f"x{i}"].to_numpy() for i in range(COLUMNS)], axis=1)
    return torch.from_numpy(x), torch.from_numpy(table["label"].to_numpy())


class Rows:
    """The arrays for DataLoader."""

    def __init__(self, x: torch.Tensor, label: torch.Tensor) -> None:
        self.x, self.label = x, label

    def __len__(self) -> int:
        return len(self.x)

    def __getitems__(self, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        at = torch.tensor(ids)
        return self.x[at], self.label[at]


def by_hand(x: torch.Tensor, label: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    order = torch.randperm(len(x))
    for at in order.split(BATCH):
        yield x[at], label[at]


def rate(batches: Any, rows: int) -> float:
    start, count = time.perf_counter(), 0
    for _ in batches:
        count += 1
    assert count == -(-rows // BATCH)
    return rows / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        made(path, options.rows)
        common: dict[str, Any] = {"shuffle": 7, "framework": "torch", "workers": options.workers}
        table = feedline.table(path, stack={"x": [f"x{i}" for i in range(COLUMNS)]})
        of_table = feedline.Loader(table, BATCH, **common)
        x, label = stacked(path)
        of_arrays = feedline.Loader({"x": x.numpy(), "label": label.numpy()}, BATCH, **common)
        torches = torch.utils.data.DataLoader(Rows(x, label), BATCH, shuffle=True, collate_fn=lambda rows: rows)
        ways: dict[str, Callable[[], Any]] = {
            "feedline.table": lambda: of_table,
            "arrays in feedline": lambda: of_arrays,
            "by hand": lambda: by_hand(x, label),
            "DataLoader, __getitems__": lambda: torches,
        }
        seen: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(options.rounds + 1):
            for name, way in ways.items():
                seen[name].append(rate(way(), options.rows))
        for name, (first, *rest) in seen.items():
            print(f"{name:26s} first epoch {first:10,.0f}/s, then {statistics.median(rest):10,.0f}/s")
        print(of_table.report())


if __name__ == "__main__":
    main()
