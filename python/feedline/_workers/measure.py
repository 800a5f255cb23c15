"""Measures the time of a sample of Python code or of a function of a batch, and whether threads run it in
parallel."""

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple

from .seeds import States

#: Min and max seconds of a sample for which threads are tried: shorter ones spend their time on the
#: interpreter's lock, longer ones would delay the start.
_TRIED = 0.001, 0.25
#: Seconds of a measurement in one thread, its min number of reads, and the max seconds for these. The
#: shortest read counts, since the machine may be busy.
_LASTS, _READS, _ENOUGH = 0.005, 5, 0.25
#: From this share of the processes' gain on, threads are as good.
_AS_GOOD = 0.8
#: From this share on, a busy machine may be the cause of a lower gain; and the number of new tries then.
_PERHAPS, _TRIES = 0.4, 4


class Measured(NamedTuple):
    """The measurement of a data set."""

    #: Seconds per sample.
    seconds: float
    #: The speed of several threads relative to one; ``None`` if that was not tried.
    gain: float | None
    #: The threads.
    threads: int
    #: The thing measured.
    what: str = "a sample"

    @property
    def are_threads_as_good(self) -> bool:
        """Whether threads read about as many samples as processes."""
        return self.gain is not None and self.gain >= _AS_GOOD * self.threads

    def __str__(self) -> str:
        takes = f"{self.what} takes {_shown(self.seconds)}"
        if self.gain is None:
            return takes
        does = "read" if self.what == "a sample" else "do"
        return f"{takes}, and {self.threads} threads {does} {self.gain:.1f} times as many as one"


def _shown(seconds: float) -> str:
    us = 1e6 * seconds
    return f"{us:.0f} us" if us < 1000 else f"{us / 1e3:.1f} ms" if us < 1e6 else f"{seconds:.1f} s"


def measured(reader: Any, varies: bool, threads: int) -> Measured | None:
    """Reads the first sample several times; ``None`` if it fails. It was read before, so faults of other
    samples do not matter here."""
    threads = max(threads, 2)
    before = States(reader.generators)
    try:
        seconds = _seconds(reader, varies)
        if seconds is None:
            return None
        if not _TRIED[0] <= seconds <= _TRIED[1]:
            return Measured(seconds, None, threads)
        each = max(2, int(0.01 / seconds))
        gain = 0.0
        for _ in range(_TRIES):
            took = _together(reader, varies, threads, each)
            again = _seconds(reader, varies)
            seconds = seconds if again is None else min(seconds, again)
            gain = max(gain, threads * each * seconds / took)
            if not _PERHAPS * threads <= gain < _AS_GOOD * threads:
                break
        return Measured(seconds, gain, threads)
    finally:
        before.restore()


class Hooked:
    """A function of a batch, measured as the reader of a sample: on a batch of the first sample."""

    def __init__(self, hook: Any, batch: list[Any]) -> None:
        self._hook, self._batch = hook, batch
        self.generators = hook.generators
        start = time.perf_counter()
        before = States(self.generators)
        hook.attempt(batch)
        before.restore()
        self.first_seconds = time.perf_counter() - start

    def samples(self, *_: Any) -> tuple[list[Any], BaseException | None]:
        found: tuple[list[Any], BaseException | None] = self._hook.attempt(self._batch)
        return found


def hook_measured(hook: Any, batch: list[Any], threads: int) -> Measured | None:
    """As :func:`measured`, for a function of a batch."""
    found = measured(Hooked(hook, batch), False, threads)
    return None if found is None else found._replace(what="map_batch")


def _read(reader: Any, varies: bool) -> bool:
    _, error = reader.samples([0], [(0, 0)] if varies else None)
    return error is None


def _seconds(reader: Any, varies: bool) -> float | None:
    if reader.first_seconds > _TRIED[1]:
        return float(reader.first_seconds)
    best, begun, reads = float("inf"), time.perf_counter(), 0
    while True:
        start = time.perf_counter()
        if not _read(reader, varies):
            return None
        now = time.perf_counter()
        best, reads, lasts = min(best, now - start), reads + 1, now - begun
        if lasts > _ENOUGH or (lasts > _LASTS and reads >= _READS):
            return best


def _together(reader: Any, varies: bool, threads: int, each: int) -> float:
    """The seconds in which each of several threads reads some samples."""
    together = threading.Barrier(threads + 1)

    def work() -> None:
        together.wait()
        for _ in range(each):
            _read(reader, varies)

    started = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
    for one in started:
        one.start()
    # Before the threads begin: this one may be late afterwards.
    start = time.perf_counter()
    together.wait()
    for one in started:
        one.join()
    return time.perf_counter() - start
