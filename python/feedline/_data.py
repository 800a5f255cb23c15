"""Data sets: opened, in memory, your own, and composed of others."""

from __future__ import annotations

import builtins
import logging
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from . import _collate, _feedline, _notebook, _options, _own, _parts
from . import transforms as _transforms
from ._columns import Place
from ._errors import ConfigError, shown
from ._packing import packed, unpadded
from ._sampler import counts
from ._values import as_array, check_no_table, dtype_of, numpy_dtype
from ._workers.choice import Leaf
from .transforms import Transform

_log = logging.getLogger("feedline")


class Field(NamedTuple):
    """A field of every sample."""

    #: The name.
    name: str
    #: The type of an element: ``u8``, ``i64``, ``f32``, ``bf16``, ``bool``, ...
    dtype: str
    #: The shape in one sample; for a ragged field, the shape of one item.
    shape: tuple[int, ...]
    #: The max items per sample, if the field is ragged; else ``None``.
    max_length: int | None


def fields_at(
    places: Sequence[Place],
    columns: Sequence[tuple[str, str, list[int], int | None]],
    signed: frozenset[str] = frozenset(),
) -> tuple[Field, ...]:
    """The fields of a sample, from the columns of a batch. Fields that share a column are along its first
    dimension."""
    of = {
        name: Field(name, "i32" if dtype == "u32" and name in signed else dtype, tuple(shape), max)
        for name, dtype, shape, max in columns
    }
    if not places:
        return tuple(of.values())
    return tuple(
        of[column]._replace(name=name, shape=of[column].shape[0 if at is None else 1 :])
        for name, column, at in places
    )


class Data:
    """Samples with random access: what a :class:`Loader` reads.

    Open a file or a folder by :func:`feedline.open` or :func:`feedline.images`; pass arrays in memory as
    ``Data({"x": x, "y": y})``, which copies them: later changes are not seen; and any object with
    ``__len__`` and ``__getitem__``, such as a torch ``Dataset`` or a ``datasets.Dataset``, as
    ``Data(samples)``. Samples are dicts of arrays; those of an object may be tuples, and batches are then
    tuples too.

    An object of yours is read by threads, which take turns at the interpreter's lock, or by processes:
    ``Loader(data, workers=8)``. Text, and fields named in ``max_length``, may vary in length. The first
    sample determines the fields and their types, and the first one with items that of an empty list; a later value that its type cannot hold is an error, and no
    value is rounded.

    Before each sample the random generators that it uses are seeded from the loader's seed, the epoch and the draw, so
    that a sample is the same in any process or thread, and after a resume: the global ones of ``random``, NumPy and
    torch, and those in the attributes of the object and of its transforms. All keep their states in your process.
    Threads read samples that draw from the global ones while the loop waits for a batch; processes read ahead.
    ``seed_generators=False`` leaves them unseeded.

    ``collate_fn`` is called with the list of the samples of a batch, as by torch's ``DataLoader``, where they
    are read. It returns an array or a tensor with a row per sample, or dicts, tuples and lists of these, and
    a batch is the same; fields have the keys as names, ``"inputs.ids"`` within another dict. It is called for
    one sample and for two when the data set is made. A field must have one type, and rows of one shape; for
    fields whose length varies from batch to batch, ``max_length`` has the max items of a row. It must come
    last: such data cannot be composed further.

    >>> import feedline, numpy as np
    >>> data = feedline.Data({"x": np.arange(6).reshape(3, 2), "y": np.array([0, 1, 0])})
    >>> len(data), data[1]["x"]
    (3, array([2, 3]))
    >>> data
    Data(3 samples: x i64 [2], y i64 [])
    """

    _set: _feedline.DataSet
    _is_tuple: bool
    #: The parts that Python code reads or changes, and that processes may read.
    _leaves: list[Leaf]
    #: The function and arguments to make it again in another process; ``None`` for composed data.
    _made: tuple[Callable[..., Data], tuple[Any, ...], dict[str, Any]] | None
    #: Name, type and shape of each field, and whether it varies in length, once a sample was read.
    _forms: list[tuple[str, np.dtype[Any], tuple[int, ...], bool]] | None = None
    #: The columns of the fields in a batch, if some share one; else empty.
    _places: Sequence[Place] = ()
    #: The nesting of the fields in a batch made by ``collate_fn``: a `_collate.Nest`.
    _nest: Any = None
    #: The fields of packed windows that are converted from ``uint32`` to ``int32``, which torch can add.
    _signed: frozenset[str] = frozenset()

    def __init__(
        self,
        samples: Any,
        *,
        max_length: Mapping[str, int] | None = None,
        seed_generators: bool = True,
        collate_fn: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        check_no_table(samples)
        if isinstance(samples, Mapping) and collate_fn is None and not max_length:
            _options.unused("an object of yours, not arrays", seed_generators=not seed_generators)
        if isinstance(samples, Data) and collate_fn is None:
            whose = "an object of yours, not a Data"
            _options.unused(whose, max_length=bool(max_length), seed_generators=not seed_generators)
        self._is_tuple, self._leaves = False, []
        options = {"max_length": max_length, "seed_generators": seed_generators, "collate_fn": collate_fn}
        self._made = (Data, (samples,), options)
        if collate_fn is not None:
            of = _of_arrays(samples) if isinstance(samples, Mapping) else samples
            inner = of if isinstance(of, Data) else None
            if inner is not None:
                inner._check_rows()
                of = _Mapped(inner, _same)
            self._read_by(_reader(of, max_length, collate_fn), inner, seed_generators)
        elif isinstance(samples, Data):
            self._set, self._is_tuple, self._leaves = samples._set, samples._is_tuple, samples._leaves
            self._signed, self._places, self._nest = samples._signed, samples._places, samples._nest
        elif isinstance(samples, (str, os.PathLike)):
            raise ConfigError(f"open the file first: feedline.open({os.fspath(samples)!r})")
        elif isinstance(samples, Mapping):
            limits = _limits(max_length)
            if limits:
                self._read_by(_reader(_Rows(samples, limits), limits), None, seed_generators)
            else:
                self._set = _arrays(samples)
        else:
            self._read_by(_reader(samples, max_length), None, seed_generators)

    def _read_by(self, reader: _own.Reader, inner: Data | None, seed_generators: bool) -> None:
        """Python code reads the samples; of ``inner``, if that is not ``None``."""
        varies = inner is not None and inner._set.varies()
        if seed_generators:
            reader.tell()
        self._is_tuple, self._places, self._nest = reader.is_tuple, reader.places, reader.nest
        self._set = _feedline.DataSet.own(
            reader,
            len(reader),
            reader.fields,
            reader.fingerprint,
            (reader.is_batched, reader.is_whole),
            (varies, seed_generators),
            None if inner is None else inner._set,
        )
        self._leaves = [Leaf(self._set, reader, varies, [] if inner is None else inner._leaves)]

    def _check_rows(self) -> None:
        if self._nest is not None:
            raise ConfigError(
                "collate_fn makes whole batches of these data, so it comes last: compose the data before, and "
                "give collate_fn with the result"
            )

    def _new(self, inner: _feedline.DataSet) -> Data:
        self._check_rows()
        data = Data.__new__(Data)
        data._set, data._is_tuple, data._leaves = inner, self._is_tuple, self._leaves
        data._signed, data._places, data._made = self._signed, self._places, None
        return data

    def __len__(self) -> int:
        return len(self._set)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of a sample."""
        return fields_at(self._places, self._set.fields(), self._signed)

    @property
    def fingerprint(self) -> int:
        """A number that identifies the data: a state saved with other data is refused.

        It covers the content of files up to 4 GiB; of your own object the length, the fields and its attribute
        ``fingerprint``, if it has one.
        """
        return self._set.fingerprint

    @property
    def classes(self) -> list[str] | None:
        """The names of the classes in the order of their labels, if the file or the folder has them."""
        return self._set.classes

    @property
    def categories(self) -> dict[str, list[str]]:
        """The values of each category of a :func:`feedline.table`, in the order of their numbers."""
        return dict(self._set.categories)

    def __getitem__(self, index: int) -> Any:
        return self._read(index, 0, 0)

    def _read(self, index: int, epoch: int, seed: int) -> Any:
        """A sample, with the random numbers of an epoch and a seed."""
        index = _sample_index(index)
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"no sample {index}: there are {len(self)}")
        if self._forms is None:
            self._forms = [
                (field.name, numpy_dtype(field.dtype), field.shape, field.max_length is not None)
                for field in fields_at((), self._set.fields(), self._signed)
            ]
        sample = {}
        for (name, dtype, shape, varies), value in builtins.zip(
            self._forms, self._set.read(at, epoch, seed), strict=True
        ):
            array = np.frombuffer(value, dtype)
            if varies:
                shape = (-1, *shape) if value else (0, *shape)
            sample[name] = array.reshape(shape)
            if name == "cu_seqlens" and name in self._signed:
                # As in a batch, the ends of the documents instead of their lengths.
                sample[name] = np.concatenate(([0], np.cumsum(array))).astype(np.int32)
        if self._places:
            sample = {name: sample[of] if at is None else sample[of][at, ...] for name, of, at in self._places}
        return tuple(sample.values()) if self._is_tuple else sample

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def path(self, index: int) -> str | None:
        """The file that holds a sample, if it is known."""
        return self._set.path(index)

    def map(
        self,
        function: Callable[[Any], Any],
        *,
        max_length: Mapping[str, int] | None = None,
        seed_generators: bool = True,
    ) -> Data:
        """A function of each sample, called by the workers: it gets a sample and returns another.

        The arguments are those of :class:`Data`.

        >>> import feedline, numpy as np
        >>> data = feedline.Data({"x": np.arange(4)})
        >>> data.map(lambda sample: {"double": 2 * sample["x"]})[3]
        {'double': array(6)}
        """
        self._check_rows()
        mapped = Data.__new__(Data)
        mapped._read_by(_reader(_Mapped(self, function), max_length), self, seed_generators)
        options = {"max_length": max_length, "seed_generators": seed_generators}
        mapped._made = (Data.map, (self, function), options)
        return mapped

    def filter(self, keep: Callable[[Any], bool]) -> Data:
        """The samples for which ``keep`` is true. Reads every sample once.

        >>> import feedline, numpy as np
        >>> data = feedline.Data({"x": np.arange(10)})
        >>> [int(sample["x"]) for sample in data.filter(lambda sample: sample["x"] % 4 == 0)]
        [0, 4, 8]
        """
        if self._set.varies():
            raise ConfigError("the samples are random, so filter would differ each epoch: filter before them")
        return self.subset([index for index in range(len(self)) if keep(self[index])])

    def subset(self, indices: Sequence[int]) -> Data:
        """The samples of these indices, in this order."""
        if not hasattr(indices, "__iter__"):
            raise ConfigError(f"subset takes indices, and this is {shown(indices)}: give a list of them")
        return self._new(self._set.subset([_index(index) for index in indices]))

    def take(self, count: int) -> Data:
        """The first samples."""
        return self._new(self._set.take(_options.whole("take", count)))

    def skip(self, count: int) -> Data:
        """The samples after the first ``count``."""
        return self._new(self._set.skip(_options.whole("skip", count)))

    def split(self, *fractions: float, seed: int = 0) -> list[Data]:
        """Disjoint random parts, up to five: the same for the same seed.

        >>> import feedline, numpy as np
        >>> train, validation = feedline.Data({"x": np.arange(100)}).split(0.8, 0.2)
        >>> len(train), len(validation)
        (80, 20)
        """
        shares = [_options.number("a fraction of split", fraction) for fraction in fractions]
        seed = _options.whole("seed", seed, 0, 2**64 - 1)
        return [self._new(part) for part in self._set.split(shares, seed)]

    def folds(self, count: int, *, labels: Any = None, seed: int = 0) -> list[tuple[Data, Data]]:
        """Splits for a cross-validation: in each fold a training and a validation set. Every sample is in
        exactly one validation set. With ``labels``, a whole number per sample, the folds are stratified.

        >>> import feedline, numpy as np
        >>> label = np.array([0, 1] * 5)
        >>> folds = feedline.Data({"label": label}).folds(5, labels=label, seed=7)
        >>> [sorted(int(sample["label"]) for sample in validation) for _, validation in folds]
        [[0, 1], [0, 1], [0, 1], [0, 1], [0, 1]]
        """
        count, seed = _options.whole("folds", count), _options.whole("seed", seed, 0, 2**64 - 1)
        given = None if labels is None else counts("labels", labels)
        return [(self._new(train), self._new(val)) for train, val in self._set.folds(count, given, seed)]

    def negatives(self, fields: str | Sequence[str], count: int, items: int, *, seed: int = 0) -> Data:
        """Adds the field ``NAME.negatives``, ``int64 [count]``, where NAME is the first of ``fields``: items
        below ``items`` that the sample does not have in any of ``fields``. They are drawn anew in each epoch,
        and depend only on ``seed``, the epoch and the sample. Of a list that ``last=`` or ``max=`` of a table
        cuts, all items count, and those that are cut off are held in memory: so call it before ``map``, which
        may change the items.

        >>> import feedline
        >>> data = feedline.Data({"item": [2, 0]}).negatives("item", 3, 4)
        >>> all(item in (0, 1, 3) for item in data[0]["item.negatives"].tolist())
        True
        """
        self._check_rows()
        if self._places or self._is_tuple:
            raise ConfigError("negatives need fields by name, of which a batch has up to 15: choose fewer")
        named = [fields] if isinstance(fields, str) else list(fields)
        count, items = _options.whole("count", count), _options.whole("items", items)
        seed = _options.whole("seed", seed, 0, 2**64 - 1)
        return self._new(self._set.negatives(named, count, items, seed))

    def repeat(self, times: int) -> Data:
        """The samples several times within an epoch, each time with other random numbers."""
        return self._new(self._set.repeat(_options.whole("repeat", times)))

    def cached(self, budget: int, path: str | os.PathLike[str] | None = None) -> Data:
        """Keeps samples once they are read, up to ``budget`` bytes: in memory, or in a file that lasts."""
        budget = _options.whole("the budget of cached, in bytes,", budget)
        return self._new(self._set.cached(budget, None if path is None else _options.path("path", path)))

    def packed(
        self,
        field: str | Sequence[str],
        window: int,
        *,
        order: Literal["best fit", "in order"] = "best fit",
        within: int | None = None,
        split: bool = True,
        cut: bool = False,
        labels: str | bool | None = None,
        pad: Mapping[str, float] | None = None,
        shuffle: int | None = None,
        padded: bool = True,
    ) -> Data:
        """Packs the documents of a ragged field into windows of one size.

        A window has the fields ``field``; ``position``, of each item within its document; ``segment``, the
        number of its document in the window, from 1; ``used``, the number of items that are not padding; and
        ``cu_seqlens``, for attention kernels of variable lengths. The added fields are ``int32``.
        ``batch["cu_seqlens"].values`` is 0 and then the end of each document in the sequence of all windows
        of the batch; in a sample, of its window. :attr:`fate` counts the documents that were split, cut or
        left out, and of conversations those whose labels are all -100.

        Args:
            field: The field, or several that are packed together, such as ``["ids", "weight"]``. The others
                must have the same number of items as the first, or one number for all items of a document.
            window: Items per window.
            order: ``"best fit"``: the longest document first, each into the fullest window that it fits.
                ``"in order"``: in the order of the data, cut where a window is full.
            within: With best fit, packs groups of this many consecutive documents.
            split: Whether a document longer than a window is split; else it is refused, unless ``cut``.
            cut: Truncates a document longer than a window to its first items.
            labels: A field of labels, or ``True`` to make labels from the ids. Labels are -100 in the padding
                and for the first item of each document, as models that shift labels need.
            pad: The padding value by field: ``{"ids": 2}``. Default: 0.
            shuffle: A seed: documents of equal length swap places in each epoch.
            padded: Whether windows are padded to one size. Otherwise fields are ragged, with up to ``window``
                items (a token budget): give the loader a batch size of 1, and :meth:`costs` to
                :meth:`feedline.Sampler.alike`.
        """
        return packed(self, field, window, (order, within, split, cut, padded), labels, pad, shuffle)

    def costs(self, by: Literal["items", "squares"] = "items") -> np.ndarray[Any, Any]:
        """The cost of each window of :meth:`packed`: its items, or ``"squares"``: the sum of the squares of its
        documents' lengths, as for attention, divided by the window.
        """
        if by not in ("items", "squares"):
            raise ConfigError(f'costs by {shown(by)}: give "items" or "squares"')
        return np.array(self._set.costs(by == "squares"), np.uint32)

    def unpadded(self, field: str | Sequence[str], *, labels: str | bool | None = None) -> Data:
        """Concatenates the documents of each batch to one sequence, without padding.

        ``batch["ids"].values`` has the concatenated items of all documents, ``batch["position"].values``
        their positions within their documents, and ``batch["cu_seqlens"].values`` is 0 and then the end of
        each document that has items, as FlashAttention takes it (``int32``); ``max_seqlen`` is
        :meth:`batch.longest("cu_seqlens") <feedline.Batch.longest>`.

        ``field`` and ``labels`` are those of :meth:`packed`.
        """
        return unpadded(self, field, labels)

    @property
    def fate(self) -> str | None:
        """How many documents of :meth:`packed`, or ids of :func:`feedline.tokens`, were used, split, cut or
        left out."""
        return self._set.fate

    def lengths(self, field: str) -> np.ndarray[Any, Any]:
        """The number of items of each sample in a ragged field. Reads every sample once."""
        return np.array(self._set.lengths(field), np.uint32)

    def __repr__(self) -> str:
        def shown(field: Field) -> str:
            varies = "" if field.max_length is None else f" up to {field.max_length} x"
            return f"{field.name} {field.dtype}{varies} {list(field.shape)}"

        return f"Data({len(self)} samples: {', '.join(map(shown, self.fields))})"

    def _repr_html_(self) -> str:
        """The fields, and the first samples, for a notebook."""
        fields = self.fields
        samples = _notebook.first_samples(self, [field.name for field in fields])
        return _notebook.table(f"Data of {len(self)} samples", [_described(field) for field in fields], samples)

    def __reduce__(self) -> Any:
        raise TypeError("a Data cannot be pickled: open it again where you need it")


def _described(field: Field) -> tuple[str, str, str]:
    """Name, type and shape for a notebook."""
    shape = list(field.shape)
    return field.name, field.dtype, f"{shape}" if field.max_length is None else f"up to {field.max_length} x {shape}"


def _index(index: Any) -> int:
    """A whole number; a mask or a fraction would select unexpected samples."""
    if isinstance(index, (bool, np.bool_)):
        raise ConfigError("subset takes indices, and this is a mask: give np.flatnonzero(mask)")
    try:
        number = operator.index(index)
    except TypeError:
        raise ConfigError(f"subset takes indices, and {shown(index)} is no whole number") from None
    return _options.whole("an index of subset", number)


def _sample_index(index: Any) -> int:
    """The index of a sample, from the end if it is negative."""
    if isinstance(index, slice):
        raise ConfigError(
            f"{index} is no index of one sample: give data.subset(range(len(data))[first:end]), or data.take(count)"
        )
    try:
        number = None if isinstance(index, (bool, np.bool_)) else operator.index(index)
    except TypeError:
        number = None
    if number is None:
        raise ConfigError(
            f"{shown(index)} is no index of one sample: give a whole number, as data[0]; data.subset takes a list of them"
        )
    return number


class NotRandomAccess(ConfigError):
    """An object whose ``__getitem__`` is not implemented, such as torch's ``IterableDataset``."""


def _reader(
    samples: Any, max_length: Mapping[str, int] | None, collate_fn: Callable[[list[Any]], Any] | None = None
) -> _own.Reader:
    limits = _limits(max_length)
    try:
        if collate_fn is not None:
            return _collate.Collating(samples, collate_fn, limits)
        reader = _own.Reader(samples, limits)
    except NotImplementedError as error:
        why = (
            f"{type(samples).__name__} has a __getitem__ that is not implemented: give it to feedline.Source"
        )
        raise NotRandomAccess(why) from error
    _check_names(name for name, *_ in reader.fields)
    return reader


def _check_names(names: Iterable[Any]) -> None:
    odd = [name for name in names if not isinstance(name, str)]
    if odd:
        raise ConfigError(
            f"a field of a sample is called {shown(odd[0])}, which is no string: name fields by strings"
        )


def _limits(max_length: Any) -> dict[str, int]:
    """Max items by field."""
    given = _options.by_column("max_length", max_length, '{"tokens": 512}')
    return {name: _options.whole(f"max_length[{name!r}]", items) for name, items in given.items()}


def _same(sample: Any) -> Any:
    return sample


class _Mapped:
    """The samples of a data set under a function."""

    def __init__(self, data: Data, function: Callable[[Any], Any]) -> None:
        self._data, self._function = data, function
        self.fingerprint = data.fingerprint

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> Any:
        return self._function(self._data[index])

    def read_at(self, index: int, epoch: int, seed: int) -> Any:
        """A sample, with the random numbers of an epoch and a seed."""
        return self._function(self._data._read(index, epoch, seed))


class _Rows:
    """The samples of a dict of arrays; fields that vary in length may be lists."""

    def __init__(self, columns: Mapping[str, Any], varying: Iterable[str]) -> None:
        _check_names(columns)
        self._columns = {name: _column(name, value, name in varying) for name, value in columns.items()}
        counts = {name: len(column) for name, column in self._columns.items()}
        if len(set(counts.values())) > 1:
            raise ConfigError(f"the fields have different numbers of samples: {counts}: make them equal")

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: column[index] for name, column in self._columns.items()}


def _column(name: str, value: Any, varies: bool) -> Any:
    """The values of a field, one per sample."""
    if varies and isinstance(value, (list, tuple)):
        return value
    if isinstance(value, (str, bytes, bytearray)) or not hasattr(value, "__len__"):
        raise ConfigError(_NOT_ROWS.format(name=name, kind=type(value).__name__))
    if varies:
        return np.asarray(value)
    if _varies(value):
        raise ConfigError(_LENGTHS.format(name=name))
    try:
        return as_array(name, value)
    except ValueError as error:
        raise ConfigError(str(error)) from error.__cause__


_NOT_ROWS = 'field "{name}" is {kind}: give arrays of one row per sample'
_LENGTHS = (
    'field "{name}" has texts or lists, which vary in length: give max_length={{"{name}": ...}}, the max bytes or '
    "items of a sample; or numbers instead of texts, as np.unique(x, return_inverse=True)[1]"
)


def _varies(value: Any) -> bool:
    """Whether the rows of a column are texts, or lists of several lengths."""
    if isinstance(value, (str, bytes, bytearray)) or not hasattr(value, "__len__"):
        return False
    if not isinstance(value, (list, tuple)):
        kind = getattr(getattr(value, "dtype", None), "kind", None)
        if kind in ("U", "S", "T"):
            return True
        if kind != "O":
            return False
        array = np.asarray(value)
        value = list(array) if array.ndim else []
    if any(isinstance(one, (str, bytes, bytearray)) for one in value):
        return True
    # An array or a tensor of no dimension has `__len__`, which fails.
    lengths = {len(one) for one in value if hasattr(one, "__len__") and getattr(one, "ndim", None) != 0}
    return len(lengths) > 1


def _of_arrays(samples: Mapping[str, Any]) -> Any:
    """The samples of a dict of arrays for ``collate_fn``, whose fields may vary in length."""
    varying = [name for name, value in samples.items() if _varies(value)]
    return _Rows(samples, varying) if varying else Data(samples)


def _arrays(arrays: Mapping[str, Any]) -> _feedline.DataSet:
    _check_names(arrays)
    fields = []
    for name, value in arrays.items():
        if _varies(value):
            raise ConfigError(_LENGTHS.format(name=name))
        try:
            array = as_array(name, value)
            dtype = dtype_of(name, array)
        except ValueError as error:
            raise ConfigError(str(error)) from error.__cause__
        if array.ndim == 0 or isinstance(value, (str, bytes, bytearray)):
            raise ConfigError(_NOT_ROWS.format(name=name, kind=type(value).__name__))
        fields.append((name, dtype, list(array.shape[1:]), array.tobytes()))
    return _feedline.DataSet.arrays(fields)


def of_set(inner: _feedline.DataSet) -> Data:
    """The data of a set of the compiled part."""
    data = Data.__new__(Data)
    data._set, data._is_tuple, data._leaves, data._made = inner, False, [], None
    return data


def open(
    path: str | os.PathLike[str],
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
    """Opens a file, a folder or a URL, whatever its format.

    Formats: NumPy (.npy, .npz), Parquet, Arrow, CSV, JSON Lines, text, safetensors, TFRecord, tar
    (WebDataset), MosaicML's shards, Megatron's ``.bin`` with the ``.idx`` beside it, llm.c's files, MNIST's
    and CIFAR's files, folders of these, and folders of one file per sample. Encoded pictures are bytes here: :func:`feedline.images` decodes them.

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
    _options.word("nulls", nulls, "refuse", "fill")
    is_one = max_length is not None and not isinstance(max_length, Mapping)
    default = _options.whole("max_length", max_length) if is_one else None
    named = {} if is_one else _limits(max_length)
    if tokenizer is None:
        _options.unused(
            "a tokenizer",
            text=text is not None,
            special_tokens=bool(special_tokens),
            max_tokens=max_tokens is not None,
        )
    data = of_set(
        _feedline.DataSet.open(
            _options.path("path", path),
            split,
            None if classes is None else list(classes),
            empty_members,
            nulls == "fill",
            _options.maybe("memory_limit", memory_limit),
            _options.types(types),
            list(named.items()),
            default,
            None
            if tokenizer is None
            else (_options.path("tokenizer", tokenizer), text or "text", special_tokens, _options.maybe("max_tokens", max_tokens)),
            _options.maybe("class_from", class_from),
            _manifest(files, root, label),
            _options.maybe("cache_bytes", cache_bytes),
            _options.whole("listing_age", listing_age),
            _options.header(header),
        )
    )
    options: dict[str, Any] = {"split": split, "classes": classes, "nulls": nulls, "text": text}
    options |= {"max_length": max_length, "memory_limit": memory_limit, "tokenizer": tokenizer}
    options |= {"special_tokens": special_tokens, "max_tokens": max_tokens, "empty_members": empty_members}
    options |= {"types": None if types is None else dict(types), "class_from": class_from}
    options |= {"files": files, "root": root, "label": label, "cache_bytes": cache_bytes}
    options |= {"listing_age": listing_age, "header": header}
    data._made = (open, (os.path.abspath(path) if os.path.exists(path) else path,), options)
    return data


def opened_from(data: Any) -> str | None:
    """The path that ``data`` was opened from, if its samples are those of the file or folder as they are."""
    made = getattr(data, "_made", None)
    if made is None or made[0] is not open:
        return None
    changes = ("tokenizer", "types", "class_from", "files", "label", "classes")
    is_changed = any(made[2][name] for name in changes) or made[2]["header"] is not None
    return None if is_changed else os.fspath(made[1][0])


def _manifest(
    files: str | Sequence[str], root: str | os.PathLike[str] | None, label: str | None
) -> tuple[list[str], str | None, str | None] | None:
    columns = [files] if isinstance(files, str) else list(files)
    if not columns:
        if root is not None or label is not None:
            raise ConfigError("root and label are for a manifest: name its columns of paths by files=")
        return None
    return columns, None if root is None else _options.path("root", root), label


def told(opened: _feedline.DataSet, has_beside: bool = True) -> Data:
    """The set, after a word on the fields that it leaves out."""
    if opened.left_out:
        names = ", ".join(map(repr, opened.left_out))
        how = "name those that you need by beside=" if has_beside else "feedline.open has them"
        _log.warning("%s leaves out fields that vary in length: %s: %s", opened.kind, names, how)
    return of_set(opened)


def images(
    path: str | os.PathLike[str],
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
    min_size: float = 1.0,
    clip_boxes: bool = False,
    max_boxes: int | None = None,
    moves: bool = False,
    views: int | Sequence[tuple[int, Sequence[Transform]]] | None = None,
    listing_age: int = 0,
) -> Data:
    """Opens encoded pictures, which are decoded and transformed on their way: JPEG, PNG, WebP, BMP, GIF.

    ``path`` is a folder with one folder per class, a list of files (``p/*/*.jpg``, ``p/{0000..1999}.jpg``), a
    tar archive, a table with a column of encoded pictures, or a manifest: a table (CSV, JSON Lines, Parquet,
    Arrow) with a column of their paths or URLs. A sample has the field ``image``, and the other fields of one
    size, such as ``label``. The transforms must give all pictures one size. A missing or damaged file is a
    bad sample, see ``Loader(bad_samples=)``.

    Masks, depth, boxes and points of a sample move with its picture, by the same random numbers. Colour
    transforms change only the picture. RandAugment and TrivialAugmentWide are refused with them.

    Args:
        transforms: See :mod:`feedline.transforms`. Without ``Normalize`` the pictures stay ``uint8``.
        field: The field or the column that holds the pictures, if neither its name nor its values say so.
        root: The folder or URL that relative paths of a manifest start from. Default: the manifest's own
            folder.
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
            and substitutes are the same with all three. Pixels of nvJPEG differ by a few levels: they are
            reproducible with ``"cpu"``, and with ``"gpu"`` on one kind of GPU, but not with ``"auto"``, where
            timing decides which processor decodes a picture. The workers move masks, boxes and points, so
            these are exact with all three. A batch reserves memory for its largest files: lower it with
            ``Loader(max_per_batch={"image": bytes})``.
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
        min_size: See ``boxes``.
        clip_boxes: Cuts boxes to the decoded picture, instead of refusing the sample.
        max_boxes: The max number of boxes or points per sample. Default: every sample is read once to find
            it.
        moves: Adds the field ``moves``: how the sample was moved, see :func:`feedline.transforms.moves`.
        views: The number of random views of each picture, which is decoded once: fields ``view0``, ``view1``
            and so on instead of ``image``. Or several lists of transforms, each with its number of views:
            ``views=[(2, large), (6, small)]``.
        listing_age: As for :func:`feedline.open`.
    """
    if isinstance(transforms, Transform):
        raise ConfigError(f"transforms is {shown(transforms)}: give a list, [{shown(transforms)}]")
    steps = [_step(place, step) for place, step in enumerate(transforms)]
    age = _options.whole("listing_age", listing_age)
    listed = (None if root is None else _options.path("root", root), label, _options.maybe("class_from", class_from), age)
    if annotations is not None:
        _options.unused(
            "other pictures than those with annotations",
            split=split is not None,
            root=root is not None,
            label=label is not None,
            class_from=class_from is not None,
            listing_age=age > 0,
        )
    given = _parts.parts(
        field=field,
        annotations=annotations,
        one_based=one_based,
        mask=mask,
        depth=depth,
        boxes=boxes,
        box_format=box_format,
        points=points,
        beside=beside,
        min_size=min_size,
        clip_boxes=clip_boxes,
        max_boxes=max_boxes,
        moves=moves,
    )
    if views is not None:
        if given is not None or scaled_decode:
            raise ConfigError("views are of pictures alone, and without scaled_decode")
        lists = _views(views, steps)
        named = None if classes is None else list(classes)
        return told(
            _feedline.open_views(
                _options.path("path", path), split, named, field, lists, channels_first, mode, decode, listed
            ),
            has_beside=False,
        )
    if given is not None:
        if scaled_decode:
            raise ConfigError("masks, boxes and points cannot follow a scaled decode: leave out scaled_decode")
        named = None if classes is None else list(classes)
        return told(
            _feedline.open_joint(
                _options.path("path", path), split, named, steps, channels_first, mode, decode, listed, given
            ),
            has_beside=boxes is None and points is None and annotations is None,
        )
    return told(
        _feedline.DataSet.images(
            _options.path("path", path),
            split,
            None if classes is None else list(classes),
            field,
            steps,
            channels_first,
            scaled_decode,
            decode,
            listed,
            mode,
        )
    )


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


def concat(*parts: Data) -> Data:
    """The samples of several data sets, one set after the other."""
    _check_parts("concat", parts)
    _check_alike("concat", parts)
    return _composed(parts, _feedline.DataSet.concat([part._set for part in parts]))


def zip(*parts: Data, independent: bool = False) -> Data:
    """The fields of several data sets of one length, side by side.

    Two parts that crop, flip or turn pictures at random are refused: each draws its own random numbers, so an
    image would not match its mask. ``independent=True`` allows it, for example for two views of each picture.
    """
    _check_parts("zip", parts)
    zipped = _composed(parts, _feedline.DataSet.zip([part._set for part in parts], independent))
    zipped._is_tuple = False
    if any(part._places for part in parts):
        zipped._places = [place for part in parts for place in _places_of(part)]
        names = [name for name, *_ in zipped._places]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f'two parts have a field "{twice}": rename it in one of them, by map')
    return zipped


def _check_parts(function: str, parts: Sequence[Any]) -> None:
    """Refuses parts that are not :class:`Data`."""
    for place, part in enumerate(parts):
        if isinstance(part, (list, tuple)) and part and all(isinstance(one, Data) for one in part):
            raise ConfigError(f"{function} takes each data set as an argument: give {function}(a, b), not a list")
        if not isinstance(part, Data):
            raise ConfigError(f"part {place} of {function} is {type(part).__name__}: give feedline.Data(...) of it")


def _check_alike(function: str, parts: Sequence[Data]) -> None:
    """Refuses parts whose columns are alike, and whose fields are not: fields that share a column in another order, and
    whole numbers that only some parts give as ``int32``."""
    if not any(part._places or part._signed for part in parts):
        return
    first = parts[0].fields
    kinds = {field.name: _kind(field) for field in first}
    for number, part in enumerate(parts):
        is_shared = bool(part._places or parts[0]._places)
        if is_shared and len(part.fields) != len(first):
            raise ConfigError(
                f"part {number} of {function} has {len(part.fields)} fields, and part 0 has {len(first)}: give each part "
                "the same fields, by map"
            )
        for place, (field, other) in enumerate(builtins.zip(part.fields, first, strict=False)):
            if is_shared and field.name != other.name:
                raise ConfigError(
                    f'part {number} of {function} has the field "{field.name}" where part 0 has "{other.name}" (field '
                    f"{place}): give each part the same fields in one order, as "
                    "part.map(lambda sample: {name: sample[name] for name in names})"
                )
            if kinds.get(field.name, _kind(field)) != _kind(field):
                raise ConfigError(
                    f'part {number} of {function} has "{field.name}" as {_kind(field)}, and part 0 as '
                    f"{kinds[field.name]}: make it one type and shape, by map"
                )


def _kind(field: Field) -> str:
    return f"{field.dtype} {list(field.shape)}" + (", which varies in length" if field.max_length is not None else "")


def _places_of(data: Data) -> Sequence[Place]:
    return data._places or [(field.name, field.name, None) for field in data.fields]


def mix(
    parts: Sequence[tuple[Data, float]],
    *,
    seed: int = 0,
    samples: int | None = None,
    weights_from_epoch: Mapping[int, Sequence[float]] | None = None,
    weights_from: Mapping[int, Sequence[float]] | None = None,
) -> Data:
    """Mixes data sets by weights. Each set is shuffled and has its own epochs.

    ``samples`` is the length of an epoch, by default the sum of the lengths. ``weights_from_epoch={3: [0,
    1]}`` changes the weights from epoch 3 on, ``weights_from={5000: [0, 1]}`` from sample 5000 of the run on,
    counted over all epochs and ranks; 0 leaves a set out, also in the beginning. Such runs resume, too. The mix
    is already in random order: a loader with ``shuffle=`` would move changes of weights within an epoch.

    >>> import feedline, numpy as np
    >>> few, many = feedline.Data({"x": np.zeros(10)}), feedline.Data({"x": np.ones(1000)})
    >>> half = feedline.mix([(few, 0.5), (many, 0.5)], samples=100)
    >>> sum(float(sample["x"]) for sample in half)
    50.0
    """
    seed = _options.whole("seed", seed, 0, 2**64 - 1)
    if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in parts):
        raise ConfigError("mix takes pairs of a data set and its weight: give mix([(a, 0.5), (b, 0.5)])")
    _check_parts("mix", [part for part, _ in parts])
    _check_alike("mix", [part for part, _ in parts])
    weights = [(part._set, _options.number("a weight of mix", weight)) for part, weight in parts]
    changes = [
        _changes(name, given) for name, given in (("weights_from_epoch", weights_from_epoch), ("weights_from", weights_from))
    ]
    mixed = _feedline.DataSet.mix(weights, seed, _options.maybe("samples", samples), *changes)
    return _composed([part for part, _ in parts], mixed)


def _changes(name: str, given: Any) -> list[tuple[int, list[float]]]:
    """The weights of a mix from an epoch or a sample on."""
    places = _options.mapping(name, given, "{3: [0.5, 0.5]}").items()
    return [
        (_options.whole(f"a key of {name}", at), [_options.number(f"a weight of {name}", weight) for weight in weights])
        for at, weights in places
    ]


def _composed(parts: Sequence[Data], inner: _feedline.DataSet) -> Data:
    for part in parts:
        part._check_rows()
    data = of_set(inner)
    data._is_tuple = all(part._is_tuple for part in parts)
    data._places = parts[0]._places if parts else ()
    own = ({name for name, *_ in part._set.fields()} & part._signed for part in parts)
    data._signed = frozenset().union(*own)
    leaves = {id(leaf.set): leaf for part in parts for leaf in part._leaves}
    data._leaves = list(leaves.values())
    return data
