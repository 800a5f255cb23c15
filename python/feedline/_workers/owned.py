"""The random generators that an object keeps: in its attributes and in those of what it refers to, such as transforms.

The walk is bounded: it looks at the first items of a container, and at nothing within arrays.
"""

from __future__ import annotations

import functools
import hashlib
import random
import sys
import types
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .generators import Bits, NumPy, Python, Torch

#: Max objects of a walk, max items of a container, and max steps from the data set to a generator.
_OBJECTS, _ITEMS, _DEPTH = 20_000, 200, 16

#: Types without attributes that matter.
_PLAIN = (str, bytes, bytearray, memoryview, int, float, complex, type(None), np.ndarray, np.generic, np.dtype)
_CODE = (types.ModuleType, types.CodeType, types.BuiltinFunctionType, type)


def own_generators(parts: Sequence[tuple[str, Any]]) -> tuple[list[Any], dict[int, str]]:
    """The generators that are found in named objects, and the paths of those that cannot be seeded, by their ids."""
    torch = sys.modules.get("torch")
    seen = {id(getattr(random, "_inst", None)), *_of_numpy(), id(getattr(torch, "default_generator", None))}
    found: list[Any] = []
    refused: dict[int, str] = {}
    kept: list[Any] = []
    paths: dict[str, int] = {}
    todo = deque((name, part, 0) for name, part in parts)
    for _ in range(_OBJECTS):
        if not todo:
            break
        path, value, depth = todo.popleft()
        if isinstance(value, _PLAIN) or id(value) in seen:
            continue
        seen.add(id(value))
        # An object that was made for the walk stays until its end, so that no other one has its id.
        kept.append(value)
        if _is_generator(value, torch):
            own = value.bit_generator if isinstance(value, np.random.Generator) else value
            if own is not value and id(own) in seen:
                continue
            seen.add(id(own))
            paths[path] = paths.get(path, 0) + 1
            made = _made(own, f"{path} {paths[path]}", torch)
            if made is None:
                refused[id(value)] = f"{path} ({type(value).__module__}.{type(value).__qualname__})"
            else:
                found.append(made)
        elif depth < _DEPTH:
            todo.extend((_joined(path, name), part, depth + 1) for name, part in _children(value))
    return found, refused


def _of_numpy() -> list[int]:
    whole = getattr(getattr(np.random, "mtrand", None), "_rand", None)
    return [id(whole), id(getattr(whole, "_bit_generator", None))]


def _is_generator(value: Any, torch: Any) -> bool:
    kinds = (random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)
    return isinstance(value, kinds) or (torch is not None and isinstance(value, getattr(torch, "Generator", ())))


def _made(own: Any, path: str, torch: Any) -> Any:
    """The states and seeds of a generator; ``None`` if it has none."""
    mixed = int.from_bytes(hashlib.sha256(path.encode("utf-8", "replace")).digest()[:8], "little")
    try:
        made: Any
        if isinstance(own, random.Random):
            made = Python(own, mixed)
        elif isinstance(own, np.random.RandomState):
            made = NumPy(own, mixed)
        elif isinstance(own, np.random.BitGenerator):
            made = Bits(own, mixed)
        elif own.device.type == "cpu":
            made = Torch(torch, own, mixed)
        else:
            return None
        state = made.state()
        made.seed(0)
        made.restore(state)
        return made
    except Exception:  # noqa: BLE001
        # `random.SystemRandom`, and types of one's own that lack a part.
        return None


def _joined(path: str, name: str) -> str:
    # "data" is the data set itself, which has no name in the user's program.
    path = "" if path == "data" else path
    return f"{path}{name}" if name.startswith("[") or not path else f"{path}.{name}"


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object refers to, by name."""
    if isinstance(value, Mapping) and isinstance(value, dict):
        for _, (key, part) in zip(range(_ITEMS), value.items(), strict=False):
            yield f"[{key!r}]", part
    elif isinstance(value, (list, tuple, deque)):
        for index, part in zip(range(_ITEMS), value, strict=False):
            yield f"[{index}]", part
    elif isinstance(value, types.MethodType):
        yield "__self__", value.__self__
        yield "__func__", value.__func__
        return
    elif isinstance(value, functools.partial):
        yield from (("func", value.func), ("args", value.args), ("keywords", value.keywords))
    elif isinstance(value, types.FunctionType):
        yield from _of_function(value)
    elif isinstance(value, (*_CODE, types.GeneratorType)):
        return
    leaves = _own_attribute(value, "_leaves") if type(value).__module__ == "feedline._data" else None
    if leaves is not None:
        # Data: the sets that it reads.
        yield from (part for leaf in leaves for part in leaf.reader.parts)
        return
    own = _own_attribute(value, "__dict__")
    if isinstance(own, dict):
        yield from list(own.items())
    for kind in type(value).__mro__:
        if kind.__module__ in ("builtins", "torch", "numpy"):
            continue
        for name, part in list(vars(kind).items()):
            if isinstance(part, types.MemberDescriptorType):
                filled = _own_attribute(value, name)
                if filled is not None:
                    yield name, filled
            elif isinstance(part, types.FunctionType):
                yield from _of_globals(part)
            elif _is_generator(part, sys.modules.get("torch")):
                yield name, part


def _own_attribute(value: Any, name: str) -> Any:
    """An attribute, without the ``__getattr__`` of its type."""
    try:
        return object.__getattribute__(value, name)
    except Exception:  # noqa: BLE001
        return None


def _of_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue
    yield from (("__defaults__", function.__defaults__), ("__kwdefaults__", function.__kwdefaults__))
    yield from _of_globals(function)


def _of_globals(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """The generators among the global variables that a function names, and the functions of its module."""
    torch = sys.modules.get("torch")
    for name in function.__code__.co_names:
        part = function.__globals__.get(name)
        is_near = isinstance(part, types.FunctionType) and part.__module__ == function.__module__
        if is_near or _is_generator(part, torch):
            yield name, part
