"""Measures windows of time, beside what a user would write.

    python benches/windows.py [--groups 500] [--rows 2000] [--rounds 3] [--workers 2]

A Parquet file of 20 columns of float32, a group and a day, in a random order of its rows. Windows of 48 inputs of all
columns and 12 targets of two, in batches of 256 as torch tensors, shuffled, in windows per second of an epoch: by
`feedline.windows`; by hand (pandas sorts the rows, `sliding_window_view` of each group, a batch takes the windows of a
permutation); by a torch Dataset over the same arrays, whose `__getitem__` slices a window, with DataLoader and as many
processes; and by DataLoader with `__getitems__`, which slices a batch by hand. In turns; prints the time to open and
sort, and the median of the rounds after the first.
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
import pandas
import torch
from numpy.lib.stride_tricks import sliding_window_view

import feedline

COLUMNS, INPUTS, TARGETS, BATCH = 20, 48, 12, 256
X = [f"x{column}" for column in range(COLUMNS)]
Y = X[:2]


def made(path: Path, groups: int, rows: int) -> None:
    chance = np.random.default_rng(7)
    columns: dict[str, Any] = {name: chance.random(groups * rows, dtype=np.float32) for name in X}
    columns["group"] = np.repeat(np.arange(groups), rows)
    columns["day"] = np.tile(np.arange(rows), groups)
    frame = pandas.DataFrame(columns)
    frame.sample(frac=1, random_state=7).to_parquet(path, row_group_size=65536, index=False)


class Sorted:
    """The arrays of a table sorted by group and day, and the first row of each window."""

    def __init__(self, path: Path) -> None:
        frame = pandas.read_parquet(path).sort_values(["group", "day"])
        self.x, self.y = frame[X].to_numpy().copy(), frame[Y].to_numpy().copy()
        ends = np.cumsum(frame.groupby("group").size().to_numpy())
        begins = np.concatenate(([0], ends[:-1]))
        spans = zip(begins, ends, strict=True)
        self.starts = np.concatenate([np.arange(begin, end - INPUTS - TARGETS + 1) for begin, end in spans])
        # Views of all windows; those across groups are not among the starts.
        self.inputs = sliding_window_view(self.x, INPUTS, axis=0).transpose(0, 2, 1)
        self.targets = sliding_window_view(self.y, TARGETS, axis=0).transpose(0, 2, 1)


class OneByOne(torch.utils.data.Dataset[Any]):
    def __init__(self, data: Sorted) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data.starts)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = self.data.starts[index]
        end = start + INPUTS
        return torch.from_numpy(self.data.x[start:end]), torch.from_numpy(self.data.y[end : end + TARGETS])


class AtOnce(OneByOne):
    def __getitems__(self, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        starts = self.data.starts[ids]
        return torch.from_numpy(self.data.inputs[starts]), torch.from_numpy(self.data.targets[starts + INPUTS])


def by_hand(data: Sorted) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    order = np.random.permutation(len(data.starts))
    for at in range(0, len(order), BATCH):
        starts = data.starts[order[at : at + BATCH]]
        yield torch.from_numpy(data.inputs[starts]), torch.from_numpy(data.targets[starts + INPUTS])


def rate(batches: Any, windows: int) -> float:
    start, count = time.perf_counter(), 0
    for _ in batches:
        count += 1
    assert count == -(-windows // BATCH)
    return windows / (time.perf_counter() - start)


def check(batch: Any, data: Sorted) -> None:
    """The windows of feedline are those of the arrays."""
    starts = data.starts[np.array(batch.ids)]
    assert np.array_equal(batch["x"].numpy(), data.inputs[starts])
    assert np.array_equal(batch["y"].numpy(), data.targets[starts + INPUTS])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        made(path, options.groups, options.rows)
        start = time.perf_counter()
        windows = feedline.windows(path, INPUTS, TARGETS, group="group", order_by="day", x=X, y=Y, max_gap=1)
        opened = time.perf_counter() - start
        start = time.perf_counter()
        data = Sorted(path)
        print(f"opened and sorted: feedline {opened:.2f} s, pandas {time.perf_counter() - start:.2f} s")
        assert len(windows) == len(data.starts)
        loader = feedline.Loader(windows, BATCH, shuffle=True, seed=7, framework="torch", workers=options.workers)
        for number, batch in enumerate(loader):
            if number < 20:
                check(batch, data)
        torch_options: dict[str, Any] = {"batch_size": BATCH, "shuffle": True, "num_workers": options.workers}
        one = torch.utils.data.DataLoader(OneByOne(data), **torch_options)
        many = torch.utils.data.DataLoader(AtOnce(data), collate_fn=lambda batch: batch, **torch_options)
        ways: dict[str, Callable[[], Any]] = {
            "feedline.windows": lambda: loader,
            "by hand, sliding_window_view": lambda: by_hand(data),
            "DataLoader": lambda: one,
            "DataLoader, __getitems__": lambda: many,
        }
        seen: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(options.rounds + 1):
            for name, way in ways.items():
                seen[name].append(rate(way(), len(windows)))
        for name, (first, *rest) in seen.items():
            print(f"{name:30s} first epoch {first:10,.0f}/s, then {statistics.median(rest):10,.0f}/s")


if __name__ == "__main__":
    main()
