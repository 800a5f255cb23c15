"""The arguments of ``packed`` and ``unpadded``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _feedline, _options
from ._errors import ConfigError, shown

if TYPE_CHECKING:
    from ._data import Data
    from ._source import Source

#: The added fields; all are ``int32``.
ADDED = frozenset({"position", "used", "cu_seqlens", "segment"})


def packed(
    data: Data,
    field: str | Sequence[str],
    window: int,
    how: tuple[str, int | None, bool, bool, bool],
    labels: str | bool | None,
    pad: Mapping[str, float] | None,
    shuffle: int | None,
) -> Data:
    """See :meth:`feedline.Data.packed`."""
    order, within, split, cut, padded = how
    if order not in ("best fit", "in order"):
        raise ConfigError(f'order is {shown(order)}: give "best fit" or "in order"')
    if within is not None and order == "in order":
        raise ConfigError('within is for order="best fit": leave it out')
    if not padded:
        _options.unused("windows of one size, which padding fills", pad=bool(pad))
    fields = names(field)
    window = _options.whole("window", window)
    if shuffle is not None:
        shuffle = _options.seed("shuffle", shuffle)
    packing = {
        "fields": fields,
        "labels": label(fields, labels),
        "pad": fills(pad, fields),
        "in_order": order == "in order",
        "within": None if within is None else _options.whole("within", within, 1),
        "long": "cut" if cut else "split" if split else "refuse",
        "shuffle": shuffle,
        "padded": _options.flag("padded", padded),
    }
    made = data._new(_feedline.packed(data._set, window, packing))
    made._is_tuple, made._signed, made._places = False, ADDED, ()
    return made


def packed_source(
    source: Source,
    field: str | Sequence[str],
    window: int,
    how: tuple[str, int, bool, bool, bool],
    labels: str | bool | None,
    pad: Mapping[str, float] | None,
) -> _feedline.Source:
    """See :meth:`feedline.Source.packed`."""
    order, within, split, cut, padded = how
    if order not in ("best fit", "in order"):
        raise ConfigError(f'order is {shown(order)}: give "best fit" or "in order"')
    if not padded:
        _options.unused("windows of one size, which padding fills", pad=bool(pad))
    fields = names(field)
    packing = {
        "fields": fields,
        "labels": label(fields, labels),
        "pad": fills(pad, fields),
        "in_order": order == "in order",
        "within": _options.whole("within", within, 1),
        "long": "cut" if cut else "split" if split else "refuse",
        "shuffle": None,
        "padded": _options.flag("padded", padded),
    }
    return source._set.packed(_options.whole("window", window), packing)


def unpadded(data: Data, field: str | Sequence[str], labels: str | bool | None) -> Data:
    """See :meth:`feedline.Data.unpadded`."""
    fields = names(field)
    made = data._new(_feedline.unpadded(data._set, fields, label(fields, labels)))
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
