"""Measures windows of token ids from a memory map, beside torch's DataLoader.

    python benches/tokens.py [--tokens 67108864] [--rounds 4] [--seconds 2]

Windows of 2,048 ids of a file of u16, shuffled, in batches of 8 as torch tensors of u16: by `feedline.tokens`, which
also gives the targets; by DataLoader with and without workers, and with `__getitems__`. In turns, the order of
each second turn reversed; prints the medians in millions of tokens per second.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import feedline

WINDOW, BATCH = 2048, 8


class Windows(Dataset[torch.Tensor]):
    """A window and the id after it; the step takes both parts of it."""

    def __init__(self, path: Path) -> None:
        self.ids = np.memmap(path, np.uint16, "r")

    def __len__(self) -> int:
        return (len(self.ids) - 1) // WINDOW

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.ids[index * WINDOW : index * WINDOW + WINDOW + 1])


class Batches(Windows):
    def __getitems__(self, ids: list[int]) -> torch.Tensor:
        return torch.from_numpy(np.stack([self.ids[i * WINDOW : i * WINDOW + WINDOW + 1] for i in ids]))


def rate(batches: Any, seconds: float) -> float:
    start, tokens = time.perf_counter(), 0
    for batch in batches:
        rows = batch if isinstance(batch, torch.Tensor) else batch["tokens"]
        tokens += rows.shape[0] * WINDOW
        if time.perf_counter() - start > seconds:
            break
    return tokens / (time.perf_counter() - start) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=64 << 20)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.bin"
        np.random.default_rng(7).integers(0, 50000, options.tokens, dtype=np.uint16).tofile(path)
        one, many = Windows(path), Batches(path)
        ways: dict[str, Callable[[], Any]] = {
            "feedline.tokens": lambda: feedline.Loader(
                feedline.tokens(path, WINDOW, dtype="uint16"), BATCH, shuffle=True, seed=7, framework="torch"
            ),
            "DataLoader": lambda: DataLoader(one, BATCH, shuffle=True),
            "DataLoader, 2 workers": lambda: DataLoader(one, BATCH, shuffle=True, num_workers=2),
            "DataLoader, __getitems__": lambda: DataLoader(many, BATCH, shuffle=True, collate_fn=lambda rows: rows),
        }
        seen: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(options.rounds):
            for name in list(ways)[:: -1 if turn % 2 else 1]:
                seen[name].append(rate(ways[name](), options.seconds))
        for name, rates in seen.items():
            print(f"{name:26s} {statistics.median(rates):8.1f} million tokens/s")


if __name__ == "__main__":
    main()
