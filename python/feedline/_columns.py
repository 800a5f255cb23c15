"""Samples of Python, stacked field by field: one check of types per field and one copy per value.

Needs NumPy only, so that a worker process can import it.
"""

from __future__ import annotations

import contextlib
import hashlib
import struct
import sys
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, Union

import numpy as np

from . import _memory, _values
from ._errors import ConfigError, shown
from ._memory import Found, Kept
from ._values import Array, as_array, exact, fields_of

#: A field: name, dtype, shape of a row or of an item, and the max items of a ragged field.
Field = tuple[str, str, list[int], "int | None"]

#: The memory that a field is written to: rows; for a ragged field, concatenated values, lengths in items, and the
#: room for a sample.
Out = Union[Array, "tuple[Array, Array, int]"]

#: The values of a field: bytes; for a ragged one, bytes and the lengths of its rows; or addresses of rows,
#: and their arrays.
Packed = Union[bytes, "tuple[bytes, list[int]]", "tuple[list[int], list[Array]]"]

#: A field of a sample: its name, its column in a batch, and its index there if it is stacked.
Place = tuple[str, str, "int | None"]

#: Max columns of a batch.
_MOST = 16

#: Max items of a sample, and the least room for one.
_MOST_ITEMS, _LEAST_ROOM = 2**31 - 1, 16

#: Rows of up to this many bytes are joined and copied at once; longer ones are copied one by one.
_JOINED = 8192

_DTYPE, _SHAPE = attrgetter("dtype"), attrgetter("shape")

#: Types of Python and NumPy that have exactly the values of a type of batches.
_SCALARS: dict[str, set[type]] = {
    "bool": {bool, np.bool_},
    "i64": {int, np.int64},
    "f64": {float, np.float64},
    "i32": {np.int32},
    "i16": {np.int16},
    "i8": {np.int8},
    "u8": {np.uint8},
    "u16": {np.uint16},
    "u32": {np.uint32},
    "f32": {np.float32},
    "f16": {np.float16},
}


#: The codes of `struct` for types of numbers, and the types of Python that it packs exactly.
_PACKED: dict[str, tuple[str, set[type]]] = {
    "bool": ("?", {bool}),
    "i64": ("q", {int}),
    "f64": ("d", {float, np.float64}),
}


class Misfit(ValueError):
    """A sample is not like the first one."""

    #: The index of the sample in the list of samples.
    position: int

    def __init__(self, position: int, why: object) -> None:
        super().__init__(str(why))
        self.position = position


class Longer(Misfit):
    """A sample is longer than there is room for."""

    #: The place of the field among the columns.
    place: int

    def __init__(self, position: int, items: int) -> None:
        super().__init__(position, f"{items} items")
        self.items = items


class Shared(Exception):
    """Samples whose memory was written, or may be, after they were read."""


#: Whether samples are as they were read, from the indices of those that share memory in the list of samples (the first
#: sample of all has the one after the last), and from the values that the data set keeps.
AreRight = Callable[["set[int]", "list[Found]"], bool]


class Columns:
    """Stacks samples that are like a first one.

    If they have more fields than a batch has columns, fields of one type and shape share a column. ``others`` gives
    the samples after the first, with their numbers, if the first has an empty list, whose type is unknown. Fields whose
    ``max_length`` is ``None`` have no limit.
    """

    def __init__(
        self,
        first: Any,
        max_length: Mapping[str, int | None],
        others: Callable[[], Generator[tuple[int, Any], None, None]] | None = None,
    ) -> None:
        sample = fields_of(first)
        #: The number of the sample that determines the type of a field, if not the first.
        typed_by: dict[str, int] = {}
        unknown = [name for name in max_length if name not in sample]
        if unknown:
            raise ConfigError(f"max_length names {shown(unknown[0])}, and the fields are {list(sample)}")
        #: Whether samples are tuples.
        self.is_tuple = isinstance(first, (tuple, list))
        self._is_dict = isinstance(first, Mapping)
        #: Whether a sample is its only field, which is checked as such.
        self._is_one_value = not self.is_tuple and not self._is_dict
        self._names = list(sample)
        #: The first sample as it is, which stays: memory of a later one is new only if it is not that of this
        #: one.
        self._first = [first, *sample.values()]
        self._get = itemgetter(*self._names) if sample else None
        unknown = [name for name in max_length if _has_no_type(sample[name])]
        if unknown:
            sample, typed_by = _typed(sample, unknown, others)
        try:
            self._columns = [
                _column(name, value, max_length.get(name, 0), typed_by.get(name, 0)) for name, value in sample.items()
            ]
        except ValueError as error:
            raise error if isinstance(error, ConfigError) else ConfigError(str(error)) from error.__cause__
        self._groups = _groups(self._columns)
        self._numbers = [self._numbers_of(column, places) for column, places in self._groups]
        #: What the data set keeps of its samples: of each field, and the samples themselves.
        self._kept = [*(Kept(1 if self._is_one_value else 2) for _ in self._columns), Kept(1)]
        #: The columns of a batch.
        self.fields: list[Field] = [column.field for column, _ in self._groups]
        #: The fields of texts, and those of lists of texts.
        self.texts = {name for name, value in sample.items() if isinstance(value, str)}
        self.text_lists = {column.name for column in self._columns if isinstance(column, _TextLists)}
        #: The fields that vary in length without a limit.
        self.growing = [column.name for column in self._columns if isinstance(column, _Varying) and column.grows]
        #: NumPy's type of each column.
        self.dtypes = [column.dtype for column, _ in self._groups]
        #: Bytes of a sample in fields of one size.
        self.row_bytes = sum(
            dtype.itemsize * int(np.prod(shape, dtype=np.int64))
            for (_, _, shape, most), dtype in zip(self.fields, self.dtypes, strict=True)
            if most is None
        )
        #: The columns of the fields, if some share one; else empty.
        self.places: list[Place] = []
        if len(self._groups) < len(self._columns):
            at = {
                place: (column.name, among)
                for column, places in self._groups
                for among, place in enumerate(places)
            }
            shared = {column.name for column, places in self._groups if len(places) > 1}
            for place, name in enumerate(self._names):
                column_name, among = at[place]
                self.places.append((name, column_name, among if column_name in shared else None))

    def __getstate__(self) -> dict[str, Any]:
        # A worker process has memory of its own, and one thread.
        return {**vars(self), "_first": [], "_kept": []}

    def pack(self, samples: Sequence[Any]) -> list[bytes | tuple[bytes, list[int]]]:
        """The bytes of each field: its concatenated rows, and the lengths of ragged ones in items.

        Raises Misfit for the first sample that is not like the others.
        """
        return [column.packed(values) for column, values in self._checked(samples, None)]

    def rows(self, samples: Sequence[Any], are_right: AreRight | None = None) -> list[Packed]:
        """As :meth:`pack`; for a field of long rows, their addresses and the compact arrays that own them.

        Raises Misfit for the first sample that is not like the others, and Shared if some share memory and are not
        right. Without ``are_right`` they are known to be apart.
        """
        return [column.rows(values) for column, values in self._checked(samples, are_right)]

    def write(self, samples: Sequence[Any], out: Sequence[Out], are_right: AreRight | None = None) -> None:
        """Writes each field into its arrays of ``out``, compact ones in the type of the field.

        Raises as :meth:`rows`; ``out`` is then unspecified.
        """
        for place, ((column, values), to) in enumerate(zip(self._checked(samples, are_right), out, strict=True)):
            try:
                column.write(values, to)
            except Longer as longer:
                longer.place = place
                raise

    def _numbers_of(self, column: Any, places: list[int]) -> _Numbers | None:
        """How the fields that share a column are packed at once; ``None`` if they are not."""
        packed = _PACKED.get(column.field[1])
        if len(places) == 1 or packed is None or column.shape != (len(places),):
            return None
        keys = [self._names[place] for place in places] if self._is_dict else places
        return _Numbers(itemgetter(*keys), column.dtype, len(places), *packed)

    def _checked(self, samples: Sequence[Any], are_right: AreRight | None) -> list[tuple[Any, Any]]:
        """The columns of a batch, each with its values."""
        shared, kept = set(), list[Found]()
        watched = self._kept if are_right is not None else []
        if are_right is not None and not (watched and watched[-1].are_new(samples, are_fields=False)):
            shared = self._repeated(samples)
            kept += watched[-1].among(samples) if watched and not self._is_one_value else []
        numbers = [None] * len(self._groups) if not any(self._numbers) else self._packed_numbers(samples)
        if all(one is not None for one in numbers):
            _check_right(shared, kept, are_right)
            return [(column, values) for (column, _), values in zip(self._groups, numbers, strict=True)]
        checked: dict[int, Any] = {}
        misfits = []
        split = self._split(samples)
        left = [at for (_, places), found in zip(self._groups, numbers, strict=True) if found is None for at in places]
        for place in sorted(left):
            # Before the values are checked, which makes references to them.
            is_new = bool(watched) and watched[place].are_new(split[place])
            kept += watched[place].among(split[place]) if watched and not is_new else []
            try:
                checked[place] = self._columns[place].checked(split[place])
            except Misfit as misfit:
                misfits.append(misfit)
                continue
            if are_right is not None and not is_new:
                held = self._first[1 + place : 2 + place]
                shared |= self._columns[place].shared(split[place], checked[place], held)
        _check_right(shared, kept, are_right)
        if misfits:
            raise min(misfits, key=attrgetter("position"))
        columns = []
        for (column, places), found in zip(self._groups, numbers, strict=True):
            if found is None:
                values = [checked[place] for place in places]
                found = values[0] if len(places) == 1 else column.stacked(values)
            columns.append((column, found))
        return columns

    def _repeated(self, samples: Sequence[Any]) -> set[int]:
        """The positions of samples that are one object, such as a dict that is filled anew."""
        # A tuple stays as it is, and a sample that is its only field is checked as such.
        if not samples or self._is_one_value or type(samples[0]) is tuple:
            return set()
        every = [*samples, *self._first[:1]]
        if len(set(map(id, every))) == len(every):
            return set()
        return _memory.sharing(every)

    def _packed_numbers(self, samples: Sequence[Any]) -> list[Array | None]:
        """The values of each column of numbers that are packed at once; ``None`` for the others."""
        kinds = {dict} if self._is_dict else {tuple, list}
        if not samples or not set(map(type, samples)) <= kinds or set(map(len, samples)) != {len(self._names)}:
            return [None] * len(self._groups)
        try:
            return [None if one is None else one.packed(samples) for one in self._numbers]
        except KeyError:
            return [None] * len(self._groups)

    def _values(self, samples: Sequence[Any]) -> list[Sequence[Any]]:
        """The values of each field of dicts that have all of them."""
        if self._get is None or not samples:
            return [[] for _ in self._names]
        if len(self._names) == 1:
            # `itemgetter` of one name gives no tuple.
            return [list(map(self._get, samples))]
        return list(zip(*map(self._get, samples), strict=True))

    def _split(self, samples: Sequence[Any]) -> list[Sequence[Any]]:
        """The values of each field."""
        kinds, count = set(map(type, samples)), len(self._names)
        if self.is_tuple:
            if kinds <= {tuple, list} and set(map(len, samples)) <= {count}:
                return list(zip(*samples, strict=True)) if samples else [[] for _ in self._names]
        elif self._is_dict:
            if kinds <= {dict} and set(map(len, samples)) <= {count}:
                try:
                    return self._values(samples)
                except KeyError:
                    pass
        elif not any(issubclass(kind, (Mapping, tuple, list)) for kind in kinds):
            return [samples]
        rows = []
        for position, sample in enumerate(samples):
            fields = fields_of(sample)
            if fields.keys() != set(self._names):
                why = f"the sample has the fields {list(fields)}, and the first one has {self._names}"
                raise Misfit(position, why)
            rows.append([fields[name] for name in self._names])
        return list(zip(*rows, strict=True)) if rows else [[] for _ in self._names]


def _check_right(shared: set[int], kept: list[Found], are_right: AreRight | None) -> None:
    if (shared or kept) and are_right is not None and not are_right(shared, kept):
        raise Shared


class _Numbers:
    """Fields of one type that share a column, packed by one call."""

    def __init__(
        self, get: Callable[[Any], Any], dtype: np.dtype[Any], fields: int, code: str, kinds: set[type]
    ) -> None:
        self._get, self._dtype, self._fields, self._code, self._kinds = get, dtype, fields, code, kinds

    def packed(self, samples: Sequence[Any]) -> Array | None:
        """A row for each sample; ``None`` if a value is of another type."""
        values = list(chain.from_iterable(map(self._get, samples)))
        if not set(map(type, values)) <= self._kinds:
            return None
        try:
            packed = struct.pack(f"={len(values)}{self._code}", *values)
        except struct.error:
            # The type cannot hold a whole number.
            return None
        return np.frombuffer(packed, self._dtype).reshape(-1, self._fields)


class _Column:
    """The values of one field. ``checked`` returns them as one array, or as compact arrays of one type."""

    def __init__(self, field: Field, dtype: np.dtype[Any], typed_by: int = 0) -> None:
        self.field, self.dtype, self.name = field, dtype, field[0]
        #: The sample that determines the type.
        self.like = f"sample {typed_by}"
        self.shape = tuple(field[2])

    def shared(self, values: Sequence[Any], checked: Any, held: Sequence[Any]) -> set[int]:
        """The positions of values that share memory with another one, or with those ``held``, which come after them."""
        kind = type(values[0]) if values else int
        if kind in _memory.FIXED and isinstance(checked, np.ndarray):
            return set()
        every = [*values, *held]
        if isinstance(self, _Fixed) and (kind is np.ndarray or hasattr(kind, "data_ptr")):
            try:
                return set(_memory.shared_rows(every, self.row_bytes, self.dtype.itemsize))
            except TypeError:
                # One has another type, which is rare.
                pass
        return _memory.sharing(every)

    def _arrays(self, values: Sequence[Any], fit: Callable[[Array], str | None]) -> list[Array]:
        """The values one by one."""
        arrays = []
        for position, value in enumerate(values):
            try:
                array = as_array(self.name, value)
                why = fit(array)
                if why is not None:
                    raise ValueError(why)
                array = exact(self.name, array, self.dtype, self.like)
            except ValueError as error:
                raise Misfit(position, error) from error.__cause__
            arrays.append(np.ascontiguousarray(array))
        return arrays

    def _joined(self, arrays: Sequence[Any]) -> bytes:
        try:
            return b"".join(arrays)
        except (BufferError, ValueError, TypeError):
            # Not compact, or a type without a buffer, such as bfloat16.
            return b"".join([array.tobytes() for array in arrays])


class _Fixed(_Column):
    """A field that has one shape."""

    def __init__(self, field: Field, dtype: np.dtype[Any], typed_by: int = 0) -> None:
        super().__init__(field, dtype, typed_by)
        self._scalars = _SCALARS.get(field[1], set()) if not self.shape else set()
        self.row_bytes = dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))

    def checked(self, values: Sequence[Any]) -> Array | list[Array]:
        count, kinds = len(values), set(map(type, values))
        if count == 0:
            return []
        if kinds == {self.dtype.type} and kinds <= self._scalars:
            # NumPy scalars: four times as fast as an array from a list.
            return np.frombuffer(b"".join(values), self.dtype)
        if kinds <= self._scalars:
            try:
                return np.array(values, self.dtype)
            except OverflowError:
                return self._arrays(values, self._fit)
        if kinds == {np.ndarray}:
            arrays: list[Array] = list(values)
            if _memory.are_alike(arrays, self.dtype, self.shape):
                return arrays
            if list(map(_DTYPE, arrays)).count(self.dtype) == count and self._has_one_shape(arrays):
                return arrays
            return self._arrays(values, self._fit)
        torch = sys.modules.get("torch")
        if torch is not None and kinds == {torch.Tensor} and self.row_bytes <= _JOINED:
            stacked = self._stacked(torch, values)
            if stacked is not None:
                return stacked
        return self._arrays(values, self._fit)

    def _has_one_shape(self, arrays: Sequence[Any]) -> bool:
        return list(map(_SHAPE, arrays)).count(self.shape) == len(arrays)

    def _stacked(self, torch: Any, values: Sequence[Any]) -> Array | None:
        """Tensors of torch, stacked by it: that is faster than an array of each."""
        if len(set(map(_DTYPE, values))) > 1:
            return None
        try:
            stacked: Array = torch.stack(tuple(values)).numpy()
        except (RuntimeError, TypeError):
            return None
        return stacked if stacked.dtype == self.dtype and stacked.shape[1:] == self.shape else None

    def _fit(self, array: Array) -> str | None:
        if array.shape == self.shape:
            return None
        return (
            f'field "{self.name}" has the shape {array.shape}, and sample 0 has {self.shape}: make it one size, or name '
            "it in max_length"
        )

    def stacked(self, members: list[Any]) -> Array:
        """The values of fields that share this column."""
        if len(members[0]) == 0:
            return np.empty((0, *self.shape), self.dtype)
        return np.stack([np.asarray(values, self.dtype) for values in members], 1)

    def packed(self, values: Array | list[Array]) -> bytes:
        return self._joined(values) if isinstance(values, list) else values.tobytes()

    def rows(self, values: Array | list[Array]) -> Packed:
        if not isinstance(values, list) or self.row_bytes <= _JOINED:
            return self.packed(values)
        arrays = [value if value.flags.c_contiguous else np.ascontiguousarray(value) for value in values]
        return _memory.addresses(arrays), arrays

    def write(self, values: Array | list[Array], out: Out) -> None:
        assert isinstance(out, np.ndarray)
        if not isinstance(values, list):
            out[...] = values
        elif self.row_bytes <= _JOINED:
            out.reshape(-1).view(np.uint8)[...] = np.frombuffer(self._joined(values), np.uint8)
        else:
            for row, value in zip(out, values, strict=True):
                row[...] = value


class _Varying(_Column):
    """A field whose first dimension varies; without a limit, if it grows."""

    def __init__(self, field: Field, dtype: np.dtype[Any], typed_by: int, grows: bool) -> None:
        super().__init__(field, dtype, typed_by)
        self.grows = grows
        self._most = _MOST_ITEMS if grows else field[3] or 0

    def checked(self, values: Sequence[Any]) -> list[Array]:
        kinds = set(map(type, values))
        if kinds == {np.ndarray}:
            arrays: list[Array] = list(values)
            if _memory.are_alike(arrays, self.dtype, self.shape, self._most):
                return arrays
            is_typed = list(map(_DTYPE, arrays)).count(self.dtype) == len(arrays)
            if is_typed and all(self._fit(array) is None for array in arrays):
                return arrays
        return self._arrays(values, self._fit)

    def _fit(self, array: Array) -> str | None:
        if array.ndim == 0:
            return (
                f'field "{self.name}" is one number, and varies in length in sample 0: give text or an array, such '
                "as a list of one number"
            )
        if array.shape[1:] != self.shape and array.size > 0:
            return (
                f'field "{self.name}" has items of the shape {array.shape[1:]}, and {self.like} has {self.shape}: make '
                "them one shape"
            )
        if len(array) > self._most and array.size > 0:
            return (
                f'field "{self.name}" has {len(array)} items, and max_length allows {self._most}: raise it, or '
                "shorten the sample"
            )
        return None

    def packed(self, values: list[Array]) -> tuple[bytes, list[int]]:
        return self._joined(values), list(map(self._length, values))

    def rows(self, values: list[Array]) -> Packed:
        return self.packed(values)

    def write(self, values: list[Array], out: Out) -> None:
        items, lengths, room = out
        counts = list(map(self._length, values))
        longer = next((position for position, count in enumerate(counts) if count > room), None)
        if longer is not None:
            raise Longer(longer, counts[longer])
        lengths[...] = counts
        at = 0
        for value, count in zip(values, counts, strict=True):
            if value.size > 0:
                items[at : at + count] = value
            at += count

    @staticmethod
    def _length(array: Array) -> int:
        return len(array) if array.size > 0 else 0


class _TextLists(_Varying):
    """A field of lists of texts, as the UTF-8 of their JSON."""

    def checked(self, values: Sequence[Any]) -> list[Array]:
        for position, value in enumerate(values):
            if not isinstance(value, (list, tuple)) or not all(isinstance(text, str) for text in value):
                raise Misfit(position, f'field "{self.name}" is {shown(value)}, and {self.like} has a list of texts')
        return super().checked([_values.json_of(value) for value in values])


def _has_no_type(value: Any) -> bool:
    """Whether a value is an empty list, or an empty array of the type that NumPy or torch gives to these."""
    if isinstance(value, np.ndarray):
        return value.size == 0 and value.dtype == np.float64
    if isinstance(value, (list, tuple)):
        try:
            return np.asarray(value).size == 0
        except ValueError:
            return False
    torch: Any = sys.modules.get("torch")
    is_tensor = torch is not None and isinstance(value, torch.Tensor)
    return bool(is_tensor and value.numel() == 0 and value.dtype == torch.get_default_dtype())


def _typed(
    sample: dict[str, Any], unknown: list[str], others: Callable[[], Generator[tuple[int, Any], None, None]] | None
) -> tuple[dict[str, Any], dict[str, int]]:
    """The sample, with values for its ``unknown`` fields from the first sample that has some; and the numbers of these.
    An empty list that stays is of whole numbers."""
    found, typed_by = dict(sample), {}
    left = list(unknown)
    if others is not None:
        with contextlib.closing(others()) as opened:
            for number, other in opened:
                fields = fields_of(other)
                for name in [name for name in left if name in fields and not _is_empty(fields[name])]:
                    found[name], typed_by[name] = fields[name], number
                    left.remove(name)
                if not left:
                    break
    for name in left:
        if isinstance(sample[name], (list, tuple)):
            found[name] = np.zeros(np.shape(sample[name]), np.int64)
    return found, typed_by


def _is_empty(value: Any) -> bool:
    try:
        return as_array("", value).size == 0
    except ValueError:
        # Refused later, by its name.
        return False


def room_for(items: int) -> int:
    """The room for samples of a field without a limit, once one has so many items."""
    return max(_LEAST_ROOM, 1 << max(items - 1, 0).bit_length())


def without_limit(first: Any, padded: Collection[str] = ()) -> dict[str, int | None]:
    """The fields that vary in length without a limit, if nothing else is said: texts, and those that are padded."""
    sample = fields_of(first)
    lists = [name for name in padded if name in sample and _has_items(sample[name])]
    # The first sample with items has their type.
    lists += [name for name, value in sample.items() if _has_items(value) and _is_empty(value)]
    return dict.fromkeys([*(name for name, value in sample.items() if _is_text(value)), *lists])


def _has_items(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) > 0


def _is_text(value: Any) -> bool:
    return isinstance(value, (str, bytes, bytearray)) or _is_text_list(value)


def _is_text_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(text, str) for text in value)


def _column(name: str, value: Any, max_length: int | None, typed_by: int = 0) -> _Fixed | _Varying:
    """The column of a field of one size, whose ``max_length`` is 0, or of one that varies: ``None`` without a limit."""
    is_list = _is_text_list(value)
    array = _values.json_of(value) if is_list else as_array(name, value)
    dtype = _values.dtype_of(name, array)
    if max_length != 0:
        if array.ndim == 0:
            raise ValueError(f'field "{name}" is one number: max_length is for fields that vary in length')
        most = room_for(2 * len(array)) if max_length is None else max_length
        kind = _TextLists if is_list else _Varying
        return kind((name, dtype, list(array.shape[1:]), most), array.dtype, typed_by, max_length is None)
    if _is_text(value):
        raise ValueError(
            f'field "{name}" is text or bytes, which vary in length: give max_length={{"{name}": ...}}'
        )
    return _Fixed((name, dtype, list(array.shape), None), array.dtype)


def _groups(columns: Sequence[_Fixed | _Varying]) -> list[tuple[Any, list[int]]]:
    """The columns of a batch, and the places of the fields of each."""
    if len(columns) <= _MOST:
        return [(column, [place]) for place, column in enumerate(columns)]
    alike: dict[Any, list[int]] = {}
    for place, column in enumerate(columns):
        is_fixed = isinstance(column, _Fixed)
        alike.setdefault((column.dtype, column.shape) if is_fixed else place, []).append(place)
    if len(alike) > _MOST:
        raise ConfigError(
            f"a sample has {len(columns)} fields of {len(alike)} types and shapes, and a batch has room for "
            f"{_MOST}: put some into one array, or leave some out"
        )
    # A fingerprint, a cache and `concat` know fields by their columns: so the name of a shared one holds the
    # names, types and order of all fields.
    every = [(column.name, column.field[1], column.shape, isinstance(column, _Fixed)) for column in columns]
    whole = hashlib.sha256(repr(every).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    groups: list[tuple[Any, list[int]]] = []
    for places in alike.values():
        first = columns[places[0]]
        if len(places) > 1:
            names = f"{first.name}, ..., {columns[places[-1]].name} ({whole})"
            first = _Fixed((names, first.field[1], [len(places), *first.shape], None), first.dtype)
        groups.append((first, places))
    return groups
