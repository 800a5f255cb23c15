"""`collate_fn`, as torch has it: a function of the samples of a batch, whose result is the batch.

It is called where the samples are read, in a process or a thread. Its result is taken apart by `_tree.py`. For options
that need fields, it is cut into rows instead, which are then written like those of any data set.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from time import monotonic
from typing import Any, Union

import numpy as np

from . import _own
from ._columns import Columns, Shared, without_limit
from ._errors import ConfigError
from ._memory import Beside, Kept, Look, by_field, frozen, same, sharing
from ._own import ALONE, Reader, Stacked, attributes_of, check_random_access, how_next, others
from ._tree import Tree, TreeColumns
from ._values import as_array
from ._workers.seeds import NotAlone, Read, SharedWatch

#: A column without values. A batch with a ragged column is read in one call.
_WHOLE = "collate_fn"

#: The options that need fields with rows.
_OPTIONS = "max_length, max_per_batch, pad, map_batch, device_map or record"

#: Combined with the key of the first sample, the key of a batch.
_OF_BATCH = 0x9E3779B97F4A7C15

#: The name of a field, or the containers around such names: the keys of a dict, or the type of another one.
Nest = Union[str, "tuple[Any, list[Nest]]"]

#: Reads samples with keys: `SharedWatch.read`, or a worker's equivalent.
_By = Callable[[Read, Sequence[int]], "tuple[list[Any], BaseException | None]"]


def _parts(value: Any) -> list[tuple[str, Any]] | None:
    """The parts of a container, by name; ``None`` for other values."""
    if isinstance(value, Mapping):
        return [(str(key), part) for key, part in value.items()]
    if isinstance(value, (tuple, list)):
        return [(str(place), part) for place, part in enumerate(value)]
    return None


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """The arrays in a nest of dicts, tuples and lists: the names are joined by dots, as in ``"inputs.ids"``."""
    parts = _parts(value)
    if parts is None:
        return {name or "0": value}
    fields: dict[str, Any] = {}
    for key, part in parts:
        for inner, leaf in flat(part, f"{name}.{key}" if name else key).items():
            if inner in fields:
                raise ValueError(f'collate_fn returned two fields that are called "{inner}": rename one')
            fields[inner] = leaf
    return fields


def nest_of(value: Any, name: str = "") -> Nest:
    """The nesting of the arrays of :func:`flat` in ``value``."""
    parts = _parts(value)
    if parts is None:
        return name or "0"
    inner = [nest_of(part, f"{name}.{key}" if name else key) for key, part in parts]
    return (list(value) if isinstance(value, Mapping) else type(value)), inner


def nested(nest: Nest, batch: Mapping[str, Any]) -> Any:
    """The fields of a batch as ``collate_fn`` returned them; a dict of arrays is the batch itself."""
    if not isinstance(nest, str) and isinstance(nest[0], list) and all(isinstance(one, str) for one in nest[1]):
        if list(map(str, nest[0])) == list(batch):
            return batch
    return _nested(nest, batch)


def _nested(nest: Nest, batch: Mapping[str, Any]) -> Any:
    if isinstance(nest, str):
        return batch[nest]
    kind, parts = nest
    values = [_nested(part, batch) for part in parts]
    if isinstance(kind, list):
        return dict(zip(kind, values, strict=True))
    return kind(*values) if hasattr(kind, "_fields") else kind(values)


class Collating(Reader):
    """Reads whole batches of a data set, and calls a function with the list of each batch's samples."""

    is_whole = True

    def __init__(
        self,
        data: Any,
        function: Callable[[list[Any]], Any],
        max_length: Mapping[str, int | None],
        padded: Collection[str] = (),
        has_rows: bool = False,
    ) -> None:
        check_random_access(data)
        if not callable(function):
            raise ConfigError(f"collate_fn is {type(function).__name__}: give a function of a list of samples")
        self._data, self.function, self._before = data, function, attributes_of(data)
        self._watch = SharedWatch(self.parts)
        before, start = self._watch.states(), monotonic()
        self._filling = threading.RLock()
        try:
            self._first = data[0]
            self._first_copy = frozen(self._first)
            results = self._trials(function, has_rows)
        finally:
            self._watch.has_found(before)
            before.restore()
        # Whether another sample has changed the first one.
        self.copies = self._fills = not same(self._first, self._first_copy)
        self.first_seconds = (monotonic() - start) / 3
        #: Takes a result of the function apart.
        self._taken: Any = _Fields if has_rows else Tree
        #: The nesting of the fields in the function's result.
        self.nest = nest_of(results[1]) if has_rows else Tree
        try:
            every: list[Any] = [self._taken(result).rows(count)[0] for result, count in zip(results, (1, 2), strict=True)]
        except ValueError as error:
            raise ConfigError(str(error)) from error.__cause__
        #: A row of a batch with a sample that cannot be read.
        self._example: Any = every[0] if has_rows else Tree(None)
        columns: Any = self._columns_of(every, max_length, padded) if has_rows else TreeColumns(*every)
        self.columns = columns
        self.is_tuple, self.fields = False, self.columns.fields
        places = self.columns.places or [(name, name, None) for name, *_ in self.fields]
        self.places = [place for place in places if place[0] != _WHOLE] if has_rows else []
        #: What the data set keeps of its samples, by field, and the function of its results.
        self.kept = defaultdict(Kept)
        self.kept_results: dict[str, Kept] = defaultdict(Kept)

    def _trials(self, function: Callable[[list[Any]], Any], has_rows: bool) -> list[Any]:
        """The results for one sample and for two; both for two if the function needs two."""

        def of(count: int) -> Any:
            # Copies: the function may change them.
            return function([frozen(self._data[index % len(self._data)]) for index in range(count)])

        two = of(2)
        try:
            return [of(1), two]
        except Exception:
            if has_rows:
                raise
            return [two, two]

    def _columns_of(
        self, every: Sequence[dict[str, Any]], max_length: Mapping[str, int | None], padded: Collection[str]
    ) -> Columns:
        """The columns of the rows of one sample and of two."""
        one, two = every
        if one.keys() != two.keys():
            raise ConfigError(
                f"collate_fn returned the fields {list(one)[:-1]} for one sample and {list(two)[:-1]} for two: a batch has "
                "the same fields each time"
            )
        # Rows that differ for one sample and for two have the width of the longest of a batch.
        widths = [name for name, value in one.items() if np.shape(value)[:1] != np.shape(two[name])[:1]]
        limits = dict.fromkeys(widths) | without_limit(one, padded) | dict(max_length) | {_WHOLE: 1}

        def row(number: int) -> dict[str, Any]:
            return _Fields(self.function([self._data[number]])).rows(1)[0]

        return Columns(one, limits, lambda: others(row, 1, len(self._data), self.generators))

    @property
    def parts(self) -> list[tuple[str, Any]]:
        """The arguments to make it in another process, by name."""
        return [*super().parts, ("collate_fn", self.function)]

    @property
    def is_batched(self) -> bool:
        """Whether several samples are read in one call."""
        return True

    def check_apart(self, samples: list[Any], read: Read, look: Look | None) -> None:
        """Raises Shared if samples are to be read again, because the data set fills some memory anew."""
        if self.copies:
            return
        shared = sharing([*samples, self._first]) - {len(samples)}
        self.counted += len(samples) if shared else 0
        if shared and (self._watch.is_random or not self.are_right(samples, read, shared)):
            if look is not None:
                look.check_alone()
            self.copies = True
            raise Shared

    def read_whole(
        self,
        ids: Sequence[int],
        draws: Sequence[tuple[int, int]] | None,
        keys: Sequence[int],
        by: _By | None,
        look: Look | None = None,
    ) -> tuple[list[dict[str, Any]], BaseException | None]:
        """The rows of a batch; an exception comes with as many rows as samples were read before it."""
        try:
            return self._read_whole(_Batch(self, ids, draws, look), ids, keys, by)
        except Shared:
            # Now with copies.
            return self._read_whole(_Batch(self, ids, draws, look), ids, keys, by)

    def _read_whole(
        self, batch: _Batch, ids: Sequence[int], keys: Sequence[int], by: _By | None
    ) -> tuple[list[dict[str, Any]], BaseException | None]:
        keys = [*keys, keys[0] ^ _OF_BATCH]
        at = 0
        while True:
            found, error = batch.read_from(at, keys[at:], by)
            at += len(found)
            if error is not None:
                # The function's own error is behind the last sample.
                return [self._example] * min(at, len(ids)), error
            if at == len(keys):
                return list(found[-1]), None

    def read_many(
        self,
        ids: Sequence[int],
        draws: Sequence[tuple[int, int]] | None,
        keys: Sequence[int] | None,
        how: int,
    ) -> Stacked:
        """As every reader's, for a whole batch."""

        def by(read: Read, keys: Sequence[int]) -> tuple[list[Any], BaseException | None]:
            return self._watch.read(read, keys, how == ALONE)

        look = Look(keys is None or how != _own.BESIDE, list(ids))
        try:
            none = [0] * len(ids)
            rows, error = self.read_whole(ids, draws, keys or none, None if keys is None else by, look)
        except NotAlone:
            return 0, [], None, True, ALONE
        except Beside:
            return 0, [], None, self._watch.is_random, _own.ALONE_IN_THREADS
        self._watch.end(how == ALONE)
        # The rows of a result are parts of its arrays.
        rows, fields, error = self._fields(rows, error, None)
        return len(rows), fields, error, self._watch.is_random, how_next(self._watch, look)


class _Fields:
    """A result of the function, as fields with a row for each sample."""

    def __init__(self, result: Any) -> None:
        self.arrays = flat(result)

    def rows(self, count: int) -> list[dict[str, Any]]:
        """The rows of a batch of ``count`` samples."""
        arrays = {}
        for name, value in self.arrays.items():
            array = as_array(name, value)
            if array.ndim == 0 or len(array) != count or isinstance(value, (str, bytes, bytearray)):
                kind = f"{type(value).__name__} of the shape {array.shape}"
                what = repr(value) if isinstance(value, str) else kind
                raise ValueError(
                    f'collate_fn returned "{name}", {what}, for {count} samples: with {_OPTIONS}, fields have a row for '
                    "each sample; leave it out, or repeat it"
                )
            arrays[name] = array
        empty = np.empty(0, np.uint8)
        return [{name: array[row] for name, array in arrays.items()} | {_WHOLE: empty} for row in range(count)]


class _Batch:
    """The steps of a batch: its samples, then the call of the function."""

    def __init__(
        self, reader: Collating, ids: Sequence[int], draws: Sequence[tuple[int, int]] | None, look: Look | None
    ) -> None:
        self._reader, self._ids, self._draws, self._look = reader, ids, draws, look
        self._samples: list[Any] = [None] * len(ids)

    def read_from(
        self, first: int, keys: Sequence[int], by: _By | None
    ) -> tuple[list[Any], BaseException | None]:
        """Some of the steps from ``first`` on."""

        def read(which: Sequence[int]) -> tuple[list[Any], BaseException | None]:
            return self._read([first + index for index in which])

        return read(range(len(keys))) if by is None else by(read, keys)

    def _read(self, steps: Sequence[int]) -> tuple[list[Any], BaseException | None]:
        which = [step for step in steps if step < len(self._ids)]
        if which:
            found, error = self._samples_of(which)
            for index, sample in zip(which, found, strict=False):
                self._samples[index] = sample
            return found, error
        reader = self._reader
        try:
            look = self._look
            found = [] if look is None else look.among(reader.kept, by_field(self._samples))
            reader.check_apart(self._samples, self._samples_of, look)
            taken = reader._taken(reader.function(list(self._samples)))
            if look is not None:
                found += look.among(reader.kept_results, {name: [value] for name, value in taken.arrays.items()})
                look.settle(found)
            return [taken.rows(len(self._samples))], None
        except (Beside, Shared):
            raise
        except BaseException as error:  # noqa: BLE001
            return [], error

    def _samples_of(self, which: Sequence[int]) -> tuple[list[Any], BaseException | None]:
        draws = None if self._draws is None else [self._draws[index] for index in which]
        return self._reader.samples([self._ids[index] for index in which], draws, self._look)
