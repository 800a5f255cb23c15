"""Batches of one's own: named by a function, or by a batch sampler of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import _options
from ._errors import ConfigError, shown


def steps_of(batches: Any, steps: Any) -> tuple[int, Callable[[int, int], bytes]]:
    """The number of steps of an epoch, and the function that gives the ids of a step, as bytes."""
    if hasattr(batches, "__iter__") and hasattr(batches, "__len__"):
        if steps is not None:
            raise ConfigError(f"steps is {shown(steps)}, and {shown(type(batches).__name__)} has a length: leave it out")
        _check_is_whole(batches)
        return len(batches), _Listed(batches)
    if not callable(batches):
        raise ConfigError(
            f"batches are {shown(batches)}: give a function of epoch and step that returns ids, or an object with "
            "__iter__ and __len__, such as a batch_sampler of torch"
        )
    if steps is None:
        raise ConfigError("batches of a function need steps=, the number of steps of an epoch over all ranks")
    return _options.whole("steps", steps, 1), lambda epoch, step: _ids(batches(epoch, step))


class _Listed:
    """The batches of an object that lists those of an epoch: asked for in order, from step 0 on."""

    def __init__(self, batches: Any) -> None:
        self._batches, self._steps = batches, len(batches)
        self._left: Any = iter(())

    def __call__(self, epoch: int, step: int) -> bytes:
        if step == 0:
            for one in (self._batches, getattr(self._batches, "sampler", None)):
                set_epoch = getattr(one, "set_epoch", None)
                if set_epoch is not None:
                    set_epoch(epoch)
            self._left = iter(self._batches)
        try:
            ids = _ids(next(self._left))
        except StopIteration:
            raise ConfigError(self._count(f"ends after {step}")) from None
        if step == self._steps - 1 and next(self._left, None) is not None:
            raise ConfigError(self._count("goes on after them"))
        return ids

    def _count(self, how: str) -> str:
        name = shown(type(self._batches).__name__)
        return f"{name} has a length of {self._steps} batches, and {how}: its length must be that of each epoch"


def _check_is_whole(batches: Any) -> None:
    """Refuses a batch sampler that lists the batches of one rank only, which the ranks would share once more."""
    for one in (batches, getattr(batches, "sampler", None), getattr(batches, "batch_sampler", None)):
        for name in ("num_replicas", "world_size"):
            ranks = getattr(one, name, 1)
            if isinstance(ranks, int) and ranks > 1:
                raise ConfigError(
                    f"{shown(type(one).__name__)} has {name}={ranks}, so it lists the batches of one rank, and the loader "
                    f"shares those of all ranks: make it with {name}=1, rank=0"
                )


def _ids(batch: Any) -> bytes:
    """The ids of a batch, as bytes of ``uint64``."""
    ids = np.asarray(batch if hasattr(batch, "__array__") else list(batch))
    if ids.size == 0:
        return b""
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise ConfigError(f"a batch is {ids.dtype} {list(ids.shape)}: give whole numbers, the ids of its samples")
    if ids.min() < 0:
        raise ConfigError(f"a batch has the id {ids.min()}: give ids from 0 on")
    return ids.astype(np.uint64).tobytes()
