"""Tables as training data: columns chosen, stacked, cast, numbered, filled and standardized."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

import numpy as np

from . import _feedline, _options, _tables, _times, _values
from ._data import Data, of_set
from ._errors import ConfigError, shown
from ._made import keeps_its_call
from ._open import opening

_Names = Union[str, Iterable[str]]


@keeps_its_call
def table(
    path: str | os.PathLike[str] | _tables.Table,
    *,
    types: Mapping[str, str] | None = None,
    header: bool | None = None,
    select: _Names | None = None,
    stack: Mapping[str, _Names] | None = None,
    cast: Mapping[str, Any] | None = None,
    category: _Names | Mapping[str, Sequence[str | int | bool] | None] = (),
    unknown: _Names = (),
    share: Sequence[_Names] = (),
    max: Mapping[str, int] | None = None,
    last: Mapping[str, int] | None = None,
    days: _Names = (),
    seconds: _Names = (),
    standardize: _Names = (),
    fill: Mapping[str, float | str] | None = None,
    fill_mean: _Names = (),
    mask: _Names = (),
    saved: str | os.PathLike[str] | None = None,
    fitted: str | os.PathLike[str] | None = None,
    fit_on: Sequence[int] | tuple[str, Any, Any] | None = None,
    split: str | None = None,
    memory_limit: int | None = None,
    cache_bytes: int | None = None,
) -> Data:
    """Opens a table as training data: Parquet, Arrow, CSV, JSON Lines, every other format, and tables in memory.

    Fields are the stacks, then the other columns. A step that names a stack applies to all of its columns. A
    missing value is an error that names row and column, unless ``fill``, ``fill_mean`` or ``mask`` replaces
    it; NaN is a number.

    Args:
        types: As for :func:`feedline.open`.
        header: As for :func:`feedline.open`.
        select: The fields to keep, in this order; other columns are not decoded.
        stack: Fields made of several columns: ``{"x": ["age", "income"]}`` is ``float32 [2]``.
        cast: Another type: ``{"x": "float64"}``, or a type of NumPy. No cast loses a whole number.
        category: Columns whose values become numbers, ``int64``: their indices in the sorted list of values,
            or in a list of texts, whole numbers or bools that you give. :attr:`Data.categories` has the
            lists. In CSV, ``007`` and ``7`` are two values.
        unknown: Categories in which values that the list lacks get the number after the last one.
        share: Columns that share one list of categories, so that a value has the same number in all of them:
            ``["home", "away"]``, or several such lists.
        max: Max items of a list of numbers or categories, of which the first are kept: ``{"history": 50}``.
        last: As ``max``, but the last items are kept.
        days: Columns of dates or times as days since 1970, ``int32``.
        seconds: Columns of dates or times as seconds since 1970, ``float64``.
        standardize: Columns from which the mean is subtracted, divided by the standard deviation,
            ``float32``. Filled-in values do not count for either, unlike after ``fillna`` of pandas.
        fill: The replacement for missing values, by column: a number, or the text of a category.
        fill_mean: Columns whose missing values are replaced by the mean.
        mask: Columns whose missing values are replaced by 0; the ``bool`` field ``NAME.present`` marks them.
        saved: A JSON file that keeps means, deviations and lists of this data. It is written if it does not
            exist, else read, and refused if it belongs to other data.
        fitted: The file that the training set has ``saved``, so that the validation set uses the same
            numbers.
        fit_on: The training rows, from which means, deviations and lists are computed: ``range(1000)``, a
            list of rows, or ``("t", start, stop)`` for the rows whose value of column ``t`` is at least
            ``start`` and below ``stop`` (``None``: no limit), which may be times, such as ``"2026-02-15"``, if ``t``
            is one of ``days`` or ``seconds``; see :func:`feedline.windows`. ``saved`` also keeps these rows, and
            refuses others; with ``fitted``, the file must be of these rows of the same data.
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
    # The options by name.
    given = dict(locals())
    return of_set(_feedline.open_table(opening(given), steps(given)))


#: The options of a table, with their defaults.
DEFAULTS = {name: one.default for name, one in inspect.signature(table).parameters.items() if name != "path"}


def steps(given: Mapping[str, Any]) -> dict[str, Any]:
    """The steps among the options of a table, checked, in the form of the compiled part."""
    category, fit_on = given["category"], given["fit_on"]
    categories = category if isinstance(category, Mapping) else dict.fromkeys(names(category))
    stack = _options.by_column("stack", given["stack"], '{"x": ["a", "b"]}')
    cast = _options.by_column("cast", given["cast"], '{"x": "float64"}')
    fill = _options.by_column("fill", given["fill"], '{"x": 0}')
    return {
        **{name: names(given[name]) for name in ("unknown", "days", "seconds", "standardize", "fill_mean", "mask")},
        **{name: _kept(name, given[name]) for name in ("max", "last")},
        **{name: None if given[name] is None else _options.path(name, given[name]) for name in ("saved", "fitted")},
        "select": None if given["select"] is None else names(given["select"]),
        "stack": [(field, names(columns)) for field, columns in stack.items()],
        "cast": [(name, _dtype(name, dtype)) for name, dtype in cast.items()],
        "category": [
            (column, None if values is None else _values.categories(column, values))
            for column, values in categories.items()
        ],
        "share": _groups(given["share"]),
        "fill": [(name, _values.fill(name, value)) for name, value in fill.items()],
        "fit_on": None if fit_on is None else _fit_on(fit_on, units(given)),
    }


def units(given: Mapping[str, Any]) -> dict[str, _times.Unit]:
    """The units of the columns of times that are known, among the options of a table or of windows."""
    known = dict.fromkeys(names(given["days"]), _times.DAYS) | dict.fromkeys(names(given["seconds"]), _times.SECONDS)
    return {**given.get("units", {}), **known}


def _groups(share: Any) -> list[list[str]]:
    """Groups of columns, of which one may be given alone."""
    groups = list(share) if hasattr(share, "__iter__") and not isinstance(share, str) else [share]
    is_one = groups and all(isinstance(name, str) for name in groups)
    return [names(groups)] if is_one else [names(group) for group in groups]


def _kept(name: str, kept: Any) -> list[tuple[str, int]]:
    given = _options.by_column(name, kept, '{"history": 50}')
    return [(column, _options.whole(f'{name} of "{column}"', items, 1)) for column, items in given.items()]


def _fit_on(rows: Any, of: Mapping[str, _times.Unit]) -> tuple[Any, ...] | list[int]:
    """A column and the limits of its values, a range, or a list of rows."""
    if isinstance(rows, tuple) and len(rows) == 3 and isinstance(rows[0], str):
        column, *ends = rows
        what, unit = "a limit of fit_on", of.get(column)
        return (column, *(None if end is None else _times.point(what, end, unit, column) for end in ends))
    if isinstance(rows, range) and rows.step == 1:
        return (_options.whole("a row of fit_on", rows.start), rows.stop if rows else rows.start)
    if isinstance(rows, (str, bytes)) or not hasattr(rows, "__iter__"):
        how = 'give rows such as range(1000), or ("t", None, 90) for those with t < 90'
        raise ConfigError(f"fit_on is {shown(rows)}: {how}")
    return [_options.whole("a row of fit_on", row) for row in rows]


def names(given: _Names) -> list[str]:
    """The names of columns, of which one may be given alone."""
    if isinstance(given, str):
        return [given]
    listed: list[Any] = list(given) if hasattr(given, "__iter__") else [given]
    odd = [name for name in listed if not isinstance(name, str)]
    if odd:
        raise ConfigError(f"{shown(odd[0])} is no name of a column: give a string, or a list of strings")
    return listed


def _dtype(name: str, dtype: Any) -> str:
    """The type of batches for one of NumPy, or for a name."""
    try:
        given = dtype if isinstance(dtype, str) and dtype in _values.DTYPES else np.dtype(dtype).name
        return _values.DTYPES[given]
    except (KeyError, TypeError):
        raise ConfigError(f'cast of "{name}" to {shown(dtype)}: use one of {", ".join(_values.DTYPES)}') from None
