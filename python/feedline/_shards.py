"""The shards of a source, as the worker threads open them: those that give the same samples each time, and those that
are read once.

What gives each sample once, such as a queue, may have none for as long as it likes. No worker may wait for it, since the
end of a loader and of the interpreter waits for the workers. So a thread of its own takes the samples, and is left behind
where it waits.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _feedline
from ._columns import Columns
from ._errors import ConfigError
from ._memory import frozen
from ._own import LOOKED_AT, fingerprint_of, others

#: The bytes of a sample, by field.
Packed = list["bytes | tuple[bytes, list[int]]"]

#: Max samples that a thread takes ahead of the workers.
AHEAD = 16
#: Seconds that a worker waits for a sample; it then looks whether the loader ends.
_PATIENCE = 0.005


class Shards:
    """Opens the shards of a source: iterables, or functions that return iterators."""

    is_once = False
    is_tuple: bool

    def __init__(self, shards: Sequence[Any], max_length: Mapping[str, int]) -> None:
        self._shards, self._max_length = shards, max_length
        #: The numbers of the shards that have given a sample.
        self._known: set[int] = set()
        #: The last iterators of shards that are functions.
        self._last: dict[int, weakref.ref[Any]] = {}
        for number, shard in enumerate(shards):
            if isinstance(shard, Iterator) and not self.is_once:
                raise ConfigError(
                    f"shard {number} is {type(shard).__name__}, which can be read once, so it has no second "
                    "epoch and cannot be resumed: give Source(..., once=True) for one pass; or the function that "
                    "makes it, or an object whose __iter__ begins anew"
                )
            if not callable(shard) and not hasattr(shard, "__iter__"):
                raise ConfigError(
                    f"shard {number} is {type(shard).__name__}: give an object with __iter__, or a function "
                    "that returns an iterator"
                )

    def look(self) -> None:
        """Finds the fields, by the first sample."""
        every = (sample for number, shard in enumerate(self._shards) for sample in self._begun(number, shard))
        self._look(every, "the source has no samples: give some")

    def _look(self, every: Iterator[Any], if_none: str) -> None:
        first = next(every, self)
        if first is self:
            raise ConfigError(if_none)
        self.columns = Columns(first, self._max_length, lambda: others(lambda _: next(every), 1, LOOKED_AT))
        self.is_tuple, self.fields = self.columns.is_tuple, self.columns.fields
        self.places = self.columns.places

    @property
    def fingerprint(self) -> int | None:
        """A number that identifies the shards, if they all have one."""
        numbers = [fingerprint_of(shard) for shard in self._shards]
        return None if None in numbers else fingerprint_of(_Fingerprint(repr(numbers)))

    def open(self, epoch: int, shard: int, offset: int) -> Iterator[Packed | None]:
        """The samples of a shard from number ``offset`` on."""
        samples = self._shards[shard]
        # Torch's distributed samplers and Hugging Face's iterable data sets have it.
        if hasattr(samples, "set_epoch"):
            samples.set_epoch(epoch)
        # Hugging Face's method: it may seek.
        if offset and hasattr(samples, "skip"):
            samples, offset = samples.skip(offset), 0
        opened = iter(self._begun(shard, samples))
        for number in range(offset):
            if _feedline.is_closing():
                raise RuntimeError("the Python interpreter is shutting down")
            if next(opened, self) is self:
                raise ValueError(
                    f"shard {shard} has {number} samples, and the saved state is after {offset}: a shard "
                    "must give the same samples each time"
                )
        has_epochs = hasattr(samples, "set_epoch")
        return self._packed(opened, None if offset or has_epochs else shard)

    def _begun(self, shard: int, samples: Any) -> Iterable[Any]:
        """The samples of a shard from its beginning, or of the rest of it."""
        if hasattr(samples, "__iter__"):
            return samples  # type: ignore[no-any-return]
        begun: Iterable[Any] = samples()
        last = self._last.get(shard)
        if last is not None and last() is begun and isinstance(begun, Iterator):
            raise ValueError(
                f"shard {shard} gives the same {type(begun).__name__} each time, which can be read once: give a "
                "function that makes a new iterator, or Source(..., once=True) for one pass"
            )
        # Iterators that are not written in Python have no weak references.
        with contextlib.suppress(TypeError):
            self._last[shard] = weakref.ref(begun)
        return begun

    def _packed(self, opened: Iterator[Any], shard: int | None) -> Iterator[Packed | None]:
        """The bytes of samples: those of a whole ``shard``, if its number is given."""
        for sample in opened:
            if shard is not None:
                self._known.add(shard)
            yield self.columns.pack([sample])
            break
        else:
            if shard in self._known:
                raise ValueError(
                    f"shard {shard} has no samples now, and had some before: a shard must give the same samples "
                    "each time; give Source(..., once=True) for a stream that is read once"
                )
        for sample in opened:
            yield self.columns.pack([sample])


class Once(Shards):
    """Opens shards that are read once. An iterator that was opened for the fields is read on, after what was read of it."""

    is_once = True

    def __init__(self, shards: Sequence[Any], max_length: Mapping[str, int]) -> None:
        super().__init__(shards, max_length)
        #: Samples of each shard that were delivered, and that were taken from it.
        self.delivered, self.taken = [0] * len(shards), [0] * len(shards)
        self._has_begun = self._has_looked = False
        #: The samples that were read of a shard for the fields, and the iterator behind them.
        self._opened: dict[int, tuple[list[Any], Iterator[Any]]] = {}

    def look(self, rank: int = 0, world: int = 1) -> None:
        """Finds the fields, by the first sample that this rank will read. Waits for it. Does nothing a second time."""
        if self._has_looked:
            return
        if world > len(self._shards):
            raise ConfigError(
                f"the source has {len(self._shards)} shards and is read by {world} ranks: with once=True give a shard for "
                "each rank"
            )

        def samples() -> Iterator[Any]:
            for shard in range(rank, len(self._shards), world):
                if shard not in self._opened:
                    self._opened[shard] = [], iter(self._begun(shard, self._shards[shard]))
                read, rest = self._opened[shard]
                # Those of a call that was interrupted.
                yield from read
                for sample in rest:
                    self.taken[shard] += 1
                    read.append(frozen(sample))
                    yield sample

        of = f" of rank {rank} of {world}" * (world > 1)
        self._look(samples(), f"the shards{of} have no samples, which have the fields: give some")
        self._has_looked = True

    @contextlib.contextmanager
    def begins(self, epoch: int, step: int = 0, counts: Sequence[Sequence[int]] = ((), ())) -> Iterator[None]:
        """Around the begin of the pass, at ``step``, where ``counts`` were delivered and taken. Refuses a second pass."""
        if self._has_begun or epoch > 0:
            raise ConfigError(
                f"the source is read once (once=True), so it has one pass, epoch 0{', which was begun' * self._has_begun}: "
                "go on with the iterator of that pass, or make another Source of the samples to come"
            )
        for number, shard in enumerate(self._shards):
            if step > 0 and not hasattr(shard, "skip"):
                raise ConfigError(
                    f"shard {number} is {type(shard).__name__}, which is read once (once=True) and has no skip(n), so no "
                    "run is resumed in it: give it that method, which returns the samples after the first n, or begin "
                    "without a state, with the samples to come"
                )
        before = self.delivered, self.taken
        if all(counts):
            self.delivered, self.taken = map(list, counts)
        self._has_begun = True
        try:
            yield
        except BaseException:
            self._has_begun = False
            self.delivered, self.taken = before
            raise

    def count(self, ids: Any) -> None:
        """Counts the samples of a batch as delivered."""
        for shard, count in zip(*np.unique(ids >> 40, return_counts=True), strict=True):
            self.delivered[shard] += int(count)

    def open(self, epoch: int, shard: int, offset: int) -> Iterator[Packed | None]:
        """As :meth:`Shards.open`. ``None`` stands for a sample that has not come yet."""
        read, rest = self._opened.pop(shard, ([], None))
        self.taken[shard] = offset

        def begun() -> Iterator[Any]:
            samples = self._shards[shard]
            if offset or rest is None:
                return iter(self._begun(shard, samples.skip(offset) if offset else samples))
            return itertools.chain(read, rest)

        def packed(sample: Any) -> Packed:
            self.taken[shard] += 1
            return self.columns.pack([sample])

        return _Taken(begun, packed)


class _Taken(Iterator["Packed | None"]):
    """Samples that a thread of their own takes, as far ahead as there is room."""

    def __init__(self, begun: Callable[[], Iterator[Any]], packed: Callable[[Any], Packed]) -> None:
        #: What was taken: samples, and the exception or ``StopIteration`` at their end.
        self._taken: queue.SimpleQueue[Packed | BaseException] = queue.SimpleQueue()
        #: ``True`` for each sample that may be taken; ``False`` ends the thread.
        self._room: queue.SimpleQueue[bool] = queue.SimpleQueue()
        for _ in range(AHEAD):
            self._room.put(True)
        # The end of the interpreter does not wait for a daemon.
        arguments = begun, packed, self._room, self._taken
        threading.Thread(target=_take, args=arguments, name="feedline-source", daemon=True).start()

    def __next__(self) -> Packed | None:
        try:
            taken = self._taken.get(timeout=_PATIENCE)
        except queue.Empty:
            return None
        if isinstance(taken, BaseException):
            try:
                raise taken
            finally:
                # Its traceback refers to this frame.
                del taken
        self._room.put(True)
        return taken

    def __del__(self) -> None:
        # No more samples are lost than the one that the thread waits for.
        with contextlib.suppress(queue.Empty):
            while True:
                self._room.get_nowait()
        self._room.put(False)


def _take(
    begun: Callable[[], Iterator[Any]],
    packed: Callable[[Any], Packed],
    room: queue.SimpleQueue[bool],
    taken: queue.SimpleQueue[Packed | BaseException],
) -> None:
    """Takes samples while there is room for them. A function, so that the thread keeps nobody who reads.

    The interpreter may end the thread wherever it waits for the lock, so no code in Rust that gives up the lock may be
    above this on the stack.
    """
    try:
        samples = begun()
        while room.get():
            taken.put(packed(next(samples)))
    except BaseException as error:  # noqa: BLE001
        taken.put(error)


class _Fingerprint(NamedTuple):
    fingerprint: str
