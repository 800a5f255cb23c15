"""The two loaders of a comparison: each is read batch by batch, timed, and its memory measured."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from time import monotonic
from typing import Any, NamedTuple

from ._batch import Padded, Ragged
from ._data import Data
from ._errors import ConfigError, Error, describe, shown
from ._loader import Loader
from ._rows import Pair, Rows, leaves, rows_of


@dataclass
class Compared:
    """One of the two loaders of a :class:`Comparison`. What was not measured is ``None``."""

    #: The name of its type.
    name: str
    #: The batches and samples that were compared, and whether these are a whole epoch.
    batches: int = 0
    samples: int = 0
    is_whole: bool = False
    #: Medians of the passes, without the first batch of each epoch.
    batches_per_second: float | None = None
    samples_per_second: float | None = None
    #: Seconds from the begin of an epoch to its first batch, the median of all epochs.
    first_batch: float | None = None
    #: Bytes by which the peak of this process' resident memory (RSS) grew in a pass over that before the pass.
    memory: int | None = None
    #: The largest sum of the RSS of its child processes after a batch; a page that several share counts in each.
    children: int | None = None
    #: Bytes of pinned slots that a :class:`Loader` holds from its begin on, so that they are not in ``memory``.
    slots: int = 0


class Row(NamedTuple):
    """A sample, and where it is."""

    batch: int
    row: int
    hash: bytes
    #: The batch, while it is compared.
    rows: Rows | None


class Side:
    """Reads one of the two loaders."""

    def __init__(self, of: Any, place: str) -> None:
        if isinstance(of, Data):
            raise ConfigError(f"the {place} is a Data: give feedline.Loader(data, batch_size)")
        if not hasattr(of, "__iter__") or isinstance(of, (str, bytes, dict)):
            why = f"the {place} is {shown(of)}, which gives no batches"
            raise ConfigError(f"{why}: give a loader, or a list of batches")
        self.of, self.place = of, place
        is_ours = isinstance(of, Loader)
        self.result = Compared("feedline.Loader" if is_ours else type(of).__name__)
        #: The first batch with other fields or types than those before, in words.
        self.change: str | None = None
        self.result.slots = of.memory["pinned"] if is_ours else 0
        self._state = of.state_dict() if is_ours and of._once is None else None
        #: What can be read once goes on where it is.
        self._is_once = (is_ours and of._once is not None) or isinstance(of, Iterator)
        self._iterator: Any = None
        self._at = 0
        #: Batches and samples per second of each pass, and the seconds to each first batch.
        self._rates: list[tuple[float, float]] = []
        self._firsts: list[float] = []

    def begin(self) -> None:
        """Begins an epoch."""
        if self._iterator is None or not self._is_once:
            # First the old one, whose workers end with it.
            self._iterator, self._at = None, 0
            self._iterator = self._call(iter, self.of)

    def take(self) -> Any:
        """The next batch; ``None`` at the end of the epoch."""
        batch = self._call(next, self._iterator, None)
        self._at += batch is not None
        return batch

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            told = f"{self.result.name}, raised {describe(error, error.__traceback__)} for batch {self._at}"
            raised = Error(f"the {self.place}, {told}: repair it, then compare")
            raised.batch = self._at
            raise raised from error

    def rows(self) -> Rows | None:
        """The rows of the next batch."""
        batch = self.take()
        return None if batch is None else rows_of(batch, f"batch {self._at - 1} of the {self.place}")

    def each_row(self, rows: Rows | None, pairs: list[Pair], most: int) -> Iterator[Row]:
        """The rows from those of the first batch on."""
        result, number = self.result, int(self.place == "second")
        first = "" if rows is None else rows.kinds(pairs, number)
        while rows is not None and result.batches < most:
            kinds = rows.kinds(pairs, number)
            if kinds != first and self.change is None:
                self.change = f"batch {result.batches} of {result.name} has other fields or types than batch 0"
            result.batches += 1
            result.samples += rows.count
            for row, hashed in enumerate(rows.hashes(pairs, number)):
                # Fields that come later count, too.
                yield Row(result.batches - 1, row, hashed if kinds == first else hashed + kinds.encode(), rows)
            rows = self.rows() if result.batches < most else None
        result.is_whole = result.batches < most or self.take() is None

    def read(self, seconds: float, look: Callable[[], None] = lambda: None) -> None:
        """A pass, which measures the speed. Calls ``look`` after each batch."""
        end, counts, whole = monotonic() + seconds, [0.0, 0, 0], [0.0, 0, 0]
        while monotonic() < end or not whole[1]:
            start = monotonic()
            self.begin()
            rows = _touched(self.take())
            if rows is None:
                break
            _wait_for_gpu()
            now = monotonic()
            self._firsts.append(now - start)
            whole = [whole[0] + now - start, whole[1] + 1, whole[2] + rows]
            look()
            while monotonic() < end and (rows := _touched(self.take())) is not None:
                counts = [counts[0], counts[1] + 1, counts[2] + rows]
                look()
            _wait_for_gpu()
            counts[0] += monotonic() - now
        # Epochs of one batch have no other.
        took, batches, samples = counts if counts[1] else whole
        if batches:
            self._rates.append((batches / took, samples / took))
        self.rest()

    def measure_memory(self, seconds: float, before: dict[int, int]) -> None:
        """Measures memory in a pass. ``before`` has the child processes that were there before the comparison."""
        start = _peak(is_new=True)
        if start is None:
            return
        most, is_ours = 0, isinstance(self.of, Loader)

        def look() -> None:
            nonlocal most
            most = max(most, sum(children_of(is_ours, before).values()))

        self.read(seconds, look)
        self.result.memory, self.result.children = max((_peak() or 0) - start, 0), most
        self._rates, self._firsts = [], []

    def rest(self) -> None:
        """Ends what an epoch has begun, so that it does not read while the other loader is measured."""
        if not self._is_once:
            self._iterator = None

    def conclude(self) -> None:
        """Writes the medians of the passes to the result."""
        if self._rates:
            self.result.batches_per_second, self.result.samples_per_second = map(median, zip(*self._rates, strict=True))
            self.result.first_batch = None if self._is_once else median(self._firsts)

    def leave(self) -> None:
        """Puts the loader back to its place."""
        self._iterator = None
        if self._state is not None:
            self.of.load_state_dict(self._state)


def _touched(batch: Any) -> int | None:
    """The rows of a batch, whose fields are asked for as by a loop; ``None`` without a batch."""
    if batch is None:
        return None
    parts = [value[0] if isinstance(value, Padded) else value for value in leaves(batch).values()]
    if hasattr(batch, "valid_rows"):
        return int(batch.valid_rows)
    sized = [part for part in parts if hasattr(part, "__len__") and getattr(part, "shape", None) != ()]
    first = sized[0] if sized else [0]
    return len(first.offsets) - 1 if isinstance(first, Ragged) else len(first)


def cuda() -> Any:
    """``torch.cuda``, if it is in use."""
    found = getattr(sys.modules.get("torch"), "cuda", None)
    return found if found is not None and found.is_available() and found.is_initialized() else None


def _wait_for_gpu() -> None:
    """Waits for the copies of a batch: they are a part of its loading."""
    found = cuda()
    if found is not None:
        found.synchronize()


def _peak(is_new: bool = False) -> int | None:
    """The peak of this process' resident memory in bytes, since it was last made new; ``None`` if there is none."""
    with contextlib.suppress(OSError):
        if is_new:
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")
        with open("/proc/self/status") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
    return None


def children_of(is_ours: bool, before: dict[int, int]) -> dict[int, int]:
    """The resident bytes of each process below this one, less those in ``before``. Workers of feedline, which are there
    from the begin of their loader on, count in full if ``is_ours``, and else not at all."""
    found, todo = {}, [os.getpid()]
    while todo:
        process = todo.pop()
        # It may end meanwhile.
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{process}/task"):
                with open(f"/proc/{process}/task/{task}/children") as file:
                    todo += map(int, file.read().split())
            with open(f"/proc/{process}/comm") as name, open(f"/proc/{process}/statm") as pages:
                is_worker, size = name.read().startswith("feedline-worke"), int(pages.read().split()[1])
            if process != os.getpid() and (is_ours or not is_worker):
                found[process] = size * os.sysconf("SC_PAGE_SIZE") - (0 if is_worker else before.get(process, 0))
    return {process: size for process, size in found.items() if size > 0}
