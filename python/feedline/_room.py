"""Room for samples of fields without a limit: it doubles with the longest sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from ._columns import room_for
from ._errors import Error

if TYPE_CHECKING:
    from ._data import Data

_T = TypeVar("_T")


def with_room(data: Data, call: Callable[[], _T]) -> _T:
    """The result of a call that reads samples of ``data``; called again once there is room for a longer one."""
    while True:
        try:
            return call()
        except Error as error:
            if not made_for(data, error):
                raise


def made_for(data: Data, error: Error) -> bool:
    """Makes room in ``data`` for the sample that had none, according to an error; whether there is more now."""
    before = data._set
    if error._needs is not None:
        _make(data, *error._needs)
    return data._set is not before


def growing(data: Data) -> list[str]:
    """The fields without a limit, of the data and of those that they are made of."""
    if data._reader is not None:
        return list(data._reader.columns.growing)
    return [name for part in _parts(data) for name in growing(part)]


def _make(data: Data, field: str, items: int) -> None:
    """Makes room for samples with ``items`` items of a field, in the data and in those that they are made of."""
    fields = data._set.fields()
    has_room = all(most is None or most >= items for name, _, _, most in fields if name == field)
    if data._reader is not None:
        if not has_room and field in data._reader.columns.growing:
            grown = [
                (name, dtype, shape, room_for(items) if name == field else most) for name, dtype, shape, most in fields
            ]
            data._set = data._set.with_room(grown)
        return
    parts = list(_parts(data))
    before = [part._set for part in parts]
    for part in parts:
        _make(part, field, items)
    is_changed = any(part._set is not old for part, old in zip(parts, before, strict=True))
    # Parts may have room already, which they got for other data that are made of them.
    if parts and data._made is not None and (is_changed or not has_room):
        data._set = data._made.again()._set


def _parts(data: Data) -> Iterator[Data]:
    """The data that others are made of."""
    return _found(() if data._made is None else data._made[1:])


def _found(given: Any) -> Iterator[Data]:
    if hasattr(given, "_reader"):
        yield given
    elif isinstance(given, dict):
        yield from _found(list(given.values()))
    elif isinstance(given, (list, tuple)) and len(given) < 1000:
        for one in given:
            yield from _found(one)
