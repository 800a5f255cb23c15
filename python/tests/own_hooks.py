"""Functions of a batch for tests of worker processes, which import them from here."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np


def double(batch: dict[str, Any]) -> None:
    """In place."""
    batch["x"] *= 2


def noisy(batch: dict[str, Any]) -> dict[str, Any]:
    """Of the global generators: returns all fields."""
    noise = np.random.rand(*batch["x"].shape).astype(np.float32)
    return {"id": batch["id"], "x": batch["x"] + noise + np.float32(random.random())}


def slow(batch: dict[str, Any]) -> None:
    """Python code, which holds the lock for two milliseconds."""
    end = time.perf_counter() + 0.002
    while time.perf_counter() < end:
        pass


def sleeps(batch: dict[str, Any]) -> None:
    """Releases the lock."""
    time.sleep(0.05)


class Once:
    """Something that happens at the batch that has sample 7, the first time in whichever process, or each time."""

    def __init__(self, folder: str, does: str, times: int = 1) -> None:
        self.folder, self.does, self.times = folder, does, times

    def __call__(self, batch: dict[str, Any]) -> None:
        batch["x"] += 1
        if 7 not in batch["id"]:
            return
        for time_ in range(self.times):
            try:
                (Path(self.folder) / f"{self.does}-{time_}").touch(exist_ok=False)
            except FileExistsError:
                continue
            if self.does == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.does == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            if self.does == "exit":
                os._exit(3)
            raise LookupError("of the function")


class Shapes:
    """Returns another shape."""

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "x": batch["x"][:, :1]}
