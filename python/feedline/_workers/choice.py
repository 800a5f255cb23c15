"""Chooses whether threads or processes run Python code (a data set, a function of a batch), and how many."""

from __future__ import annotations

import ast
import contextlib
import errno
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .. import _feedline, _options, _workers
from .._errors import ConfigError, Error, describe
from .measure import Measured, hook_measured, measured
from .packing import Unpicklable, can_be_pickled
from .start import NoGuard, Server

_log = logging.getLogger("feedline")

#: Max processes of a loader.
_MOST = 512

#: A first sample below these seconds is quick to read; one of these bytes or more is slow to copy.
_QUICK, _LONG = 0.001, 64 << 10


class Leaf(NamedTuple):
    """A data set written in Python, as a part of the data of a loader."""

    set: _feedline.DataSet
    #: A `_own.Reader`.
    reader: Any
    #: Whether its samples get the epoch and a seed.
    varies: bool
    #: The leaves that it reads itself.
    within: Sequence[Leaf] = ()

    def all(self) -> list[Leaf]:
        """This leaf, and all that it reads."""
        return [self, *(one for leaf in self.within for one in leaf.all())]


class BatchMap(NamedTuple):
    """A function of a batch, as a part of a loader."""

    map: _feedline.MapBatch
    #: A `_own.Hook`.
    hook: Any
    #: Makes the columns of a batch to measure; ``None`` if the data cannot be read by index.
    example: Callable[[], list[Any]] | None


class Choice:
    """The choice of a loader, valid until :meth:`end`."""

    #: Number of threads; ``None`` for one per core.
    threads: int | None
    #: Number of processes; 0 for none.
    processes: int
    #: Whether Python code reads some of the data.
    is_own: bool
    #: Whether the processes call the batch's function.
    maps: bool = False
    #: The measurement behind the choice between threads and processes.
    measured: Measured | None = None

    def __init__(
        self, leaves: Sequence[Leaf], workers: int | None, parallel: str, mapping: BatchMap | None = None
    ) -> None:
        _options.word("parallel", parallel, "auto", "threads", "processes")
        workers = None if workers is None else _options.whole("workers", workers)
        self.is_own, self._must = bool(leaves), parallel == "processes"
        self._readings: list[_feedline.Reading] = []
        self.processes = _count(bool(leaves) or mapping is not None, workers, parallel)
        if self.processes and parallel == "auto":
            self._measure(leaves, mapping)
        if self.processes:
            try:
                self._start(leaves, mapping)
            except _Unsuitable as error:
                self._refuse(error, "read the data" if leaves else "run map_batch")
                self.processes = 0
            except (OSError, MemoryError) as error:
                self.end()
                raise Error(f"worker processes cannot be started: {_limit(error)}") from error
            except BaseException:
                self.end()
                raise
        if self.processes:
            self.threads = self.threads_per_worker * self.processes
        else:
            self._readings = [one.set.read_by(0, None) for leaf in leaves for one in leaf.all()]
            self.threads = _threads(leaves, workers)

    def _measure(self, leaves: Sequence[Leaf], mapping: BatchMap | None) -> None:
        """Chooses threads if they are as good: they start at once, and share the memory."""
        if not leaves:
            self._measure_map(mapping)
            return
        found = [measured(leaf.reader, leaf.varies, self.processes) for leaf in leaves]
        # The measurement of the slowest samples.
        self.measured = max((one for one in found if one is not None), default=None)
        if all(one is not None and one.are_threads_as_good for one in found):
            self.processes = 0

    def _measure_map(self, mapping: BatchMap | None) -> None:
        """For data that feedline reads itself, chooses processes only for a function that holds the lock for
        a long time."""
        if mapping is None or mapping.example is None or not can_be_pickled(mapping.hook):
            self.processes = 0
            return
        self.measured = found = hook_measured(mapping.hook, mapping.example(), self.processes)
        if found is None or found.gain is None or found.are_threads_as_good:
            self.processes = 0

    def _refuse(self, error: _Unsuitable, what: str) -> None:
        if self._must:
            raise ConfigError(f"{error}") from error.__cause__
        _log.warning("%s: threads of this process %s", error, what)

    def _start(self, leaves: Sequence[Leaf], mapping: BatchMap | None) -> None:
        new = [leaf for leaf in leaves if not leaf.set.has_processes]
        try:
            server = _server(new, mapping)
        except _Unsuitable as error:
            if mapping is None or not leaves or self._must:
                raise
            # The data may be picklable without it.
            server = _server(new, None)
            self._refuse(error, "run map_batch")
            mapping = None
        started = None if server is None else _feedline.Processes(server, self.processes)
        numbers = {id(leaf.set): number for number, leaf in enumerate(new)}
        for leaf in leaves:
            number = numbers.get(id(leaf.set))
            by = None if number is None or started is None else (started, number)
            self._readings.append(leaf.set.read_by(self.processes, by))
        if mapping is not None and started is not None:
            self._readings.append(mapping.map.read_by(self.processes, (started, len(new))))
            self.maps = True

    def end(self) -> None:
        """The loader ends: its processes too, if no other one has them."""
        for reading in self._readings:
            reading.leave()
        self._readings = []

    @property
    def threads_per_worker(self) -> int:
        """Two threads ask a process, so that its next request is ready while it works."""
        return 2 if self.processes else 1

    @property
    def is_under_one_lock(self) -> bool:
        """Whether the threads take turns at running Python code."""
        return self.is_own and not self.processes and has_lock()

    @property
    def deaths(self) -> int:
        """Processes that died and were replaced."""
        return max((reading.deaths for reading in self._readings), default=0)

    def report(self) -> dict[str, Any] | None:
        """The text for a report; ``None`` if no Python code reads the data."""
        if not self.is_own and not self.maps:
            return None
        report: dict[str, Any] = {"workers": str(self), "processes": self.processes, "deaths": self.deaths}
        report["is_data"] = self.is_own
        if self.measured is not None:
            report |= {"sample_ns": round(1e9 * self.measured.seconds), "gain_of_threads": self.measured.gain}
        return report

    def __str__(self) -> str:
        if self.processes:
            who = _number(self.processes, "process", "processes")
        else:
            who = "threads" if self.threads is None else _number(self.threads, "thread", "threads")
        return who if self.measured is None else f"{who} ({self.measured})"


def _number(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


class _Unsuitable(Exception):
    """The data set cannot be read by processes. The text says why."""


def _limit(error: OSError | MemoryError) -> str:
    """An error of the system, and what to do."""
    what_to_do = {
        errno.EMFILE: "raise the limit of open files (ulimit -n)",
        errno.EFBIG: "raise the limit of file sizes (ulimit -f)",
        errno.EAGAIN: "raise the limit of processes (ulimit -u) or of memory (ulimit -v)",
    }.get(getattr(error, "errno", None) or 0, "give the process more memory, or start fewer workers")
    return f"{describe(error, None)}: {what_to_do}"


def _count(is_own: bool, workers: int | None, parallel: str) -> int:
    """The number of processes. ``is_own`` says whether there is Python code for them."""
    if parallel == "processes" and not is_own:
        raise ConfigError(
            'parallel="processes" is for data that Python code of yours reads by index, and for map_batch, and '
            "this is neither: leave it out"
        )
    if parallel == "threads" or workers == 0 or not is_own:
        return 0
    if workers is not None and workers > _MOST:
        raise ConfigError(f"workers is {workers}: at most {_MOST} processes are started")
    if parallel == "processes":
        return workers or os.cpu_count() or 1
    return workers if workers is not None and has_lock() else 0


def _threads(leaves: Sequence[Leaf], workers: int | None) -> int | None:
    """The threads for samples that Python code reads; ``None`` is one per core.

    They take turns at the lock, and each turn costs a wake-up and the content of a core's caches. On the 16
    cores of an H100's host one thread reads samples of 1 to 20 us 1.2 to 1.9 times as fast as two. Long rows
    are copied without the lock: those of 150 KB by two threads twice as fast as by one, and by four no
    faster.
    """
    if workers is not None:
        return max(workers, 1)
    if not has_lock() or not leaves:
        return None
    is_quick = all(leaf.reader.first_seconds < _QUICK for leaf in leaves)
    is_long = any(leaf.reader.columns.row_bytes >= _LONG for leaf in leaves)
    return 1 if is_quick and not is_long else min(2, os.cpu_count() or 2)


def has_lock() -> bool:
    """Whether threads take turns at running Python code."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def _server(leaves: Sequence[Leaf], mapping: BatchMap | None) -> Server | None:
    """The fork server of processes for ``leaves`` and a function of a batch; ``None`` if there is nothing for it."""
    readers = [(leaf.reader, leaf.varies) for leaf in leaves]
    if mapping is not None:
        readers.append((mapping.hook, False))
    if not readers:
        return None
    if sys.platform != "linux":
        raise _Unsuitable("worker processes need Linux")
    if _workers.is_worker and not _workers.is_importing:
        raise _Unsuitable("a worker process starts no worker processes of its own")
    if _workers.is_worker:
        raise NoGuard(_NO_GUARD.format(path=getattr(sys.modules.get("__main__"), "__file__", "the script")))
    try:
        return _started(readers)
    except NoGuard as error:
        raise _Unsuitable(_NO_GUARD.format(path=error)) from None


def _started(readers: list[tuple[Any, bool]]) -> Server:
    """The fork server, if need be with the data sets as they were before their first samples were read."""
    try:
        return Server(readers, _check_main)
    except Unpicklable as error:
        before = [(reader.as_before(), varies) for reader, varies in readers]
        if before != readers:
            with contextlib.suppress(Unpicklable):
                return Server(before, _check_main)
        raise _Unsuitable(str(error)) from error.__cause__


_NO_GUARD = (
    "worker processes import {path}, which would run the training in each of them: put what it runs under "
    'if __name__ == "__main__"'
)


def _check_main(name: str | None, path: str | None) -> None:
    """Refuses a main script that cannot be imported. ``name`` is that of ``python -m``."""
    if name is not None and name.rpartition(".")[2] == "__main__":
        raise _Unsuitable(
            f"the data set is defined in {path}, and worker processes do not import a __main__.py: move its class "
            "to another module"
        )
    if name is None and (path is None or not os.path.isfile(path)):
        raise _Unsuitable(
            "the data set is defined in a notebook or at a prompt, and worker processes cannot import it from "
            "there: move its class to a module"
        )
    if path is not None and not _has_guard(path):
        raise _Unsuitable(_NO_GUARD.format(path=path))


def _has_guard(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return True
    tests = [node.test for node in ast.walk(tree) if isinstance(node, ast.If)]
    return any(isinstance(part, ast.Name) and part.id == "__name__" for test in tests for part in ast.walk(test))
