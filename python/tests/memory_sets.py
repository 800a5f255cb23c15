"""Data sets that fill the same memory for every sample, for tests in threads and processes."""

from __future__ import annotations

import time
from typing import Any

import numpy as np


class Filled:
    """Fills an array of its own for every sample. ``how`` says what a sample refers to it by; ``fresh`` samples before
    have memory of their own, or are rows of a matrix.
    """

    def __init__(self, how: str, samples: int = 200, size: int = 6, fresh: int = 0, rows: Any = None) -> None:
        self.how, self.samples, self.size, self.fresh, self.matrix = how, samples, size, fresh, rows
        self.array = np.zeros(size, np.int64)
        self.ring = [np.zeros(size, np.int64) for _ in range(3)]
        self.rows: list[int] = []
        self.sample: dict[str, Any] = {}

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        array = self.ring[index % 3] if self.how == "ring" else self.array
        if index < self.fresh and self.matrix is not None:
            return (index, self.matrix[index]) if self.how == "tuple" else {"id": index, "x": self.matrix[index]}
        if index < self.fresh:
            return Filled(self.how, size=self.size)[index]
        array[:] = index
        if self.how == "view":
            return {"id": index, "x": array[:]}
        if self.how == "part":
            start = index % 3
            return {"id": index, "x": array[start : start + self.size - 2]}
        if self.how == "tuple":
            return index, array
        if self.how == "dict":
            self.sample.update(id=index, x=array.copy())
            return self.sample
        if self.how == "numbers":
            self.sample.update(id=index, x=float(index))
            return self.sample
        if self.how == "list":
            self.rows[:] = [index] * self.size
            return {"id": index, "x": self.rows}
        if self.how == "arrays in a list":
            return {"id": index, "x": [array, array]}
        if self.how == "bytes":
            return {"id": index, "x": memoryview(array.data)}
        if self.how == "slow":
            time.sleep(0.003)
        return {"id": index, "x": array}


class FilledTensor(Filled):
    """The same, with a tensor of torch."""

    def __getitem__(self, index: int) -> Any:
        import torch

        if index < self.fresh:
            return {"id": index, "x": torch.full((self.size,), index)}
        whole = self.__dict__.setdefault("tensor", torch.zeros(self.size, dtype=torch.int64))
        whole[:] = index
        return {"id": index, "x": whole if self.how == "tensor" else whole[:]}


class FilledAtOnce(Filled):
    """The same, read by torch's ``__getitems__``."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class Resting:
    """Samples that share memory, which stays as it is: rows of a matrix that repeat, one array, windows."""

    def __init__(self, size: int = 8) -> None:
        self.matrix = np.arange(20 * size).reshape(20, size)
        self.one, self.series = np.arange(size), np.arange(400)
        self.reads = 0

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> Any:
        self.reads += 1
        return {"id": index, "row": self.matrix[index % 20], "one": self.one, "window": self.series[index : index + 9]}


def stacked(samples: list[Any]) -> dict[str, Any]:
    """A ``collate_fn`` of samples in dicts."""
    return {"id": np.array([sample["id"] for sample in samples]), "x": np.stack([np.asarray(s["x"]) for s in samples])}


class Out:
    """A ``collate_fn`` or a function of a batch that fills an array of its own for every batch, but for some ``fresh``
    ones."""

    def __init__(self, size: int = 6, fresh: int = 0) -> None:
        self.x, self.fresh = np.zeros((64, size), np.int64), fresh

    def array(self, rows: int) -> Any:
        self.fresh -= 1
        return self.x[:rows] if self.fresh < 0 else np.empty_like(self.x)[:rows]

    def __call__(self, samples: list[Any]) -> dict[str, Any]:
        x = self.array(len(samples))
        x[:] = np.array([sample["id"] for sample in samples])[:, None]
        return {"id": np.array([sample["id"] for sample in samples]), "x": x}

    def map(self, batch: dict[str, Any]) -> dict[str, Any]:
        x = self.array(len(batch["id"]))
        x[:] = batch["id"][:, None]
        return {"id": batch["id"], "x": x}
