"""The arguments for masks, depth, boxes and points, in the form of the compiled part."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Union

from . import _options
from ._errors import ConfigError, shown

Names = Union[str, "os.PathLike[str]", Sequence[str]]


def names(option: str, given: Names | None) -> list[str]:
    """One name or several."""
    if given is None:
        return []
    if isinstance(given, (str, os.PathLike)):
        return [_options.path(option, given)]
    if not all(isinstance(name, str) for name in given):
        raise ConfigError(f"{option} is {shown(given)}: give names of fields")
    return list(given)


def parts(
    *,
    field: str | None,
    annotations: str | os.PathLike[str] | None,
    one_based: bool,
    mask: Names | None,
    depth: Names | None,
    boxes: str | tuple[str, str] | None,
    box_format: str,
    points: Names | None,
    beside: Names | None,
    min_size: float,
    clip_boxes: bool,
    max_boxes: int | None,
    moves: bool,
) -> dict[str, Any] | None:
    """The parts, or ``None`` for pictures alone."""
    given: dict[str, Any] = {
        "mask": names("mask", mask),
        "depth": names("depth", depth),
        "points": names("points", points),
        "beside": names("beside", beside),
    }
    others = given | {"mask": [name for name in given["mask"] if name != "segmentation"]}
    if annotations is not None and (any(others.values()) or boxes is not None or field is not None):
        raise ConfigError(
            "annotations have boxes and what is beside them: leave out field, boxes and the like, and mask unless it is "
            '"segmentation"'
        )
    if one_based and annotations is None:
        raise ConfigError("one_based is for the boxes of Pascal VOC: give annotations, the folder of its XML files")
    if boxes is None and annotations is None:
        _options.unused(
            "boxes",
            box_format=box_format != "xyxy",
            min_size=min_size != 1.0,
            clip_boxes=bool(clip_boxes),
        )
        if not given["points"]:
            _options.unused("boxes or points", max_boxes=max_boxes is not None)
    if not any(given.values()) and boxes is None and annotations is None and not moves:
        return None
    if boxes is not None:
        both = (boxes, "xyxy") if isinstance(boxes, str) else tuple(boxes)
        if len(both) != 2 or not all(isinstance(part, str) for part in both):
            raise ConfigError(f'boxes is {shown(boxes)}: give the field and the format, ("bbox", "xywh")')
        given["boxes"] = both
    else:
        given["boxes"] = None
    return given | {
        "field": field,
        "annotations": None if annotations is None else _options.path("annotations", annotations),
        "one_based": bool(one_based),
        "box_format": box_format,
        "min_size": _options.number("min_size", min_size),
        "clip": bool(clip_boxes),
        "max_boxes": _options.maybe("max_boxes", max_boxes),
        "moves": bool(moves),
    }
