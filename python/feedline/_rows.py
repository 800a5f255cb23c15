"""The rows of a batch of any loader, in host memory: fields by name, and a hash of each row."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ._batch import Padded, Ragged
from ._errors import ConfigError, shown

_Array = np.ndarray[Any, Any]


class Column(NamedTuple):
    """A field of a batch."""

    #: The type that the loader gave.
    dtype: str
    #: ``[rows, shape...]``, if all rows have one shape.
    whole: _Array | None
    #: The rows of a field that varies in length.
    rows: Sequence[_Array] | None

    @property
    def number(self) -> int | None:
        """The rows; ``None`` for a value of the whole batch."""
        if self.whole is None:
            return len(self.rows or ())
        return len(self.whole) if self.whole.ndim else None

    def shown(self) -> str:
        """Type and shape of a row."""
        return f"{self.dtype} {'of any length' if self.whole is None else list(self.whole.shape[1:])}"


class Pair(NamedTuple):
    """A field that both loaders have."""

    #: Its name on each side.
    names: tuple[str, str]
    #: The type that has the values of both; ``None`` if it is that of both.
    cast: np.dtype[Any] | None
    #: Whether the rows of one side vary in length.
    varies: bool


@dataclass(frozen=True)
class Rows:
    """A batch."""

    columns: dict[str, Column]
    count: int

    def hashes(self, pairs: Sequence[Pair], side: int) -> list[bytes]:
        """A hash of the values and shapes of each row."""
        return [_hash(self.at(pair, side, row) for pair in pairs) for row in range(self.count)]

    def kinds(self, pairs: Sequence[Pair], side: int) -> str:
        """The types of the fields that are compared, and of the others."""
        own = {name: column.dtype for name, column in self.columns.items()}
        return repr(([own.pop(pair.names[side], None) for pair in pairs], sorted(own.values())))

    def at(self, pair: Pair, side: int, row: int) -> _Array:
        """The values of a row: those that are equal have the same bytes."""
        column = self.columns.get(pair.names[side])
        if column is None:
            return np.empty(0)
        if column.rows is not None and (pair.varies or column.whole is None):
            value = column.rows[row]
        else:
            assert column.whole is not None
            value = column.whole[row]
        value = value if pair.cast is None else value.astype(pair.cast)
        if value.dtype.kind in "fc":
            # -0.0 becomes 0.0, and each NaN the same one.
            value = np.where(np.isnan(value), value.dtype.type(np.nan), value + value.dtype.type(0))
        return np.asarray(value, order="C")


def _hash(values: Iterable[_Array]) -> bytes:
    state = hashlib.blake2b(digest_size=16)
    for value in values:
        state.update(f"{value.dtype} {value.shape}".encode())
        state.update(value.tobytes())
    return state.digest()


def rows_of(batch: Any, where: str) -> Rows:
    """The rows of a batch: a mapping, a tuple, a list or an array, or a nest of these. ``where`` names it in errors."""
    columns = {name: _column(value, f'field "{name}" of {where}') for name, value in leaves(batch).items()}
    counts = {name: count for name, column in columns.items() if (count := column.number) is not None}
    if len(set(counts.values())) > 1:
        few, many = sorted(counts, key=lambda name: counts[name])[:: len(counts) - 1]
        raise ConfigError(
            f'fields "{few}" and "{many}" of {where} have {counts[few]} and {counts[many]} rows: compare loaders '
            "whose fields have a row for each sample"
        )
    count = getattr(batch, "valid_rows", next(iter(counts.values()), 1 if columns else 0))
    for name, column in columns.items():
        if column.whole is not None and not column.whole.ndim:
            # A value of the whole batch is one of each row.
            columns[name] = column._replace(whole=np.broadcast_to(column.whole, (count,)))
    return Rows(columns, count)


def leaves(value: Any, name: str = "") -> dict[str, Any]:
    """The fields of a batch by name: ``"inputs.ids"`` within another, and ``"0"`` in a tuple."""
    if isinstance(value, Mapping):
        parts: Any = value.items()
    elif isinstance(value, (list, tuple)) and not isinstance(value, (Ragged, Padded)) and not _is_column(value):
        parts = enumerate(value)
    else:
        return {name or "0": value}
    inner = ((f"{name}.{key}" if name else str(key), part) for key, part in parts)
    return {leaf: own for key, part in inner for leaf, own in leaves(part, key).items()}


def _is_column(value: Sequence[Any]) -> bool:
    """Whether a list has a text or a number for each row, as ``default_collate`` leaves them."""
    return bool(value) and all(isinstance(one, (str, bytes, bool, int, float)) for one in value)


def _column(value: Any, where: str) -> Column:
    if isinstance(value, (Ragged, Padded)):
        values, numbers = host(value[0]), host(value[1])
        if isinstance(value, Ragged):
            return Column(_name(value[0]), None, Ragged(values, numbers).rows())
        return Column(_name(value[0]), values, [row[:length] for row, length in zip(values, numbers, strict=True)])
    if getattr(value, "is_nested", False):
        return Column(_name(value), None, [host(row) for row in value.unbind()])
    array = np.asarray(value) if isinstance(value, (list, tuple)) else host(value)
    if array.dtype.kind in "US":
        # NumPy drops the zeros at the end of a text.
        given = value if isinstance(value, (list, tuple)) else array.reshape(-1).tolist()
        texts = [one.encode() if isinstance(one, str) else bytes(one) for one in given]
        return Column("uint8", None, [np.frombuffer(text, np.uint8) for text in texts])
    if array.dtype.kind == "O":
        raise ConfigError(f"{where} is {shown(value)}, which is no array: compare loaders of arrays, tensors and texts")
    return Column(_name(value) if hasattr(value, "dtype") else str(array.dtype), array, None)


def host(value: Any) -> _Array:
    """A copy of an array of any framework in host memory: a loader may fill its memory again."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype).removeprefix("torch.") not in np.sctypeDict:
            # NumPy has no bfloat16, and float32 has all of its values.
            value = value.float()
    array = np.array(value)
    return array.astype(np.float32) if array.dtype.kind == "V" and "float" in str(array.dtype) else array


def _name(array: Any) -> str:
    return str(array.dtype).removeprefix("torch.")


def pairs_of(first: Rows, second: Rows, loaders: Sequence[str]) -> tuple[list[Pair], str | None]:
    """The fields that are compared, and how those of the two loaders differ: by name, type or shape."""
    names = list(first.columns), list(second.columns)
    common = [(name, name) for name in names[0] if name in names[1]]
    told = None
    if set(names[0]) != set(names[1]):
        only = [[name for name in own if name not in other] for own, other in (names, names[::-1])]
        told = "; ".join(f"only {loaders[side]} has the fields {_quoted(own)}" for side, own in enumerate(only) if own)
        if not common and len(names[0]) == len(names[1]):
            common, told = list(zip(*names, strict=True)), f"{told}; their values are compared by place"
    pairs = []
    for of in common:
        one, other = first.columns[of[0]], second.columns[of[1]]
        cast = None if one.dtype == other.dtype else np.result_type(_any(one), _any(other))
        pairs.append(Pair(of, cast, one.whole is None or other.whole is None))
        alike = one.dtype == other.dtype and (pairs[-1].varies or one.shown() == other.shown())
        if not alike and told is None:
            told = f'field "{of[0]}" is {one.shown()} of {loaders[0]} and {other.shown()} of {loaders[1]}'
    return pairs, told


def _any(column: Column) -> np.dtype[Any]:
    some: Sequence[_Array] = column.rows or [np.empty(0, np.uint8)]
    return np.result_type(some[0] if column.whole is None else column.whole)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def first_difference(one: _Array, other: _Array) -> tuple[str, str, str, str] | None:
    """Where the values of a row differ, what does, and both values; ``None`` if they are equal."""
    if one.dtype != other.dtype:
        return "", "has the type", str(one.dtype), str(other.dtype)
    if one.shape != other.shape:
        return "", "has the shape", str(list(one.shape)), str(list(other.shape))
    differs = np.flatnonzero(np.frombuffer(one.tobytes(), np.uint8) != np.frombuffer(other.tobytes(), np.uint8))
    if not len(differs):
        return None
    at = np.unravel_index(differs[0] // one.dtype.itemsize, one.shape)
    place = f" at {[int(index) for index in at]}" if one.ndim else ""
    return place, "is", repr(one[at].item()), repr(other[at].item())
