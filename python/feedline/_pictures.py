"""``feedline.images``: encoded pictures, which are decoded and transformed on their way."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal

from . import _feedline, _options, _parts, _tables
from . import transforms as _transforms
from ._data import Data
from ._errors import ConfigError, shown
from ._made import keeps_its_call
from ._open import of_texts, opening, told
from ._own_sizes import SIZE, OwnSizes
from ._texts import HostForm
from .transforms import Transform


@keeps_its_call
def images(
    path: str | os.PathLike[str] | _tables.Table,
    transforms: Sequence[Transform] = (),
    *,
    field: str | None = None,
    root: str | os.PathLike[str] | None = None,
    label: str | None = None,
    class_from: int | None = None,
    split: str | None = None,
    classes: Sequence[str] | None = None,
    channels_first: bool = True,
    scaled_decode: bool = False,
    decode: Literal["cpu", "gpu", "auto"] = "cpu",
    mode: Literal["rgb", "gray", "rgba", "u16", "index"] = "rgb",
    annotations: str | os.PathLike[str] | None = None,
    one_based: bool = False,
    mask: _parts.Names | None = None,
    depth: _parts.Names | None = None,
    boxes: str | tuple[str, str] | None = None,
    box_format: Literal["xyxy", "xywh", "cxcywh", "xyxyn", "xywhn", "cxcywhn"] = "xyxy",
    points: _parts.Names | None = None,
    beside: _parts.Names | None = None,
    text: str | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
    min_size: float = 1.0,
    clip_boxes: bool = False,
    max_boxes: int | None = None,
    moves: bool = False,
    own_sizes: int | None = None,
    views: int | Sequence[tuple[int, Sequence[Transform]]] | None = None,
    listing_age: int = 0,
) -> Data:
    """Opens encoded pictures, which are decoded and transformed on their way: JPEG, PNG, WebP, BMP, GIF.

    ``path`` is a folder with one folder per class, a list of files (``p/*/*.jpg``, ``p/{0000..1999}.jpg``), a
    tar archive, a table with a column of encoded pictures, or a manifest: a table (CSV, JSON Lines, Parquet,
    Arrow) with a column of their paths or URLs. Tables may be in memory, see :class:`Data`. A sample has the field ``image``, and the other fields of one
    size, such as ``label``. The transforms must give all pictures one size. A missing or damaged file is a
    bad sample, see ``Loader(bad_samples=)``.

    Masks, depth, boxes and points of a sample move with its picture, by the same random numbers. Colour
    transforms change only the picture. RandAugment and TrivialAugmentWide are refused with them.

    Args:
        transforms: See :mod:`feedline.transforms`. Without ``Normalize`` the pictures stay ``uint8``.
        field: The field or the column that holds the pictures, if neither its name nor its values say so.
        root: The folder or URL that relative paths of a manifest start from. Default: the manifest's own
            folder; the working folder for a table in memory.
        label: The column of a manifest that becomes the class, ``int64``: the index of its text in the sorted
            list of texts, :attr:`Data.classes`; numbers are kept. Default: the column ``label``, ``class`` or
            the like, or the only column other than the paths.
        class_from: As for :func:`feedline.open`.
        split: As for :func:`feedline.open`.
        classes: As for :func:`feedline.open`.
        channels_first: ``[3, height, width]``, as torchvision, else ``[height, width, 3]``, as Pillow.
        scaled_decode: Lets the decoder reduce large JPEGs, which is faster and changes pixels.
        decode: ``"cpu"``: the workers decode and transform. ``"gpu"``: nvJPEG decodes JPEGs on the loader's
            device, and the transforms run there in one launch; the CPU decodes files that nvJPEG refuses.
            ``"auto"``: GPU and CPU together, or the CPU alone without a GPU or nvJPEG. Order, random numbers
            and substitutes are the same with all three. Pixels of nvJPEG differ by a few levels, and those of
            files with damaged data entirely: they are reproducible with ``"cpu"``, and with ``"gpu"`` on one
            kind of GPU, but not with ``"auto"``, where timing decides which processor decodes a picture. The
            workers move masks, boxes and points, so these are exact with all three. A batch reserves memory
            for its largest files: lower it with ``Loader(max_per_batch={"image": bytes})``.
        mode: ``"rgb"``; ``"gray"``, one channel; ``"rgba"``, with alpha, 255 where a picture has none;
            ``"u16"``, one channel of 16 bits; ``"index"``, ``[height, width]``: palette indices or gray
            levels, resized to the nearest pixel.
        annotations: COCO's JSON file, or the folder with Pascal VOC's XML or YOLO's text files, for the
            pictures in the folder ``path``. Adds the ragged fields ``boxes`` and ``labels``; with COCO also
            ``iscrowd``, ``area``, ``keypoints`` and ``image_id``, with VOC ``difficult``. Labels are COCO's
            ``category_id``, YOLO's numbers, or for VOC the index in ``classes`` or in the sorted list of
            names; :attr:`Data.classes` has the names. With ``mask="segmentation"`` COCO's polygons and run
            lengths become a mask of category ids as pycocotools draws them, 0 without an object and 255 where
            objects overlap. They are of the picture as EXIF shows it: a sample is bad if its decoded picture
            has another size than COCO's or VOC's file states.
        one_based: VOC's coordinates count from 1, with the last pixel inside: subtracts 1 from left and top,
            as detectron2. By default they stay as they are, as in torchvision.
        mask: A folder of masks with the names of the pictures, or one or several fields that hold masks:
            palette indices or gray levels, ``uint8`` ``[height, width]``. They are resized to the nearest
            pixel, as ``tv_tensors.Mask``; a border is 0.
        depth: The same, for 16 bits: ``uint16``.
        boxes: The field with lists of four numbers, and their format: ``("bbox", "xywh")``. Formats are
            ``"xyxy"``, ``"xywh"`` and ``"cxcywh"``, with an ``n`` at the end for numbers from 0 to 1. They
            become ragged ``float32``. A box is clamped to the picture, and left out if less than ``min_size``
            pixels of its width or height remain, or less than a pixel of area, as by torchvision's
            ``SanitizeBoundingBoxes``. A sample is bad if one of its boxes is not finite, ends before it
            begins, or is more than a pixel outside of the decoded picture, or if columns ``width`` and
            ``height`` beside them state another size than that of the decoded picture.
        box_format: The format of boxes in a batch.
        points: A field of points, ``[?, 2]`` or lists of two numbers, or of groups of points, ``[?, n, 2]``.
            A point that leaves the picture is left out with its group, as by torchvision's
            ``SanitizeKeyPoints``. A point with a third number, as in COCO, instead becomes three zeros. A
            flip does not exchange the left and right of a body.
        beside: Fields with an item per box, such as its class, which is left out with the box; without boxes,
            an item per point or group; with neither, other fields that vary in length, such as captions,
            as ragged fields. What is left out is logged as a warning.
        text: The field of the captions, a list of ``str`` in a batch; with ``tokenizer`` their ids, ``batch["ids"]``.
        tokenizer: The ``tokenizer.json`` of Hugging Face's tokenizers.
        min_size: See ``boxes``.
        clip_boxes: Cuts boxes to the decoded picture, instead of refusing the sample.
        max_boxes: The max number of boxes or points per sample. Default: every sample is read once to find
            it.
        moves: Adds the field ``moves``: how the sample was moved, see :func:`feedline.transforms.moves`.
        own_sizes: Leaves pictures in sizes of their own, of up to so many pixels, as detection needs them: ``image`` is a
            list of arrays in a batch, on the device, and ``image.size`` has height and width. A larger picture is a bad
            sample. Such as ``[T.Resize(800, max_size=1333)], own_sizes=1333 * 1333``. Not with masks, views, or a GPU that
            decodes.
        views: The number of random views of each picture, which is decoded once: fields ``view0``, ``view1``
            and so on instead of ``image``. Or several lists of transforms, each with its number of views:
            ``views=[(2, large), (6, small)]``.
        listing_age: As for :func:`feedline.open`.
    """
    # The options by name.
    given = dict(locals())
    if isinstance(transforms, Transform):
        raise ConfigError(f"transforms is {shown(transforms)}: give a list, [{shown(transforms)}]")
    steps = [_step(place, step) for place, step in enumerate(transforms)]
    if annotations is not None:
        _options.unused(
            "other pictures than those with annotations",
            split=split is not None,
            root=root is not None,
            label=label is not None,
            class_from=class_from is not None,
            listing_age=_options.whole("listing_age", listing_age) > 0,
        )
    moving = _parts.parts(given)
    is_alone = views is None and moving is None
    if views is not None and (moving is not None or scaled_decode):
        raise ConfigError("views are of pictures alone, and without scaled_decode")
    if not is_alone and scaled_decode:
        raise ConfigError("masks, boxes and points cannot follow a scaled decode: leave out scaled_decode")
    if own_sizes is not None and (views is not None or decode != "cpu"):
        raise ConfigError('own_sizes is for decode="cpu" and without views: leave one of them out')
    pictures = {
        "field": field,
        "transforms": steps,
        "views": None if views is None else _views(views, steps),
        "parts": moving,
        "channels_first": channels_first,
        "scaled_decode": is_alone and scaled_decode,
        "mode": mode,
        "decode": decode,
        "own_sizes": _options.maybe("own_sizes", own_sizes, 1),
    }
    has_beside = views is None and boxes is None and points is None and annotations is None
    opened = told(_feedline.open_images(opening(given), pictures), has_beside)
    data = of_texts(opened, text, moving and moving["tokenized"])
    if own_sizes is not None:
        form = OwnSizes(data.fields[0].dtype, mode, channels_first)
        data._host_forms = {**data._host_forms, "image": HostForm(form, form.of_sample, (SIZE,))}
    return data


def _views(views: Any, steps: list[Any]) -> list[tuple[int, list[tuple[str, dict[str, Any]]]]]:
    """Each list of transforms with its number of views."""
    if isinstance(views, int):
        return [(_options.whole("views", views), steps)]
    if steps:
        raise ConfigError("views have transforms of their own: leave out the other list, or give views=2")
    lists = []
    if isinstance(views, str) or not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in views):
        raise ConfigError(f"views is {shown(views)}: give a number, or pairs such as [(2, [RandomResizedCrop(224)])]")
    for count, own in views:
        own = [_step(place, step) for place, step in enumerate(own)]
        lists.append((_options.whole("a number of views", count), own))
    return lists


def _step(place: int, step: Any) -> tuple[str, dict[str, Any]]:
    """The name and the options of a transform."""
    if isinstance(step, Transform):
        return type(step).__name__, step.options()
    name = type(step).__name__
    ours = [name for name in _transforms.__all__ if name[0].isupper()]
    how = f"use feedline.transforms.{name}" if name in ours else f"use one of {', '.join(ours)}"
    raise ConfigError(f"transform {place} is {type(step).__module__}.{name}, which runs in Python: {how}")
