"""Data composed of others: one after the other, side by side, and mixed by weights."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Any

from . import _feedline, _options
from ._columns import Place
from ._data import Data, Field, of_set
from ._errors import ConfigError, shown
from ._made import keeps_its_call
from ._texts import TEXTS, known_forms


@keeps_its_call
def concat(*parts: Data) -> Data:
    """The samples of several data sets, one set after the other."""
    _check_parts("concat", parts)
    _check_alike("concat", parts)
    return _composed(parts, _feedline.concat([part._set for part in parts]))


@keeps_its_call
def zip(*parts: Data, independent: bool = False) -> Data:
    """The fields of several data sets of one length, side by side.

    Two parts that crop, flip or turn pictures at random are refused: each draws its own random numbers, so an
    image would not match its mask. ``independent=True`` allows it, for example for two views of each picture.
    """
    _check_parts("zip", parts)
    zipped = _composed(parts, _feedline.zip([part._set for part in parts], independent))
    zipped._is_tuple = False
    if any(part._places for part in parts):
        zipped._places = [place for part in parts for place in _places_of(part)]
        names = [name for name, *_ in zipped._places]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f'two parts have a field "{twice}": rename it in one of them, by map')
    return zipped


@keeps_its_call
def mix(
    parts: Sequence[tuple[Data, float]],
    *,
    seed: int = 0,
    samples: int | None = None,
    weights_from_epoch: Mapping[int, Sequence[float]] | None = None,
    weights_from: Mapping[int, Sequence[float]] | None = None,
    part: str | None = None,
) -> Data:
    """Mixes data sets by weights. Each set is shuffled and has its own epochs.

    ``samples`` is the length of an epoch, by default the sum of the lengths. ``weights_from_epoch={3: [0,
    1]}`` changes the weights from epoch 3 on, ``weights_from={5000: [0, 1]}`` from sample 5000 of the run on,
    counted over all epochs and ranks; 0 leaves a set out, also in the beginning. Such runs resume, too. The mix
    is already in random order: a loader with ``shuffle=`` would move changes of weights within an epoch.

    ``part="source"`` adds a field of this name, ``int32``, with the number of the part that a row is from: its place in
    ``parts``.

    >>> import feedline, numpy as np
    >>> few, many = feedline.Data({"x": np.zeros(10)}), feedline.Data({"x": np.ones(1000)})
    >>> half = feedline.mix([(few, 0.5), (many, 0.5)], samples=100)
    >>> sum(float(sample["x"]) for sample in half)
    50.0
    >>> [int(sample["source"]) for sample in feedline.mix([(few, 3), (many, 1)], samples=8, part="source")]
    [0, 0, 1, 0, 0, 0, 1, 0]
    """
    seed = _options.whole("seed", seed, 0, 2**64 - 1)
    if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in parts):
        raise ConfigError("mix takes pairs of a data set and its weight: give mix([(a, 0.5), (b, 0.5)])")
    _check_parts("mix", [of for of, _ in parts])
    _check_alike("mix", [of for of, _ in parts])
    weights = [(of._set, _options.number("a weight of mix", weight)) for of, weight in parts]
    changes = _changes("weights_from_epoch", weights_from_epoch), _changes("weights_from", weights_from)
    if part is not None and not isinstance(part, str):
        raise ConfigError(f"part is {shown(part)}: give the name of a field, such as part=\"source\"")
    inner = _feedline.mix(weights, seed, _options.maybe("samples", samples), *changes, part)
    mixed = _composed([of for of, _ in parts], inner)
    if part is not None and mixed._places:
        mixed._places = [*mixed._places, (part, part, None)]
    return mixed


def _changes(name: str, given: Any) -> list[tuple[int, list[float]]]:
    """The weights of a mix from an epoch or a sample on."""
    places = _options.mapping(name, given, "{3: [0.5, 0.5]}").items()
    return [
        (_options.whole(f"a key of {name}", at), [_options.number(f"a weight of {name}", weight) for weight in weights])
        for at, weights in places
    ]


def _composed(parts: Sequence[Data], inner: _feedline.DataSet) -> Data:
    for part in parts:
        part._check_rows()
    data = of_set(inner)
    data._is_tuple = all(part._is_tuple for part in parts)
    data._places = parts[0]._places if parts else ()
    own = ({name for name, *_ in part._set.fields()} & part._signed for part in parts)
    data._signed = frozenset().union(*own)
    leaves = {id(leaf.set): leaf for part in parts for leaf in part._leaves}
    data._leaves = list(leaves.values())
    return data


def _check_parts(function: str, parts: Sequence[Any]) -> None:
    """Refuses parts that are not :class:`Data`."""
    for place, part in enumerate(parts):
        if isinstance(part, (list, tuple)) and part and all(isinstance(one, Data) for one in part):
            raise ConfigError(f"{function} takes each data set as an argument: give {function}(a, b), not a list")
        if not isinstance(part, Data):
            raise ConfigError(f"part {place} of {function} is {type(part).__name__}: give feedline.Data(...) of it")


def _check_alike(function: str, parts: Sequence[Data]) -> None:
    """Refuses parts whose columns are alike, and whose fields are not: fields that share a column in another order, and
    whole numbers that only some parts give as ``int32``."""
    forms = [known_forms(part) for part in parts]
    for number, own in enumerate(forms):
        for name in sorted(own.keys() | forms[0].keys()):
            kinds = {own.get(name), forms[0].get(name)}
            # Texts beside bytes are bytes.
            if len(kinds) > 1 and not kinds <= {None, TEXTS}:
                raise ConfigError(
                    f'part {number} of {function} has "{name}" as other pictures or texts than part 0: open the parts by the '
                    "same options, or make it one, by map"
                )
    if not any(part._places or part._signed for part in parts):
        return
    first = parts[0].fields
    of_first = {field.name: _kind(field) for field in first}
    for number, part in enumerate(parts):
        is_shared = bool(part._places or parts[0]._places)
        if is_shared and len(part.fields) != len(first):
            raise ConfigError(
                f"part {number} of {function} has {len(part.fields)} fields, and part 0 has {len(first)}: give each "
                "part the same fields, by map"
            )
        for place, (field, other) in enumerate(builtins.zip(part.fields, first, strict=False)):
            if is_shared and field.name != other.name:
                raise ConfigError(
                    f'part {number} of {function} has the field "{field.name}" where part 0 has "{other.name}" (field '
                    f"{place}): give each part the same fields in one order, as "
                    "part.map(lambda sample: {name: sample[name] for name in names})"
                )
            if of_first.get(field.name, _kind(field)) != _kind(field):
                raise ConfigError(
                    f'part {number} of {function} has "{field.name}" as {_kind(field)}, and part 0 as '
                    f"{of_first[field.name]}: make it one type and shape, by map"
                )


def _kind(field: Field) -> str:
    return f"{field.dtype} {list(field.shape)}" + (", which varies in length" if field.max_length is not None else "")


def _places_of(data: Data) -> Sequence[Place]:
    return data._places or [(field.name, field.name, None) for field in data.fields]
