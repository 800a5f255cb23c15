"""Pictures of their own sizes: a list of arrays in a batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ._values import numpy_dtype

#: Ends the name of the field with height and width.
SIZE = ".size"


class OwnSizes(NamedTuple):
    """How such pictures lie in their field: one after another."""

    dtype: str
    mode: str
    channels_first: bool

    def shape(self, height: int, width: int) -> tuple[int, ...]:
        """The shape of a picture."""
        if self.mode == "index":
            return height, width
        channels = {"rgb": 3, "rgba": 4}.get(self.mode, 1)
        return (channels, height, width) if self.channels_first else (height, width, channels)

    def __call__(self, framework: Any, inner: Any, name: str) -> list[Any]:
        """The pictures of a batch, without a copy."""
        pictures, at, item = [], 0, numpy_dtype(self.dtype).itemsize
        for height, width in np.frombuffer(inner.kept(name + SIZE), np.int64).reshape(-1, 2).tolist():
            shape = self.shape(height, width)
            pictures.append(framework.array(inner.part(name, at, self.dtype, shape)))
            at += math.prod(shape) * item
        return pictures

    def of_sample(self, sample: Mapping[str, Any], name: str) -> Any:
        """The picture of a sample."""
        return sample[name].reshape(self.shape(*sample[name + SIZE].tolist()))
