"""A data set in one block of memory, which all workers map.

It is pickled once. The bytes of arrays and tensors are beside the pickle, and are not copied when it is
loaded: each worker maps the block privately, so pages are shared until a worker writes to them.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import struct
import sys
import types
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .. import _feedline

#: Smaller arrays stay within the pickle, as sharing them would cost more than a copy per worker.
OUT_OF_BAND = 1024
_ALIGN = 64


class Unpicklable(Exception):
    """A data set that cannot be sent to a process. The text names the attribute and the reason."""


class Packed:
    """A pickled object: a block of memory, and the modules to import before loading it."""

    def __init__(self, readers: list[Any]) -> None:
        buffers: list[pickle.PickleBuffer] = []
        stream = io.BytesIO()
        pickler = _Pickler(stream, buffers)
        try:
            pickler.dump(readers)
        except Exception as error:
            raise Unpicklable(_why(readers, error)) from error
        #: The modules of all classes and functions.
        self.modules = pickler.modules
        #: The block; the caller closes it.
        self.block = os.memfd_create("feedline-data", os.MFD_CLOEXEC)
        try:
            self._write(stream.getbuffer(), [buffer.raw() for buffer in buffers])
        except BaseException:
            os.close(self.block)
            raise

    def _write(self, stream: memoryview, buffers: list[memoryview]) -> None:
        parts, places, at = [], [], struct.calcsize("<QQ")
        index = 2 * 8 * len(buffers)
        at += index
        for part in [stream, *buffers]:
            at += -at % _ALIGN
            places.append((at, part.nbytes))
            parts.append(part)
            at += part.nbytes
        os.truncate(self.block, max(at, 1))
        head = struct.pack("<QQ", len(buffers), places[0][1])
        head += b"".join(struct.pack("<QQ", *place) for place in places[1:])
        _write_at(self.block, memoryview(head), 0)
        for (start, _), part in zip(places, parts, strict=True):
            _write_at(self.block, part, start)


def unpacked(block: int) -> Any:
    """The object in a block."""
    # Private and writable: if a data set changes its arrays, no other process sees it.
    memory = memoryview(mmap.mmap(block, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE))
    count, length = struct.unpack_from("<QQ", memory)
    places = list(struct.iter_unpack("<QQ", memory[16 : 16 + 16 * count]))
    start = 16 + 16 * count
    start += -start % _ALIGN
    buffers = [memory[at : at + size] for at, size in places]
    return pickle.loads(memory[start : start + length], buffers=buffers)


def _write_at(file: int, part: memoryview, at: int) -> None:
    part = part.cast("B") if part.nbytes else part[:0]
    while len(part):
        # Linux writes at most 2 GiB in one call.
        written = os.pwrite(file, part[: 1 << 30], at)
        part, at = part[written:], at + written


class _Pickler(pickle.Pickler):
    """Leaves the bytes of arrays and tensors out of the pickle, and opens mapped files again."""

    def __init__(self, stream: io.BytesIO, buffers: list[pickle.PickleBuffer]) -> None:
        super().__init__(stream, protocol=5, buffer_callback=self._place)
        self._buffers = buffers
        self.modules: set[str] = set()

    def _place(self, buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes < OUT_OF_BAND:
            return True
        self._buffers.append(buffer)
        return False

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if kind is np.ndarray:
            return NotImplemented
        module = getattr(value if isinstance(value, (type, types.FunctionType)) else kind, "__module__", None)
        if isinstance(module, str):
            self.modules.add(module)
        if kind is np.memmap:
            return _mapped_again(value)
        if kind is _feedline.Table:
            return _table, (np.frombuffer(value.to_bytes(), np.uint8),)
        made = getattr(value, "_made", None) if module in ("feedline._data", "feedline._windows") else None
        if made is not None:
            return type(made).again, (made,)
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            if value.device.type != "cpu":
                raise Unpicklable(f"a tensor on {value.device}, which worker processes may not use")
            if kind is torch.Tensor and _is_plain(value, torch):
                bits = value.detach().view(torch.int16) if value.dtype == torch.bfloat16 else value.detach()
                return _tensor, (bits.numpy(), str(value.dtype), value.requires_grad)
        return NotImplemented


def _table(stream: np.ndarray[Any, Any]) -> _feedline.Table:
    return _feedline.Table.of_bytes(stream.tobytes())


def _is_plain(tensor: Any, torch: Any) -> bool:
    names = ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool", "bfloat16")
    plain = [getattr(torch, name) for name in names]
    is_bare = not tensor.is_conj() and not tensor.is_neg() and not tensor.__dict__ and tensor.is_leaf
    return bool(
        tensor.layout == torch.strided and tensor.is_contiguous() and tensor.dtype in plain and is_bare
    )


def _tensor(array: np.ndarray[Any, Any], dtype: str, requires_grad: bool) -> Any:
    import torch

    tensor = torch.from_numpy(array)
    if dtype == "torch.bfloat16":
        tensor = tensor.view(torch.bfloat16)
    return tensor.requires_grad_(requires_grad) if requires_grad else tensor


def _mapped_again(array: np.memmap[Any, Any]) -> Any:
    """Maps the file again, rather than copying it."""
    base: Any = getattr(array, "_mmap", None)
    # A copy-on-write map may differ from its file.
    if base is None or array.filename is None or array.mode == "c" or array.size == 0:
        return NotImplemented
    start = np.frombuffer(base, np.uint8).__array_interface__["data"][0]
    at = array.__array_interface__["data"][0] - start
    begin = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    mode = "r" if array.mode == "r" or not array.flags.writeable else "r+"
    where = (str(array.filename), mode, begin, len(base), at)
    return _map, (*where, array.dtype, array.shape, array.strides)


def _map(
    path: str,
    mode: str,
    begin: int,
    length: int,
    at: int,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
) -> Any:
    whole = np.memmap(path, np.uint8, mode, begin, (length,))  # type: ignore[call-overload]
    return np.ndarray(shape, dtype, whole, at, strides)


def _why(readers: list[Any], error: BaseException) -> str:
    """The attribute that cannot be pickled, and why."""
    parts = [part for reader, _ in readers for part in reader.parts]
    of = [part for part in parts if not can_be_pickled(part[1])] or [("data", readers)]
    place, culprit = _culprit(of[0][1], of[0][0], set())
    what = _described(culprit)
    reason = " ".join(str(error).split())
    return f"{place} is {what}, which cannot be sent to a process ({reason})"


def _described(value: Any) -> str:
    if isinstance(value, types.FunctionType):
        if value.__name__ == "<lambda>":
            return "a lambda"
        return f"the function {value.__qualname__}" + (
            ", which is defined within another one" if "<locals>" in value.__qualname__ else ""
        )
    kind = type(value)
    is_local = "<locals>" in kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}" + (
        ", a class that is defined within a function" if is_local else ""
    )


def _culprit(value: Any, place: str, seen: set[int]) -> tuple[str, Any]:
    """The innermost part of ``value`` that cannot be pickled."""
    seen.add(id(value))
    for name, part in _parts(value):
        if id(part) not in seen and not can_be_pickled(part):
            return _culprit(part, f"{place}{name}", seen)
    return place, value


def _parts(value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", part) for key, part in value.items()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [(f"[{index}]", part) for index, part in enumerate(value)]
    if isinstance(value, (type, types.FunctionType, types.ModuleType)):
        return []
    own = getattr(value, "__dict__", None) or {}
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    named = {**own, **{name: getattr(value, name) for name in slots if hasattr(value, name)}}
    if isinstance(value, types.MethodType):
        named["__self__"] = value.__self__
    if hasattr(value, "func") and hasattr(value, "args"):
        named.update(func=value.func, args=value.args)
    return [(f".{name}", part) for name, part in named.items()]


def can_be_pickled(value: Any) -> bool:
    """Whether a value can be sent to another process."""
    try:
        _Pickler(io.BytesIO(), []).dump(value)
    except Exception:  # noqa: BLE001
        return False
    return True
