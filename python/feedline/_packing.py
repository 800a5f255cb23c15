"""The arguments of ``packed`` and ``unpadded``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _feedline, _options
from ._errors import ConfigError, shown
from ._room import with_room

if TYPE_CHECKING:
    from ._data import Data

#: The added fields; all are ``int32``.
ADDED = frozenset({"position", "used", "cu_seqlens", "segment"})


def packed(data: Data, given: Mapping[str, Any]) -> Data:
    """See :meth:`feedline.Data.packed`."""
    if given["within"] is not None and given["order"] == "in order":
        raise ConfigError('within is for order="best fit": leave it out')
    made = data._new(with_room(data, lambda: _feedline.packed(data._set, packing(given))))
    made._is_tuple, made._signed, made._places = False, ADDED, ()
    return made


def packing(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of ``packed``, checked, in the form of the compiled part."""
    order = given["order"]
    if order not in ("best fit", "in order"):
        raise ConfigError(f'order is {shown(order)}: give "best fit" or "in order"')
    if not given["padded"]:
        _options.unused("windows of one size, which padding fills", pad=bool(given["pad"]))
    fields, shuffle = names(given["field"]), given.get("shuffle")
    return {
        "fields": fields,
        "window": _options.whole("window", given["window"]),
        "shuffle": None if shuffle is None else _options.seed("shuffle", shuffle),
        "labels": label(fields, given["labels"]),
        "pad": fills(given["pad"], fields),
        "in_order": order == "in order",
        "within": _options.maybe("within", given["within"], 1),
        "long": "cut" if given["cut"] else "split" if given["split"] else "refuse",
        "padded": _options.flag("padded", given["padded"]),
    }


def unpadded(data: Data, field: str | Sequence[str], labels: str | bool | None) -> Data:
    """See :meth:`feedline.Data.unpadded`."""
    fields = names(field)
    made = data._new(with_room(data, lambda: _feedline.unpadded(data._set, fields, label(fields, labels))))
    made._is_tuple, made._signed, made._places = False, ADDED, ()
    return made


def names(field: Any) -> list[str]:
    """The fields that are packed."""
    fields = [field] if isinstance(field, str) else list(field) if isinstance(field, Sequence) else []
    if not fields or not all(isinstance(name, str) for name in fields):
        raise ConfigError(f'field is {shown(field)}: give the name of a field, or a list of names, such as ["ids"]')
    return fields


def label(fields: list[str], labels: Any) -> tuple[str, bool] | None:
    """The field of labels, and whether it is made from the ids."""
    if labels is None or labels is False:
        return None
    if labels is True:
        return fields[0], True
    if not isinstance(labels, str):
        raise ConfigError(f"labels is {shown(labels)}: give the name of a field, or True for the ids themselves")
    return labels, False


def fills(pad: Any, fields: list[str]) -> list[tuple[str, float]]:
    """The padding value of each field."""
    given = _options.by_column("pad", pad, '{"ids": 0}')
    for name, value in given.items():
        if name not in fields:
            raise ConfigError(f"pad has {shown(name)}, which is not packed: the fields are {fields}")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ConfigError(f"pad[{shown(name)}] is {shown(value)}: give a number")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ConfigError(f"pad[{shown(name)}] is {shown(value)}: give a number of up to 64 bits")
    return list(given.items())
