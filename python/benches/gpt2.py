"""Trains a model of GPT-2's size on windows of token ids; prints the step fed by each loader and its share of the step alone.

    python benches/gpt2.py [--tokens 134217728] [--seconds 6] [--batch 8] [--small]

124 million parameters (12 layers, 12 heads, 768 wide, 50,304 ids), windows of 2,048, bf16, compiled, AdamW. The
ways: windows of a file of u16 (`feedline.tokens`), documents of a `.bin` and its `.idx` packed (`Data.packed`), and
DataLoader over a memory map of the same file, with pinned memory. In turns, with the step alone first and last in
each. `--small` is a tiny model and windows of 64 on any device, to try the program.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import feedline

WINDOW = 64 if "--small" in sys.argv else 2048


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        q, k, v = (
            one.view(rows, length, self.heads, -1).transpose(1, 2) for one in self.qkv(self.norm1(x)).split(width, 2)
        )
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.ids, self.places = nn.Embedding(50304, width), nn.Embedding(WINDOW, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.ids(ids) + self.places.weight[: ids.shape[1]]
        scores = F.linear(self.norm(self.blocks(x)), self.ids.weight)
        return F.cross_entropy(scores.view(-1, scores.shape[-1]), targets.reshape(-1))


class Windows(Dataset[Tensor]):
    """A window and the id after it."""

    def __init__(self, path: Path) -> None:
        self.ids = np.memmap(path, np.uint16, "r")

    def __len__(self) -> int:
        return (len(self.ids) - 1) // WINDOW

    def __getitem__(self, index: int) -> Tensor:
        return torch.from_numpy(self.ids[index * WINDOW : index * WINDOW + WINDOW + 1].astype(np.int64))


def write(path: Path, tokens: int) -> None:
    """A `.bin` of random ids and its `.idx`: documents of 100 to 4,000 ids."""
    rng = np.random.default_rng(7)
    rng.integers(0, 50000, tokens, dtype=np.uint16).tofile(path)
    lengths = rng.integers(100, 4000, tokens // 2100).astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(lengths[:-1], dtype=np.int64) * 2])
    with path.with_suffix(".idx").open("wb") as file:
        file.write(b"MMIDIDX\0\0" + np.array([1], "<u8").tobytes() + bytes([8]))
        file.write(np.array([len(lengths), len(lengths) + 1], "<u8").tobytes())
        file.write(lengths.tobytes() + starts.astype("<i8").tobytes() + np.arange(len(lengths) + 1).tobytes())
    used = int(lengths.sum(dtype=np.int64))
    assert used <= tokens
    with path.open("r+b") as file:
        file.truncate(2 * used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=128 << 20)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cuda = device.type == "cuda"
    torch.set_float32_matmul_precision("high")
    model = (Gpt(1, 32, 2) if options.small else Gpt(12, 768, 12)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 6e-4, fused=cuda)
    run = torch.compile(model) if cuda and not options.small else model

    def step(ids: Tensor, targets: Tensor) -> None:
        with torch.autocast(device.type, torch.bfloat16):
            loss = run(ids, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def wait() -> None:
        if cuda:
            torch.cuda.synchronize()

    def timed(batches: Iterator[tuple[Tensor, Tensor]]) -> float:
        """Milliseconds per step."""
        for _ in range(5):
            step(*next(batches))
        wait()
        start, steps = time.perf_counter(), 0
        while time.perf_counter() - start < options.seconds:
            for _ in range(5):
                step(*next(batches))
            wait()
            steps += 5
        return (time.perf_counter() - start) * 1e3 / steps

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.bin"
        write(path, options.tokens)
        # A raw file of ids has another name: `.bin` beside an `.idx` is a pair of documents.
        raw = Path(folder) / "ids.bin"
        raw.hardlink_to(path)
        fixed = torch.randint(0, 50000, (options.batch, WINDOW + 1), device=device)

        def alone() -> Iterator[tuple[Tensor, Tensor]]:
            while True:
                yield fixed[:, :-1], fixed[:, 1:]

        def fed(data: Any) -> Iterator[tuple[Tensor, Tensor]]:
            loader = feedline.Loader(
                data, options.batch, shuffle=True, seed=7, last_batch="drop", device=str(device), framework="torch"
            )
            while True:
                for batch in loader:
                    if "targets" in batch:
                        yield batch["tokens"].long(), batch["targets"].long()
                    else:
                        ids = batch["ids"].long()
                        yield ids[:, :-1], ids[:, 1:]

        def torch_loader(workers: int) -> Iterator[tuple[Tensor, Tensor]]:
            loader = DataLoader(
                Windows(raw), options.batch, shuffle=True, drop_last=True, num_workers=workers, pin_memory=cuda
            )
            while True:
                for rows in loader:
                    rows = rows.to(device, non_blocking=True)
                    yield rows[:, :-1], rows[:, 1:]

        ways: dict[str, Callable[[], Iterator[tuple[Tensor, Tensor]]]] = {
            "step alone": alone,
            "feedline.tokens": lambda: fed(feedline.tokens(raw, WINDOW, dtype="uint16")),
            "packed .bin and .idx": lambda: fed(feedline.open(path).packed("ids", WINDOW + 1, order="in order")),
            "DataLoader": lambda: torch_loader(0),
            "DataLoader, 4 workers": lambda: torch_loader(4),
            "step alone, again": alone,
        }
        timed(alone())
        seen: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(options.rounds):
            for name in list(ways)[:: -1 if turn % 2 else 1]:
                seen[name].append(timed(ways[name]()))
        base = statistics.median(seen["step alone"] + seen["step alone, again"])
        parameters = sum(one.numel() for one in model.parameters())
        print(f"{parameters / 1e6:.0f} M parameters, {options.batch} windows of {WINDOW} per step, on {device}")
        for name, times in seen.items():
            middle = statistics.median(times)
            rate = options.batch * WINDOW / middle / 1e3
            print(f"{name:22s} {middle:8.2f} ms per step {base / middle:6.3f} {rate:8.3f} M tokens/s {times}")


if __name__ == "__main__":
    main()
