"""The global random generators of a process, seeded for a sample.

A key is a number of the run's seed, the epoch and the draw, so that a sample that uses `random`, `np.random`
or torch is the same whichever process or thread reads it. Only libraries that are imported are seeded.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import numpy as np


def seed_all(key: int) -> None:
    """Seeds the global generators from a number of 64 bits."""
    random.seed(key)
    # Two words: of one, two of 77,000 samples would be the same.
    np.random.seed((key & 0xFFFFFFFF, key >> 32))
    torch = sys.modules.get("torch")
    # `torch.manual_seed` takes 70 us, because it visits every device.
    generator = getattr(torch, "default_generator", None)
    if generator is not None:
        generator.manual_seed(key & 0x7FFFFFFFFFFFFFFF)


class States:
    """The states of the global generators."""

    def __init__(self) -> None:
        torch = sys.modules.get("torch")
        self._torch = getattr(torch, "default_generator", None)
        self._python = random.getstate()
        self._numpy = np.random.get_state()
        self._bytes = None if self._torch is None else self._torch.get_state()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, States):
            return NotImplemented
        return (
            self._python == other._python
            and _same(self._numpy, other._numpy)
            # With torch that was imported meanwhile nothing is known of its generator.
            and (self._bytes is None) == (other._bytes is None)
            and (self._bytes is None or bool((self._bytes == other._bytes).all()))
        )

    __hash__ = None  # type: ignore[assignment]

    def restore(self) -> None:
        """Sets the generators to these states."""
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        if self._torch is not None:
            self._torch.set_state(self._bytes)


def _same(one: Any, other: Any) -> bool:
    if not isinstance(one, tuple) or not isinstance(other, tuple):
        # A generator that `np.random.set_bit_generator` has set.
        return repr(one) == repr(other)
    return bool(one[0] == other[0] and one[2:] == other[2:] and (one[1] == other[1]).all())


def first_of(data: Any) -> Any:
    """The first sample, which says what the fields are. The generators are left as they were."""
    before = States()
    try:
        return data[0]
    finally:
        before.restore()


class Watch:
    """Whether a data set has used a generator, in a process that does nothing else.

    Seeding costs more than a small sample, so a set counts as one that uses no generator until it does. Then
    what was read since the last look is read again.
    """

    def __init__(self) -> None:
        self.is_random = False
        self._states = States()

    def has_changed(self) -> bool:
        """Whether a generator has another state than before: from then on the set is a random one."""
        if States() != self._states:
            self.is_random = True
        return self.is_random


#: Reads samples: those before the first that cannot be read, and its exception.
Read = Callable[[Sequence[int]], "tuple[list[Any], BaseException | None]"]

#: Whose samples use the generators of this process. One thread at a time, and not for ever: a data set may
#: read another one.
_turn = threading.RLock()
_PATIENCE = 60.0
#: Seconds after which other threads get their turn.
_SLICE = 0.002
#: How often a set is suspected in vain before it counts as one that uses no generator.
_SUSPICIONS = 3


class SharedWatch:
    """As :class:`Watch`, in a process whose other threads use the generators too: they get them back as they
    were.

    A generator that has changed may have been used by another thread, so it is looked at after each sample
    before the set counts as a random one.
    """

    def __init__(self) -> None:
        self.is_random = False
        self._suspicions = 0

    def __reduce__(self) -> Any:
        return SharedWatch, ()

    def read(self, read: Read, keys: Sequence[int]) -> tuple[list[Any], BaseException | None]:
        """The first of as many samples as there are keys."""
        first: States | None = None
        if not self.is_random:
            if self._suspicions == _SUSPICIONS:
                return read(range(len(keys)))
            first = States()
            found = read(range(len(keys)))
            if States() == first:
                return found
        is_mine = _turn.acquire(timeout=_PATIENCE)
        before = States()
        try:
            return self._seeded(read, keys)
        finally:
            # What another thread has drawn before is not drawn again.
            (first if first is not None and self.is_random else before).restore()
            if is_mine:
                _turn.release()

    def _seeded(self, read: Read, keys: Sequence[int]) -> tuple[list[Any], BaseException | None]:
        samples: list[Any] = []
        is_suspected, end = not self.is_random, monotonic() + _SLICE
        for index, key in enumerate(keys):
            seed_all(key)
            before = States() if is_suspected else None
            one, error = read([index])
            samples += one
            if before is not None and States() != before:
                self.is_random, is_suspected = True, False
            if error is not None:
                return samples, error
            if monotonic() > end and not is_suspected:
                break
        if is_suspected:
            self._suspicions += 1
        return samples, None
