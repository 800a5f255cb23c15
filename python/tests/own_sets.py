"""Data sets for tests of worker processes, which import them from here."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np


class Numbers:
    """Samples that say which one they are, and a value computed of it."""

    def __init__(self, samples: int = 100, folder: str | None = None) -> None:
        self.samples, self.folder = samples, folder

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"id": index, "x": np.full((2, 3), index * 1.5, np.float32)}

    def first_time(self, what: str) -> bool:
        """Whether this is asked for the first time, in whichever process."""
        assert self.folder is not None
        try:
            (Path(self.folder) / what).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


class Pairs(Numbers):
    """Tuples."""

    def __getitem__(self, index: int) -> Any:
        return np.full(4, index, np.int16), index


class Texts(Numbers):
    """Fields that vary in length."""

    def __getitem__(self, index: int) -> Any:
        return {"id": index, "text": "x" * (index % 5), "items": np.full((index % 3, 2), index, np.int32)}


class Noise(Numbers):
    """Augmentation by the global generators of Python and NumPy."""

    def __getitem__(self, index: int) -> Any:
        return {"id": index, "python": random.random(), "numpy": np.random.rand(2), "int": random.getrandbits(40)}


class TorchNoise(Numbers):
    """Augmentation by torch's global generator."""

    def __getitem__(self, index: int) -> Any:
        import torch

        return {"id": index, "torch": torch.rand(3)}


class RareNoise(Numbers):
    """A generator is used for a few samples only."""

    def __getitem__(self, index: int) -> Any:
        return {"id": index, "numpy": np.random.rand() if index % 40 == 7 else 0.5}


class Who(Numbers):
    """The process that reads."""

    def __getitem__(self, index: int) -> Any:
        return {"id": index, "process": os.getpid()}


class Faulty(Numbers):
    """Something happens to the process that reads sample ``at``: the first time, or each time."""

    def __init__(self, samples: int, folder: str, fault: str, at: int = 33, always: bool = False) -> None:
        super().__init__(samples, folder)
        self.fault, self.at, self.always = fault, at, always

    def __getitem__(self, index: int) -> Any:
        if index == self.at and (self.always or self.first_time("fault")):
            if self.fault == "exit":
                os._exit(7)
            elif self.fault == "exit 0":
                os._exit(0)
            elif self.fault == "sleep":
                time.sleep(3)
            elif self.fault == "raise":
                raise KeyError("lost")  # this line
            elif self.fault == "shape":
                return {"id": index, "x": np.zeros((3, 2), np.float32)}
            elif self.fault == "sys.exit":
                raise SystemExit(3)
            elif self.fault == "unpicklable error":
                raise Local(lambda: None)
            else:
                os.kill(os.getpid(), getattr(signal, self.fault))
                time.sleep(0.05)
        return super().__getitem__(index)


class Sleeps(Numbers):
    """Each sample takes 2 ms, without the lock."""

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.002)
        return super().__getitem__(index)


class Local(Exception):
    """An exception that cannot be pickled."""


class Arrays(Numbers):
    """Arrays of its own, large and small, and a mapped file."""

    def __init__(self, samples: int, mapped: str) -> None:
        super().__init__(samples)
        self.large = np.arange(samples * 1000, dtype=np.float64).reshape(samples, 1000)
        self.columns = np.asfortranarray(self.large[:, :7])
        self.small = [np.full(3, index) for index in range(samples)]
        self.mapped = np.load(mapped, mmap_mode="r")
        self.part = self.mapped[3:, ::2]

    def __getitem__(self, index: int) -> Any:
        self.large[index, 5] += 1  # its own copy, as in a DataLoader
        return {
            "id": index,
            "large": self.large[index],
            "column": self.columns[index],
            "small": self.small[index],
            "mapped": self.mapped[index],
            "part": self.part[index % (len(self.part))],
        }


class Wide:
    """Rows of 24 KB, which are copied from where they lie: compact ones, and parts of larger arrays."""

    def __init__(self) -> None:
        self.x = np.arange(40 * 2 * 6000, dtype=np.int32).reshape(40, 2 * 6000)

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            "id": index,
            "compact": self.x[index],
            "part": self.x[index, ::2],
            "swapped": self.x[index].astype(">i4"),
            "new": self.x[index] + 1,
        }


class Holds(Numbers):
    """An attribute that is given to it."""

    def __init__(self, held: Any) -> None:
        super().__init__(20)
        self.held = held


class NotLoaded(Numbers):
    """Pickles, and cannot be loaded."""

    def __setstate__(self, state: Any) -> None:
        raise OSError("the disk is not here")


class Slow(Numbers):
    """Late samples, which no early batch waits for in the same process, take long."""

    def __getitem__(self, index: int) -> Any:
        if index >= 60:
            self.first_time("spinning")
            time.sleep(30)
        return {"id": index}


class Busy(Numbers):
    """Late samples never return, in Python."""

    def __getitem__(self, index: int) -> Any:
        if index >= 60:
            self.first_time("spinning")
            while True:
                pass
        return {"id": index}


class Gpu(Numbers):
    """Uses a GPU in sample 3."""

    def __getitem__(self, index: int) -> Any:
        if index == 3:
            import torch

            torch.zeros(1).cuda()
        return {"id": index}


def double(sample: Any) -> Any:
    """A function for ``map``."""
    return {"id": sample["id"], "double": 2 * sample["id"]}


class Many(Numbers):
    """More fields than a batch has columns: numbers of two types, small arrays, and one that varies."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        sample: dict[str, Any] = {f"float{place}": index + place / 8 for place in range(20)}
        sample |= {f"int{place}": index * place for place in range(5)}
        sample |= {f"pair{place}": np.array([index, place], np.int16) for place in range(3)}
        return sample | {"text": np.full(index % 4, index, np.uint8), "large": np.full(9, index, np.float32)}


class ManyPlaces(Numbers):
    """Tuples of more places than a batch has columns."""

    def __getitem__(self, index: int) -> Any:
        return tuple(index + place if place % 2 else np.float32(place) for place in range(18))


def padded(samples: list[Any]) -> dict[str, Any]:
    """A ``collate_fn`` that pads to the longest of a batch."""
    most = max(len(sample["items"]) for sample in samples)
    items = np.zeros((len(samples), most, 2), np.int32)
    for row, sample in enumerate(samples):
        items[row, : len(sample["items"])] = sample["items"]
    return {"id": np.array([sample["id"] for sample in samples]), "items": items, "size": np.full(len(samples), most)}


def in_nest(samples: list[Any]) -> Any:
    """A ``collate_fn`` that returns a tuple of a dict and an array."""
    ids = np.array([sample["id"] for sample in samples])
    return {"x": np.stack([sample["x"] for sample in samples]), "more": [ids, ids * 2]}, len(samples) - 0 * ids


def mixed(samples: list[Any]) -> dict[str, Any]:
    """A ``collate_fn`` that draws random numbers."""
    shift = np.random.rand()
    return {
        "id": np.array([sample["id"] for sample in samples]),
        "own": np.array([sample["python"] for sample in samples]),
        "shift": np.full(len(samples), shift),
    }


class Strange(Numbers):
    """Samples that only a ``collate_fn`` can put into a batch."""

    def __getitem__(self, index: int) -> Any:
        return {"id": index, "name": f"sample {index}", "nothing": None}


def only_ids(samples: list[Any]) -> Any:
    """A ``collate_fn`` that returns one array."""
    assert all(sample["nothing"] is None for sample in samples)
    return np.array([sample["id"] for sample in samples])


def dies(samples: list[Any]) -> Any:
    """A ``collate_fn`` that ends its process for one batch."""
    if any(sample["id"] == 33 for sample in samples):
        os._exit(3)
    return only_ids([{**sample, "nothing": None} for sample in samples])


def fails(samples: list[Any]) -> Any:
    """A ``collate_fn`` that fails for one batch."""
    if any(sample["id"] == 33 for sample in samples):
        raise KeyError("33")  # this line
    return {"id": np.array([sample["id"] for sample in samples])}


class Waits(Numbers):
    """Samples that wait, as for a network."""

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.02)
        return {"id": index, "process": os.getpid()}


class Computes(Numbers):
    """Samples of 2 ms of Python, which holds the lock."""

    def __getitem__(self, index: int) -> Any:
        until = time.thread_time() + 0.002
        while time.thread_time() < until:
            pass
        return {"id": index, "process": os.getpid()}


class Opens(Numbers):
    """Opens its file for the first sample, so that each process has one of its own."""

    def __init__(self, samples: int, path: str) -> None:
        super().__init__(samples)
        self.path, self.file = path, None

    def __getitem__(self, index: int) -> Any:
        if self.file is None:
            self.file: Any = open(self.path, "rb")  # noqa: SIM115
        self.file.seek(index)
        return {"id": index, "byte": self.file.read(1)[0], "process": os.getpid()}


def in_dict(samples: Any) -> Any:
    return {"id": np.array([sample["id"] for sample in samples]), "x": np.stack([sample["x"] for sample in samples])}


def unchanged(batch: Any) -> None:
    """A function of a batch that changes nothing."""
