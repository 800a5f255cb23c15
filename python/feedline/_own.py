"""Data sets and hooks written in Python, as the worker threads call them: samples as bytes.

Copies of bytes keep the memory of a slot out of Python: an array that a data set keeps or changes later
cannot touch a batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _feedline
from ._errors import ConfigError

#: A field: name, dtype, shape of a row or of an item, and the max items of a ragged field.
Field = tuple[str, str, list[int], "int | None"]

#: NumPy's names of the types that batches have.
DTYPES = {
    "uint8": "u8",
    "int8": "i8",
    "uint16": "u16",
    "int16": "i16",
    "uint32": "u32",
    "int32": "i32",
    "int64": "i64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "bool": "bool",
}


def dtype_of(name: str, array: np.ndarray[Any, Any]) -> str:
    """The type of ``array`` in batches."""
    try:
        return DTYPES[array.dtype.name]
    except KeyError:
        why = f'field "{name}" has elements of type {array.dtype}, which batches do not have: convert it'
        raise ConfigError(why) from None


def as_array(value: Any) -> np.ndarray[Any, Any]:
    """A value of a sample as an array: bytes and text are ``uint8``."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, str):
        return np.frombuffer(value.encode(), np.uint8)
    if isinstance(value, (bytes, bytearray)):
        return np.frombuffer(value, np.uint8)
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":
        return _Bits(value)
    return np.asarray(value)


def _Bits(tensor: Any) -> np.ndarray[Any, Any]:
    """A tensor of torch's bfloat16, which NumPy does not have."""
    import torch

    ml_dtypes = _import("ml_dtypes")
    if ml_dtypes is None:
        raise ConfigError("NumPy has no bfloat16: install ml_dtypes, or convert the tensor to float32")
    bits: np.ndarray[Any, Any] = tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return bits


def _import(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def fields_of(sample: Any) -> dict[str, Any]:
    """The fields of a sample: those of a dict, or the places of a tuple; else the one field ``0``."""
    if isinstance(sample, Mapping):
        return dict(sample)
    if isinstance(sample, (tuple, list)):
        return {str(place): value for place, value in enumerate(sample)}
    return {"0": sample}


class Encoder:
    """Makes bytes of samples that are like a first one."""

    def __init__(self, first: Any, max_length: Mapping[str, int]) -> None:
        self.is_tuple = isinstance(first, (tuple, list))
        self._encoders: list[tuple[str, Callable[[Any], bytes]]] = []
        self.fields: list[Field] = []
        sample = fields_of(first)
        unknown = [name for name in max_length if name not in sample]
        if unknown:
            raise ConfigError(f"max_length names {unknown[0]!r}, and the fields are {list(sample)}")
        for name, value in sample.items():
            field, encoder = _field(name, value, max_length.get(name))
            self.fields.append(field)
            self._encoders.append((name, encoder))

    def __call__(self, sample: Any) -> list[bytes]:
        """The bytes of each field."""
        values = fields_of(sample)
        try:
            return [encode(values[name]) for name, encode in self._encoders]
        except KeyError as error:
            wanted = [name for name, _ in self._encoders]
            if error.args and error.args[0] in wanted and error.args[0] not in values:
                raise ValueError(
                    f"the sample has the fields {list(values)}, and the first one has {wanted}"
                ) from None
            raise


def fingerprint_of(data: Any) -> int | None:
    """A number from the attribute ``fingerprint`` of a data set, or the one of Hugging Face's data sets."""
    for name in ("fingerprint", "_fingerprint"):
        value = getattr(data, name, None)
        if isinstance(value, (int, str)):
            return int.from_bytes(hashlib.sha256(str(value).encode()).digest()[:8], "little")
    return None


class Reader:
    """Reads the samples of an object with ``__len__`` and ``__getitem__``."""

    def __init__(self, data: Any, max_length: Mapping[str, int]) -> None:
        if not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
            raise ConfigError(
                f"a data set needs __len__ and __getitem__, and {type(data).__name__} has not both: give an "
                "iterable to feedline.Source, which reads it in sequence"
            )
        if len(data) == 0:
            raise ConfigError("the data set is empty: give samples")
        self._data = data
        self._encode = Encoder(data[0], max_length)
        self.is_tuple, self.fields = self._encode.is_tuple, self._encode.fields

    @property
    def fingerprint(self) -> int | None:
        """A number that identifies the data, if it has one."""
        return fingerprint_of(self._data)

    @property
    def is_batched(self) -> bool:
        """Whether the data set reads several samples in one call, by torch's ``__getitems__``."""
        return hasattr(self._data, "__getitems__")

    def read(self, index: int) -> list[bytes]:
        """The bytes of each field of a sample."""
        return self._encode(self._data[index])

    def read_at(self, index: int, epoch: int, seed: int) -> list[bytes]:
        """As :meth:`read`, for samples that are random: those of :meth:`Data.map` over such a set."""
        return self._encode(self._data.read_at(index, epoch, seed))

    def read_many(self, indices: list[int]) -> list[list[bytes]]:
        """The bytes of each field of each sample."""
        return [self._encode(sample) for sample in self._data.__getitems__(indices)]


class Shards:
    """Opens the shards of a source: iterables, or functions that return iterators."""

    def __init__(self, shards: Sequence[Any], max_length: Mapping[str, int]) -> None:
        self._shards = shards
        for number, shard in enumerate(shards):
            if isinstance(shard, Iterator):
                raise ConfigError(
                    f"shard {number} is {type(shard).__name__}, which can be read once, so it has no second "
                    "epoch and cannot be resumed: give the function that makes it, or an object whose "
                    "__iter__ begins anew"
                )
            if not callable(shard) and not hasattr(shard, "__iter__"):
                raise ConfigError(
                    f"shard {number} is {type(shard).__name__}: give an object with __iter__, or a function "
                    "that returns an iterator"
                )
        first = next((sample for shard in shards for sample in _iterate(shard)), self)
        if first is self:
            raise ConfigError("the source has no samples: give some")
        self._encode = Encoder(first, max_length)
        self.is_tuple, self.fields = self._encode.is_tuple, self._encode.fields

    @property
    def fingerprint(self) -> int | None:
        """A number that identifies the shards, if they all have one."""
        numbers = [fingerprint_of(shard) for shard in self._shards]
        return None if None in numbers else fingerprint_of(_Fingerprint(repr(numbers)))

    def open(self, epoch: int, shard: int, offset: int) -> Iterator[list[bytes]]:
        """The bytes of the samples of a shard from number ``offset`` on."""
        samples = self._shards[shard]
        # Torch's distributed samplers and Hugging Face's iterable data sets have it.
        if hasattr(samples, "set_epoch"):
            samples.set_epoch(epoch)
        # Hugging Face's method: it may seek.
        if offset and hasattr(samples, "skip"):
            samples, offset = samples.skip(offset), 0
        opened = iter(_iterate(samples))
        for number in range(offset):
            if _feedline.is_closing():
                raise RuntimeError("the Python interpreter is shutting down")
            if next(opened, self) is self:
                raise ValueError(
                    f"shard {shard} has {number} samples, and the saved state is behind {offset}: a shard "
                    "must give the same samples each time"
                )
        return map(self._encode, opened)


class _Fingerprint(NamedTuple):
    fingerprint: str


def _iterate(shard: Any) -> Iterable[Any]:
    samples: Iterable[Any] = shard if hasattr(shard, "__iter__") else shard()
    return samples


def _field(name: str, value: Any, max_length: int | None) -> tuple[Field, Callable[[Any], bytes]]:
    array = as_array(value)
    if array.dtype.name == "object":
        raise ConfigError(f'field "{name}" is {type(value).__name__}, not an array, a number or a text')
    dtype = dtype_of(name, array)
    if max_length is not None:
        if array.ndim == 0:
            raise ConfigError(f'field "{name}" is one number: max_length is for fields that vary in length')
        return (name, dtype, list(array.shape[1:]), max_length), _Varying(name, array)
    if isinstance(value, (str, bytes, bytearray)):
        raise ConfigError(
            f'field "{name}" is text or bytes, which vary in length: give max_length={{"{name}": ...}}'
        )
    return (name, dtype, list(array.shape), None), _Fixed(name, array)


class _Fixed:
    """Encodes a field that has one shape."""

    def __init__(self, name: str, first: np.ndarray[Any, Any]) -> None:
        self.name, self.dtype, self.shape = name, first.dtype, first.shape

    def __call__(self, value: Any) -> bytes:
        array = as_array(value)
        if array.shape != self.shape:
            raise ValueError(
                f'field "{self.name}" has the shape {array.shape}, and sample 0 has {self.shape}: make it '
                f'one size, or give max_length={{"{self.name}": ...}}'
            )
        return _typed(self.name, array, self.dtype)


class _Varying:
    """Encodes a field whose first dimension varies."""

    def __init__(self, name: str, first: np.ndarray[Any, Any]) -> None:
        self.name, self.dtype, self.item = name, first.dtype, first.shape[1:]

    def __call__(self, value: Any) -> bytes:
        array = as_array(value)
        if array.ndim == 0 or (array.shape[1:] != self.item and array.size > 0):
            raise ValueError(f'field "{self.name}" has the shape {array.shape}, and items have {self.item}')
        return _typed(self.name, array, self.dtype)


def _typed(name: str, array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> bytes:
    if array.dtype != dtype:
        # An empty list is an array of floats.
        if array.size > 0 and not np.can_cast(array.dtype, dtype, "same_kind"):
            raise ValueError(f'field "{name}" is {array.dtype}, and sample 0 has {dtype}')
        array = array.astype(dtype)
    return array.tobytes()


class Hook:
    """A hook on a batch: gets its arrays by name, changes them in place or returns others."""

    def __init__(
        self, function: Callable[[dict[str, Any]], Any], fields: Sequence[tuple[str, Any, list[int]]]
    ) -> None:
        self._function, self._fields = function, fields

    def __call__(self, columns: list[bytes], rows: int) -> list[bytes | None]:
        batch = {
            name: np.frombuffer(bytearray(column), dtype).reshape(rows, *shape)
            for (name, dtype, shape), column in zip(self._fields, columns, strict=True)
        }
        result = self._function(batch)
        if result is not None:
            unknown = [name for name in result if name not in batch]
            if unknown:
                raise ValueError(f"the hook returned {unknown[0]!r}, and the fields are {list(batch)}")
            batch.update(result)
        return [self._column(batch[name], name, dtype, (rows, *shape)) for name, dtype, shape in self._fields]

    @staticmethod
    def _column(value: Any, name: str, dtype: Any, shape: tuple[int, ...]) -> bytes:
        array = np.asarray(value)
        if array.shape != shape:
            raise ValueError(f'the hook made "{name}" {array.shape}, and the batch has {shape}')
        return _typed(name, array, np.dtype(dtype))
