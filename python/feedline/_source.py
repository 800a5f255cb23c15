"""Sources: samples that are read in sequence, without a length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from . import _feedline, _own
from ._data import Field, fields_at
from ._errors import ConfigError
from ._packing import ADDED, packed_source


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
        made = object.__new__(Source)
        how = (order, within, split, cut, padded)
        made._set = packed_source(self, field, window, how, labels, pad)
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
