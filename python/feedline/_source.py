"""Sources: samples that are read in sequence, without a length."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from . import _feedline, _options, _own
from ._data import Field, fields_at
from ._errors import ConfigError
from ._packing import ADDED, packing
from ._values import check_no_table


class Source:
    """Samples without a length, which a :class:`Loader` reads in sequence, shard by shard.

    A shard is an object with ``__iter__``, such as a torch ``IterableDataset``, or a function that returns an
    iterator; it must give the same samples each time. Samples are like those of :class:`Data`. One worker at
    a time reads. Ranks share the shards, so there must be at least one per rank, unless
    ``Loader(split_shards=True)``.

    ``shuffle=True`` of the loader shuffles the order of the shards, and ``shuffle_buffer`` the samples too. A saved
    state has the place in a shard: a resumed loader reads the samples before it again, unless the shard has
    the method ``skip(n)``, which returns the rest of it. If it has ``set_epoch(n)``, that is called first.
    A state belongs to its rank; the number of ranks may change between epochs.

    >>> import feedline
    >>> def lines(start):
    ...     return lambda: ({"x": number} for number in range(start, start + 3))
    >>> source = feedline.Source(lines(0), lines(100))
    >>> [batch["x"].tolist() for batch in feedline.Loader(source, 4, framework="numpy")]
    [[0, 1, 2, 100], [101, 102]]
    """

    _nest: Any = None
    _signed: frozenset[str] = frozenset()

    def __init__(self, *shards: Any, max_length: Mapping[str, int] | None = None) -> None:
        if not shards:
            raise ConfigError("a source needs a shard: give an object with __iter__")
        for number, shard in enumerate(shards):
            _refuse_stream(number, shard)
            check_no_table(shard)
        opened = _own.Shards(shards, max_length or {})
        self._shards, self._is_tuple, self._places = len(shards), opened.is_tuple, opened.places
        self._set = _feedline.Source(opened, len(shards), opened.fields, opened.fingerprint)

    @property
    def shards(self) -> int:
        """The number of shards."""
        return self._shards

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of a sample."""
        return fields_at(self._places, self._set.fields(), self._signed)

    @property
    def fate(self) -> str | None:
        """For a packed source, how many of the documents read so far were used, split, cut or left out; else
        ``None``."""
        return self._set.fate

    def packed(
        self,
        field: str | Sequence[str],
        window: int,
        *,
        order: Literal["best fit", "in order"] = "best fit",
        within: int = 1000,
        split: bool = True,
        cut: bool = False,
        labels: str | bool | None = None,
        pad: Mapping[str, float] | None = None,
        padded: bool = True,
    ) -> Source:
        """The documents of a ragged field in windows of one size, as :meth:`Data.packed` makes them, without
        a pass over all of them: groups of ``within`` consecutive documents are packed by best fit or in
        order. A window is a sample of the new source: ``shuffle_buffer`` shuffles windows, and a state
        resumes at any of them. Memory is bounded by ``within`` documents.

        >>> import feedline
        >>> source = feedline.Source(lambda: ({"ids": [n] * n} for n in (3, 1, 2)), max_length={"ids": 3})
        >>> windows = source.packed("ids", 4)
        >>> [batch["ids"].tolist() for batch in feedline.Loader(windows, 1, framework="numpy")]
        [[[3, 3, 3, 1]], [[2, 2, 0, 0]]]
        """
        given = dict(locals()) | {"within": _options.whole("within", within, 1)}
        made = object.__new__(Source)
        made._set = self._set.packed(packing(given))
        made._shards, made._is_tuple, made._places, made._signed = self._shards, False, [], ADDED
        return made

    @property
    def fingerprint(self) -> int:
        """A number that identifies the source: the number of shards, the fields, and the shards' own
        attributes ``fingerprint``, if they all have one."""
        return self._set.fingerprint

    def path(self, id: int) -> str | None:
        """The file that holds a sample: not known."""
        return None

    def __repr__(self) -> str:
        names = ", ".join(field.name for field in self.fields)
        return f"Source({self._shards} shard{'s' if self._shards > 1 else ''}: {names})"

    def __reduce__(self) -> Any:
        raise TypeError("a Source cannot be pickled: make it again where you need it")


#: Methods of objects that give each message once (queues, sockets, consumers of a broker): the one that takes, and
#: others that such an object has.
_TAKES = {"get": ("put", "empty"), "get_nowait": ("put", "empty"), "recv": ("send",), "poll": ("subscribe",),
          "get_message": ("subscribe",)}  # fmt: skip
#: Methods that fill a queue: code that calls one may begin anew.
_FILLS = {"put", "put_nowait", "send"}


def _refuse_stream(number: int, shard: Any) -> None:
    """Refuses a shard that can be read once. Its first sample is read for the fields, and a loader asks for the
    next epoch before the loop does: a message would be lost, and a wait for the next one never end."""
    name, stream = _stream(shard.__iter__ if hasattr(shard, "__iter__") else shard)
    if stream is not None:
        raise ConfigError(
            f"shard {number} takes its samples from {name}, a {type(stream).__name__}, which gives each one once: "
            "a shard must give the same samples each time it begins. Write the messages to files, and read these "
            "as shards"
        )


def _stream(function: Any) -> tuple[str, Any]:
    """The name of a stream that a function takes from, and the stream; ``None`` if none is found."""
    held: dict[str, Any] = {}
    while isinstance(function, functools.partial):
        held |= {f"argument {place}": value for place, value in enumerate(function.args)} | function.keywords
        function = function.func
    owner = getattr(function, "__self__", None)
    function = inspect.unwrap(getattr(function, "__func__", function))
    if not isinstance(function, types.FunctionType):
        return "", None
    names = set(_names(function.__code__))
    takes = [method for method in _TAKES if method in names]
    if not takes or not _FILLS.isdisjoint(names):
        return "", None
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    held |= {name: cell.cell_contents for name, cell in cells if cell != types.CellType()}
    held |= {name: function.__globals__[name] for name in names & function.__globals__.keys()}
    defaults = inspect.signature(function).parameters.values()
    held |= {one.name: one.default for one in defaults if one.default is not one.empty}
    own = getattr(owner, "__dict__", {})
    held |= {f"self.{name}": value for name, value in own.items() if name in names}
    for name, value in held.items():
        kind = type(value)
        if any(hasattr(kind, method) and all(hasattr(kind, one) for one in _TAKES[method]) for method in takes):
            return name, value
    return "", None


def _names(code: types.CodeType) -> Iterator[str]:
    """The names that code refers to, also that of functions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
