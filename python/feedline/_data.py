"""``Data``: samples with random access, and what is made of them."""

from __future__ import annotations

import functools
import operator
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from . import _arrays, _collate, _feedline, _notebook, _options, _own
from ._columns import Place
from ._errors import ConfigError, shown
from ._made import Made, check, keeps_its_call, one_of, refusal
from ._packing import packed, unpadded
from ._room import with_room
from ._sampler import counts, groups_of
from ._tables import arrow, is_table
from ._tree import Tree, in_memory
from ._values import numpy_dtype
from ._workers.choice import Leaf


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
    ``Data({"x": x, "y": y})``, which copies them: later changes are not seen; a table in memory as ``Data(df)``;
    and any object with ``__len__`` and ``__getitem__``, such as a torch ``Dataset`` or a ``datasets.Dataset``,
    as ``Data(samples)``. Samples are dicts of arrays; those of an object may be tuples, and batches are then
    tuples too.

    A table in memory is a pandas or Polars ``DataFrame``, a ``pyarrow.Table`` or ``RecordBatch``, or any object with
    ``__arrow_c_stream__``. Fields have the names and the types of its columns, as if it were opened from an Arrow
    file; :func:`feedline.table` and :func:`feedline.open` have more options for it. Arrow's memory is read in place
    and not copied, so do not change it while the data exist. pyarrow exports the frames of pandas: it copies bools and
    objects, and NaN is a missing value. Their index is left out: ``df.reset_index()`` makes a column of it.

    An object of yours is read by threads, which take turns at the interpreter's lock, or by processes:
    ``Loader(data, workers=8)``. Texts vary in length, and so do lists of several lengths in a dict, and fields named in
    ``max_length``: up to a number of items, beyond which a sample is refused, or with ``None`` without a limit. The
    first sample determines the fields and their types, and the first one with items that of an empty list; a later
    value that its type cannot hold is an error, and no value is rounded.

    Before each sample the random generators that it uses are seeded from the loader's seed, the epoch and the draw, so
    that a sample is the same in any process or thread, and after a resume: the global ones of ``random``, NumPy and
    torch, and those in the attributes of the object and of its transforms. All keep their states in your process.
    Threads read samples that draw from the global ones while the loop waits for a batch; processes read ahead.
    ``seed_generators=False`` leaves them unseeded.

    ``pickle`` keeps the call that made the data, so another process opens the files again, and refuses data of another
    :attr:`fingerprint`. Arrays are pickled as they are at that time: leave them unchanged. A function or an object of
    yours that cannot be pickled is an error that names it; cloudpickle, as in Ray, takes more of them. ``copy`` returns
    the data itself, which does not change.

    ``collate_fn`` is called with the list of the samples of a batch, as by torch's ``DataLoader``, where they
    are read, and a batch is what it returns: dicts, lists, tuples, dataclasses, objects that can be pickled, and
    arrays and tensors of any shape within them. Batches may differ in all of it. Arrays and tensors become those of the
    loader's framework on its device; all else, such as texts and numbers, and arrays of types that batches do not have,
    stays on the host as it is, and is pickled once. It is called for one sample and for two when the data set is made. It
    must come last: such data cannot be composed further.

    With ``max_length``, or with a loader's ``max_per_batch``, ``pad``, ``map_batch``, ``device_map`` or ``record``, it
    returns fields instead: an array or a tensor with a row per sample, or dicts, tuples and lists of these, named by
    their keys, ``"inputs.ids"`` within another dict. A field has one type, and rows of one shape. If the rows of the first
    two calls differ in length, that of the field varies from batch to batch.

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
    #: The function and arguments to make it again in another process.
    _made: Made | None
    #: Whether fields have no limit, once that was asked.
    _grows: bool | None = None
    #: The reader of samples of Python; ``None`` for other data, and those made of others.
    _reader: _own.Reader | None = None
    #: Name, type and shape of each field, and whether it varies in length, once a sample was read.
    _forms: list[tuple[str, np.dtype[Any], tuple[int, ...], bool]] | None = None
    #: The columns of the fields in a batch, if some share one; else empty.
    _places: Sequence[Place] = ()
    #: The nesting of the fields in a batch made by ``collate_fn``: a `_collate.Nest`.
    _nest: Any = None
    #: How a batch has fields that are not arrays: a `_texts.HostForm` of each.
    _host_forms: Mapping[str, Any] = {}
    #: The fields of packed windows that are converted from ``uint32`` to ``int32``, which torch can add.
    _signed: frozenset[str] = frozenset()

    def __init__(
        self,
        samples: Any,
        *,
        max_length: Mapping[str, int | None] | None = None,
        seed_generators: bool = True,
        collate_fn: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        self._make(samples, max_length, seed_generators, collate_fn)

    @classmethod
    def _padded(
        cls, samples: Any, pad: Any, max_length: Any, collate_fn: Any, has_rows: bool, seed_generators: bool = True
    ) -> Data:
        """The data of samples whose fields in ``pad`` vary in length, and of batches whose fields have rows."""
        data = cls.__new__(cls)
        data._make(samples, max_length, seed_generators, collate_fn, pad if isinstance(pad, Mapping) else (), has_rows)
        return data

    def _of_rows(self, pad: Any) -> Data:
        """These data of `collate_fn`, whose result has fields with a row for each sample."""
        assert self._made is not None
        return Data._padded(self._made.arguments[0], pad, has_rows=True, **self._made.options)

    def _make(
        self,
        samples: Any,
        max_length: Mapping[str, int | None] | None,
        seed_generators: bool,
        collate_fn: Callable[[list[Any]], Any] | None,
        padded: Collection[str] = (),
        has_rows: bool = False,
    ) -> None:
        if is_table(samples):
            samples = arrow(samples)
        is_whole = isinstance(samples, _feedline.Table) or (isinstance(samples, Mapping) and not max_length)
        if is_whole and collate_fn is None:
            _options.unused("an object of yours, not arrays", seed_generators=not seed_generators)
        if isinstance(samples, Data) and collate_fn is None:
            whose = "an object of yours, not a Data"
            _options.unused(whose, max_length=bool(max_length), seed_generators=not seed_generators)
        self._is_tuple, self._leaves = False, []
        options = {"max_length": max_length, "seed_generators": seed_generators, "collate_fn": collate_fn}
        self._made = Made(Data, (samples,), options)
        if collate_fn is not None:
            of = Data(samples) if isinstance(samples, _feedline.Table) else samples
            if isinstance(samples, Mapping):
                varying = _arrays.varying(samples)
                of = _arrays.Rows(samples, varying) if varying else Data(samples)
            inner = of if isinstance(of, Data) else None
            if inner is not None:
                if inner._nest is not None:
                    inner._check_rows()
                of = _Mapped(inner, _same)
            reader = _reader(of, max_length, padded, collate_fn, has_rows or bool(max_length))
            self._read_by(reader, inner, seed_generators)
        elif isinstance(samples, Data):
            self._set, self._is_tuple, self._leaves = samples._set, samples._is_tuple, samples._leaves
            self._signed, self._places, self._nest = samples._signed, samples._places, samples._nest
        elif isinstance(samples, _feedline.Table):
            # It imports this module.
            from ._open import open

            # Without a copy of the rows, which a cache would be.
            table: Any = samples
            self._set = open(table, max_length=_options.limits(max_length), cache_bytes=0)._set
        elif isinstance(samples, (str, os.PathLike)):
            raise ConfigError(f"open the file first: feedline.open({os.fspath(samples)!r})")
        elif isinstance(samples, Mapping):
            limits = dict.fromkeys(_arrays.varying(samples)) | _options.bounds(max_length)
            if limits:
                self._read_by(_reader(_arrays.Rows(samples, limits), limits, padded), None, seed_generators)
            else:
                self._set = _arrays.set_of(samples)
        else:
            self._read_by(_reader(samples, max_length, padded), None, seed_generators)
        if padded and self._reader is not None:
            options["max_length"] = dict.fromkeys(self._reader.columns.growing) | dict(max_length or {})

    def _read_by(self, reader: _own.Reader, inner: Data | None, seed_generators: bool) -> None:
        """Python code reads the samples; of ``inner``, if that is not ``None``."""
        varies = inner is not None and inner._set.varies()
        if seed_generators:
            reader.tell()
        self._reader = reader
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
        if self._set.copies > 1:
            raise ConfigError(
                f"these data are repeated({self._set.copies}), whose copies would not stay together: compose the data "
                "before, and call repeated last"
            )
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

        It covers the content of files up to 4 GiB; of a table in memory the length, the fields and rows all over it,
        of which it has all if they have few values; of your own object the length, the fields and its attribute
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
        sample, values = {}, with_room(self, lambda: self._set.read(at, epoch, seed))
        if self._nest is Tree:
            return in_memory(*values)
        for (name, dtype, shape, varies), value in zip(self._forms, values, strict=True):
            array = np.frombuffer(value, dtype)
            if varies:
                shape = (-1, *shape) if value else (0, *shape)
            sample[name] = array.reshape(shape)
            if name == "cu_seqlens" and name in self._signed:
                # As in a batch, the ends of the documents instead of their lengths.
                sample[name] = np.concatenate(([0], np.cumsum(array))).astype(np.int32)
        for name, form in self._known_forms.items():
            if name in sample:
                sample[name] = form.of_sample(sample, name)
        if self._places:
            sample = {name: sample[of] if at is None else sample[of][at, ...] for name, of, at in self._places}
        return tuple(sample.values()) if self._is_tuple else sample

    @functools.cached_property
    def _known_forms(self) -> dict[str, Any]:
        """The forms of fields that are not arrays in a sample."""
        # It imports this module.
        from ._texts import known_forms

        return known_forms(self)

    def _with_texts(self, names: Sequence[str]) -> Data:
        """These data with fields that are texts in a sample."""
        from ._texts import text_forms

        data = Data.__new__(Data)
        vars(data).update({name: value for name, value in vars(self).items() if name != "_known_forms"})
        data._host_forms = {**self._host_forms, **text_forms(self, names)}
        return data

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def path(self, index: int) -> str | None:
        """The file that holds a sample, if it is known."""
        return self._set.path(index)

    def map(
        self,
        function: Callable[[Any], Any],
        *,
        max_length: Mapping[str, int | None] | None = None,
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
        mapped._made = Made(Data.map, (self, function), options)
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
        found = [_index(index) for index in indices]
        chosen = self._new(self._set.subset(found))
        chosen._made = Made(Data.subset, (self, np.array(found, np.int64)), {})
        return chosen

    @keeps_its_call
    def take(self, count: int) -> Data:
        """The first samples."""
        return self._new(self._set.take(_options.whole("take", count)))

    @keeps_its_call
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
        parts = [self._new(part) for part in self._set.split(shares, seed)]
        for place, part in enumerate(parts):
            part._made = Made(one_of, (Data.split, (self, *shares), {"seed": seed}, place), {})
        return parts

    def folds(
        self, count: int, *, labels: Any = None, groups: Any = None, seed: int = 0
    ) -> list[tuple[Data, Data]]:
        """Splits for a cross-validation: in each fold a training and a validation set. Every sample is in
        exactly one validation set. With ``labels``, a whole number per sample, the folds are stratified. With
        ``groups``, a whole number or a text per sample, all samples of a group are in one validation set, such as
        the pictures of a patient; these have about the same size.

        >>> import feedline, numpy as np
        >>> label = np.array([0, 1] * 5)
        >>> folds = feedline.Data({"label": label}).folds(5, labels=label, seed=7)
        >>> [sorted(int(sample["label"]) for sample in validation) for _, validation in folds]
        [[0, 1], [0, 1], [0, 1], [0, 1], [0, 1]]
        """
        count, seed = _options.whole("folds", count), _options.whole("seed", seed, 0, 2**64 - 1)
        if labels is not None and groups is not None:
            raise ConfigError("folds have labels or groups: a group has samples of several labels, so leave out one")
        given = None if labels is None else counts("labels", labels)
        own = None if groups is None else groups_of(groups)
        folds = [(self._new(train), self._new(val)) for train, val in self._set.folds(count, given, own, seed)]
        kept = {"labels": given, "groups": own}
        options = {name: None if one is None else np.array(one, np.int64) for name, one in kept.items()} | {"seed": seed}
        for place, fold in enumerate(folds):
            for part, data in enumerate(fold):
                data._made = Made(one_of, (Data.folds, (self, count), options, place, part), {})
        return folds

    @keeps_its_call
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

    @keeps_its_call
    def repeat(self, times: int) -> Data:
        """The samples several times within an epoch, each time with other random numbers."""
        return self._new(self._set.repeat(_options.whole("repeat", times)))

    @keeps_its_call
    def repeated(self, copies: int) -> Data:
        """Each sample ``copies`` times in a row, each time with other random numbers: several answers for one
        prompt, as for GRPO.

        A loader keeps the copies together, in sequence, with ``shuffle=True`` and with a ``sampler=``: a batch has
        whole groups on any number of ranks, so ``batch_size`` must be a multiple of ``copies``, and a short last step
        is shared by groups. A sampler orders the samples before they were repeated, such as by one weight for each
        prompt. The substitutes of a group's bad samples (``bad_samples=``) come from one other group.

        Call it last: such data cannot be composed further. A ``collate_fn`` goes to the loader.

        >>> import feedline, numpy as np
        >>> data = feedline.Data({"prompt": np.arange(3)}).repeated(2)
        >>> [batch["prompt"].tolist() for batch in feedline.Loader(data, 4, shuffle=True, seed=2, framework="numpy")]
        [[2, 2, 1, 1], [0, 0]]
        """
        return self._new(self._set.repeated(_options.whole("repeated", copies, 1)))

    @keeps_its_call
    def cached(self, budget: int, path: str | os.PathLike[str] | None = None) -> Data:
        """Keeps samples once they are read, up to ``budget`` bytes: in memory, or in a file that lasts."""
        budget = _options.whole("the budget of cached, in bytes,", budget)
        return self._new(self._set.cached(budget, None if path is None else _options.path("path", path)))

    @keeps_its_call
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
        return packed(self, dict(locals()))

    def costs(self, by: Literal["items", "squares"] = "items") -> np.ndarray[Any, Any]:
        """The cost of each window of :meth:`packed`: its items, or ``"squares"``: the sum of the squares of its
        documents' lengths, as for attention, divided by the window.
        """
        if by not in ("items", "squares"):
            raise ConfigError(f'costs by {shown(by)}: give "items" or "squares"')
        return np.array(self._set.costs(by == "squares"), np.uint32)

    @keeps_its_call
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
        return np.array(with_room(self, lambda: self._set.lengths(field)), np.uint32)

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
        if self._made is None:
            raise TypeError("a Data of another Data's parts cannot be pickled: open it again where you need it")
        made = self._made
        samples = made.arguments[0] if made.function is Data else None
        if self._leaves and not isinstance(samples, (Data, Mapping, type(None))) and refusal(samples) is not None:
            # Many data sets open a file for their first sample, and each process must open its own.
            made = made._replace(arguments=(self._leaves[0].reader.as_before()._data,))
        # Those of cloudpickle and dill take lambdas; the caller of this method is the one of their `dump`.
        pickler = str(sys._getframe(1).f_globals.get("__name__"))
        if "cloudpickle" not in pickler and "dill" not in pickler:
            check(made)
        return Made.again, (made, self.fingerprint)

    def __copy__(self) -> Data:
        return self

    def __deepcopy__(self, _: Any) -> Data:
        # It does not change.
        return self


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
            f"{shown(index)} is no index of one sample: give a whole number, as data[0]; data.subset takes a list of "
            "them"
        )
    return number


class NotRandomAccess(ConfigError):
    """An object whose ``__getitem__`` is not implemented, such as torch's ``IterableDataset``."""


def _reader(
    samples: Any,
    max_length: Mapping[str, int | None] | None,
    padded: Collection[str] = (),
    collate_fn: Callable[[list[Any]], Any] | None = None,
    has_rows: bool = False,
) -> _own.Reader:
    limits = _options.bounds(max_length)
    try:
        if collate_fn is not None:
            return _collate.Collating(samples, collate_fn, limits, padded, has_rows)
        reader = _own.Reader(samples, limits, padded)
    except NotImplementedError as error:
        why = (
            f"{type(samples).__name__} has a __getitem__ that is not implemented: give it to feedline.Source"
        )
        raise NotRandomAccess(why) from error
    _arrays.check_names(name for name, *_ in reader.fields)
    return reader


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


def of_set(inner: _feedline.DataSet) -> Data:
    """The data of a set of the compiled part."""
    data = Data.__new__(Data)
    data._set, data._is_tuple, data._leaves, data._made = inner, False, [], None
    return data
