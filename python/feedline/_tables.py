"""Tables in memory: those of pandas, Polars and pyarrow, and all others that export a stream of Arrow's C interface."""

from __future__ import annotations

import importlib
from typing import Any, Protocol

from . import _feedline, _options
from ._errors import ConfigError

#: The method that exports the stream.
_EXPORT = "__arrow_c_stream__"

#: The classes of tables, and of columns with what makes a table of one.
_TABLES = (("pandas", "DataFrame"), ("polars", "DataFrame"), ("polars", "LazyFrame"), ("pyarrow", "Table"))
_COLUMNS = {
    ("pandas", "Series"): "series.to_frame()",
    ("polars", "Series"): "series.to_frame()",
    ("pyarrow", "ChunkedArray"): 'pyarrow.table({"x": column})',
    ("pyarrow", "Array"): 'pyarrow.table({"x": column})',
}


class Table(Protocol):
    """A table in memory."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def _classes(given: Any) -> list[tuple[str, str]]:
    """The package and the name of each class of ``given``."""
    return [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(given).__mro__]


def is_table(given: Any) -> bool:
    """Whether ``given`` is a table in memory, or a column of one."""
    kinds = _classes(given)
    # Rows of `datasets.Dataset` are those of its indices and transforms, which its table does not have.
    if any(package == "datasets" for package, _ in kinds):
        return False
    is_known = any(kind in _TABLES or kind in _COLUMNS for kind in kinds)
    return is_known or isinstance(given, _feedline.Table) or hasattr(type(given), _EXPORT)


def path_or_table(name: str, given: Any) -> str | _feedline.Table:
    """What a function opens: the text of a path or a URL, or a table in memory."""
    return arrow(given) if is_table(given) else _options.path(name, given)


def arrow(given: Any) -> _feedline.Table:
    """A table in memory, as the compiled part reads it."""
    if isinstance(given, _feedline.Table):
        return given
    kinds = _classes(given)
    name = f"a {kinds[0][0]}.{kinds[0][1]}"
    if ("polars", "LazyFrame") in kinds:
        raise ConfigError(f"{name} is a query, and has no rows yet: give lazy.collect()")
    to_table = next((_COLUMNS[kind] for kind in kinds if kind in _COLUMNS), None)
    if to_table is not None:
        raise ConfigError(f"{name} is one column, which has no name in a sample: give {to_table}, or an array of it")
    try:
        capsule = _stream(given, kinds)
    except ImportError as error:
        raise ConfigError(f"{name} is read by pyarrow, which is not there: pip install pyarrow ({error})") from error
    except AttributeError as error:
        why = f"{name} has no {_EXPORT}: install pyarrow 14 or polars 1.3, or a later one ({error})"
        raise ConfigError(why) from error
    except Exception as error:
        why = f"{name} has no form in Arrow's memory, change its columns or leave them out: {error}"
        raise ConfigError(why) from error
    return _feedline.Table.of_capsule(capsule)


def _stream(given: Any, kinds: list[tuple[str, str]]) -> Any:
    """The capsule with the stream of a table's record batches."""
    if ("pandas", "DataFrame") in kinds:
        pyarrow: Any = importlib.import_module("pyarrow")
        # The method of pandas makes columns of an index, if its values are no range.
        given = pyarrow.Table.from_pandas(given, preserve_index=False)
    return getattr(given, _EXPORT)()
