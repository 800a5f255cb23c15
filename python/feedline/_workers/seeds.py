"""The global random generators of a process, seeded for a sample.

A key is a hash of the run's seed, the epoch and the draw, so that a sample that uses `random`, `np.random` or
torch is the same in any process or thread. Seeding costs more than a small sample, so a generator is not
seeded until a data set uses it. When such use is found, the samples since the last check are read again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic
from typing import Any

from .generators import all_generators


class States:
    """The states of some generators; by default of all that there are."""

    def __init__(self, generators: Iterable[Any] | None = None) -> None:
        known = all_generators()
        self._all = set(known)
        self._of = [(one, one.state()) for one in (known if generators is None else generators)]

    def changed(self) -> list[Any]:
        """The generators whose state has changed, and those of libraries imported meanwhile, whose earlier
        state is unknown."""
        new = [one for one in all_generators() if one not in self._all]
        return [one for one, state in self._of if one.state() != state] + new

    def restore(self, only: Sequence[Any] | None = None) -> None:
        """Sets the generators to these states; or ``only`` some of them."""
        for one, state in self._of:
            if only is None or one in only:
                one.restore(state)


def first_of(data: Any) -> tuple[Any, float]:
    """The first sample, which determines the fields, and its time in seconds. The generators keep their
    state."""
    before = States()
    try:
        start = monotonic()
        first = data[0]
        return first, monotonic() - start
    finally:
        before.restore()


#: Reads samples; returns those before the first that fails, and its exception.
Read = Callable[[Sequence[int]], "tuple[list[Any], BaseException | None]"]


class Watch:
    """Detects the generators that a data set uses, in a process that does nothing else."""

    def __init__(self) -> None:
        #: The generators that are seeded before each sample.
        self.used: list[Any] = []

    @property
    def is_random(self) -> bool:
        """Whether the data set has used one."""
        return bool(self.used)

    def has_found(self, before: States) -> bool:
        """Whether a generator that was not seeded has another state than ``before``; it counts as used from
        then on."""
        found = [one for one in before.changed() if one not in self.used]
        self.used += found
        return bool(found)

    def seeding(self, read: Read, keys: Sequence[int]) -> Read:
        """Reads samples, each with a key, and seeds the generators that are used."""
        return _seeding(read, keys, self.used) if self.used else read


def _seeding(read: Read, keys: Sequence[int], generators: Sequence[Any]) -> Read:
    def seeded(which: Sequence[int]) -> tuple[list[Any], BaseException | None]:
        samples: list[Any] = []
        for index in which:
            for one in generators:
                one.seed(keys[index])
            sample, error = read([index])
            samples += sample
            if error is not None:
                return samples, error
        return samples, None

    return seeded


#: Held by the thread whose samples use this process's generators. Reentrant, because a data set may read
#: another one.
_turn = threading.RLock()
_PATIENCE = 60.0
#: Guards what follows and the readers of each `SharedWatch`; notified when a turn or a read ends.
_changed = threading.Condition()
#: The turns that have begun, or wait for the last readers; and how often a thread's turn has begun.
_open, _begun = 0, 0


class _OfThread(threading.local):
    #: Whether the thread reads without a turn.
    reads = False
    #: The number of its turns, one within another.
    turns = 0


_own = _OfThread()
#: Seconds after which other threads get their turn.
_SLICE = 0.002
#: After this many wrong suspicions a generator counts as not used.
_SUSPICIONS = 3


class SharedWatch:
    """As :class:`Watch`, in a process whose other threads use the generators too: their state is restored.

    Another thread may have changed a generator, so it is checked after each sample before it counts as used.
    """

    def __init__(self) -> None:
        self._used: list[Any] = []
        self._in_vain: dict[Any, int] = {}
        self._is_new = True
        #: Whether the first read has ended, which nothing else reads beside.
        self._is_known = False
        #: The number of threads that read without a turn. A thread with a turn waits for them, because they
        #: would draw too.
        self._readers = 0

    def __reduce__(self) -> Any:
        return SharedWatch, ()

    @property
    def is_random(self) -> bool:
        """Whether the data set has used a generator."""
        return bool(self._used)

    def read(self, read: Read, keys: Sequence[int]) -> tuple[list[Any], BaseException | None]:
        """The first of as many samples as there are keys."""
        if _own.reads:
            # Within a read of another data set, which looks at all generators. A turn may wait for it.
            return read(range(len(keys)))
        is_first, self._is_new = self._is_new, False
        begun = None if is_first else self._enters()
        if begun is not None:
            try:
                first, found, suspects = self._look(read, keys)
            finally:
                self._leaves()
            # During a turn for another data set the generators change, and are restored at its end.
            if begun == _begun:
                if not suspects:
                    return found
                with self._in_turn():
                    return self._suspicious(read, keys, suspects, first)
        with self._in_turn():
            try:
                first, found, suspects = self._look(read, keys)
                return self._suspicious(read, keys, suspects, first) if suspects else found
            finally:
                self._is_known = True

    def _enters(self) -> int | None:
        """Counts this thread as a reader, after the turns of others; returns how many have begun. ``None`` if the
        thread must read in a turn."""
        if self._used or _own.turns:
            return None
        with _changed:
            # The turn of another thread may have found what the data set uses.
            if not _changed.wait_for(lambda: _open == 0 and self._is_known, _PATIENCE) or self._used:
                return None
            _own.reads = True
            self._readers += 1
            return _begun

    def _leaves(self) -> None:
        with _changed:
            _own.reads = False
            self._readers -= 1
            _changed.notify_all()

    @contextlib.contextmanager
    def _in_turn(self) -> Iterator[None]:
        global _open, _begun
        is_mine = _turn.acquire(timeout=_PATIENCE)
        with _changed:
            _own.turns += 1
            _open += 1
            _changed.wait_for(lambda: self._readers == 0, _PATIENCE)
            _begun += 1
        try:
            yield
        finally:
            with _changed:
                _own.turns -= 1
                _open -= 1
                _changed.notify_all()
            if is_mine:
                _turn.release()

    def _look(
        self, read: Read, keys: Sequence[int]
    ) -> tuple[States, tuple[list[Any], BaseException | None], list[Any]]:
        """The states before, samples, and the generators that were not seeded and have changed."""
        first = States(one for one in all_generators() if self._may_use(one))
        found = self._seeded(read, keys) if self._used else read(range(len(keys)))
        return first, found, [one for one in first.changed() if self._may_use(one)]

    def _may_use(self, generator: Any) -> bool:
        return generator not in self._used and self._in_vain.get(generator, 0) < _SUSPICIONS

    def _seeded(self, read: Read, keys: Sequence[int]) -> tuple[list[Any], BaseException | None]:
        before, samples, end = States(self._used), [], monotonic() + _SLICE
        seeded = _seeding(read, keys, self._used)
        try:
            for index in range(len(keys)):
                one, error = seeded([index])
                samples += one
                if error is not None:
                    return samples, error
                if monotonic() > end:
                    break
            return samples, None
        finally:
            before.restore()

    def _suspicious(
        self, read: Read, keys: Sequence[int], suspects: list[Any], first: States
    ) -> tuple[list[Any], BaseException | None]:
        """Reads samples, and checks after each whether it has used one of ``suspects``. If so, these get
        their state ``first`` back, so that numbers drawn by another thread are not repeated."""
        generators, samples, found = [*self._used, *suspects], [], []
        before, seeded = States(generators), _seeding(read, keys, generators)
        try:
            for index in range(len(keys)):
                for one in suspects:
                    one.seed(keys[index])
                own = States(one for one in suspects if one not in found)
                sample, error = seeded([index])
                samples += sample
                found += [one for one in own.changed() if one in suspects]
                if error is not None:
                    return samples, error
            return samples, None
        finally:
            before.restore()
            first.restore(only=found)
            self._used += found
            for one in suspects:
                self._in_vain[one] = self._in_vain.get(one, 0) + (one not in found)
