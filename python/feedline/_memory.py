"""Samples that share memory: a data set may fill one array, or one dict, for every sample. Such samples are copied as
soon as they are read.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import struct
import sys
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from . import _feedline

#: Types whose values do not change.
FIXED = {bool, int, float, complex, str, bytes, type(None), *np.sctypeDict.values()} - {np.void, np.object_}


def sharing(values: Sequence[Any]) -> set[int]:
    """The positions of the values that share memory with another one."""
    kinds = set(map(type, values))
    if kinds <= FIXED:
        return set()
    if len(kinds) > 1:
        alike: dict[type, list[int]] = {}
        for position, value in enumerate(values):
            alike.setdefault(type(value), []).append(position)
        of_kinds = ((places, sharing([values[place] for place in places])) for places in alike.values())
        return {places[position] for places, found in of_kinds for position in found}
    (kind,) = kinds
    if kind is np.ndarray:
        return _of_arrays(values)
    if kind is memoryview:
        return _of_arrays([np.asarray(value) for value in values])
    found = _of_objects(values)
    torch = sys.modules.get("torch")
    if torch is not None and issubclass(kind, torch.Tensor):
        return found | _of_tensors(values)
    if issubclass(kind, np.ndarray):
        return found | _of_spans([_span(value) for value in values])
    for part in _parts(values):
        if len(part) == len(values):
            found |= sharing(part)
    return found


class Beside(Exception):
    """Values whose memory another thread may be filling: they are to be read again, while no other thread reads."""


class Kept:
    """Memory that a data set or a function keeps after it has returned it, for one field: another call may fill it anew.
    Some values that are apart, or that share memory and are right, show that it does not.
    """

    #: Values that must be apart: more than anyone fills in turn. They are of one object, or as many stand for any.
    _APART = 8

    def __init__(self, refs: int = 2) -> None:
        #: The references to a value that is not kept.
        self._refs = refs
        #: The last values, which were read alone, with copies and the calls that returned them.
        self._last: list[tuple[Any, Any, Any]] = []
        #: How often memory had the same content again, by the ids of its objects.
        self._same: Counter[int] = Counter()
        #: The objects whose memory is not filled anew, by their ids; whether there are more of them.
        self._owners: dict[int, Any] = {}
        self._is_known = False

    def __reduce__(self) -> Any:
        return Kept, (self._refs,)

    def are_new(self, values: Sequence[Any], are_fields: bool = True) -> bool:
        """Whether nothing else refers to any of the values, so that they share no memory: arrays, or samples."""
        return bool(values) and _IS_KNOWN and _feedline.are_new(values, np.ndarray, self._refs, are_fields)

    def among(self, values: Sequence[Any]) -> list[Found]:
        """Itself and the values that are kept in memory of which nothing is known; nothing if there are none."""
        if self._is_known or not values or not _IS_KNOWN:
            return []
        kind = type(values[0])
        if kind in FIXED:
            return []
        kept = _feedline.kept(values, np.ndarray, self._refs, list(self._owners))
        if hasattr(kind, "_is_view"):
            views = {at for at, is_view in enumerate(map(kind._is_view, values)) if is_view}
            kept = sorted(views.union(kept))
        return [(self, [values[at] for at in kept])] if kept else []

    def rests_after(self, values: Sequence[Any], call: Any) -> bool:
        """Whether it is known that their memory is not filled anew, after a call that was alone returned ``values``, and
        they are right. Calls for other samples differ."""
        every = [*values, *(value for value, *_ in self._last)]
        owners = {id(owner): owner for owner in map(_owner, every)}
        apart = Counter(id(_owner(every[at])) for at in set(range(len(every))) - sharing(every))
        self._same.update(id(_owner(values[at])) for at in sharing(values))
        # Memory that another call has returned, too: it has the same content, or was filled.
        again = {id(_owner(value)) for value in values} - apart.keys()
        stayed = {id(_owner(value)): True for value, _, by in self._last if by != call}
        for value, before, _ in self._last:
            if not same(value, before):
                stayed[id(_owner(value))] = False
        for key in again & stayed.keys():
            self._same[key] = self._same[key] + 1 if stayed[key] else 0
        for key, owner in owners.items():
            if apart[key] >= self._APART or self._same[key] >= self._APART:
                self._own(owner)
        self._is_known = len(apart) >= self._APART
        last = [*((value, frozen(value), call) for value in values), *self._last]
        left = [one for one in last if id(_owner(one[0])) not in self._owners]
        self._last = [] if self._is_known else left[: 2 * self._APART]
        return self._is_known or all(id(_owner(value)) in self._owners for value in values)

    def _own(self, owner: Any) -> None:
        with contextlib.suppress(TypeError):
            forget = functools.partial(_forget, self._owners, id(owner))
            self._owners[id(owner)] = weakref.ref(owner, forget)
            return
        self._owners[id(owner)] = owner


def _owner(value: Any) -> Any:
    """The object whose memory a value has."""
    return value.base if type(value) is np.ndarray and value.base is not None else value


def _forget(owners: dict[int, Any], key: int, _: Any) -> None:
    owners.pop(key, None)


#: The memory of a field, and values of it.
Found = tuple[Kept, Sequence[Any]]


class Look:
    """Looks at what is kept of the values of one ``call``, which calls for other samples differ from. ``is_alone`` says
    that no other thread reads meanwhile."""

    def __init__(self, is_alone: bool, call: Any) -> None:
        self.is_alone, self._call = is_alone, call
        #: Whether the next call may read beside others.
        self.is_over = True

    def check_alone(self) -> None:
        """Raises Beside if another thread may read meanwhile."""
        if not self.is_alone:
            raise Beside

    def among(self, kept: Mapping[Any, Kept], values: Mapping[Any, Sequence[Any]]) -> list[Found]:
        """The values that are kept, of some fields. Raises Beside if another thread may fill their memory."""
        found = [of for field, part in values.items() for of in kept[field].among(part)]
        if found:
            self.check_alone()
        return found

    def settle(self, found: Sequence[Found]) -> None:
        """The values are right."""
        for kept, values in found:
            self.is_over &= kept.rests_after(values, self._call)


def by_field(samples: Sequence[Any]) -> dict[str, list[Any]]:
    """The values of each field of samples, of whatever form."""
    alike = _parts(samples) if samples else []
    if alike:
        first = samples[0]
        return dict(zip(map(str, first if isinstance(first, Mapping) else range(len(first))), alike, strict=True))
    fields: dict[str, list[Any]] = {}
    for sample in samples:
        if isinstance(sample, Mapping):
            parts: Iterable[tuple[Any, Any]] = sample.items()
        else:
            parts = enumerate(sample) if isinstance(sample, (tuple, list)) else [("", sample)]
        for name, value in parts:
            fields.setdefault(str(name), []).append(value)
    return fields


def _parts(values: Sequence[Any]) -> list[list[Any]]:
    """The values within dicts that have the same keys, or within lists of one length whose items are no numbers."""
    first = values[0]
    if isinstance(first, Mapping):
        keys = first.keys()
        return [[value[key] for value in values] for key in keys] if all(one.keys() == keys for one in values) else []
    if isinstance(first, (list, tuple)) and any(type(item) not in FIXED for item in first):
        if len(set(map(len, values))) == 1:
            return list(map(list, zip(*values, strict=True)))
    return []


def _of_objects(values: Sequence[Any]) -> set[int]:
    if len(set(map(id, values))) == len(values):
        return set()
    places: dict[int, list[int]] = {}
    for position, value in enumerate(values):
        places.setdefault(id(value), []).append(position)
    return {position for same in places.values() if len(same) > 1 for position in same}


def _of_arrays(arrays: Sequence[Any]) -> set[int]:
    items = {array.dtype.itemsize for array in arrays}
    if not _IS_KNOWN or len(items) > 1:
        return _of_spans([_span(array) for array in arrays])
    return set(_feedline.sharing(list(arrays), np.ndarray, items.pop()))


def addresses(arrays: list[Any]) -> list[int]:
    """Where the elements of arrays of NumPy begin."""
    if not _IS_KNOWN:
        return [array.__array_interface__["data"][0] for array in arrays]
    return _feedline.addresses(arrays, np.ndarray)


def are_alike(arrays: list[Any], dtype: np.dtype[Any], shape: tuple[int, ...], most: int | None = None) -> bool:
    """Whether arrays of NumPy have this type and shape; with ``most``, one to so many items of the shape. ``False`` also
    says that it is to be seen otherwise."""
    return _IS_KNOWN and _feedline.are_alike(arrays, np.ndarray, dtype, shape, most)


def shared_rows(values: list[Any], row_bytes: int, item: int) -> list[int]:
    """As :func:`sharing`, for arrays of NumPy or tensors of torch of one size."""
    if not _IS_KNOWN:
        return sorted(sharing(values))
    if type(values[0]) is np.ndarray:
        return _feedline.sharing(values, np.ndarray, item)
    return _feedline.sharing_at(list(map(type(values[0]).data_ptr, values)), row_bytes)


def _of_tensors(tensors: Sequence[Any]) -> set[int]:
    try:
        starts = [tensor.data_ptr() for tensor in tensors]
        return _of_spans([(start, start + tensor.nbytes) for start, tensor in zip(starts, tensors, strict=True)])
    except (RuntimeError, NotImplementedError):
        # A tensor without memory, such as a sparse one.
        return set()


def _span(array: Any) -> tuple[int, int]:
    start = end = array.__array_interface__["data"][0]
    reach = [(count - 1) * stride for count, stride in zip(array.shape, array.strides, strict=True)]
    if array.size == 0:
        return start, end
    return start + sum(one for one in reach if one < 0), end + sum(one for one in reach if one > 0) + array.itemsize


def _of_spans(spans: Sequence[tuple[int, int]]) -> set[int]:
    found: set[int] = set()
    until, of = -1, -1
    for start, end, position in sorted((start, end, position) for position, (start, end) in enumerate(spans) if start < end):
        if start < until:
            found |= {of, position}
        if end > until:
            until, of = end, position
    return found


def frozen(value: Any) -> Any:
    """A copy that nothing else changes."""
    kind = type(value)
    if kind in FIXED:
        return value
    if isinstance(value, np.ndarray):
        return value.copy()
    if kind is dict:
        return {key: frozen(part) for key, part in value.items()}
    if kind in (list, tuple):
        return kind([frozen(part) for part in value])
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return value.detach().clone() if value.is_leaf else value.clone()
    if isinstance(value, memoryview):
        return np.array(value)
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001
        return value


def same(one: Any, other: Any) -> bool:
    """Whether two values have the same memory and content."""
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        # Three times as fast as a comparison of numbers.
        is_alike = one.dtype == other.dtype and one.shape == other.shape
        return bool(is_alike and one.tobytes() == other.tobytes())
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(one, torch.Tensor):
        return bool(torch.equal(one, other))
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001
        return False


def is_at(one: Any, other: Any) -> bool:
    """Whether the arrays of two samples are at the same addresses."""
    if isinstance(one, Mapping):
        return all(is_at(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return all(map(is_at, one, other))
    if isinstance(one, np.ndarray):
        return bool(one.__array_interface__["data"] == other.__array_interface__["data"])
    if hasattr(one, "data_ptr"):
        return bool(one.data_ptr() == other.data_ptr())
    return type(one) in FIXED or one is other


def _is_known() -> bool:
    """Whether an array begins as NumPy's headers say."""
    array = np.arange(6, dtype=np.int16)[::-2]
    place = id(array) + object.__basicsize__
    import ctypes

    pointer, dimensions, _, _, base, dtype, flags = struct.unpack("=Qi4xQQQQi", ctypes.string_at(place, 52))
    its = array.__array_interface__["data"][0], 1, id(array.base), id(array.dtype), array.flags.num
    return (pointer, dimensions, base, dtype, flags) == its and object.__basicsize__ == 16 and getattr(sys, "_is_gil_enabled", lambda: True)()


_IS_KNOWN = _is_known()
