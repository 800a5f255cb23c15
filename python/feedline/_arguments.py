"""The arguments of a loader that depend on its data, its device or its process."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union

import numpy as np

from . import _feedline, _options, _own, _parts, _values
from ._data import Data, NotRandomAccess, fields_at
from ._errors import ConfigError, shown
from ._frameworks import Framework
from ._room import growing
from ._source import Source
from ._tables import is_table
from ._tree import Tree
from ._workers.choice import BatchMap

#: Why samples cannot be given to `collate_fn`.
_INDEXED = (
    "collate_fn is for samples that are read by index, and a source is read in sequence: yield arrays, and pad them by "
    "pad={field: value}"
)

#: How a field is padded: the value, the multiple of the width, and the side.
_Side = Literal["left", "right"]
PadOf = Union[float, None, "tuple[float | None, int]", "tuple[float | None, _Side]", "tuple[float | None, int, _Side]"]

def samples_of(
    data: Any,
    collate_fn: Callable[[list[Any]], Any] | None,
    max_length: Mapping[str, int | None] | None,
    pad: Any,
    has_rows: bool,
    text: str | Sequence[str] | None,
) -> Data | Source:
    """The data that a loader reads, made from its argument; with ``has_rows``, `collate_fn` returns fields of rows."""
    if isinstance(data, Source) or (isinstance(data, Data) and collate_fn is None):
        if max_length is not None:
            raise ConfigError(f"give max_length with the samples: feedline.{type(data).__name__}(..., max_length=...)")
        if collate_fn is not None:
            raise ConfigError(_INDEXED)
        return data._of_rows(pad) if isinstance(data, Data) and data._nest is Tree and has_rows else data
    if collate_fn is not None and text is not None:
        data = (data if isinstance(data, Data) else Data(data))._with_texts(_parts.names("text", text))
    is_iterable = hasattr(data, "__iter__") and not isinstance(data, (str, os.PathLike))
    is_indexed = is_table(data) or (hasattr(data, "__getitem__") and hasattr(data, "__len__"))
    if is_indexed or not is_iterable:
        try:
            return Data._padded(data, pad, max_length, collate_fn, has_rows)
        except NotRandomAccess:
            if not is_iterable:
                raise
            # Torch's IterableDataset has an unimplemented __getitem__, and may have a length.
    if collate_fn is not None:
        raise ConfigError(_INDEXED)
    return Source(data, max_length=_options.limits(max_length))


def check_has_limits(data: Data | Source, **needs: bool) -> None:
    """Refuses fields without a limit for what keeps the addresses or the size of a slot."""
    option = next((option for option, is_given in needs.items() if is_given), None)
    if option is None or not isinstance(data, Data):
        return
    name = next((field.name for field in data.fields if field.name in growing(data)), None)
    if name is not None:
        raise ConfigError(
            f'{option} needs slots of one size, and field "{name}" varies in length without a limit: give '
            f'max_length={{"{name}": ...}}, the most items of a sample'
        )


def gpu_of(device: str) -> int | None:
    """The number of the GPU; ``None`` for host memory."""
    kind, _, number = device.partition(":")
    if kind == "cpu":
        return None
    if kind != "cuda" or (number and not number.isdecimal()):
        raise ConfigError(f'device {shown(device)}: use "cpu", "cuda" or "cuda:0"')
    if number:
        return int(number)
    import sys

    torch = sys.modules.get("torch")
    return int(torch.cuda.current_device()) if torch and torch.cuda.is_available() else 0


def check_device_map(function: Any, framework: Framework) -> None:
    if function is None:
        return
    if not callable(function):
        raise ConfigError(f"device_map is {shown(function)}: give a function of a dict of tensors")
    if framework.name != "torch":
        raise ConfigError(f'device_map is for torch, not {framework.name}: give framework="torch"')


def decodes_on_lanes(data: Data | Source, gpu: int | None) -> bool:
    """Whether lanes of the loader decode pictures: without a GPU the workers do it faster."""
    decode = data._set.lanes_decode_on if isinstance(data, Data) else None
    return decode == "gpu" or (decode == "auto" and gpu is not None)


def load_nvjpeg() -> None:
    """Loads the nvJPEG of the package ``nvidia-nvjpeg``, if it is installed: the linker does not search its
    folder, but finds a loaded library."""
    found = importlib.util.find_spec("nvidia")
    folders = list(found.submodule_search_locations or ()) if found else []
    libraries = [path for folder in folders for path in Path(folder).glob("*/lib/libnvjpeg.so.*")]
    for library in sorted(libraries, reverse=True):
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(library))
            return


def ranks_of(world: str | tuple[int, int] | None) -> tuple[int, int]:
    """Rank and size."""
    if world == "env":
        return _feedline.world_of_env()
    if world is None:
        return 0, 1
    if world == "torch":
        import torch.distributed

        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    if not isinstance(world, (tuple, list)) or len(world) != 2:
        raise ConfigError(f'world {shown(world)}: use "env", "torch", (rank, size) or None')
    rank = _options.whole("the rank of world", world[0], 0, 2**32 - 1)
    return rank, _options.whole("the size of world", world[1], 1, 2**32 - 1)


def padding_of(data: Data | Source, name: str, given: Any) -> tuple[int, bytes | None, bool]:
    """The multiple of the width, the bytes of the value, and whether the padding comes first."""
    parts: tuple[Any, ...] = given if isinstance(given, tuple) else (given,)
    if len(parts) == 2 and isinstance(parts[1], str):
        parts = parts[0], 1, parts[1]
    if not 1 <= len(parts) <= 3:
        raise ConfigError(f'pad[{name!r}] is {shown(given)}: give a value, (0, 64), (0, "left") or (0, 64, "left"): value, multiple, side')
    parts += (None, 1, "right")[len(parts) :]
    value, multiple, side = parts
    multiple = _options.whole(f"pad[{name!r}]", multiple, 1)
    is_left = _options.word(f"the side of pad[{name!r}]", side, "left", "right") == "left"
    # A missing field is refused later.
    field = next((field for field in data.fields if field.name == name), None)
    if field is not None and field.max_length is None:
        raise ConfigError(
            f'field "{name}" has the shape {field.shape} in every sample, so there is nothing to pad: leave it out of pad; '
            f'if samples of your own vary in length, give max_length={{"{name}": None}} to Data, or the most items to Source'
        )
    if value is None or field is None:
        return multiple, None, is_left
    return multiple, _values.one(name, value, _values.numpy_dtype(field.dtype), "pad"), is_left


def mapping_of(function: Callable[[dict[str, Any]], Any], data: Data | Source, rows: int) -> BatchMap:
    """The function of a batch, and how it is measured: on a batch of the first sample."""
    hook = _hook(function, data)

    def example() -> list[Any]:
        assert isinstance(data, Data)
        names = [column.name for column in fields_at((), data._set.fields())]
        columns = dict(zip(names, data._set.read(0, 0, 0), strict=True))
        given = zip(hook.fields, hook.dtypes, strict=True)
        return [np.repeat(np.frombuffer(columns[name], dtype).reshape(1, *shape), rows, 0)
                for (name, _, shape, _), dtype in given]

    return BatchMap(_feedline.MapBatch(hook), hook, example if isinstance(data, Data) else None)


def _hook(function: Callable[[dict[str, Any]], Any], data: Data | Source) -> _own.Hook:
    fixed: Sequence[tuple[str, Any, list[int]]] = [
        (column.name, _values.numpy_dtype(column.dtype), list(column.shape))
        for column in fields_at((), data._set.fields(), getattr(data, "_signed", frozenset()))
        if column.max_length is None
    ]
    return _own.Hook(function, fixed, data._places)
