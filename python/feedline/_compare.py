"""``compare``: another loader beside one of feedline: the samples, their order, speed and memory."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

from . import _options
from ._errors import ConfigError
from ._loader import Loader
from ._rows import Pair, first_difference, pairs_of
from ._sides import Compared, Row, Side, children_of, cuda
from ._workers.owned import own_generators
from ._workers.seeds import States


@dataclass(repr=False)
class Comparison:
    """The result of :func:`compare`. Prints as a table."""

    first: Compared
    second: Compared
    #: Whether both give the same samples, with the same fields, types and shapes, in any order and in batches of any
    #: size, as far as they were read; ``None`` if that is unknown, because the orders differ and not all was read.
    equal: bool | None
    #: The order of the samples, by their values: ``"equal"``; ``"other"``: the same samples in another order, as with a
    #: shuffle; ``"differ"``: other samples; ``"unknown"``: other orders, of which not all was read.
    order: Literal["equal", "other", "differ", "unknown"]
    #: Whether all batches have the same samples in the same order.
    same_batches: bool
    #: The first difference, in a sentence.
    difference: str | None

    @property
    def speed(self) -> float | None:
        """How many times as many samples per second the second gives as the first."""
        one, other = self.first.samples_per_second, self.second.samples_per_second
        return other / one if one and other else None

    def _words(self) -> str:
        sizes = "" if self.same_batches or self.order != "equal" else ", in batches of other sizes"
        said = {
            "equal": f"the same samples in the same order{sizes}",
            "other": "the same samples in another order, which a shuffle makes by design",
            "differ": "the samples differ",
            "unknown": "unknown: the orders differ, and not all was read: raise batches= to a whole epoch, or leave "
            "the shuffle out",
        }[self.order]
        read = " and ".join(f"the first {one.batches} batches of {one.name}" for one in self._sides if not one.is_whole)
        return said + (f" ({read})" if read else "")

    @property
    def _sides(self) -> tuple[Compared, Compared]:
        return self.first, self.second

    def _rows(self) -> list[tuple[str, ...]]:
        def cells(name: str, field: str, form: Callable[[Any], str]) -> tuple[str, ...]:
            values = (getattr(one, field) for one in self._sides)
            return name, *("not measured" if value is None else form(value) for value in values)

        rows = [
            cells("batches", "batches", "{:,}".format),
            cells("samples", "samples", "{:,}".format),
            cells("samples/s", "samples_per_second", "{:,.0f}".format),
            cells("batches/s", "batches_per_second", "{:,.1f}".format),
            cells("first batch", "first_batch", lambda seconds: f"{1e3 * seconds:,.1f} ms"),
            cells("RSS, growth of the peak", "memory", _mebibytes),
            cells("RSS of child processes", "children", _mebibytes),
        ]
        if any(one.slots for one in self._sides):
            rows.append(cells("pinned slots beside it", "slots", _mebibytes))
        return rows

    def _lines(self) -> list[str]:
        told = [self._words(), *([] if self.difference is None else [f"first difference: {self.difference}"])]
        return told if self.speed is None else [*told, f"{self.second.name}: {self.speed:.2f} times the samples/s"]

    def __repr__(self) -> str:
        rows = [("", self.first.name, self.second.name), *self._rows()]
        widths = [max(len(row[at]) for row in rows) for at in range(3)]
        table = (f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}" for row in rows)
        return "\n".join([*table, *self._lines()])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in ("", self.first.name, self.second.name))
        rows = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in self._rows())
        lines = "".join(f"<div>{html.escape(line)}</div>" for line in self._lines())
        return f"<div><table><tr>{head}</tr>{rows}</table>{lines}</div>"


def compare(
    first: Any, second: Any, *, batches: int = 100, seconds: float = 2.0, passes: int = 3
) -> Comparison:
    """Compares two loaders, such as a ``DataLoader`` of torch and a :class:`Loader`: the samples, their order, the
    speed and the memory. Each is an iterable of batches. Blocks for about ``2 * (passes + 1) * seconds``, and for the
    batches that are compared.

    Values are compared without a tolerance, on the host; -0.0 is 0.0, and NaN is NaN. If one of the two shuffles, the
    orders differ by design, and the samples are compared as sets: for that both epochs must have at most ``batches``
    batches. Random transforms make other samples in each: leave them out. Fields are compared by name; if the two have
    none in common, by their place.

    The loaders take turns at the passes. A pass goes on to the next epoch until its time is over, asks for every field,
    and ends when a GPU is done. The samples/s leave out the first batch of each epoch, which ``first_batch`` has.
    Memory is measured in a pass of its own, the second loader after the first, whose freed memory it may use again; on
    Linux only. An iterator can be read once: its values are compared, and it is timed only if it goes on.

    The global random generators keep their states, and so do those of a loader and its data set; a :class:`Loader`
    keeps its place. An error of a loader is the ``__cause__`` of the :class:`Error`, which names the loader.

    Args:
        first: The loader that you have.
        second: The other one, usually of feedline.
        batches: Max batches of each that are compared.
        seconds: The time of a pass; 0 compares the values only.
        passes: The number of passes of each; the median counts.

    >>> import feedline, numpy as np
    >>> theirs = [{"x": np.array([0, 1])}, {"x": np.array([2, 5])}]
    >>> ours = feedline.Loader({"x": np.arange(4)}, 2, framework="numpy")
    >>> result = feedline.compare(theirs, ours, seconds=0.01)
    >>> result.equal, result.speed > 0
    (False, True)
    >>> result.difference
    'field "x" is 5 in row 1 of batch 1 of list, and 3 in row 1 of batch 1 of feedline.Loader'
    """
    batches, passes = _options.whole("batches", batches, 1), _options.whole("passes", passes, 1)
    seconds = _options.number("seconds", seconds)
    if not 0 <= seconds < float("inf"):
        raise ConfigError(f"seconds is {seconds}: give the seconds of a pass, from 0")
    if first is second:
        raise ConfigError("both are the same object, and a loader has one epoch at a time: make a second one")
    sides = Side(first, "first"), Side(second, "second")
    if sides[0].result.name == sides[1].result.name:
        for side in sides:
            side.result.name = f"{side.place} {side.result.name}"
    others = [(side.place, side.of) for side in sides if not isinstance(side.of, Loader)]
    states, gpu, before = States(own_generators(others)[0]), cuda(), children_of(False, {})
    on_gpu = None if gpu is None else gpu.get_rng_state_all()
    try:
        found = _values(sides, batches)
        for side in sides:
            side.rest()
        if seconds:
            for side in sides:
                side.measure_memory(seconds, before)
            for _ in range(passes):
                for side in sides:
                    side.read(seconds)
            for side in sides:
                side.conclude()
    finally:
        states.restore()
        if gpu is not None:
            gpu.set_rng_state_all(on_gpu)
        for side in sides:
            side.leave()
    return Comparison(sides[0].result, sides[1].result, *found)


_Order = Literal["equal", "other", "differ", "unknown"]


def _values(sides: Sequence[Side], most: int) -> tuple[bool | None, _Order, bool, str | None]:
    """The fields of a :class:`Comparison` from ``equal`` on."""
    for side in sides:
        side.begin()
    firsts, names = [side.rows() for side in sides], [side.result.name for side in sides]
    pairs: list[Pair] = []
    fields = value = None
    if firsts[0] is not None and firsts[1] is not None:
        pairs, fields = pairs_of(firsts[0], firsts[1], names)
    seen: tuple[list[Row], list[Row]] = ([], [])
    in_place = 0
    for both in zip_longest(*(side.each_row(rows, pairs, most) for side, rows in zip(sides, firsts, strict=True))):
        if None not in both:
            in_place += both[0].hash == both[1].hash
            if value is None:
                value = _named(both, pairs, names)
        for rows, row in zip(seen, both, strict=True):
            if row is not None:
                # Without the values, which are large.
                rows.append(row._replace(rows=None))
    order, told = _order([side.result for side in sides], seen, in_place, value)
    same_places = all(one[:2] == other[:2] for one, other in zip(*seen, strict=False))
    equal = False if fields else None if order == "unknown" else order != "differ"
    change = next((side.change for side in sides if side.change is not None), None) if equal is False else None
    return equal, order, order == "equal" and same_places, fields or told or change


def _order(
    sides: Sequence[Compared], seen: Sequence[Sequence[Row]], in_place: int, value: str | None
) -> tuple[_Order, str | None]:
    """How the orders of the samples differ, and a sentence on it. ``in_place`` samples are where the other loader has
    them, too."""
    counts = [Counter(row.hash for row in rows) for rows in seen]
    lengths, common = [len(rows) for rows in seen], (counts[0] & counts[1]).total()
    for one, other in ((0, 1), (1, 0)):
        goes_on = lengths[other] > lengths[one] or (lengths[other] == lengths[one] and not sides[other].is_whole)
        if sides[one].is_whole and goes_on and in_place == lengths[one]:
            return "differ", f"{sides[one].name} ends after {lengths[one]:,} samples, and {sides[other].name} goes on"
    if in_place == min(lengths):
        return "equal", None
    is_all = sides[0].is_whole and sides[1].is_whole
    if is_all and counts[0] == counts[1]:
        return "other", None
    # Nearly all that both have is in one order, so that other values are not due to a shuffle.
    if 10 * in_place >= 9 * common and (in_place or is_all):
        return "differ", value
    if not is_all:
        return "unknown", value
    told = []
    for one, other in ((0, 1), (1, 0)):
        only = counts[one] - counts[other]
        if only:
            first = next(row for row in seen[one] if row.hash in only)
            told.append(
                f"{only.total():,} of {lengths[one]:,} samples of {sides[one].name} are not in {sides[other].name}, "
                f"the first in row {first.row} of batch {first.batch}"
            )
    return "differ", "; ".join(told)


def _named(both: Sequence[Row], pairs: Sequence[Pair], names: Sequence[str]) -> str | None:
    """The first value that differs in two rows."""
    for pair in pairs:
        given = (row.rows.at(pair, side, row.row) for side, row in enumerate(both) if row.rows is not None)
        found = first_difference(*given)
        if found is not None:
            place, what, *values = found
            told = (f"{value} in row {row.row} of batch {row.batch} of {name}"
                    for value, row, name in zip(values, both, names, strict=True))
            return f'field "{pair.names[0]}"{place} {what} {", and ".join(told)}'
    return None


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"
