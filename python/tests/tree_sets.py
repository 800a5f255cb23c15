"""Functions of batches of any structure, for `test_tree.py`: a worker process imports this module."""

from __future__ import annotations

import threading
from collections import UserDict
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Patches:
    """As a processor for vision and language returns them."""

    pixel_values: Any
    grid: Any
    texts: list[str]


class Encoding(UserDict[str, Any]):
    """A mapping of its own type, as transformers has."""


class Samples:
    """Samples whose number of patches depends on their index."""

    def __init__(self, count: int, most: int = 40) -> None:
        self.count, self.most = count, most

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return {"id": index, "patches": np.full((index * 7 % self.most, 6), index, np.float32), "text": f"No. {index} \u00e9"}


def patches(samples: list[Any]) -> Patches:
    grid = np.array([[1, len(sample["patches"]), 6] for sample in samples])
    return Patches(np.concatenate([sample["patches"] for sample in samples]), grid, [one["text"] for one in samples])


def encoding(samples: list[Any]) -> Encoding:
    return Encoding(ids=np.array([sample["id"] for sample in samples]), texts=[sample["text"] for sample in samples])


def changing(samples: list[Any]) -> Any:
    """A structure that differs from batch to batch."""
    first = samples[0]["id"]
    ids = np.array([sample["id"] for sample in samples])
    if first % 3 == 0:
        return {"ids": ids, "name": samples[0]["text"], 3: None, "nested": [{"a": ids.astype(np.int16)}, (1.5, "x")]}
    if first % 3 == 1:
        return [ids.reshape(-1, 1).astype(np.float64), ids > 3, np.float32(2.5), {"first", 1}]
    return None


def awkward(samples: list[Any]) -> Any:
    """Arrays of every kind of memory."""
    ids = np.array([sample["id"] for sample in samples])
    table = np.arange(24, dtype=np.int32).reshape(4, 6) + ids[0]
    same = table[:, ::2]
    fixed = np.arange(5, dtype=np.uint8)
    fixed.flags.writeable = False
    return {
        "strided": same, "again": same, "turned": table.T, "swapped": table.astype(">i4"), "scalar": np.array(ids[0]),
        "empty": np.zeros((0, 3), np.float32), "none": np.zeros((0, 3), np.float32), "fixed": fixed,
        "flag": np.array([True, False]), "texts": np.array(["a", "bc"]), "objects": np.array([None, 1], object),
        "time": np.array(["2026-01-01"], "datetime64[D]"), "complex": np.array([1 + 2j]), "half": np.ones(3, np.float16),
        "big": np.array([2**64 - 1], np.uint64), "int": 7, "bytes": b"\0\1", "number": np.float64(0.1),
    }


def locked(samples: list[Any]) -> Any:
    return {"id": np.zeros(len(samples)), "lock": threading.Lock()}


def only_text(samples: list[Any]) -> list[str]:
    return [sample["text"] for sample in samples]


_KEPT = np.zeros(3)


def kept(samples: list[Any]) -> Any:
    """Fills the same array for each batch."""
    _KEPT[:] = samples[0]["id"]
    return {"x": _KEPT}
