"""Tables as training data: columns chosen, stacked, cast, numbered, filled and standardized."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

import numpy as np

from . import _feedline, _options, _values
from ._data import Data, of_set
from ._errors import ConfigError

_Names = Union[str, Iterable[str]]


def table(
    path: str | os.PathLike[str],
    *,
    types: Mapping[str, str] | None = None,
    select: _Names | None = None,
    stack: Mapping[str, _Names] | None = None,
    cast: Mapping[str, Any] | None = None,
    category: _Names | Mapping[str, Sequence[str | int | bool] | None] = (),
    unknown: _Names = (),
    days: _Names = (),
    seconds: _Names = (),
    standardize: _Names = (),
    fill: Mapping[str, float | str] | None = None,
    fill_mean: _Names = (),
    mask: _Names = (),
    saved: str | os.PathLike[str] | None = None,
    fitted: str | os.PathLike[str] | None = None,
    split: str | None = None,
    memory_limit: int | None = None,
    cache_bytes: int | None = None,
) -> Data:
    """Opens a table as training data: Parquet, Arrow, CSV, JSON Lines, and every other format.

    Fields are the stacks, then the other columns. Where a step names a stack, it is for all of its columns.
    A missing value is an error that names row and column, unless ``fill``, ``fill_mean`` or ``mask`` says
    what it becomes; NaN is a number.

    Args:
        types: As for :func:`feedline.open`.
        select: The fields to keep, in this order; other columns are not decoded.
        stack: Fields made of several columns: ``{"x": ["age", "income"]}`` is ``float32 [2]``.
        cast: Another type: ``{"x": "float64"}``, or a type of NumPy. No cast loses a whole number.
        category: Columns whose values are numbered, ``int64``: by their place in the sorted list of values,
            or in a list of texts, whole numbers or bools that you give. :attr:`Data.categories` has the
            lists. Codes of CSV stay as they are written: ``007`` and ``7`` are two.
        unknown: Categories in which a value beyond the list has the number behind the last one.
        days: Columns of dates or times as days since 1970, ``int32``.
        seconds: Columns of dates or times as seconds since 1970, ``float64``.
        standardize: Columns less their mean, divided by their standard deviation, ``float32``. Both are those
            of the values that are there: what is filled in changes neither, unlike after ``fillna`` of pandas.
        fill: What a missing value becomes: a number, or the text of a category.
        fill_mean: Columns in which a missing value becomes the mean.
        mask: Columns in which a missing value becomes 0, and the ``bool`` field ``NAME.present`` false.
        saved: A JSON file that keeps means, deviations and lists of this data: written if it is not there,
            else read, and refused if the data is not that which it was written for.
        fitted: The file that another table, the training set, has ``saved``: the validation set gets the same
            numbers.
        split: As for :func:`feedline.open`.
        memory_limit: As for :func:`feedline.open`.
        cache_bytes: As for :func:`feedline.open`.

    >>> import feedline, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "train.csv")
    >>> _ = open(path, "w").write("age,income,city\\n30,1.5,Rome\\n50,,Oslo\\n40,2.5,Rome\\n")
    >>> data = feedline.table(path, stack={"x": ["age", "income"]}, category="city", fill_mean="income")
    >>> data[1]["x"].tolist(), data[1]["city"].item(), data.categories
    ([50.0, 2.0], 0, {'city': ['Oslo', 'Rome']})
    """
    categories = category if isinstance(category, Mapping) else dict.fromkeys(_names(category))
    return of_set(
        _feedline.open_table(
            os.fspath(path),
            {
                "split": split,
                "memory_limit": _options.maybe("memory_limit", memory_limit),
                "cache_bytes": _options.maybe("cache_bytes", cache_bytes),
                "types": _options.types(types),
                "select": None if select is None else _names(select),
                "stack": [
                    (field, _names(columns))
                    for field, columns in _options.mapping("stack", stack, '{"x": ["a", "b"]}').items()
                ],
                "cast": [
                    (name, _dtype(name, dtype))
                    for name, dtype in _options.mapping("cast", cast, '{"x": "float64"}').items()
                ],
                "category": [
                    (column, None if values is None else _values.categories(column, values))
                    for column, values in categories.items()
                ],
                "unknown": _names(unknown),
                "days": _names(days),
                "seconds": _names(seconds),
                "standardize": _names(standardize),
                "fill": [
                    (name, _values.fill(name, value))
                    for name, value in _options.mapping("fill", fill, '{"x": 0}').items()
                ],
                "fill_mean": _names(fill_mean),
                "mask": _names(mask),
                "saved": None if saved is None else os.fspath(saved),
                "fitted": None if fitted is None else os.fspath(fitted),
            },
        )
    )


def _names(names: _Names) -> list[str]:
    if isinstance(names, str):
        return [names]
    listed: list[Any] = list(names) if hasattr(names, "__iter__") else [names]
    odd = [name for name in listed if not isinstance(name, str)]
    if odd:
        raise ConfigError(f"{odd[0]!r} is no name of a column: give a string, or a list of strings")
    return listed


def _dtype(name: str, dtype: Any) -> str:
    """The type of batches for one of NumPy, or for a name."""
    try:
        given = dtype if isinstance(dtype, str) and dtype in _values.DTYPES else np.dtype(dtype).name
        return _values.DTYPES[given]
    except (KeyError, TypeError):
        raise ConfigError(f'cast of "{name}" to {dtype!r}: use one of {", ".join(_values.DTYPES)}') from None
