"""The transforms of pictures, by the names and options of torchvision.

They run on the workers, in Rust, in the order of the list. Random numbers depend only on the loader's seed,
the epoch and the position in its order: a resumed run sees the same pictures, with any number of ranks, and a
picture that a sampler draws several times in an epoch is cropped anew each time.

>>> from feedline import transforms as T
>>> [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.Normalize()]
[RandomResizedCrop(224), RandomHorizontalFlip(0.5), Normalize()]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union

from . import _options
from ._errors import ConfigError, shown

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


def _is_one(value: Any) -> bool:
    """Whether ``value`` is one number, not several."""
    return hasattr(value, "__index__") and getattr(value, "ndim", 0) == 0


def _pair(name: str, size: Any) -> tuple[int, int]:
    given = [size, size] if _is_one(size) else list(size) if _is_list(size) else []
    if len(given) != 2:
        raise ConfigError(f"{name}({shown(size)}): give the size in pixels, a whole number or (height, width)")
    height, width = (_options.whole(f"the size of {name}", one, 1) for one in given)
    return height, width


def _is_list(value: Any) -> bool:
    return hasattr(value, "__iter__") and hasattr(value, "__len__") and not isinstance(value, (str, bytes))


def _between(name: str, value: Any, low: float, high: float) -> float:
    """A number from ``low`` to ``high``."""
    number = _options.number(name, value)
    if not low <= number <= high:
        to = f"to {high:g}" if math.isfinite(high) else "on"
        raise ConfigError(f"{name} is {shown(value)}: give a number from {low:g} {to}")
    return number


def _range(name: str, value: Any) -> tuple[float, float]:
    """Two numbers above 0, the lower one first."""
    given = list(value) if _is_list(value) else []
    numbers = [_options.number(name, one) for one in given]
    if len(numbers) != 2 or not 0 < numbers[0] <= numbers[1] < math.inf:
        raise ConfigError(f"{name} is {shown(value)}: give the least and the largest, two numbers above 0")
    return numbers[0], numbers[1]


def _colour(name: str, fill: Any) -> tuple[int, ...]:
    """Three levels from 0 to 255, or one for all."""
    given = [fill] * 3 if _is_one(fill) else list(fill) if _is_list(fill) else []
    if len(given) != 3:
        raise ConfigError(f"{name} is {shown(fill)}: give a level from 0 to 255, or three of them")
    return tuple(_options.whole(name, level, 0, 255) for level in given)


class Transform:
    """The base class of the transforms of this module."""

    def __post_init__(self) -> None:
        self.options()

    def options(self) -> dict[str, Any]:
        """The options in the form of the compiled part."""
        return dict(vars(self))

    def __repr__(self) -> str:
        defaults = {name: getattr(type(self), name, None) for name in vars(self)}
        given = [repr(value) for name, value in vars(self).items() if value != defaults[name] or name == "p"]
        return f"{type(self).__name__}({', '.join(given)})"


@dataclass(repr=False)
class Resize(Transform):
    """Resizes to ``(height, width)``, or the shorter side to one length, and the longer one to at most ``max_size``."""

    size: _Size
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"
    max_size: int | None = None

    def options(self) -> dict[str, Any]:
        size = _pair("Resize", self.size)
        shorter = size[0] if _is_one(self.size) else None
        if self.max_size is not None and (shorter is None or self.max_size < shorter):
            raise ConfigError(
                f"Resize: max_size is {shown(self.max_size)}: it is for a length of the shorter side, and not less than that"
            )
        longest = _options.maybe("max_size", self.max_size, 1)
        return {"shorter_side": shorter, "size": size, "interpolation": self.interpolation, "max_size": longest}


@dataclass(repr=False)
class CenterCrop(Transform):
    """Crops from the centre."""

    size: _Size

    def options(self) -> dict[str, Any]:
        return {"size": _pair("CenterCrop", self.size)}


@dataclass(repr=False)
class RandomCrop(Transform):
    """Crops at a random position."""

    size: _Size

    def options(self) -> dict[str, Any]:
        return {"size": _pair("RandomCrop", self.size)}


@dataclass(repr=False)
class RandomResizedCrop(Transform):
    """Crops a random share of the area with a random ratio of width to height, and resizes it."""

    size: _Size
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"

    def options(self) -> dict[str, Any]:
        return {
            "size": _pair("RandomResizedCrop", self.size),
            "scale": _range("the scale of RandomResizedCrop", self.scale),
            "ratio": _range("the ratio of RandomResizedCrop", self.ratio),
            "interpolation": self.interpolation,
        }


@dataclass(repr=False)
class Pad(Transform):
    """Adds a border: one width, or (left, top, right, bottom)."""

    padding: int | Sequence[int]
    fill: int | tuple[int, int, int] = 0

    def options(self) -> dict[str, Any]:
        given: list[Any] = [self.padding] if _is_one(self.padding) else []
        if isinstance(self.padding, Sequence) and not isinstance(self.padding, str):
            given = list(self.padding)
        if len(given) not in (1, 2, 4):
            raise ConfigError(f"Pad({shown(self.padding)}): give one width, or (left, top, right, bottom)")
        sides = [_options.whole("a width of Pad", width) for width in given * (4 // len(given))]
        left, top, right, bottom = sides
        return {"padding": (top, right, bottom, left), "fill": _colour("the fill of Pad", self.fill)}


@dataclass(repr=False)
class RandomHorizontalFlip(Transform):
    """Flips left and right with the probability ``p``."""

    p: float = 0.5

    def options(self) -> dict[str, Any]:
        return {"p": _between("the probability of RandomHorizontalFlip", self.p, 0, 1)}


@dataclass(repr=False)
class RandomVerticalFlip(Transform):
    """Flips top and bottom with the probability ``p``."""

    p: float = 0.5

    def options(self) -> dict[str, Any]:
        return {"p": _between("the probability of RandomVerticalFlip", self.p, 0, 1)}


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
                    f"ColorJitter({name}={shown(value)}): give one number, x: the factor is drawn from 1 - x to 1 + x"
                )
        most = {"hue": 0.5}
        return {
            name: _between(f"the {name} of ColorJitter", value, 0, most.get(name, math.inf))
            for name, value in vars(self).items()
        }


@dataclass(repr=False)
class RandomGrayscale(Transform):
    """Converts to gray with the probability ``p``."""

    p: float = 0.1

    def options(self) -> dict[str, Any]:
        return {"p": _between("the probability of RandomGrayscale", self.p, 0, 1)}


@dataclass(repr=False)
class GaussianBlur(Transform):
    """Blurs with a kernel of ``kernel_size`` pixels, which is odd, and a random standard deviation."""

    kernel_size: int
    sigma: tuple[float, float] = (0.1, 2.0)

    def options(self) -> dict[str, Any]:
        size = _options.whole("the kernel_size of GaussianBlur", self.kernel_size, 1)
        if size % 2 == 0:
            raise ConfigError(f"the kernel_size of GaussianBlur is {size}: give an odd number, such as {size + 1}")
        return {"radius": size // 2, "sigma": _range("the sigma of GaussianBlur", self.sigma)}


@dataclass(repr=False)
class RandAugment(Transform):
    """Applies ``num_ops`` random operations of a magnitude from 0 to 30."""

    num_ops: int = 2
    magnitude: int = 9

    def options(self) -> dict[str, Any]:
        return {
            "num_ops": _options.whole("the num_ops of RandAugment", self.num_ops),
            "magnitude": _options.whole("the magnitude of RandAugment", self.magnitude, 0, 30),
        }


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

    def options(self) -> dict[str, Any]:
        return {
            "p": _between("the probability of RandomErasing", self.p, 0, 1),
            "scale": _range("the scale of RandomErasing", self.scale),
            "ratio": _range("the ratio of RandomErasing", self.ratio),
            "fill": None if self.fill is None else _colour("the fill of RandomErasing", self.fill),
        }


@dataclass(repr=False)
class Normalize(Transform):
    """Normalizes the levels to ``float32``: ``(level / 255 - mean) / std``. Runs last. Default: ImageNet's
    values."""

    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)

    def options(self) -> dict[str, Any]:
        given = {"mean": self.mean, "std": self.std}
        for name, value in given.items():
            if not _is_list(value) or len(value) not in (1, 3):
                raise ConfigError(f"the {name} of Normalize is {shown(value)}: give one number per channel, in a list")
        if len(self.mean) != len(self.std):
            raise ConfigError(
                f"Normalize has mean={shown(self.mean)} and std={shown(self.std)}: give both, with one number per channel"
            )
        # The least normal number of float32: division by a smaller one gives infinity.
        least = {"mean": -math.inf, "std": 2.0**-126}
        for name, value in given.items():
            for number in value:
                _check_level(name, number, least[name])
        return {name: tuple(map(float, value)) * (3 // len(value)) for name, value in given.items()}


def _check_level(name: str, value: Any, least: float) -> None:
    number = _options.number(f"the {name} of Normalize", value)
    if not least <= number < math.inf or math.isinf(number):
        above = " above 0" if name == "std" else ""
        raise ConfigError(f"the {name} of Normalize has {shown(value)}: give a number{above}")


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
