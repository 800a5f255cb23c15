"""The transforms of pictures, by the names and options of torchvision.

They run on the workers, in Rust, in the order of the list. Random numbers depend only on the loader's seed,
the epoch and the position in its order: a resumed run sees the same pictures, with any number of ranks, and a
picture that a sampler draws several times in an epoch is cropped anew each time.

>>> from feedline import transforms as T
>>> [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.Normalize()]
[RandomResizedCrop(224), RandomHorizontalFlip(0.5), Normalize()]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Union

from ._errors import ConfigError

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "GaussianBlur",
    "Normalize",
    "Pad",
    "RandAugment",
    "RandomCrop",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "TrivialAugmentWide",
    "moves",
]

_Size = Union[int, Sequence[int]]


def _pair(size: _Size) -> tuple[int, int]:
    if isinstance(size, int):
        return size, size
    height, width = size
    return height, width


class Transform:
    """The base class of the transforms of this module."""

    def options(self) -> dict[str, Any]:
        """The options in the form of the compiled part."""
        return dict(vars(self))

    def __repr__(self) -> str:
        defaults = {name: getattr(type(self), name, None) for name in vars(self)}
        given = [repr(value) for name, value in vars(self).items() if value != defaults[name] or name == "p"]
        return f"{type(self).__name__}({', '.join(given)})"


@dataclass(repr=False)
class Resize(Transform):
    """Resizes to ``(height, width)``, or the shorter side to one length."""

    size: _Size
    interpolation: str = "bilinear"

    def options(self) -> dict[str, Any]:
        shorter = self.size if isinstance(self.size, int) else None
        return {"shorter_side": shorter, "size": _pair(self.size), "interpolation": self.interpolation}


@dataclass(repr=False)
class CenterCrop(Transform):
    """Crops from the centre."""

    size: _Size

    def options(self) -> dict[str, Any]:
        return {"size": _pair(self.size)}


@dataclass(repr=False)
class RandomCrop(Transform):
    """Crops at a random position."""

    size: _Size

    def options(self) -> dict[str, Any]:
        return {"size": _pair(self.size)}


@dataclass(repr=False)
class RandomResizedCrop(Transform):
    """Crops a random share of the area with a random ratio of width to height, and resizes it."""

    size: _Size
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: str = "bilinear"

    def options(self) -> dict[str, Any]:
        return {**vars(self), "size": _pair(self.size)}


@dataclass(repr=False)
class Pad(Transform):
    """Adds a border: one width, or (left, top, right, bottom)."""

    padding: int | Sequence[int]
    fill: int | tuple[int, int, int] = 0

    def options(self) -> dict[str, Any]:
        given = [self.padding] if isinstance(self.padding, int) else list(self.padding)
        sides = given * 4 if len(given) == 1 else given * 2 if len(given) == 2 else given
        left, top, right, bottom = sides
        fill = (self.fill,) * 3 if isinstance(self.fill, int) else self.fill
        return {"padding": (top, right, bottom, left), "fill": fill}


@dataclass(repr=False)
class RandomHorizontalFlip(Transform):
    """Flips left and right with the probability ``p``."""

    p: float = 0.5


@dataclass(repr=False)
class RandomVerticalFlip(Transform):
    """Flips top and bottom with the probability ``p``."""

    p: float = 0.5


@dataclass(repr=False)
class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue by random factors."""

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0

    def options(self) -> dict[str, Any]:
        for name, value in vars(self).items():
            if isinstance(value, (tuple, list)):
                raise ConfigError(
                    f"ColorJitter({name}={value!r}): give one number, x: the factor is drawn from 1 - x to 1 + x"
                )
        return dict(vars(self))


@dataclass(repr=False)
class RandomGrayscale(Transform):
    """Converts to gray with the probability ``p``."""

    p: float = 0.1


@dataclass(repr=False)
class GaussianBlur(Transform):
    """Blurs with a kernel of ``kernel_size`` pixels, which is odd, and a random standard deviation."""

    kernel_size: int
    sigma: tuple[float, float] = (0.1, 2.0)

    def options(self) -> dict[str, Any]:
        return {"radius": self.kernel_size // 2, "sigma": self.sigma}


@dataclass(repr=False)
class RandAugment(Transform):
    """Applies ``num_ops`` random operations of a magnitude from 0 to 30."""

    num_ops: int = 2
    magnitude: int = 9


@dataclass(repr=False)
class TrivialAugmentWide(Transform):
    """Applies one random operation of random magnitude."""


@dataclass(repr=False)
class RandomErasing(Transform):
    """Fills a random rectangle with one colour, with the probability ``p``; default: ImageNet's mean."""

    p: float = 0.5
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    fill: tuple[int, int, int] | None = None


@dataclass(repr=False)
class Normalize(Transform):
    """Normalizes the levels to ``float32``: ``(level / 255 - mean) / std``. Runs last. Default: ImageNet's
    values."""

    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)

    def options(self) -> dict[str, Any]:
        return {name: tuple(value) * 3 if len(value) == 1 else value for name, value in vars(self).items()}


def moves(rows: Any) -> list[tuple[str, dict[str, Any]]]:
    """The moves of a sample, as functions of ``torchvision.transforms.v2.functional`` with their arguments.

    ``rows`` is the field ``moves`` of a sample, see :func:`feedline.images`. The functions move any other part of
    the sample in the same way:

    >>> moves([[0, 1, 2, 8, 9], [2, 4, 4, 0, 0], [3, 1, 0, 0, 0]])
    [('crop', {'top': 1, 'left': 2, 'height': 8, 'width': 9}), ('resize', {'size': [4, 4]}), ('horizontal_flip', {})]
    """
    steps: list[tuple[str, dict[str, Any]]] = []
    for kind, a, b, c, d in ([int(number) for number in row] for row in rows):
        if kind == 0:
            steps.append(("crop", {"top": a, "left": b, "height": c, "width": d}))
        elif kind == 1:
            steps.append(("pad", {"padding": [d, a, b, c]}))
        elif kind == 2:
            steps.append(("resize", {"size": [a, b]}))
        elif a:
            # Mirrored, and turned by two quarters, is upside down.
            steps.append(("vertical_flip" if b else "horizontal_flip", {}))
    return steps
