"""Sources: samples that are read in sequence, without a length."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from . import _feedline, _options, _tables
from ._columns import Place
from ._data import Field, fields_at
from ._errors import ConfigError
from ._packing import ADDED, packing
from ._shards import Once, Shards


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

    ``once=True`` is for shards that give each sample once: queues, consumers of a broker, and generators, which may then be
    shards themselves. Every sample is delivered, from the first one on, which has the fields and for which the loader
    waits. There is one pass: it ends where the iterators end, nothing is read after it, and a second one is an error.

    A thread of its own reads such a shard, and the iterator may wait in it as long as it likes: no time limit counts that,
    and neither the end of the loader nor that of the program waits for a sample to come. It reads ahead of the loop, and
    what it has taken is lost if the loop is left: :meth:`Loader.state_dict` counts what was ``delivered`` and what was
    ``taken``. A run is resumed only in shards with ``skip(n)``, counted from the first sample of the first run. Each rank
    opens its own shards only.

    >>> import queue
    >>> messages = queue.Queue()
    >>> for message in ({"x": 5}, {"x": 6}, {"x": 7}, None):
    ...     messages.put(message)
    >>> source = feedline.Source(iter(messages.get, None), once=True)
    >>> [batch["x"].tolist() for batch in feedline.Loader(source, 2, framework="numpy")]
    [[5, 6], [7]]
    """

    _nest: Any = None
    _signed: frozenset[str] = frozenset()
    #: The source whose documents are packed, and how.
    _of: tuple[Source, dict[str, Any]] | None = None

    def __init__(self, *shards: Any, max_length: Mapping[str, int] | None = None, once: bool = False) -> None:
        if not shards:
            raise ConfigError("a source needs a shard: give an object with __iter__")
        once = _options.flag("once", once)
        for number, shard in enumerate(shards):
            if not once:
                _refuse_stream(number, shard)
            if _tables.is_table(shard):
                raise ConfigError(
                    f"shard {number} is a table in memory, whose rows are read by index: give it to feedline.Data or "
                    "feedline.table"
                )
        self._opens = (Once if once else Shards)(shards, _options.limits(max_length))
        self._shards = len(shards)
        if not once:
            self._opens.look()

    @functools.cached_property
    def _set(self) -> _feedline.Source:
        if self._of is not None:
            source, how = self._of
            return source._set.packed(how)
        if self._once is not None:
            self._once.look()
        return _feedline.Source(self._opens, self._shards, self._opens.fields, self._opens.fingerprint)

    @property
    def _once(self) -> Once | None:
        """The shards, if they are read once."""
        return self._opens if isinstance(self._opens, Once) else None

    @property
    def _is_tuple(self) -> bool:
        return self._of is None and self._opens.is_tuple

    @property
    def _places(self) -> Sequence[Place]:
        return self._opens.places if self._of is None else ()

    @property
    def shards(self) -> int:
        """The number of shards."""
        return self._shards

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of a sample. With ``once=True`` and before there is a loader, this reads the first sample of the first
        shard, and waits for it."""
        inner = self._set.fields()  # It looks at the first sample, which has the places.
        return fields_at(self._places, inner, self._signed)

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
        made._opens, made._shards, made._of, made._signed = self._opens, self._shards, (self, packing(given)), ADDED
        if self._once is None:
            made._set = self._set.packed(made._of[1])
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
        # The fields of one that is read once may have to be waited for.
        of = ", read once" if self._once is not None else ": " + ", ".join(field.name for field in self.fields)
        return f"Source({self._shards} shard{'s' if self._shards > 1 else ''}{of})"

    def __reduce__(self) -> Any:
        raise TypeError("a Source cannot be pickled: make it again where you need it")


#: Methods of objects that give each message once (queues, sockets, consumers of a broker): the one that takes, and
#: others that such an object has.
_TAKES = {"get": ("put", "empty"), "get_nowait": ("put", "empty"), "recv": ("send",), "poll": ("subscribe",),
          "get_message": ("subscribe",)}  # fmt: skip
#: Methods that fill a queue: code that calls one may begin anew.
_FILLS = {"put", "put_nowait", "send"}


def _refuse_stream(number: int, shard: Any) -> None:
    """Refuses a shard that can be read once, if ``once`` is not given. Its first sample would be read for the fields and
    lost, and a loader, which begins the next epoch before the loop does, would take messages for it, or wait for one."""
    name, stream = _stream(shard.__iter__ if hasattr(shard, "__iter__") else shard)
    if stream is not None:
        raise ConfigError(
            f"shard {number} takes its samples from {name}, a {type(stream).__name__}, which gives each one once: "
            "give Source(..., once=True) for one pass over them; or write them to files, and read these as shards"
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
