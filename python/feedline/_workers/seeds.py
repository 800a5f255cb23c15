"""The random generators of a process and of a data set, seeded for a sample.

A key is a hash of the run's seed, the epoch and the draw, so that a sample that uses `random`, `np.random`, torch or a
generator of its own is the same in any process or thread. Seeding costs more than a small sample, so a generator is
not seeded until a data set uses it. When such use is found, the samples since the last check are read again.

In threads, samples that draw from the global generators are read alone, while the loop waits for a batch: see
`src/turn.rs`. What changes then is theirs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Any, NamedTuple

from .. import _workers
from .generators import all_generators
from .owned import own_generators

_log = logging.getLogger("feedline")


class States:
    """The states of some generators; by default of all that there are."""

    def __init__(self, own: Iterable[Any] = ()) -> None:
        self._all = all_generators()
        self._of = [(one, one.state()) for one in (*self._all, *own)]

    def changed(self) -> list[Any]:
        """The generators whose state has changed, and those of libraries imported meanwhile, whose earlier
        state is unknown."""
        new = [one for one in all_generators() if one not in self._all]
        return [one for one, state in self._of if one.state() != state] + new

    def are_as(self, other: States) -> bool:
        """Whether the generators that both know have the same states."""
        its = {id(one): state for one, state in other._of}
        return all(its.get(id(one), state) == state for one, state in self._of)

    def restore(self, only: Sequence[Any] | None = None) -> None:
        """Sets the generators to these states; or ``only`` some of them."""
        for one, state in self._of:
            if only is None or one in only:
                one.restore(state)


#: Reads samples; returns those before the first that fails, and its exception.
Read = Callable[[Sequence[int]], "tuple[list[Any], BaseException | None]"]


class Watch:
    """Detects the generators that a data set uses, in a process that does nothing else."""

    def __init__(self, parts: Sequence[tuple[str, Any]] = ()) -> None:
        self._parts, self._is_new = parts, True
        #: The generators of the data set, and the paths of those that cannot be seeded.
        self.own, self.refused = own_generators(parts)
        #: The generators that are seeded before each sample.
        self.used: list[Any] = []

    @property
    def is_random(self) -> bool:
        """Whether the data set has used one."""
        return bool(self.used)

    def states(self) -> States:
        """The states of all generators."""
        return States(self.own)

    def has_found(self, before: States) -> bool:
        """Whether a generator that was not seeded has another state than ``before``; it counts as used from
        then on."""
        found = [one for one in before.changed() if one not in self.used]
        if self._is_new:
            # Many data sets make a generator for their first sample.
            self._is_new = False
            known = {one.identity for one in self.own}
            new = [one for one in own_generators(self._parts)[0] if one.identity not in known]
            self.own += new
            found += new
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


def first_of(data: Any, watch: Watch) -> tuple[Any, float]:
    """The first sample, which determines the fields, and its time in seconds. The generators keep their
    state; those that the sample draws from count as used."""
    before = watch.states()
    try:
        start = monotonic()
        first = data[0]
        return first, monotonic() - start
    finally:
        watch.has_found(before)
        before.restore()


#: Held by the thread whose samples use generators of a data set, which other sets may have too. Reentrant,
#: because a data set may read another one.
_own_turn = threading.RLock()
_PATIENCE = 60.0
#: Seconds after which other threads get their turn.
_SLICE = 0.002
#: How often a sample is read that may have drawn, or the loop meanwhile.
_TRIES = 3
#: The ids of the generators that were named because they cannot be seeded.
_told: set[int] = set()


class NotAlone(Exception):
    """Samples seem to draw from the global generators, and are to be read alone."""


class _Suspect(NamedTuple):
    """Samples that may have drawn from the global generators while the loop ran."""

    before: States
    after: States
    #: Reads them again.
    again: Callable[[], Any]


class SharedWatch(Watch):
    """As :class:`Watch`, in a process whose other threads use the generators too: their state is restored."""

    def __init__(self, parts: Sequence[tuple[str, Any]] = ()) -> None:
        super().__init__(parts)
        self._suspect: _Suspect | None = None
        #: Whether the loop was found to draw from the generators instead of the samples.
        self._is_disturbed = False
        #: Whether a line has said that the samples are read alone.
        self._is_told = False

    def __reduce__(self) -> Any:
        return SharedWatch, ()

    def tell(self) -> None:
        """Names the generators that cannot be seeded."""
        new = [path for key, path in self.refused.items() if key not in _told]
        _told.update(self.refused)
        if new and not _workers.is_worker:
            _log.warning(
                "%s cannot be seeded: samples that draw from it are others in each run", " and ".join(new)
            )

    @property
    def is_alone(self) -> bool:
        """Whether the data set draws from the generators of the process, or may, so that it must be read alone."""
        return self._suspect is not None or self._uses_globals

    @property
    def _uses_globals(self) -> bool:
        return any(one not in self.own for one in self.used)

    @property
    def _drawn(self) -> str:
        return " and ".join(one.name for one in self.used if one not in self.own)

    def read(self, read: Read, keys: Sequence[int], is_alone: bool) -> tuple[list[Any], BaseException | None]:
        """The first of as many samples as there are keys. ``is_alone`` says that no other thread draws meanwhile.

        Raises NotAlone if it is to be so.
        """
        if is_alone:
            return self._alone(read, keys)
        if self.is_alone:
            # Another thread has found it meanwhile.
            raise NotAlone
        if not self.own:
            return self._beside(read, keys)
        is_mine = _own_turn.acquire(timeout=_PATIENCE)
        try:
            return self._beside(read, keys)
        finally:
            if is_mine:
                _own_turn.release()

    def again(self, read: Read, keys: Sequence[int], is_alone: bool) -> Read:
        """Reads samples once more, each with its key."""
        if not self.used:
            # They drew from nothing.
            return read

        def seeded(which: Sequence[int]) -> tuple[list[Any], BaseException | None]:
            before = self.states()
            try:
                return self.seeding(read, keys)(which)
            finally:
                before.restore(None if is_alone else self.own)

        return seeded

    def end(self, is_alone: bool) -> None:
        """A call ends, with all that it has read."""
        if is_alone and self._suspect is not None:
            # It was the loop that drew.
            self._suspect, self._is_disturbed = None, True

    def _alone(self, read: Read, keys: Sequence[int]) -> tuple[list[Any], BaseException | None]:
        while True:
            before, had = self.states(), self._uses_globals
            try:
                found = self._slice(read, keys)
                has_found = self.has_found(before)
            finally:
                before.restore()
            if not has_found:
                if self._uses_globals and not self._is_told:
                    self._is_told = True
                    _log.info(
                        "samples draw from %s: threads read them while the loop waits for a batch; processes "
                        "(workers=2) read ahead",
                        self._drawn,
                    )
                return found
            if self._uses_globals and not had:
                self._now_alone()

    def _now_alone(self) -> None:
        """The first draws from the global generators are found. If they were made while the loop ran, they are taken
        back, unless the loop has drawn since."""
        suspect, self._suspect = self._suspect, None
        if suspect is None:
            return
        now = self.states()
        suspect.before.restore()
        suspect.again()
        if now.are_as(suspect.after) and now.are_as(self.states()):
            suspect.before.restore()
        else:
            now.restore()
            _log.warning(
                "samples began to draw from %s while the loop ran: what the loop has drawn since the last batch may "
                "differ from a run without a loader; processes (workers=2) keep them apart",
                self._drawn,
            )

    def _beside(self, read: Read, keys: Sequence[int]) -> tuple[list[Any], BaseException | None]:
        if not self._is_disturbed:
            return self._looked(read, range(len(keys)), keys, 1)
        samples: list[Any] = []
        end = monotonic() + _SLICE
        for index in range(len(keys)):
            try:
                sample, error = self._looked(read, [index], keys, _TRIES)
            except NotAlone:
                if samples:
                    return samples, None
                raise
            samples += sample
            if error is not None or monotonic() > end:
                return samples, error
        return samples, None

    def _looked(
        self, read: Read, which: Sequence[int], keys: Sequence[int], tries: int
    ) -> tuple[list[Any], BaseException | None]:
        """Reads samples up to ``tries`` times, until no global generator has changed meanwhile: those that draw do so
        each time."""
        first, done, reads = None, list[int](), 0
        of_keys: Read = read
        if len(which) < len(keys):
            keys = [keys[index] for index in which]

            def chosen(part: Sequence[int]) -> tuple[list[Any], BaseException | None]:
                return read([which[index] for index in part])

            of_keys = chosen
        while True:
            before = self.states()
            first = first or before
            try:
                found = self._slice(of_keys, keys)
            finally:
                changed = [one for one in before.changed() if one not in self.used]
                before.restore(self.own)
            done += which[: len(found[0]) + (found[1] is not None)]
            own = [one for one in changed if one in self.own]
            self.used += own
            if own:
                continue
            reads += 1
            if not changed:
                return found
            if reads == tries:
                self._suspect = _Suspect(first, self.states(), lambda: read(done))
                raise NotAlone

    def _slice(self, read: Read, keys: Sequence[int]) -> tuple[list[Any], BaseException | None]:
        """Some of the samples, those that draw for a few milliseconds."""
        if not self.used:
            return read(range(len(keys)))
        samples: list[Any] = []
        seeded, end = self.seeding(read, keys), monotonic() + _SLICE
        for index in range(len(keys)):
            one, error = seeded([index])
            samples += one
            if error is not None or monotonic() > end:
                return samples, error
        return samples, None
