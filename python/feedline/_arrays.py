"""Arrays in memory, as ``Data`` takes them: a dict with a row per sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from . import _feedline
from ._errors import ConfigError, shown
from ._values import as_array, dtype_of

_NOT_ROWS = 'field "{name}" is {kind}: give arrays of one row per sample'


def check_names(names: Iterable[Any]) -> None:
    """Refuses names of fields that are no strings."""
    odd = [name for name in names if not isinstance(name, str)]
    if odd:
        raise ConfigError(
            f"a field of a sample is called {shown(odd[0])}, which is no string: name fields by strings"
        )


class Rows:
    """The samples of a dict of arrays; fields that vary in length may be lists."""

    def __init__(self, columns: Mapping[str, Any], varying: Iterable[str]) -> None:
        check_names(columns)
        self._columns = {name: _column(name, value, name in varying) for name, value in columns.items()}
        counts = {name: len(column) for name, column in self._columns.items()}
        if len(set(counts.values())) > 1:
            raise ConfigError(f"the fields have different numbers of samples: {counts}: make them equal")

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: column[index] for name, column in self._columns.items()}


def _column(name: str, value: Any, varies: bool) -> Any:
    """The values of a field, one per sample."""
    if varies and isinstance(value, (list, tuple)):
        return value
    if isinstance(value, (str, bytes, bytearray)) or not hasattr(value, "__len__"):
        raise ConfigError(_NOT_ROWS.format(name=name, kind=type(value).__name__))
    if varies:
        return np.asarray(value)
    try:
        return as_array(name, value)
    except ValueError as error:
        raise ConfigError(str(error)) from error.__cause__


def _varies(value: Any) -> bool:
    """Whether the rows of a column are texts, or lists of several lengths."""
    if isinstance(value, (str, bytes, bytearray)) or not hasattr(value, "__len__"):
        return False
    if not isinstance(value, (list, tuple)):
        kind = getattr(getattr(value, "dtype", None), "kind", None)
        if kind in ("U", "S", "T"):
            return True
        if kind != "O":
            return False
        array = np.asarray(value)
        value = list(array) if array.ndim else []
    if any(isinstance(one, (str, bytes, bytearray)) for one in value):
        return True
    # An array or a tensor of no dimension has `__len__`, which fails.
    lengths = {len(one) for one in value if hasattr(one, "__len__") and getattr(one, "ndim", None) != 0}
    return len(lengths) > 1


def varying(samples: Mapping[str, Any]) -> list[str]:
    """The fields whose rows are texts, or lists of several lengths."""
    return [name for name, value in samples.items() if _varies(value)]


def set_of(arrays: Mapping[str, Any]) -> _feedline.DataSet:
    """The set of the compiled part, which copies the arrays."""
    check_names(arrays)
    fields = []
    for name, value in arrays.items():
        try:
            array = as_array(name, value)
            dtype = dtype_of(name, array)
        except ValueError as error:
            raise ConfigError(str(error)) from error.__cause__
        if array.ndim == 0 or isinstance(value, (str, bytes, bytearray)):
            raise ConfigError(_NOT_ROWS.format(name=name, kind=type(value).__name__))
        fields.append((name, dtype, list(array.shape[1:]), array.tobytes()))
    return _feedline.DataSet.arrays(fields)
