"""The arguments for masks, depth, boxes and points, in the form of the compiled part."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
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
    if not isinstance(given, Sequence) or not all(isinstance(name, str) for name in given):
        raise ConfigError(f"{option} is {shown(given)}: give names of fields")
    return list(given)


def with_text(given: Mapping[str, Any]) -> tuple[list[str], tuple[str, str] | None]:
    """The fields beside pictures or sounds, with that of the texts or of their ids; and the field that is tokenized, and
    the tokenizer's file."""
    beside, text, tokenizer = names("beside", given["beside"]), given["text"], given["tokenizer"]
    if tokenizer is not None and text is None:
        raise ConfigError('tokenizer is for the field of texts: name it, text="sentence"')
    if text is None:
        return beside, None
    if not isinstance(text, str):
        raise ConfigError(f"text is {shown(text)}: give the name of a field")
    tokenized = None if tokenizer is None else (text, _options.path("tokenizer", tokenizer))
    said = text if tokenized is None else "ids"
    return beside if said in beside else [*beside, said], tokenized


def parts(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """The parts, from the options of ``feedline.images``; ``None`` for pictures alone."""
    field, annotations, boxes = given["field"], given["annotations"], given["boxes"]
    named = {name: names(name, given[name]) for name in ("mask", "depth", "points")}
    named["beside"], tokenized = with_text(given)
    if given["text"] is not None and (annotations is not None or boxes is not None or named["points"]):
        raise ConfigError("text is of the whole picture, and fields beside boxes and points are of each: leave out text")
    others = named | {"mask": [name for name in named["mask"] if name != "segmentation"]}
    if annotations is not None and (any(others.values()) or boxes is not None or field is not None):
        raise ConfigError(
            "annotations have boxes and what is beside them: leave out field, boxes and the like, and mask unless it "
            'is "segmentation"'
        )
    if given["one_based"] and annotations is None:
        raise ConfigError("one_based is for the boxes of Pascal VOC: give annotations, the folder of its XML files")
    if boxes is None and annotations is None:
        _options.unused(
            "boxes",
            box_format=given["box_format"] != "xyxy",
            min_size=given["min_size"] != 1.0,
            clip_boxes=bool(given["clip_boxes"]),
        )
        if not named["points"]:
            _options.unused("boxes or points", max_boxes=given["max_boxes"] is not None)
    if not any(named.values()) and boxes is None and annotations is None and not given["moves"]:
        return None
    if boxes is not None:
        boxes = (boxes, "xyxy") if isinstance(boxes, str) else tuple(boxes)
        if len(boxes) != 2 or not all(isinstance(part, str) for part in boxes):
            raise ConfigError(f'boxes is {shown(given["boxes"])}: give the field and the format, ("bbox", "xywh")')
    return {
        **named,
        "tokenized": tokenized,
        "field": field,
        "annotations": None if annotations is None else _options.path("annotations", annotations),
        "one_based": bool(given["one_based"]),
        "boxes": boxes,
        "box_format": given["box_format"],
        "min_size": _options.number("min_size", given["min_size"]),
        "clip": bool(given["clip_boxes"]),
        "max_boxes": _options.maybe("max_boxes", given["max_boxes"]),
        "moves": bool(given["moves"]),
    }
