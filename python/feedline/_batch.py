"""A batch, its fields of variable length, and how fields become arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from . import _feedline, _notebook
from ._array_type import Array
from ._data import Data
from ._errors import ConfigError
from ._frameworks import Framework
from ._source import Source
from ._tree import ARRAYS, PICKLE, Place, Tree, opened


class Ragged(NamedTuple):
    """A field whose samples differ in length: the concatenated values of all rows."""

    #: ``[items, shape...]``.
    values: Any
    #: ``rows + 1`` numbers, ``int32``: row ``i`` has the values from offset ``i`` to offset ``i + 1``.
    offsets: Any

    def rows(self) -> list[Any]:
        """The values of each row, without a copy."""
        ends = [int(offset) for offset in self.offsets]
        return [self.values[start:end] for start, end in pairwise(ends)]

    def text(self) -> list[str]:
        """The rows of a field of UTF-8 bytes as strings."""
        return [bytes(np.asarray(row)).decode() for row in self.rows()]

    def nested(self) -> Any:
        """The rows as torch's nested tensor of the jagged layout, without a copy of the values."""
        import torch

        return torch.nested.nested_tensor_from_jagged(self.values, self.offsets.long())


class Padded(NamedTuple):
    """A ragged field whose rows are padded to one width per batch.

    >>> import feedline, numpy as np
    >>> data = [{"ids": np.array([5, 6, 7])}, {"ids": np.array([8])}]
    >>> ids, lengths = next(iter(feedline.Loader(data, 2, pad={"ids": (0, 4, "left")}, framework="numpy")))["ids"]
    >>> ids.tolist(), lengths.tolist()
    ([[0, 5, 6, 7], [0, 0, 0, 8]], [3, 1])
    >>> (np.arange(4) >= 4 - lengths[:, None]).astype(int).tolist()  # the attention mask
    [[0, 1, 1, 1], [0, 0, 0, 1]]
    """

    #: ``[rows, width, shape...]``; a row has its items first, or at its end with padding on the left.
    values: Any
    #: The length of each row, ``int32``.
    lengths: Any


class Batch(Mapping[str, Array]):
    """The fields of a batch by name, as arrays over the memory of a slot.

    The slot is free for another batch once the batch and all of its arrays are gone. So copy values that you
    need for longer than a few steps. Do not write to the arrays, unless the loader has ``copy=True``.
    """

    __slots__ = ("_arrays", "_forms", "_framework", "_inner", "_parts")

    def __new__(cls, fields: Any, *parts: Any) -> Any:
        """``type(batch)({...})`` is a dict: so frameworks make a mapping anew from values that they have moved."""
        return super().__new__(cls) if parts else dict(fields)

    def __init__(
        self, inner: _feedline.Batch, forms: Mapping[str, Callable[..., Array]], framework: Framework
    ) -> None:
        self._inner, self._forms, self._framework = inner, forms, framework
        #: The fields that share a column, once one of them has been used.
        self._parts: dict[str, Sequence[Array]] = {}

    def __getitem__(self, name: str) -> Array:
        try:
            form = self._forms[name]
        except KeyError:
            raise _no_field(name, self._forms) from None
        if isinstance(form, Part):
            if form.column not in self._parts:
                self._parts[form.column] = form.all(self._framework, self._inner)
            return self._parts[form.column][form.at]
        return form(self._framework, self._inner, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._forms)

    def __len__(self) -> int:
        return len(self._forms)

    def to(self, device: Any, **options: Any) -> Any:
        """This batch, if it is on ``device`` already; else a dict of copies there. For torch only.

        Lightning and Accelerate call it: give them a loader with their device.
        """
        if self._framework.name != "torch":
            raise ConfigError(f'to() is for torch, not {self._framework.name}: give framework="torch"')
        import torch

        wanted = torch.device(device)
        fields = dict(self)
        devices: set[Any] = set()
        _each(fields, lambda value: devices.add(getattr(value, "device", wanted)))
        if all(here.type == wanted.type and wanted.index in (None, here.index) for here in devices):
            return self
        return _each(fields, lambda value: value.to(wanted, **options) if hasattr(value, "to") else value)

    @property
    def epoch(self) -> int:
        """The epoch."""
        return self._inner.epoch

    @property
    def step(self) -> int:
        """The step within the epoch."""
        return self._inner.step

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._inner.rows

    @property
    def valid_rows(self) -> int:
        """The number of rows without those that pad the last batch."""
        return self._inner.valid_rows

    @property
    def ids(self) -> np.ndarray[Any, Any]:
        """The id of each row's sample: its index in the data; for a source ``shard << 40 | number``."""
        return np.frombuffer(self._inner.ids(), np.uint64)

    @property
    def substituted(self) -> list[tuple[int, int]]:
        """The rows whose samples could not be read, and the samples that replace them."""
        return self._inner.substituted()

    def longest(self, name: str) -> int:
        """Items of the longest row of a ragged field; for ``cu_seqlens``, of the longest document:
        ``max_seqlen`` of attention kernels. Does not wait for the device.
        """
        return self._inner.longest(name)

    def __repr__(self) -> str:
        return f"Batch(epoch {self.epoch}, step {self.step}, {self.rows} rows of {', '.join(self._forms)})"

    def _repr_html_(self) -> str:
        """The fields and the first rows, with pictures, for a notebook."""
        samples = _notebook.rows_of(self, self.rows)
        fields = []
        for name, value in self.items():
            array = value[0] if isinstance(value, (Ragged, Padded)) else value
            dtype = str(getattr(array, "dtype", type(value).__name__)).removeprefix("torch.")
            shape = str(list(array.shape)) if hasattr(array, "shape") else ""
            fields.append((str(name), dtype, f"{type(value).__name__} of " * (array is not value) + shape))
        return _notebook.table(repr(self), fields, samples)

    def __reduce__(self) -> Any:
        raise TypeError("a batch cannot be pickled: it is memory of the loader; pickle copies of its arrays")


class Copied(Batch):
    """A batch whose arrays are copies."""

    __slots__ = ("_info",)

    def __init__(
        self, inner: _feedline.Batch, forms: Mapping[str, Callable[..., Any]], framework: Framework
    ) -> None:
        self._forms, self._framework = forms, framework
        self._arrays: Mapping[str, Array] = {
            name: _copied(framework, form(framework, inner, name)) for name, form in forms.items()
        }
        ragged = [name for name, form in forms.items() if form in (_ragged, _ragged_int32, _padded)]
        self._inner = Info(inner, ragged)  # type: ignore[assignment]

    def __getitem__(self, name: str) -> Array:
        try:
            return self._arrays[name]
        except KeyError:
            raise _no_field(name, self._forms) from None


class Returned(dict[Any, Any]):
    """The dict that ``collate_fn`` returned, with the description of a :class:`Batch`."""

    __slots__ = ("_inner",)
    _inner: Any

    epoch, step, rows, valid_rows = Batch.epoch, Batch.step, Batch.rows, Batch.valid_rows
    ids, substituted = Batch.ids, Batch.substituted

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def returned(inner: _feedline.Batch, framework: Framework, copies: bool) -> Any:
    """What ``collate_fn`` returned for a batch."""
    made = []

    def array(place: Place) -> Any:
        field = inner.part(ARRAYS, *place)
        made.append((framework.bfloat16 if place[1] == "bf16" else framework.array)(field))
        return framework.copy(made[-1]) if copies else made[-1]

    value = opened(inner.kept(PICKLE), array)
    if type(value) is dict:
        value = Returned(value)
        value._inner = inner if made and not copies else Info(inner)
    return value


def _no_field(name: Any, fields: Mapping[str, Any]) -> KeyError:
    if isinstance(name, str):
        return KeyError(f'no field "{name}"; the fields are {list(fields)}')
    first = next(iter(fields), "x")
    return KeyError(f'{name!r} is no name of a field: give one as batch["{first}"]; the fields are {list(fields)}')


class Info:
    """The description of a batch whose slot is released."""

    def __init__(self, inner: _feedline.Batch, ragged: Sequence[str] = ()) -> None:
        self._longest = {name: inner.longest(name) for name in ragged}
        self.epoch, self.step = inner.epoch, inner.step
        self.rows, self.valid_rows = inner.rows, inner.valid_rows
        self._ids, self._substituted = inner.ids(), inner.substituted()
        self._failures = inner.failures() if self._substituted else []

    def ids(self) -> bytes:
        return self._ids

    def longest(self, name: str) -> int:
        try:
            return self._longest[name]
        except KeyError:
            raise ConfigError(f'field "{name}" is not ragged: every sample has the same length') from None

    def substituted(self) -> list[tuple[int, int]]:
        return self._substituted

    def failures(self) -> list[tuple[int, int, str | None, str]]:
        return self._failures


def _each(value: Any, call: Callable[[Any], Any]) -> Any:
    """A nest of dicts, lists and tuples with the result of a call for each value."""
    if isinstance(value, Mapping):
        return {key: _each(part, call) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        parts = (_each(part, call) for part in value)
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return call(value)


def _copied(framework: Framework, value: Any) -> Any:
    if isinstance(value, (Ragged, Padded)):
        return type(value)(*map(framework.copy, value))
    if isinstance(value, list):
        # Of texts, lists of texts, or pictures.
        return [item if isinstance(item, (str, list)) else framework.copy(item) for item in value]
    return framework.copy(value)


def _array(framework: Framework, inner: _feedline.Batch, name: str) -> Any:
    return framework.array(inner.field(name))


def _bfloat16(framework: Framework, inner: _feedline.Batch, name: str) -> Any:
    return framework.bfloat16(inner.field(name))


def _int32(framework: Framework, inner: _feedline.Batch, name: str) -> Any:
    return framework.int32(framework.array(inner.field(name)))


def _ragged_int32(framework: Framework, inner: _feedline.Batch, name: str) -> Ragged:
    return Ragged(_int32(framework, inner, name), framework.array(inner.numbers(name)))


def _ragged(framework: Framework, inner: _feedline.Batch, name: str) -> Ragged:
    return Ragged(framework.array(inner.field(name)), framework.array(inner.numbers(name)))


def _padded(framework: Framework, inner: _feedline.Batch, name: str) -> Padded:
    return Padded(framework.array(inner.field(name)), framework.array(inner.numbers(name)))


def _alike(framework: Framework, inner: _feedline.Batch, name: str) -> Any:
    """A ragged field whose rows have one length in each batch."""
    values = framework.array(inner.field(name))
    # Rows without items are padded to one.
    is_empty = values.shape[1] == 1 and int(framework.array(inner.numbers(name))[0]) == 0
    return values[:, :0] if is_empty else values


class Part(NamedTuple):
    """Makes the array of a field that shares a column with others."""

    column: str
    at: int
    form: Callable[..., Any]

    def all(self, framework: Framework, inner: _feedline.Batch) -> Sequence[Any]:
        """All fields of the column."""
        whole = self.form(framework, inner, self.column)
        # Faster than a view of each.
        return whole.unbind(1) if hasattr(whole, "unbind") else [whole[:, at] for at in range(whole.shape[1])]

    def __call__(self, framework: Framework, inner: _feedline.Batch, _: str) -> Any:
        return self.form(framework, inner, self.column)[:, self.at]


def forms_of(data: Data | Source, padded: set[str], texts: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    """The function that makes the value of each field."""
    signed: frozenset[str] = getattr(data, "_signed", frozenset())
    forms: dict[str, Any] = {
        field.name: (_padded if field.name in padded else _ragged_int32 if field.name in signed else _ragged)
        if field.max_length is not None
        else (_bfloat16 if field.dtype == "bf16" else _int32 if field.name in signed else _array)
        for field in data.fields
    }
    if data._nest is not None and data._nest is not Tree:
        # `collate_fn` has given the rows of a batch one length.
        forms |= {field.name: _alike for field in data.fields if field.max_length is not None}
    for name, column, at in data._places:
        if at is not None:
            forms[name] = Part(column, at, forms[name])
    return {**forms, **texts}
