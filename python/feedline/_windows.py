"""Windows of time over a table: consecutive rows of a group, in the order of a column."""

from __future__ import annotations

import os
from typing import Any, Literal

from . import _feedline, _options, _times
from ._data import Data
from ._errors import ConfigError
from ._made import keeps_its_call
from ._open import opening
from ._table import DEFAULTS, _Names, names, steps, units
from ._tables import Table


class Windows(Data):
    """Windows of time, from :func:`feedline.windows`. :attr:`fate` counts the windows that were left out."""

    #: The column of times, and its unit if it is known.
    _times: tuple[str, _times.Unit | None]

    @keeps_its_call
    def targets_in(self, start: Any = None, stop: Any = None) -> Data:
        """The windows whose targets all have times of at least ``start`` and below ``stop``; for windows
        without targets, all rows. So windows of ``stop=90`` have no row from 90 on, and inputs of
        ``start=90`` may begin before 90. Limits are numbers, or times such as ``stop="2026-02-15"``: see
        :func:`feedline.windows`.

        Refused if means and deviations come from all rows, since later rows would leak into earlier ones.
        Choose the training rows by ``fit_on``, or use the numbers of another table by ``fitted``.
        """
        column, unit = self._times
        limits = {"start": start, "stop": stop}
        start, stop = (
            None if limit is None else _times.point(name, limit, unit, column) for name, limit in limits.items()
        )
        return self._new(self._set.targets_in(start, stop))


@keeps_its_call
def windows(
    path: str | os.PathLike[str] | Table,
    inputs: int,
    targets: int = 0,
    stride: int = 1,
    *,
    order_by: str,
    x: _Names,
    y: _Names = (),
    group: _Names = (),
    max_gap: Any = None,
    unit: Literal["day", "s", "ms", "us", "ns"] | None = None,
    **table: Any,
) -> Windows:
    """Opens a table as windows of time: ``inputs`` rows and the ``targets`` rows after them.

    A sample has the fields ``x``, ``float32 [inputs, columns]``; ``y``, ``float32 [targets, columns]``; ``group``,
    ``int64``, the number of the group in :attr:`Data.categories`, and one for each of several columns; and ``start``,
    the time of the first row.

    Rows are sorted by group and time; the file may have any order. Two rows with the same group and time are
    an error. No window has rows of two groups. The columns are decoded once if they take at most
    ``cache_bytes``.

    **Times.** A limit of :meth:`Windows.targets_in` and of ``fit_on`` is a number or a time: a ``date``, a
    ``datetime``, a ``numpy.datetime64``, a pandas ``Timestamp``, or a text such as ``"2026-02-15"``,
    ``"2026-02-15T12:30"`` or ``"2026-02-15T12:30:00.5+02:00"``. ``max_gap`` is a number, a ``timedelta`` or a
    ``numpy.timedelta64``. Numbers are in the unit of ``start``: days since 1970 after ``days=``, seconds since 1970
    after ``seconds=``, else the numbers of the file, whose unit ``unit=`` states for times. A time with a zone is
    converted to UTC. One without is taken as the values of the column are, whatever their zone. Times are converted
    exactly: one that is no whole number of the unit (after ``seconds=``, no ``float64``) is an error.

    Args:
        inputs: Rows of ``x``.
        targets: Rows of ``y``.
        stride: Rows from one window of a group to the next.
        order_by: The column of times: numbers, or dates and times in the unit of the file. For texts give
            ``days=`` or ``seconds=`` too.
        x: The columns of the inputs.
        y: The columns of the targets.
        group: The column, or the columns, of the group: texts, whole numbers or bools.
        max_gap: The max time between two neighbouring rows, such as one and a half steps. Windows over a
            longer gap are left out, and counted in :attr:`Data.fate`. Default: no limit.
        unit: The unit of the numbers of ``order_by``, counted from 1970: such as ``"us"`` for Parquet's timestamps of
            microseconds. It is not checked. Not with ``days=`` or ``seconds=``, which make a unit.
        table: Steps of :func:`feedline.table`, such as ``standardize``, ``fill``, ``category`` and ``fit_on``. Not
            ``select``, ``stack`` and ``mask``.

    >>> import feedline, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "sales.csv")
    >>> _ = open(path, "w").write("shop,day,sold\\nB,1,5\\nA,3,3\\nA,1,1\\nA,2,2\\nB,2,6\\n")
    >>> data = feedline.windows(path, 1, 1, group="shop", order_by="day", x="sold", y="sold")
    >>> [(sample["x"].item(), sample["y"].item(), sample["group"].item()) for sample in data]
    [(1.0, 2.0, 0), (2.0, 3.0, 0), (5.0, 6.0, 1)]
    >>> train, validation = data.targets_in(stop=3), data.targets_in(start=3)
    >>> len(train), len(validation)
    (2, 1)
    """
    for name in ("select", "stack", "mask"):
        if table.get(name):
            raise ConfigError(f"windows have no {name}: name their columns by x and y, and fill missing values")
    known = [name for name in DEFAULTS if name not in ("select", "stack", "mask")]
    _options.check_known("feedline.windows", table, known)
    given = DEFAULTS | table | {"path": path}
    own, made = _times.stated(unit), units(given).get(order_by) if isinstance(order_by, str) else None
    if own is not None and made is not None:
        step = "days" if made is _times.DAYS else "seconds"
        raise ConfigError(f'unit="{unit}", and {step} makes {step} of "{order_by}": leave unit out')
    of = made or own
    if own is not None:
        given["units"] = {order_by: own}
    window = {
        "inputs": _options.whole("inputs", inputs),
        "targets": _options.whole("targets", targets),
        "stride": _options.whole("stride", stride),
        "order_by": order_by,
        "group": names(group),
        "x": names(x),
        "y": names(y),
        "max_gap": None if max_gap is None else _times.span("max_gap", max_gap, of, order_by),
    }
    opened = Windows.__new__(Windows)
    opened._set = _feedline.open_windows(opening(given), steps(given), window)
    opened._is_tuple, opened._leaves, opened._made = False, [], None
    opened._times = order_by, of
    return opened
