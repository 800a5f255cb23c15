"""Room for samples of fields without a limit: it doubles with the longest sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ._columns import room_for
from ._errors import Error
from ._workers.seeds import States

if TYPE_CHECKING:
    from ._data import Data

_T = TypeVar("_T")


def with_room(data: Data, call: Callable[[], _T]) -> _T:
    """The result of a call that reads samples of ``data``; called again once there is room for a longer one."""
    states = _states(data)
    while True:
        try:
            return call()
        except Error as error:
            if not made_for(data, error):
                raise
            if states is not None:
                # A sample that is read again draws the same numbers.
                states.restore()


def _states(data: Data) -> States | None:
    """The states of the random generators that samples may use; ``None`` if none is read twice."""
    if data._grows is None:
        data._grows = bool(growing(data))
    if not data._grows:
        return None
    return States([one for leaf in data._leaves for part in leaf.all() for one in part.reader.generators])


def made_for(data: Data, error: Error, most: Mapping[str, int] | None = None) -> bool:
    """Makes room in ``data`` for the sample that had none, according to an error; whether there is more now. There is
    none beyond ``most`` items of a field, if they suffice."""
    before = data._set
    if error._needs is not None:
        field, items = error._needs
        room = room_for(items)
        stated = (most or {}).get(field, room)
        _make(data, field, min(room, stated) if items <= stated else room)
    return data._set is not before


def growing(data: Data) -> list[str]:
    """The fields without a limit, of the data and of those that they are made of."""
    if data._reader is not None:
        return list(data._reader.columns.growing)
    return [name for part in parts(data) for name in growing(part)]


def _make(data: Data, field: str, room: int) -> None:
    """Makes room for samples with up to ``room`` items of a field, in the data and in those that they are made of."""
    fields = data._set.fields()
    has_room = all(most is None or most >= room for name, _, _, most in fields if name == field)
    if data._reader is not None:
        if not has_room and field in data._reader.columns.growing:
            grown = [
                (name, dtype, shape, room if name == field else most) for name, dtype, shape, most in fields
            ]
            data._set = data._set.with_room(grown)
        return
    made_of = list(parts(data))
    before = [part._set for part in made_of]
    for part in made_of:
        _make(part, field, room)
    is_changed = any(part._set is not old for part, old in zip(made_of, before, strict=True))
    # Parts may have room already, which they got for other data that are made of them.
    if made_of and data._made is not None and (is_changed or not has_room):
        data._set = data._made.again()._set


def parts(data: Data) -> Iterator[Data]:
    """The data that others are made of."""
    return _found(() if data._made is None else data._made[1:])


def _found(given: Any) -> Iterator[Data]:
    if hasattr(given, "_reader"):
        yield given
    elif isinstance(given, dict):
        yield from _found(list(given.values()))
    elif isinstance(given, (list, tuple)) and (
        # Not those of numbers, which may be many.
        len(given) < 100 or hasattr(given[0], "_reader") or isinstance(given[0], (list, tuple))
    ):
        for one in given:
            yield from _found(one)
