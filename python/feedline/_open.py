"""``feedline.open``, and the options of every function that opens data."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from . import _feedline, _options, _tables
from ._data import Data, of_set
from ._errors import ConfigError, shown
from ._made import Made, placed, suggesting

_log = logging.getLogger("feedline")


def open(
    path: str | os.PathLike[str] | _tables.Table,
    *,
    max_length: int | Mapping[str, int] | None = None,
    split: str | None = None,
    classes: Sequence[str] | None = None,
    nulls: Literal["refuse", "fill"] = "refuse",
    empty_members: bool = False,
    memory_limit: int | None = None,
    cache_bytes: int | None = None,
    types: Mapping[str, str] | None = None,
    header: bool | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
    text: str | None = None,
    special_tokens: bool = False,
    max_tokens: int | None = None,
    class_from: int | None = None,
    files: str | Sequence[str] = (),
    root: str | os.PathLike[str] | None = None,
    label: str | None = None,
    listing_age: int = 0,
) -> Data:
    """Opens a file, a folder or a URL, whatever its format, or a table in memory, see :class:`Data`.

    Formats: NumPy (.npy, .npz), Parquet, Arrow, CSV, JSON Lines, text, safetensors, TFRecord, tar
    (WebDataset), MosaicML's shards, Zarr stores without Blosc, Megatron's ``.bin`` with the ``.idx`` beside it,
    llm.c's files, MNIST's and CIFAR's files, folders of these, and folders of one file per sample. Encoded
    pictures are bytes here: :func:`feedline.images` decodes them.

    A name may have a range, a list or stars: ``train-{000..099}.tar``, ``{a,b}.csv``, ``p/*/*.jpg``. Files
    come in the order of the braces; the matches of a star are sorted by name, folder by folder. ``**`` is any
    number of folders. An option that the data have no use for is an error.

    Args:
        max_length: Max items per sample of the fields that vary in length, such as text: one number, or a
            number per field. ``None`` reads every sample once to find the longest, and keeps the lengths in
            the folder ``lengths`` of the user's cache: ``$FEEDLINE_CACHE``, else
            ``$XDG_CACHE_HOME/feedline``, else ``~/.cache/feedline``; ``FEEDLINE_CACHE=off`` keeps nothing.
        split: ``"train"``, ``"validation"`` or ``"test"``, if the names of files or folders contain these
            words.
        classes: The classes of folders, or of the label of a manifest, in the order of their numbers.
        nulls: ``"refuse"`` missing values of a table, or ``"fill"`` them with NaN, zero or an empty value.
        empty_members: Whether a sample of a tar archive may lack a member that others have.
        memory_limit: Plain files of up to this many bytes are held in memory. It is a limit, which any data keep.
        cache_bytes: Max bytes of a table's decoded rows in memory, by default 512 MiB. If all fields have one
            size and all rows fit, they are decoded once and held. Of a larger table, row groups are cached up
            to this size: shuffle it by blocks, see :meth:`feedline.Sampler.block`.
        types: Types for single columns of CSV and JSON Lines instead of the inferred ones: ``{"zip":
            "text"}``, with ``int64``, ``uint64``, ``float64``, ``bool`` or ``text``. Lists of texts and objects
            in JSON Lines are refused, unless their type is ``text``: then they are their JSON.
        header: Whether the first row of CSV names the columns. By default its cells decide, and a row that may be
            names as well as values is refused.
        tokenizer: A ``tokenizer.json`` of Hugging Face: the workers tokenize the field ``text``, which
            becomes the ragged field ``ids`` (``i64``). See :meth:`Data.packed`. A text on which a regular
            expression of the tokenizer gives up is a bad sample.
        text: The field that is tokenized; ``text`` by default.
        special_tokens: Whether the special tokens of the tokenizer are added, such as ``[CLS]``.
        max_tokens: Keeps the first tokens of each text, special tokens included.
        class_from: For a pattern whose files are a sample each, the folder that names the class: 1 is the
            folder that holds the file, 2 the one above it. Default: the only folder of the pattern with a
            star, as in ``p/*/*.wav``.
        files: Columns of paths or URLs of a manifest (CSV, JSON Lines, Parquet, Arrow), which are read as the
            bytes of the files. A missing file is a bad sample.
        root: As for :func:`feedline.images`.
        label: As for :func:`feedline.images`.
        listing_age: For a folder in a store whose objects are a sample each, such as pictures: the max age in
            seconds of a kept listing, so that the next start need not list 100,000 objects again. Default:
            each start lists the folder. New objects are missed until the listing is older. An object that was
            replaced or removed is a bad sample, whose error says so; the next start then lists the folder
            again.

    >>> import feedline, numpy as np, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "squares.npy")
    >>> np.save(path, np.arange(5) ** 2)
    >>> feedline.open(path)
    Data(5 samples: array i64 [])
    """
    # The options by name. A copy: up to Python 3.12 the dict changes with the variables.
    given = dict(locals())
    is_one = max_length is not None and not isinstance(max_length, Mapping)
    default = _options.whole("max_length", max_length) if is_one else None
    named = {} if is_one else _options.limits(max_length)
    if tokenizer is None:
        _options.unused(
            "a tokenizer",
            text=text is not None,
            special_tokens=bool(special_tokens),
            max_tokens=max_tokens is not None,
        )
    columns = [files] if isinstance(files, str) else list(files)
    if not columns and (root is not None or label is not None):
        raise ConfigError("root and label are for a manifest: name its columns of paths by files=")
    varying = {
        "max_length": list(named.items()),
        "default_length": default,
        "tokenizer": None if tokenizer is None else _options.path("tokenizer", tokenizer),
        "text": text or "text",
        "special_tokens": tokenizer is not None and special_tokens,
        "max_tokens": _options.maybe("max_tokens", max_tokens),
    }
    options = opening(given | {"files": columns})
    with suggesting():
        data, place = of_set(_feedline.open(options, varying)), options["path"]
    del given["path"]
    given["types"] = None if types is None else dict(types)
    given |= {name: placed(given[name]) for name in ("root", "tokenizer")}
    data._made = Made(open, (placed(place),), given)
    return data


def opening(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of opening among those of a function, checked, in the form of the compiled part."""
    get = given.get
    return {
        "path": _tables.path_or_table("path", given["path"]),
        "split": get("split"),
        "classes": None if get("classes") is None else list(given["classes"]),
        "empty_members": get("empty_members", False),
        "fill_nulls": _options.word("nulls", get("nulls", "refuse"), "refuse", "fill") == "fill",
        "memory_limit": _options.maybe("memory_limit", get("memory_limit")),
        "cache_bytes": _options.maybe("cache_bytes", get("cache_bytes")),
        "types": _types(get("types")),
        "header": None if get("header") is None else _options.flag("header", get("header")),
        "class_from": _options.maybe("class_from", get("class_from")),
        "listing_age": _options.whole("listing_age", get("listing_age", 0)),
        "files": get("files", []),
        "root": None if get("root") is None else _options.path("root", get("root")),
        "label": get("label"),
    }


_TYPES = {"int64": "i64", "uint64": "u64", "float64": "f64", "bool": "bool", "text": "text"}


def _types(value: Any) -> list[tuple[str, str]]:
    """The types of columns of CSV and JSON Lines."""
    given = _options.mapping("types", value, '{"zip": "text"}').items()
    for column, kind in given:
        if not isinstance(kind, str) or kind not in _TYPES:
            raise ConfigError(f"types[{shown(column)}] is {shown(kind)}: use one of {', '.join(_TYPES)}")
    return [(column, _TYPES[kind]) for column, kind in given]


def opened_from(data: Any) -> str | None:
    """The path that ``data`` was opened from, if its samples are those of the file or folder as they are."""
    made = getattr(data, "_made", None)
    if made is None or made.function is not open or not isinstance(made.arguments[0], str):
        return None
    changes = ("tokenizer", "types", "class_from", "files", "label", "classes")
    is_changed = any(made.options[name] for name in changes) or made.options["header"] is not None
    return None if is_changed else made.arguments[0]


def of_texts(data: Data, text: str | None, tokenized: Any) -> Data:
    """The data, whose field ``text`` is texts in a batch unless it is tokenized."""
    if text is not None and tokenized is None:
        # It imports this module.
        from ._texts import text_forms

        data._host_forms = text_forms(data, [text])
    return data


def told(opened: _feedline.DataSet, has_beside: bool = True) -> Data:
    """The set, after a word on the fields that it leaves out."""
    if opened.left_out:
        names = ", ".join(map(repr, opened.left_out))
        how = "name those that you need by beside=" if has_beside else "feedline.open has them"
        _log.warning("%s leaves out fields that vary in length: %s: %s", opened.kind, names, how)
    return of_set(opened)
