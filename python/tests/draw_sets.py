"""Data sets and functions that draw from several random generators, for tests in threads and processes."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np

#: Generators by a letter: of the process, and of an object.
KINDS = "rntGRSTm"

#: A generator of a module.
MODULE = np.random.default_rng(5)


class Draws:
    """Draws numbers: ``{"r": "all"}`` says from which generators, and when."""

    def __init__(self, when: dict[str, str], rest: float = 0.0) -> None:
        self.when, self.rest = when, rest
        self.inner = Keeps()

    def drawn(self, index: int) -> np.ndarray[Any, Any]:
        if self.rest:
            time.sleep(self.rest)
        if "T" in self.when:
            # A generator that is made for the first sample, as many data sets do.
            self.inner.tensors()
        found = np.full(len(KINDS), 0.5)
        for place, kind in enumerate(KINDS):
            when = self.when.get(kind, "never")
            if when == "all" or (when == "late" and index > 40) or (when == "some" and index % 5 == 3):
                found[place] = self.number(kind)
        return found

    def number(self, kind: str) -> float:
        if kind in "tT":
            import torch

            own = None if kind == "t" else self.inner.tensors()
            return float(torch.rand((), generator=own, dtype=torch.float64))
        if kind == "r":
            return random.random()
        if kind == "n":
            return float(np.random.rand())
        if kind == "m":
            return float(MODULE.random())
        return float(self.inner.numbers[kind].random())


class Keeps:
    """Generators two steps from the object that draws."""

    def __init__(self) -> None:
        self.numbers: dict[str, Any] = {
            "G": np.random.default_rng(1), "R": random.Random(1), "S": np.random.RandomState(1)
        }
        self.tensor: Any = None

    def tensors(self) -> Any:
        import torch

        if self.tensor is None:
            self.tensor = torch.Generator().manual_seed(1)
        return self.tensor


class Samples(Draws):
    """Samples that draw."""

    def __init__(self, when: dict[str, str], samples: int = 90, rest: float = 0.0) -> None:
        super().__init__(when, rest)
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        return {"id": index, "x": self.drawn(index)}


class Mapped(Draws):
    """A function of a sample that draws."""

    def __call__(self, sample: Any) -> Any:
        return {**sample, "y": self.drawn(int(sample["id"]))}


class Collated(Draws):
    """A ``collate_fn`` that draws once for a batch."""

    def __call__(self, samples: list[Any]) -> Any:
        batch = {name: np.stack([sample[name] for sample in samples]) for name in samples[0]}
        return {**batch, "z": np.tile(self.drawn(int(samples[0]["id"])), (len(samples), 1))}


class OfBatch(Draws):
    """A function of a batch that draws."""

    def __call__(self, batch: Any) -> Any:
        batch["x"] += self.drawn(int(batch["id"][0]))


class Transform:
    """Keeps a generator that no program can seed."""

    def __init__(self) -> None:
        self.py_random = random.SystemRandom()


class Unseeded(Samples):
    def __init__(self) -> None:
        super().__init__({})
        self.transform = Transform()
