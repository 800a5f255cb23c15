"""Threads or processes: which of them read a data set written in Python, and how many."""

from __future__ import annotations

import ast
import contextlib
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import _feedline, _options, _workers
from .._errors import ConfigError
from .measure import Measured, measured
from .packing import Unpicklable
from .start import Server

_log = logging.getLogger("feedline")

#: Max processes of a loader.
_MOST = 512


class Leaf(NamedTuple):
    """A data set written in Python, as a part of the data of a loader."""

    set: _feedline.DataSet
    #: A `_own.Reader`.
    reader: Any
    #: Whether its samples are given the epoch and a seed.
    varies: bool
    #: Those that it reads itself.
    within: Sequence[Leaf] = ()

    def all(self) -> list[Leaf]:
        """This one, and all that it reads."""
        return [self, *(one for leaf in self.within for one in leaf.all())]


class Choice:
    """How a loader reads its data: until :meth:`end`."""

    #: The threads of the loader; ``None`` for one per core.
    threads: int | None
    #: The processes; 0 for none.
    processes: int
    #: Whether Python code reads some of the data.
    is_own: bool
    #: What was measured of the data, to choose between threads and processes.
    measured: Measured | None = None

    def __init__(self, leaves: Sequence[Leaf], workers: int | None, parallel: str) -> None:
        if parallel not in ("auto", "threads", "processes"):
            raise ConfigError(f'parallel {parallel!r}: use "auto", "threads" or "processes"')
        workers = None if workers is None else _options.whole("workers", workers)
        self.is_own = bool(leaves)
        self._readings: list[_feedline.Reading] = []
        self.processes = _count(leaves, workers, parallel)
        if self.processes and parallel == "auto":
            self._measure(leaves)
        if self.processes:
            try:
                self._start(leaves)
            except _Unsuitable as error:
                if parallel == "processes":
                    raise ConfigError(f"{error}") from error.__cause__
                _log.warning("%s: threads of this process read the data", error)
                self.processes = 0
            except BaseException:
                self.end()
                raise
        if self.processes:
            # Two for each process, so that a request waits for it while it works on another.
            self.threads = 2 * self.processes
        else:
            self._readings = [one.set.read_by(0, None) for leaf in leaves for one in leaf.all()]
            self.threads = _threads(leaves, workers)

    def _measure(self, leaves: Sequence[Leaf]) -> None:
        """Chooses threads if they are as good: they start at once, and share the memory."""
        found = [measured(leaf.reader, leaf.varies, self.processes) for leaf in leaves]
        # That of the slowest samples.
        self.measured = max((one for one in found if one is not None), default=None)
        if all(one is not None and one.are_threads_as_good for one in found):
            self.processes = 0

    def _start(self, leaves: Sequence[Leaf]) -> None:
        new = [leaf for leaf in leaves if not leaf.set.has_processes]
        started = _feedline.Processes(_server(new), self.processes) if new else None
        numbers = {id(leaf.set): number for number, leaf in enumerate(new)}
        for leaf in leaves:
            number = numbers.get(id(leaf.set))
            by = None if number is None or started is None else (started, number)
            self._readings.append(leaf.set.read_by(self.processes, by))

    def end(self) -> None:
        """The loader ends: its processes too, if no other one has them."""
        for reading in self._readings:
            reading.leave()
        self._readings = []

    @property
    def is_under_one_lock(self) -> bool:
        """Whether the threads take turns at running Python code."""
        return self.is_own and not self.processes and has_lock()

    @property
    def deaths(self) -> int:
        """Processes that died and were replaced."""
        return max((reading.deaths for reading in self._readings), default=0)

    def report(self) -> dict[str, Any] | None:
        """What a report says of it; ``None`` if no Python code reads the data."""
        if not self.is_own:
            return None
        report: dict[str, Any] = {"workers": str(self), "processes": self.processes, "deaths": self.deaths}
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


def _count(leaves: Sequence[Leaf], workers: int | None, parallel: str) -> int:
    """The number of processes."""
    if parallel == "processes" and not leaves:
        raise ConfigError(
            'parallel="processes" is for data that Python code of yours reads by index, and this is not: leave '
            "it out"
        )
    if parallel == "threads" or workers == 0 or not leaves:
        return 0
    if workers is not None and workers > _MOST:
        raise ConfigError(f"workers is {workers}: at most {_MOST} processes are started")
    if parallel == "processes":
        return workers or os.cpu_count() or 1
    return workers if workers is not None and has_lock() else 0


def _threads(leaves: Sequence[Leaf], workers: int | None) -> int | None:
    """The threads for samples that Python code reads; ``None`` is one per core.

    On 16 cores, 2 threads read 1.4 to 2.1 times as many samples as 16, in arithmetic of NumPy and in copies of
    784 bytes and 150 KB.
    """
    if workers is not None:
        return max(workers, 1)
    return min(2, os.cpu_count() or 2) if has_lock() and leaves else None


def has_lock() -> bool:
    """Whether threads take turns at running Python code."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def _server(leaves: Sequence[Leaf]) -> Server:
    if sys.platform != "linux":
        raise _Unsuitable("worker processes need Linux")
    if _workers.is_worker:
        raise ConfigError(_NO_GUARD.format(path=getattr(sys.modules.get("__main__"), "__file__", "the script")))
    readers = [(leaf.reader, leaf.varies) for leaf in leaves]
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
    'if __name__ == "__main__":'
)


def _check_main(name: str | None, path: str | None) -> None:
    """Refuses a main script that cannot be imported. ``name`` is that of ``python -m``."""
    if name is not None:
        return
    if path is None or not os.path.isfile(path):
        raise _Unsuitable(
            "the data set is defined in a notebook or at a prompt, and worker processes cannot import it from "
            "there: move its class to a module"
        )
    if not _has_guard(path):
        raise _Unsuitable(_NO_GUARD.format(path=path))


def _has_guard(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return True
    tests = [node.test for node in ast.walk(tree) if isinstance(node, ast.If)]
    return any(isinstance(part, ast.Name) and part.id == "__name__" for test in tests for part in ast.walk(test))
