"""The loader and its epochs."""

from __future__ import annotations

import atexit
import contextlib
import html
import inspect
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn, TypeVar

import numpy as np

from . import _feedline, _options
from ._arguments import (
    PadOf,
    check_device_map,
    check_has_limits,
    decodes_on_lanes,
    gpu_of,
    load_nvjpeg,
    mapping_of,
    padding_of,
    ranks_of,
    samples_of,
)
from ._batch import Batch, Copied, forms_of, returned
from ._collate import nested
from ._data import Data
from ._device_map import DeviceMap, Mapped, Position
from ._errors import ConfigError, Error, StateError, shown
from ._frameworks import framework as framework_of
from ._lines import Lines
from ._open import opened_from
from ._report import Report
from ._room import made_for
from ._sampler import Sampler, order_of
from ._source import Source
from ._texts import host_forms, kept
from ._tree import PICKLE, Tree
from ._workers.choice import Choice, has_lock

_T = TypeVar("_T")

_log = logging.getLogger("feedline")


class _Run:
    """The state of an epoch. A loader and its iterators share it, so that a loader does not refer to an
    iterator."""

    __slots__ = ("epoch", "first", "goes_on", "is_chosen", "is_over", "iterator", "steps", "thread")

    def __init__(self, epoch: int, steps: int | None, first: int = 0) -> None:
        self.epoch, self.steps, self.first, self.is_over = epoch, steps, first, False
        #: Whether the next epoch follows if the loaded state's epoch has nothing left.
        self.goes_on = False
        #: Whether the caller named the epoch.
        self.is_chosen = True
        #: The iterator, and the thread that begun it or took its last batch.
        self.iterator: weakref.ref[Epoch] | None = None
        self.thread = threading.get_ident()

    @property
    def is_open(self) -> bool:
        """Whether the iterator is alive and not over."""
        return not self.is_over and self.iterator is not None and self.iterator() is not None

    def is_used_elsewhere(self) -> bool:
        """Whether another thread may be within this epoch."""
        return self.is_open and self.thread != threading.get_ident() and self.thread in sys._current_frames()


class Epoch(Iterator[Any]):
    """The batches of one epoch, in order. Created by :meth:`Loader.epoch`; ``len`` is its number of steps."""

    __slots__ = ("__weakref__", "_loader", "_run")

    def __init__(self, loader: Loader, run: _Run) -> None:
        self._loader, self._run = loader, run

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
        return self._run.epoch

    @property
    def steps(self) -> int | None:
        """The number of batches from the start of this iterator to the end of the epoch; ``None`` for a
        :class:`Source`."""
        return self._run.steps

    @property
    def first_step(self) -> int:
        """The step at which this iterator begins: 0, or the step of a loaded state.

        A progress bar of the whole epoch: ``tqdm(batches, initial=batches.first_step, total=len(loader))``.
        """
        return self._run.first

    def __iter__(self) -> Epoch:
        return self

    def __next__(self) -> Any:
        loader, run = self._loader, self._run
        if run.is_over:
            raise StopIteration
        run.thread = threading.get_ident()
        if loader._current is not run:
            raise RuntimeError(
                "another epoch of this loader was begun, and a loader has one at a time: make a loader for "
                "each loop that runs beside another"
            )
        inner = loader._next()
        if inner is None and run.goes_on and loader._is_resumed:
            run.goes_on = False
            run.epoch += 1
            if loader._epochs_ahead is not None:
                loader._epochs_ahead += 1
            run.steps, run.first = loader._with_room(lambda inner: inner.begin(run.epoch)), 0
            inner = loader._next()
        if inner is None:
            run.is_over = True
            loader._epoch_ended()
            raise StopIteration
        loader._has_delivered = True
        return loader._make(inner)

    def __len__(self) -> int:
        return _length(self.steps)

    def __reduce__(self) -> Any:
        raise TypeError("an Epoch cannot be pickled: save loader.state_dict()")


class Loader:
    """Loads batches: threads decode them and copy them to the device while you compute.

    Iterate a loader once per epoch: ``for batch in loader`` is the next epoch, ``loader.epoch(7)`` is epoch
    7. The order of an epoch depends only on the seed and its number. A run continues from
    ``loader.state_dict()`` at the next batch, with any number of workers, batch size and ranks.

    Args:
        data: A :class:`Data`, a dict of arrays, or an object with ``__len__`` and ``__getitem__``; or a
            :class:`Source`, or an object with only ``__iter__``.
        batch_size: Rows of a batch, on this rank.
        shuffle: Shuffles the samples anew in every epoch. Default: in sequence. ``shuffle=7`` is short for
            ``shuffle=True, seed=7``. For a source, shuffles the shards. Parquet of more than 512 MiB, decoded, is shuffled by
            blocks, within windows of about 256 MiB, whatever is held in memory; the report has their rows.
            ``sampler=feedline.Sampler.shuffled()`` shuffles all samples at once.
        shuffle_buffer: Shuffles the samples of a source within a buffer of this many bytes.
        split_shards: Lets each rank read all shards of a source, and take its share of their samples.
            Default: each rank reads its own shards.
        sampler: A :class:`Sampler` for another order, instead of ``shuffle``. A fixed order of your own is
            ``data.subset(order)``, without ``shuffle``.
        seed: The seed of all that is random: the order and the random numbers. Default: 0.
        last_batch: ``"keep"`` a short last batch, ``"drop"`` it, or ``"pad"`` it with samples of the epoch. With
            ``"keep"`` each sample comes once, all ranks have the same number of steps (not those of a
            :class:`Source`) and none gets an empty batch: if fewer samples than ranks are left, the step before
            gives up some of its own. Only with batches of one row, or fewer samples than ranks in all, does a rank
            get a row of padding; its ``batch.valid_rows`` is then 0.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or a ``torch.device``.
        framework: ``"numpy"``, ``"torch"`` or ``"jax"``. Default: torch or jax, if imported, else NumPy.
        copy: Copies the arrays, so that you may keep and write them.
        collate_fn: Called with the list of the samples of a batch, as by a ``DataLoader``; see :class:`Data`.
        max_length: Max items of fields that vary in length, ``None`` for no limit, if ``data`` is not a :class:`Data`.
        workers: Number of decoding threads; if your own Python code reads the samples, number of processes.
            Default: a thread per core; for your own code, one or two threads, which take turns at the
            interpreter's lock. 0 is one thread.
        parallel: Whether ``"processes"`` or ``"threads"`` run your own Python code. The default, ``"auto"``,
            uses ``workers`` processes, but threads in four cases: without ``workers``; on a free-threaded
            build; if the data cannot be pickled (with a warning); and if a measurement of the first sample
            shows that threads are about as fast (downloads, waits, long work without the interpreter's lock).
            The report and the loader's ``repr`` state the choice and the measurement. ``map_batch`` runs
            where the samples are read; for data that feedline reads itself, in processes if a batch takes it
            a millisecond or more, mostly with the lock.
        prefetch: Slots for batches on the device. Default: 3 to 8, by size. A ``for`` loop needs 2, since its variable
            holds a batch while the loop asks for the next one: with 1 it gets a :class:`SlotsHeldError`.
        world: ``"env"`` for the ranks of torchrun, Open MPI or Slurm, ``"torch"`` for those of
            ``torch.distributed``, a pair of rank and size, or ``None`` for one process that reads all.
        epochs: The number of epochs, if it is known: nothing is read ahead beyond the last one.
        pad: Pads ragged fields to one width per batch: the value for each field, or (value, multiple of the width), as
            transformers' ``pad_to_multiple_of``; with ``"left"`` as a third, as ``padding_side="left"``, rows end in one
            column, for generation: ``pad={"ids": (0, 64, "left")}``. See :class:`Padded`. In samples of yours these fields vary in length without a limit, if ``data`` is not a :class:`Data` and ``max_length`` does not
            name them.
        text: The fields of UTF-8 that a batch has as a list of ``str``, and the samples of ``collate_fn`` as ``str``. They stay on the host. In samples of yours, ``str``
            and lists of ``str`` need not be named; give ``bytes`` for an array.
        max_per_batch: Max items of ragged fields in a batch, to make slots smaller.
        bad_samples: Max number (``int``) or share (``float``) of unreadable samples that get a substitute. A
            warning names each of them, its file and the reason.
        skip: Steps to leave out, by epoch: ``{3: range(100, 120)}``.
        map_batch: Called by a worker with a dict of a batch's NumPy arrays. It either changes them in place
            and returns nothing, or returns all fields in the same shapes. Before the call the global
            generators of ``random``, NumPy and torch are seeded for the batch.
        device_map: Called with a dict of a batch's torch tensors on the device, ahead of the step, on its own
            stream and without gradients. It returns a dict of the batch's tensors, or changes the dict and
            returns nothing. It runs on the thread of the loop; torch's generators are seeded for the batch,
            and restored afterwards. It may read other tensors, but must not keep those that it gets. For
            torch only.
        transfer_mode: ``"auto"``, ``"staged"``, ``"zero_copy"`` or ``"resident"``.
        pinned_budget: Max bytes of pinned memory. Default: 2 GiB.
        worker_stack: Bytes of stack of each thread that reads samples, for code that recurses deeply. Default: 2 MiB,
            or the environment variable ``RUST_MIN_STACK``. A read that needs more ends the program. Worker processes
            read with the stack of a program of the system (``ulimit -s``).
        record: A folder for the record of the run, 32 bytes per step: ``python -m feedline replay FOLDER
            --step N`` makes the batch of a step again, if the data is a :func:`feedline.open` of one path,
            and says whether its bytes are the same; ``diff`` finds where two runs differ. See :meth:`note`.
        held_timeout: Seconds that the loop may hold every slot before it gets a :class:`SlotsHeldError`.
        drop_timeout: Seconds that the end of the loader waits for its threads.

    >>> import feedline, numpy as np
    >>> data = {"x": np.arange(8, dtype=np.float32), "y": np.arange(8)}
    >>> with feedline.Loader(data, batch_size=4, shuffle=True, seed=7, framework="numpy") as loader:
    ...     for epoch in range(2):
    ...         for batch in loader.epoch(epoch):
    ...             assert (batch["x"] == batch["y"]).all()
    ...     loader.state_dict()["epoch"]
    1
    """

    def __init__(
        self,
        data: Any,
        batch_size: int = 1,
        *,
        shuffle: int | bool | None = None,
        shuffle_buffer: int | None = None,
        split_shards: bool = False,
        sampler: Sampler | None = None,
        seed: int | None = None,
        last_batch: Literal["keep", "drop", "pad"] = "keep",
        device: Any = "cpu",
        framework: Literal["numpy", "torch", "jax"] | None = None,
        copy: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        max_length: Mapping[str, int | None] | None = None,
        workers: int | None = None,
        parallel: Literal["auto", "threads", "processes"] = "auto",
        prefetch: int | None = None,
        world: str | tuple[int, int] | None = "env",
        epochs: int | None = None,
        pad: Mapping[str, PadOf] | None = None,
        text: str | Sequence[str] | None = None,
        max_per_batch: Mapping[str, int] | None = None,
        bad_samples: int | float = 0,
        skip: Mapping[int, range] | None = None,
        map_batch: Callable[[dict[str, Any]], Any] | None = None,
        device_map: Callable[[dict[str, Any]], Any] | None = None,
        transfer_mode: Literal["auto", "staged", "zero_copy", "resident"] = "auto",
        pinned_budget: int | None = None,
        worker_stack: int | None = None,
        record: str | os.PathLike[str] | None = None,
        held_timeout: float = 1.0,
        drop_timeout: float = 5.0,
        **others: NoReturn,
    ) -> None:
        if others:
            raise _options.unknown(others, _ARGUMENTS)
        needs_rows = any((max_length, max_per_batch, pad, map_batch, device_map, record))
        self.data = samples_of(data, collate_fn, max_length, pad, needs_rows, text)
        is_shuffled, seed = _options.order(shuffle, seed, sampler)
        shuffle_buffer = _options.maybe("shuffle_buffer", shuffle_buffer)
        split_shards, skips = _options.flag("split_shards", split_shards), _options.skip(skip)
        source = self.data if isinstance(self.data, Source) else None
        _options.word("transfer_mode", transfer_mode, "auto", "staged", "zero_copy", "resident")
        _options.of_the_kind(source is not None, shuffle_buffer, split_shards, skips, transfer_mode)
        is_one_shard = source is not None and source.shards == 1
        if is_one_shard and is_shuffled and shuffle_buffer is None:
            raise ConfigError(
                "shuffle orders the shards of a source, and this one has 1: give shuffle_buffer=64 << 20, or "
                "more shards"
            )
        self.batch_size, self.device = _options.whole("batch_size", batch_size, 1), str(device)
        ranks = ranks_of(world)
        #: The shards of a source that is read once.
        self._once = None if source is None else source._once
        if self._once is not None:
            orders = {"shuffle": is_shuffled and not is_one_shard, "sampler": sampler is not None}
            epochs = _options.of_one_pass(epochs, split_shards, orders)
            self._once.look(*ranks)
        gpu = gpu_of(self.device)
        on_lanes = decodes_on_lanes(self.data, gpu)
        if on_lanes:
            load_nvjpeg()
        self._framework = framework_of(framework, gpu is not None)
        self._kind: type[Batch] = Copied if copy else Batch
        check_device_map(device_map, self._framework)
        pads = _options.by_column("pad", pad, '{"tokens": 0}')
        if self.data._nest is not None:
            is_padded = self.data._nest is not Tree
            varying = [field.name for field in self.data.fields if field.max_length is not None and is_padded]
            pads = dict.fromkeys(varying) | dict(pads)
        check_has_limits(self.data, device_map=device_map is not None, record=record is not None)
        padding = [(name, *padding_of(self.data, name, given)) for name, given in pads.items()]
        texts = host_forms(self.data, text if collate_fn is None else None, {name for name, *_ in padding}, device_map is not None)
        self._forms = forms_of(self.data, {name for name, *_ in padding}, texts)
        #: Maps the batches ahead of the loop, once there is a loader.
        self._device_map: DeviceMap | None = None
        self._current: _Run | None = None
        #: Held while an epoch is begun.
        self._begins = threading.RLock()
        #: The epoch of :meth:`set_epoch`; and by how much the epochs of a loaded state are ahead of it.
        self._set_epoch: int | None = None
        self._epochs_ahead: int | None = None
        #: Whether a loaded state waits for its first batch.
        self._is_resumed = False
        self._has_delivered = False
        self._watches_bad_samples = bool(bad_samples)
        self._lines = Lines()
        # The processes are made before the threads, so they end first when the loader is collected. A thread
        # that waits for a process then ends too.
        mapping = None if map_batch is None else mapping_of(map_batch, self.data, self.batch_size)
        self._max_per_batch = {
            name: _options.whole(f"max_per_batch[{name!r}]", items)
            for name, items in _options.by_column("max_per_batch", max_per_batch, '{"tokens": 4096}').items()
        }
        self._reads = Choice(getattr(self.data, "_leaves", []), workers, parallel, mapping)
        try:
            options = {
                "batch_size": self.batch_size,
                "shuffle": is_shuffled,
                "shuffle_buffer": shuffle_buffer,
                "split_shards": split_shards,
                "sampler": order_of(sampler),
                "seed": seed,
                "last_batch": _options.word("last_batch", last_batch, "keep", "drop", "pad"),
                "gpu": gpu,
                "threads": self._reads.threads,
                "threads_per_worker": self._reads.threads_per_worker,
                "prefetch": _options.maybe("prefetch", prefetch),
                "world": ranks,
                "epochs": _options.maybe("epochs", epochs),
                "pad": padding,
                "max_per_batch": list(self._max_per_batch.items()),
                "on_host": [PICKLE] if self.data._nest is Tree else kept(texts),
                "bad_samples": _options.bad_samples(bad_samples),
                "skip": skips,
                "transfer_mode": transfer_mode,
                "pinned_budget": _options.maybe("pinned_budget", pinned_budget),
                "worker_stack": _options.maybe("worker_stack", worker_stack),
                "held_timeout": _options.number("held_timeout", held_timeout),
                "drop_timeout": _options.number("drop_timeout", drop_timeout),
                "is_under_one_lock": self._reads.is_under_one_lock or (source is not None and has_lock()),
                "decodes_on_lanes": on_lanes,
                "map_batch": None if mapping is None else mapping.map,
                "waited": self._lines,
                "record": None if record is None else (_options.path("record", record), opened_from(self.data)),
            }
            #: For a loader with larger slots, which takes the place of this one.
            self._options, self._read, self._growths, self._is_outgrown = options, self.data._set, 0, False
            self._inner = _feedline.Loader(self._read, options)
            if device_map is not None:
                self._device_map = DeviceMap(
                    device_map,
                    self._inner,
                    self._forms,
                    self._framework,
                    seed=shuffle or 0 if seed is None else seed,
                    gpu=gpu,
                )
        except BaseException:
            self._reads.end()
            raise
        _log.info("%r", self)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and "_inner" in self.__dict__:
            raise AttributeError(
                f"the {name} of a loader cannot be changed, because its threads read ahead with it: make a "
                f"new one, Loader(data, {name}=...)"
            )
        super().__setattr__(name, value)

    # Epochs

    def epoch(self, epoch: int) -> Epoch:
        """The batches of an epoch from its beginning; for the epoch of a loaded state, the rest of them.

        A loader has one epoch at a time: this ends the one before. While another thread is within it, its iterator
        neither at the end nor dropped, this raises ``RuntimeError``, and so do ``iter`` and
        :meth:`load_state_dict`. Threads may share one iterator without a ``device_map``: each batch goes to one of
        them. :meth:`state_dict`, :meth:`report` and :meth:`close` may be called by any thread.
        """
        with self._begins:
            return self._begin(epoch)

    def _begin(self, epoch: int, goes_on: bool = False) -> Epoch:
        self._refuse_other_thread("epoch")
        if self._is_resumed and self._current is not None and epoch == self._current.epoch:
            run = _Run(epoch, self._current.steps, self._current.first)
        else:
            epoch = _options.whole("epoch", epoch)
            with self._pass(epoch):
                self._leave_epoch()
                steps = self._with_room(lambda inner: inner.begin(epoch))
            self._is_resumed, self._has_delivered = False, False
            run = _Run(epoch, steps)
        # The end of a source is known only once it is reached.
        run.goes_on = goes_on and self._is_resumed and run.steps is None and self._once is None
        self._current, self._set_epoch = run, None
        begun = Epoch(self, run)
        run.iterator = weakref.ref(begun)
        return begun

    def _pass(self, epoch: int, *at: Any) -> contextlib.AbstractContextManager[None]:
        """Around the begin of an epoch: a source that is read once has one."""
        return contextlib.nullcontext() if self._once is None else self._once.begins(epoch, *at)

    def _refuse_other_thread(self, call: str) -> None:
        if self._current is not None and self._current.is_used_elsewhere():
            self._inner.check_thread(call)
            raise RuntimeError(
                f"another thread is within epoch {self._current.epoch} of this loader, and a loader has one epoch at "
                "a time: make a loader for each thread, or drop that thread's iterator first"
            )

    def __iter__(self) -> Epoch:
        with self._begins:
            begun = self._begin(self.next_epoch, goes_on=True)
            begun._run.is_chosen = False
            return begun

    @property
    def next_epoch(self) -> int:
        """The epoch that ``for batch in loader`` delivers: that of a loaded state, if it is not over, or of
        :meth:`set_epoch`; else the one after the last."""
        current = self._current
        if self._set_epoch is not None:
            return self._set_epoch
        if current is None:
            return 0
        is_taken = self._has_delivered or current.is_over
        if self._is_resumed and not is_taken:
            return current.epoch + 1 if current.steps == 0 else current.epoch
        return current.epoch + 1 if is_taken else current.epoch

    def set_epoch(self, epoch: int) -> None:
        """Makes ``for batch in loader`` deliver this epoch next, as a ``DistributedSampler`` does; also if its
        iterator is made already and has delivered no batch. Trainers call it: so a run that goes on from a checkpoint
        of theirs has the right order, even without a state of the loader.

        A loaded state comes first: the epochs of the caller are then counted from its epoch on.
        """
        epoch = _options.whole("epoch", epoch)
        current = self._current
        if self._is_resumed:
            self._epochs_ahead = self.next_epoch - epoch
        epoch = max(epoch + (self._epochs_ahead or 0), 0)
        if current is not None and (current.is_over or self._has_delivered):
            current = None
        if self._is_resumed or (current is not None and current.epoch == epoch):
            self._set_epoch = None
        elif current is not None and current.is_open and not current.is_chosen:
            # Lightning makes its iterator before it sets the epoch.
            with self._begins:
                self._refuse_other_thread("set_epoch")
                with self._pass(epoch):
                    self._leave_epoch()
                    current.epoch, current.first = epoch, 0
                    current.steps = self._with_room(lambda inner: inner.begin(epoch))
                self._set_epoch = None
        else:
            self._set_epoch = epoch

    @property
    def sampler(self) -> _Epochs:
        """For Lightning, which calls ``loader.sampler.set_epoch``."""
        return _Epochs(self)

    def __getattr__(self, name: str) -> Any:
        told = f"{shown(type(self).__name__)} object has no attribute {shown(name)}"
        if name == "dataset":
            told += (
                ": its data is loader.data. Hugging Face's Trainer asks for it to skip the batches before a "
                "checkpoint: give TrainingArguments(ignore_data_skip=True), and load the loader's own state by "
                "load_state_dict (examples/with_transformers.py)"
            )
        raise AttributeError(told)

    def __len__(self) -> int:
        """Steps of an epoch, the same on every rank; unknown for a :class:`Source`."""
        return _length(self._inner.steps)

    def _next(self) -> Any:
        """The next batch; ``None`` at the end of the epoch."""
        if self._device_map is not None:
            return self._device_map.next()
        if not self._is_outgrown:
            try:
                return self._inner.next()
            except Error as error:
                if not self._has_made_room(error):
                    raise
        return self._with_room(lambda inner: inner.next())

    def _with_room(self, call: Callable[[_feedline.Loader], _T]) -> _T:
        """The result of a call of the compiled loader; of one with larger slots, if a sample had no room in them."""
        while True:
            if self._is_outgrown:
                self._begin_anew()
            try:
                return call(self._inner)
            except Error as error:
                if not self._has_made_room(error):
                    raise

    def _has_made_room(self, error: Error) -> bool:
        """Whether there is room now for a sample that had none, in slots of a loader that is to take the place of this one."""
        if error._needs is None or not isinstance(self.data, Data):
            return False
        # Another loader may have made room in the same data.
        if not made_for(self.data, error, self._max_per_batch) and self.data._set is self._read:
            return False
        field, items = error._needs
        _log.info('"%s" has %d items, so the slots are made larger', field, items)
        self._is_outgrown = True
        return True

    def _begin_anew(self) -> None:
        """Begins anew with larger slots, at the position of the loop. If that fails, the next call does it again."""
        position, old, read = Position.of(self._inner), self._inner, self.data._set
        cursor, epoch, step, _ = position.cursor
        new = _feedline.Loader(read, self._options)
        new.resume(cursor, epoch, step, position.bad_samples)
        self._inner, self._read, self._growths, self._is_outgrown = new, read, self._growths + 1, False
        old.stop()
        old.close()

    def _leave_epoch(self) -> None:
        if self._device_map is not None:
            self._device_map.clear()

    def _make(self, inner: _feedline.Batch | Mapped) -> Any:
        info: Any = inner._inner if isinstance(inner, Mapped) else inner
        if self._watches_bad_samples:
            substituted = info.substituted()
            failures = info.failures() if substituted else []
            for row, substitute in substituted:
                told = "; ".join(_failure(sample, path, why) for at, sample, path, why in failures if at == row)
                _log.warning(
                    "batch %d, row %d: unreadable %s; sample %d instead", info.step, row, told, substitute
                )
        self._is_resumed = False
        if self._once is not None:
            self._once.count(np.frombuffer(info.ids(), np.uint64))
        if self.data._nest is Tree:
            return returned(info, self._framework, self._kind is Copied)
        batch = inner if isinstance(inner, Mapped) else self._kind(inner, self._forms, self._framework)
        if self.data._nest is not None and not isinstance(batch, Mapped):
            return nested(self.data._nest, batch)
        return tuple(batch.values()) if self.data._is_tuple else batch

    def _epoch_ended(self) -> None:
        if _log.isEnabledFor(logging.INFO):
            account = self.report().data["epoch"]
            _log.info(
                "epoch %d: %d rows in %d batches", account["epoch"], account["rows"], account["batches"]
            )

    # State

    def state_dict(self) -> dict[str, Any]:
        """The position after the batches delivered so far: plain numbers and strings.

        Save it with the model, after the step on the last batch. It counts no batch that was only read ahead.
        For a source that is read once, ``delivered`` and ``taken`` are lists of the samples of each shard: those of the
        batches so far, and those that have left it. The difference is on its way.
        """
        position = self._position()
        cursor, epoch, step, samples = position.cursor
        state = {
            "feedline": 1,
            "cursor": cursor.hex(),
            "epoch": epoch,
            "step": step,
            "samples": samples,
            "bad_samples": position.bad_samples,
        }
        if self._once is not None:
            state |= {"delivered": list(self._once.delivered), "taken": list(self._once.taken)}
        return state

    def _position(self) -> Position:
        """The position of the loop, which may be behind that of the loader."""
        ahead = None if self._device_map is None else self._device_map.position
        return Position.of(self._inner) if ahead is None else ahead

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues where the state was saved: the next ``for batch in loader`` is the rest of its epoch.

        Workers, device, batch size and ranks may differ; the data and the seed may not. An iterator that is
        open continues at the state, too. Lightning and the Trainer of Hugging Face count steps of their own against
        ``len(loader)``: with these two, batch size and ranks must stay the same within an epoch, or samples are left
        out.
        """
        if not isinstance(state, Mapping) or "feedline" not in state:
            raise StateError("this is not a state of a feedline loader: give what state_dict() returned")
        if state["feedline"] != 1:
            raise StateError(f"the state has version {state['feedline']}: use a newer feedline")
        try:
            cursor = bytes.fromhex(state["cursor"])
            epoch, step = (_options.whole(name, state[name], 0, 2**64 - 1) for name in ("epoch", "step"))
            bad_samples = state.get("bad_samples")
            if not isinstance(bad_samples, (str, type(None))):
                raise TypeError(f"bad_samples is {shown(bad_samples)}")
            counts = [[_options.whole(name, one) for one in state.get(name, ())] for name in ("delivered", "taken")]
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"the state is damaged: {error!r}; load another one") from None
        with self._begins:
            self._refuse_other_thread("load_state_dict")
            with self._pass(epoch, step, counts):
                self._leave_epoch()
                steps = self._with_room(lambda inner: inner.resume(cursor, epoch, step, bad_samples))
            self._is_resumed, self._has_delivered = True, False
            self._set_epoch = self._epochs_ahead = None
            if self._current is None:
                self._current = _Run(epoch, steps)
            current, whole = self._current, self._inner.steps
            current.epoch, current.steps, current.is_over = epoch, steps, False
            # With another batch size the step differs.
            current.first = step if steps is None or whole is None else whole - steps

    @property
    def order_hash(self) -> int:
        """A hash of the order of all samples delivered so far, also those before a loaded state."""
        return self._position().order_hash

    # Life

    def close(self) -> None:
        """Ends the loader and its threads. Arrays of its batches stay valid."""
        self._inner.stop()
        self._reads.end()
        self._leave_epoch()
        self._inner.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def report(self) -> Report:
        """An account of the time so far, with a diagnosis. Print the :class:`Report`, or show it in a
        notebook.

        >>> import feedline, numpy as np
        >>> loader = feedline.Loader({"x": np.arange(100)}, batch_size=10, framework="numpy")
        >>> sum(batch.rows for batch in loader)
        100
        >>> loader.report().data["epoch"]["rows"]
        100
        """
        lines = self._lines.longest()
        told = self._inner.report([(str(line), line.waited, line.batches) for line in lines])
        return Report(*told, self._reads.report(), self._inner.profile(), lines, self._growths)

    def note(self, name: str, value: float) -> None:
        """Records a value of the step on the last batch, such as its loss, for ``python -m feedline spikes``.

        The loader must have ``record=``, and no ``device_map``, since that takes batches ahead of the step.
        """
        if self._device_map is not None:
            raise ConfigError("note() is for the last batch, and device_map has taken the next one: leave it out")
        self._inner.note(str(name), _options.number("the value of note", value))

    @property
    def rank(self) -> int:
        """The rank of this process."""
        return self._inner.world[0]

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self._inner.world[1]

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of pinned host memory and of device memory that the loader holds, constant over its life."""
        pinned, device = self._inner.memory
        return {"pinned": pinned, "device": device}

    def __repr__(self) -> str:
        rank = f", rank {self.rank} of {self.world_size}" if self.world_size > 1 else ""
        of = f"{self.data.shards} shards" if isinstance(self.data, Source) else f"{len(self.data)} samples"
        reads = f", read by {self._reads}" if self._reads.is_own else ""
        if self._reads.maps:
            reads += ", map_batch by them" if reads else f", map_batch by {self._reads}"
        steps = "" if self._inner.steps is None else f"{self._inner.steps} steps, "
        return (
            f"Loader({of}, batches of {self.batch_size}, {steps}"
            f"{self._framework.name} on {self.device}, {self._inner.mode}{rank}{reads})"
        )

    def _repr_html_(self) -> str:
        """The loader, and the fields and first samples of its data, for a notebook. Takes no batch."""
        shown = self.data._repr_html_() if isinstance(self.data, Data) else ""
        return f"<div>{html.escape(repr(self))}</div>{shown}"

    def __reduce__(self) -> Any:
        raise TypeError("a Loader has threads and cannot be pickled: save loader.state_dict()")


class _Epochs:
    """Sets the epoch of a loader."""

    __slots__ = ("set_epoch",)

    def __init__(self, loader: Loader) -> None:
        self.set_epoch = loader.set_epoch


_ARGUMENTS = [
    name for name in inspect.signature(Loader.__init__).parameters if name not in ("self", "others")
]
#: Attributes whose assignment would have no effect: arguments of this loader and of a DataLoader.
_FIXED = {*_ARGUMENTS, *_options.OF_A_DATALOADER}


def _failure(sample: int, path: str | None, why: str) -> str:
    """The sample that could not be read, its file if known, and the reason, which may name the file itself."""
    why = " ".join(why.split())
    return f"sample {sample}: {why}" if path is None or path in why else f"sample {sample}: {why} (file {path})"


def _length(steps: int | None) -> int:
    if steps is None:
        raise TypeError("the length of a source is not known before it is read")
    return steps


# The compiled function itself: a signal could interrupt one written in Python.
atexit.register(_feedline.leave)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_feedline.forget_workers)
