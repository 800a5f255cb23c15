"""Arrays of NumPy, PyTorch and JAX over the memory of a batch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from . import _options
from ._errors import ConfigError
from ._values import numpy_dtype


class Framework(NamedTuple):
    """The functions by which a framework takes a field and copies an array."""

    name: str
    array: Callable[[Any], Any]
    copy: Callable[[Any], Any]
    #: The array of a bfloat16 field.
    bfloat16: Callable[[Any], Any]
    #: An array of ``uint32`` as ``int32``, of the same memory.
    int32: Callable[[Any], Any]


def framework(name: str | None, is_cuda: bool) -> Framework:
    """The framework of this name; for ``None``, the one that is imported."""
    if name is None:
        name = next((name for name in ("torch", "jax") if name in sys.modules), "numpy")
        if name == "numpy" and is_cuda:
            raise ConfigError('device="cuda" needs a framework: import torch or jax, or give framework=')
    makers = {"numpy": _numpy, "torch": _torch, "jax": _jax}
    name = _options.word("framework", name, *makers)
    if name == "numpy" and is_cuda:
        raise ConfigError('NumPy has no arrays on a GPU: give framework="torch" or "jax", or device="cpu"')
    return makers[name]()


def _numpy() -> Framework:
    def bfloat16(field: Any) -> Any:
        return np.asarray(field).view(numpy_dtype("bf16"))

    return Framework("numpy", np.from_dlpack, np.array, bfloat16, lambda array: array.view(np.int32))


def _torch() -> Framework:
    import torch
    from torch.utils.dlpack import from_dlpack

    return Framework("torch", from_dlpack, torch.clone, from_dlpack, lambda tensor: tensor.view(torch.int32))


def _jax() -> Framework:
    import jax

    def copy(array: Any) -> Any:
        return jax.numpy.array(array, copy=True)

    take = jax.dlpack.from_dlpack
    return Framework("jax", take, copy, take, lambda array: array.view(jax.numpy.int32))
