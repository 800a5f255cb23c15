"""Data sets and hooks written in Python, as the worker threads call them: many samples as bytes of each field,
or as the addresses of its rows if they are long.

The memory of a slot is kept out of Python: an array that a data set keeps or changes later cannot touch a batch. An
array that it changes for the next sample of the same call is found, see `_memory.py`.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from time import monotonic
from typing import Any

import numpy as np

from ._columns import AreRight, Columns, Misfit, Packed, Place, Shared, without_limit
from ._errors import ConfigError
from ._memory import Beside, Found, Kept, Look, by_field, frozen, is_at, same, sharing
from ._values import as_array, exact
from ._workers.seeds import NotAlone, Read, SharedWatch, States, first_of

#: Seconds after which :meth:`Reader.read_many` returns early: other threads wait for the interpreter's lock,
#: and the end of the process waits for the call.
_LOCKED = 0.002
#: Max seconds of a quick sample, and max quick samples between two checks of the clock.
_QUICK, _STEP = 20e-6, 16
#: Max samples that are read to find the type of a field that is an empty list in the first one.
LOOKED_AT = 100


#: The number of samples read, the rows of each field, the exception of the next sample, whether the samples
#: draw random numbers, and how they are read from now on: these ones again, if there are none.
Stacked = tuple[int, "list[Packed]", "BaseException | None", bool, int]


#: How samples are read: beside other threads; while no other thread reads; and while the loop waits, too. As in
#: `src/turn.rs`.
BESIDE, ALONE_IN_THREADS, ALONE = 0, 1, 2


def how_next(watch: SharedWatch, look: Look) -> int:
    """How the next samples are read."""
    return ALONE if watch.is_alone else BESIDE if look.is_over else ALONE_IN_THREADS


def fingerprint_of(data: Any) -> int | None:
    """A number from the attribute ``fingerprint`` of a data set, or the one of Hugging Face's data sets."""
    for name in ("fingerprint", "_fingerprint"):
        value = getattr(data, name, None)
        if isinstance(value, (int, str)):
            return int.from_bytes(hashlib.sha256(str(value).encode()).digest()[:8], "little")
    return None


def check_random_access(data: Any) -> None:
    """Refuses an object without samples by index."""
    if not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        raise ConfigError(
            f"a data set needs __len__ and __getitem__, and {type(data).__name__} has not both: give an "
            "iterable to feedline.Source, which reads it in sequence"
        )
    if len(data) == 0:
        raise ConfigError("the data set is empty: give samples")


def attributes_of(data: Any) -> dict[str, Any] | None:
    """The attributes of an object, if it has any of its own."""
    return dict(vars(data)) if hasattr(data, "__dict__") else None


def _are_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(one[name] is other[name] for name in one)


def others(
    read: Callable[[int], Any], first: int, end: int, own: Sequence[Any] = ()
) -> Generator[tuple[int, Any], None, None]:
    """Some samples from number ``first`` on, without those that cannot be read. The generators keep their state."""
    before = States(own)
    try:
        for number in range(first, min(end, first + LOOKED_AT)):
            try:
                sample = read(number)
            except Exception:  # noqa: BLE001, S112
                continue
            yield number, sample
    finally:
        before.restore()


class Reader:
    """Reads the samples of an object with ``__len__`` and ``__getitem__``, and stacks them."""

    #: Whether a batch is read as a whole.
    is_whole = False
    #: The nesting of the fields in a batch: a `_collate.Nest`.
    nest: Any = None
    #: The time of the first sample, in seconds.
    first_seconds = 0.0
    #: The attributes of the data set before its first sample was read.
    _before: dict[str, Any] | None = None
    #: The first sample, which stays, so that memory that is filled anew is known by it; and a copy of it.
    _first: Any = None
    _first_copy: Any = None
    #: Whether each sample is copied at once, or written to its batch; and whether its memory is filled anew, so that
    #: one thread reads at a time.
    copies = is_one_by_one = _fills = False
    #: What the data set keeps of samples that are copied, by field.
    kept: dict[str, Kept]
    #: Samples that shared memory, and those among which that is rare or not: in threads the ones of the same calls.
    _shared = counted = 0

    def __init__(self, data: Any, max_length: Mapping[str, int | None], padded: Collection[str] = ()) -> None:
        check_random_access(data)
        self._data, self._before = data, attributes_of(data)
        self._watch = SharedWatch(self.parts)
        first, self.first_seconds = first_of(data, self._watch)
        self._first, self._first_copy, self._filling = first, frozen(first), threading.RLock()
        self.kept = defaultdict(Kept)
        every = lambda: others(lambda index: data[index], 1, len(data), self.generators)
        self.columns = Columns(first, without_limit(first, padded) | dict(max_length), every)
        self.is_tuple, self.fields = self.columns.is_tuple, self.columns.fields
        self.places = self.columns.places

    def __getstate__(self) -> dict[str, Any]:
        # A worker process has memory of its own.
        left = ("_before", "_first", "_first_copy", "_filling")
        return {name: value for name, value in vars(self).items() if name not in left}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._filling = threading.RLock()

    def as_before(self) -> Reader:
        """A reader of the data set as it was before its first sample was read. Many data sets open a file
        then; each process must open its own."""
        now = attributes_of(self._data)
        if self._before is None or now is None or _are_same(now, self._before):
            return self
        data, reader = copy.copy(self._data), copy.copy(self)
        vars(data).clear()
        vars(data).update(self._before)
        reader._data = data
        return reader

    def __len__(self) -> int:
        return len(self._data)

    @property
    def parts(self) -> list[tuple[str, Any]]:
        """What is sent to another process, by name."""
        return [("data", self._data)]

    @property
    def fingerprint(self) -> int | None:
        """A number that identifies the data, if it has one."""
        return fingerprint_of(self._data)

    @property
    def generators(self) -> list[Any]:
        """The random generators of the data set and of its parts."""
        return self._watch.own

    def tell(self) -> None:
        """Names the random generators that cannot be seeded."""
        self._watch.tell()

    @property
    def is_batched(self) -> bool:
        """Whether the data set reads several samples in one call, by torch's ``__getitems__``."""
        return hasattr(self._data, "__getitems__")

    def samples(
        self, ids: Sequence[int], draws: Sequence[tuple[int, int]] | None, look: Look | None = None
    ) -> tuple[list[Any], BaseException | None]:
        """The first of the samples ``ids``: all of them if the set reads several in one call, else those that
        are read within a few milliseconds. An exception belongs to the sample after the last one.

        For a random set, ``draws`` has the epoch and a seed of each sample. ``look`` is for threads.
        """
        if draws is None and len(ids) > 1 and self.is_batched and not self.copies:
            all_of_them = self._at_once(ids)
            if all_of_them is not None:
                return all_of_them, None
        samples: list[Any] = []
        try:
            if self.copies:
                self._read_copies(ids, draws, samples, look)
            else:
                self._read(ids, draws, samples)
        except Beside:
            raise
        except BaseException as error:  # noqa: BLE001
            return samples, error
        return samples, None

    def _read(self, ids: Sequence[int], draws: Sequence[tuple[int, int]] | None, samples: list[Any]) -> None:
        """Appends the first of the samples. Checks the clock more and more rarely while they are quick."""
        data, add, start, step = self._data, samples.append, monotonic(), 1
        while len(samples) < len(ids):
            part = slice(len(samples), len(samples) + step)
            if draws is None:
                for index in ids[part]:
                    add(data[index])
            else:
                for index, (epoch, seed) in zip(ids[part], draws[part], strict=True):
                    add(data.read_at(index, epoch, seed))
            took = monotonic() - start
            if took > _LOCKED:
                break
            if took < _QUICK * len(samples):
                step = min(2 * step, _STEP)

    def _read_copies(
        self, ids: Sequence[int], draws: Sequence[tuple[int, int]] | None, samples: list[Any], look: Look | None
    ) -> None:
        """As :meth:`_read`, with a copy of each sample before the next one is read."""
        start, given = monotonic(), []
        for place, index in enumerate(ids):
            # Another thread would fill the memory of the sample before it is copied.
            with self._filling if self._fills else contextlib.nullcontext():
                sample = self._data[index] if draws is None else self._data.read_at(index, *draws[place])
                samples.append(frozen(sample))
            given.append(sample)
            del sample
            if monotonic() - start > _LOCKED:
                break
        if self._fills:
            return
        found = [] if look is None else look.among(self.kept, by_field(given))
        shared = sharing([*given, self._first]) - {len(given)}
        is_old = all(same(given[place], samples[place]) for place in shared)
        if is_old and same(self._first, self._first_copy):
            if look is not None:
                look.settle(found)
            return
        if look is not None:
            look.check_alone()
        self._fills = True
        samples.clear()
        self._read_copies(ids, draws, samples, look)

    def are_right(self, samples: Sequence[Any], read: Read, shared: set[int]) -> bool:
        """Whether samples that share memory are as they were read: the data set does not fill it anew. If not, they are
        to be read again, and samples are copied, or written, one by one from now on."""
        self._shared += len(shared)
        # If many share memory, a copy of each is cheaper. The last one in some memory is right; one alone has
        # that of the first sample.
        if 4 * self._shared <= self.counted + 16 and not self._fills:
            of_first = len(shared) == 1 and not same(self._first, self._first_copy)
            if not of_first and all(self._is_right(samples[at], at, read) for at in sorted(shared)[:-1]):
                return True
        self._fills = self._fills or not same(self._first, self._first_copy)
        return False

    @staticmethod
    def _is_right(sample: Any, at: int, read: Read) -> bool:
        before = frozen(sample)
        again, error = read([at])
        return error is None and len(again) == 1 and is_at(sample, again[0]) and same(before, again[0])

    def _at_once(self, ids: Sequence[int]) -> list[Any] | None:
        """The samples by one call; ``None`` if it fails: reading them one by one then shows the bad one."""
        try:
            samples = list(self._data.__getitems__(ids))
        except Exception:  # noqa: BLE001
            return None
        return samples if len(samples) == len(ids) else None

    def read_many(
        self,
        ids: Sequence[int],
        draws: Sequence[tuple[int, int]] | None,
        keys: Sequence[int] | None,
        how: int,
    ) -> Stacked:
        """Some of the samples. The random generators that they use are seeded from ``keys``, unless there are
        none. ``how`` is `BESIDE`, `ALONE_IN_THREADS` or `ALONE`.
        """

        def read(which: Sequence[int]) -> tuple[list[Any], BaseException | None]:
            if len(which) == len(ids) and which[0] == 0 and which[-1] == len(ids) - 1:
                return self.samples(ids, draws, look)
            chosen = None if draws is None else [draws[index] for index in which]
            return self.samples([ids[index] for index in which], chosen, look)

        def seeded() -> tuple[list[Any], BaseException | None]:
            return self.samples(ids, draws, look) if keys is None else self._watch.read(read, keys, how == ALONE)

        def are_right(shared: set[int], kept: list[Found]) -> bool:
            # Another thread may be filling memory that the set keeps, or that of the first sample.
            if kept or len(samples) in shared:
                look.check_alone()
            again = read if keys is None else self._watch.again(read, keys, how == ALONE)
            self.counted += len(samples) if shared else 0
            if not shared or self.are_right(samples, again, shared - {len(samples)}):
                look.settle(kept)
                return True
            look.check_alone()
            self.copies = True
            return False

        look = Look(keys is None or how != BESIDE, list(ids))
        try:
            samples, error = seeded()
            try:
                samples, fields, error = self._fields(samples, error, None if self.copies else are_right)
            except Shared:
                samples, error = seeded()
                samples, fields, error = self._fields(samples, error, None)
        except NotAlone:
            return 0, [], None, True, ALONE
        except Beside:
            return 0, [], None, self._watch.is_random, ALONE_IN_THREADS
        self._watch.end(how == ALONE)
        return len(samples), fields, error, self._watch.is_random, how_next(self._watch, look)

    def _fields(
        self, samples: list[Any], error: BaseException | None, are_right: AreRight | None
    ) -> tuple[list[Any], list[Packed], BaseException | None]:
        """The samples before the first that is not like the others, and their rows."""
        try:
            return samples, self.columns.rows(samples, are_right), error
        except Misfit as misfit:
            good = samples[: misfit.position]
            return good, self.columns.rows(good), misfit


class Hook:
    """A function of a batch: gets its arrays by name, changes them in place or returns others."""

    #: Arguments for the workers.
    is_whole = False

    def __init__(
        self,
        function: Callable[[dict[str, Any]], Any],
        columns: Sequence[tuple[str, Any, list[int]]],
        places: Sequence[Place],
    ) -> None:
        self.function, self._columns = function, columns
        fixed = {name for name, *_ in columns}
        all_places = places or [(name, name, None) for name, *_ in columns]
        self._places = [place for place in all_places if place[1] in fixed]
        #: The fields and types of a block of rows, in a worker's layout.
        self.fields = [(name, "", shape, None) for name, _, shape in columns]
        self.dtypes = [dtype for _, dtype, _ in columns]
        #: What the function keeps of the arrays that it returns.
        self._kept: dict[int, Kept] = defaultdict(Kept)
        self._watch = SharedWatch(self.parts)
        self._watch.tell()

    def as_before(self) -> Hook:
        """As a reader's; a hook has no state."""
        return self

    @property
    def parts(self) -> list[tuple[str, Any]]:
        """What is sent to another process, by name."""
        return [("map_batch", self.function)]

    def __call__(
        self, columns: list[bytes], rows: int, key: int, how: int
    ) -> tuple[list[tuple[int, int, Any]] | None, int]:
        """Calls the function in a thread of this process. Returns the address, the bytes and the array of each
        column, and how it is called from now on; no columns if this call is one of those.
        """

        def read(_: Sequence[int]) -> tuple[list[Any], BaseException | None]:
            given = [
                np.frombuffer(one, dtype).reshape(rows, *of[2])
                for one, dtype, of in zip(columns, self.dtypes, self.fields, strict=True)
            ]
            return self.attempt(given)

        try:
            found, error = self._watch.read(read, [key], how == ALONE)
        except NotAlone:
            return None, ALONE
        look = Look(how != BESIDE, key)
        if error is None:
            try:
                look.settle(look.among(self._kept, {at: [one] for at, one in enumerate(found[0])}))
            except Beside:
                return None, ALONE_IN_THREADS
        self._watch.end(how == ALONE)
        if error is not None:
            raise error
        arrays = [(array.__array_interface__["data"][0], array.nbytes, array) for array in found[0]]
        return arrays, how_next(self._watch, look)

    @property
    def generators(self) -> list[Any]:
        """The random generators of the function."""
        return self._watch.own

    def attempt(self, arrays: Sequence[Any]) -> tuple[list[Any], BaseException | None]:
        """Calls the function on copies of the columns; returns a list of its result, or its exception."""
        try:
            return [self._mapped([array.copy() for array in arrays])], None
        except BaseException as error:  # noqa: BLE001
            return [], error

    def _mapped(self, columns: list[Any]) -> list[Any]:
        arrays = {name: column for (name, *_), column in zip(self._columns, columns, strict=True)}
        batch = {name: arrays[of] if at is None else arrays[of][:, at] for name, of, at in self._places}
        result = self.function(batch)
        if result is not None:
            unknown = [name for name in result if name not in batch]
            if unknown:
                raise ValueError(f"the hook returned {unknown[0]!r}, and the fields are {list(batch)}")
            left_out = [name for name in batch if name not in result]
            if left_out:
                raise ValueError(
                    f"the hook returned {list(result)} without {left_out[0]!r}: return every field, or "
                    "nothing after changing the arrays in place; fields are left out by Data.map before"
                )
            batch.update(result)
        # Copied first: the hook may have returned a part of another field.
        changed = [self._checked(batch[name], name, arrays[of], at) for name, of, at in self._places]
        for (_, of, at), value in zip(self._places, changed, strict=True):
            if at is None:
                arrays[of] = value
            else:
                arrays[of][:, at] = value
        return [np.ascontiguousarray(arrays[name]) for name, *_ in self._columns]

    @staticmethod
    def _checked(value: Any, name: str, column: Any, at: int | None) -> Any:
        field = column if at is None else column[:, at]
        array = as_array(name, value)
        if array.shape != field.shape:
            raise ValueError(f'the hook made "{name}" {array.shape}, and the batch has {field.shape}')
        checked = exact(name, array, field.dtype, "the field")
        return checked if at is None else checked.copy()
