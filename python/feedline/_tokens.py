"""Windows of streams of token ids."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _feedline, _options
from ._data import Data, of_set
from ._errors import ConfigError, shown
from ._made import keeps_its_call
from ._open import opening

#: The types of token ids.
_TYPES = {"uint8": "u8", "int8": "i8", "uint16": "u16", "int16": "i16", "uint32": "u32", "int32": "i32", "int64": "i64"}

_Path = str | os.PathLike[str]


@keeps_its_call
def tokens(
    files: _Path | Sequence[_Path | tuple[_Path, float]],
    window: int,
    *,
    dtype: Any = None,
    stride: int | None = None,
    separator: int | None = None,
    skip_short: bool = False,
    memory_limit: int | None = None,
) -> Data:
    """Windows of streams of token ids: fields ``tokens`` and ``targets``, the next token of each.

    Files state the type of their ids: a ``.bin`` with the ``.idx`` beside it, as Megatron writes them, a file
    of llm.c, a ``.npy`` of one dimension; or they are bare ids of the type ``dtype``, as nanoGPT writes them.
    With ``dtype``, a file with a header is refused. :func:`feedline.open` reads the documents of a ``.bin``.

    Args:
        files: A file or a URL, or a list of them, each alone or with a weight: the number of times that each
            of its windows occurs in an epoch.
        window: Tokens per window.
        dtype: The type of bare ids, such as ``"uint16"``; ``None`` for files that state it.
        stride: Tokens from the start of a window to that of the next; ``window`` by default.
        separator: The token that ends a document; no window crosses it. Documents too short for a window are
            an error, unless ``skip_short``.
        skip_short: Leaves out documents too short for a window; :attr:`Data.fate` counts them.
        memory_limit: Files of up to this many bytes are held in memory.

    >>> import feedline, numpy as np, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "train.bin")
    >>> np.arange(10, dtype=np.uint16).tofile(path)
    >>> feedline.tokens(path, 4, dtype="uint16")[1]["targets"]
    array([5, 6, 7, 8], dtype=uint16)
    """
    one = isinstance(files, (str, os.PathLike))
    listed = [_weighted(file) for file in ([files] if one else files)]  # type: ignore[union-attr]
    streams = {
        "files": listed,
        "window": _options.whole("window", window),
        "dtype": _type(dtype),
        "stride": _options.maybe("stride", stride),
        "separator": _options.maybe("separator", separator, 0, 2**32 - 1),
        "skip_short": skip_short,
        "memory_limit": _options.maybe("memory_limit", memory_limit),
    }
    return of_set(_feedline.open_tokens(streams))


class PackedTokens(NamedTuple):
    """The result of :func:`pack_tokens`."""

    #: Documents.
    documents: int
    #: Ids of all documents.
    tokens: int
    #: Documents of an earlier run that were reused.
    kept: int


def pack_tokens(
    path: _Path,
    to: _Path,
    tokenizer: _Path | None = None,
    *,
    field: str | None = None,
    end: str | None = None,
    dtype: Any = None,
    threads: int = 0,
    progress: Callable[[int], object] | None = None,
    split: str | None = None,
) -> PackedTokens:
    """Writes texts or ids as Megatron's pair: a ``.bin`` of token ids, and the ``.idx`` beside it.

    Threads tokenize, the documents keep their order, and memory is constant. Repeating an interrupted call
    resumes it. :func:`feedline.open` reads the documents, with all lengths known, and :func:`feedline.tokens`
    windows.

    Args:
        path: The texts, as for :func:`feedline.open`.
        to: The file, called ``.bin``; it must not exist.
        tokenizer: A ``tokenizer.json``; ``None`` if ``path`` already has ids.
        field: The field of the texts (default ``text``) or of the ids (default ``ids``).
        end: A token that ends each document, such as ``"<|endoftext|>"``.
        dtype: The type of the ids: by default ``uint16`` for a vocabulary below 65,500, else ``int32``.
        threads: 0 for one per core.
        progress: Called with the number of documents so far.
        split: As for :func:`feedline.open`.
    """
    packing = {
        "tokenizer": None if tokenizer is None else _options.path("tokenizer", tokenizer),
        "field": field,
        "end": end,
        "dtype": _type(dtype),
        "threads": _options.whole("threads", threads),
    }
    if end is not None and tokenizer is None:
        raise ConfigError(f"end is {shown(end)}, a token of a tokenizer: give that too")
    options = opening({"path": path, "split": split})
    return PackedTokens(*_feedline.pack_tokens(options, _options.path("to", to), packing, progress))


def _type(dtype: Any) -> str | None:
    """The name of a type of ids."""
    if dtype is None:
        return None
    try:
        given = np.dtype(dtype).name
    except TypeError:
        given = str(dtype)
    name = _TYPES.get(given) or (given if given in _TYPES.values() else None)
    if name is None:
        raise ConfigError(f"dtype is {shown(dtype)}: token ids are whole numbers, such as \"uint16\"")
    return name


def _weighted(file: Any) -> tuple[str, float]:
    """A file and its weight."""
    if isinstance(file, (str, os.PathLike)):
        return _options.path("a file of tokens", file), 1.0
    try:
        path, weight = file
        return _options.path("a file of tokens", path), _options.number("a weight of tokens", weight)
    except (TypeError, ValueError):
        raise ConfigError(f"a file of tokens is {shown(file)}: give a path, or a path and a weight") from None
