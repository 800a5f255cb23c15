"""Windows of time over a table: consecutive rows of a group, in the order of a column."""

from __future__ import annotations

import os
from typing import Any

from . import _feedline, _options
from ._data import Data
from ._errors import ConfigError
from ._open import opening
from ._table import DEFAULTS, _Names, names, steps
from ._tables import Table


class Windows(Data):
    """Windows of time, from :func:`feedline.windows`. :attr:`fate` counts the windows that were left out."""

    def targets_in(self, start: float | None = None, stop: float | None = None) -> Data:
        """The windows whose targets all have times of at least ``start`` and below ``stop``; for windows
        without targets, all rows. So windows of ``stop=90`` have no row from 90 on, and inputs of
        ``start=90`` may begin before 90.

        Refused if means and deviations come from all rows, since later rows would leak into earlier ones.
        Choose the training rows by ``fit_on``, or use the numbers of another table by ``fitted``.
        """
        limits = {"start": start, "stop": stop}
        start, stop = (None if limit is None else _options.number(name, limit) for name, limit in limits.items())
        return self._new(self._set.targets_in(start, stop))


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
    max_gap: float | None = None,
    **table: Any,
) -> Windows:
    """Opens a table as windows of time: ``inputs`` rows and the ``targets`` rows after them.

    A sample has the fields ``x``, ``float32 [inputs, columns]``; ``y``, ``float32 [targets, columns]``; ``group``,
    ``int64``, the number of the group in :attr:`Data.categories`, and one for each of several columns; and ``start``,
    the time of the first row.

    Rows are sorted by group and time; the file may have any order. Two rows with the same group and time are
    an error. No window has rows of two groups. The columns are decoded once if they take at most
    ``cache_bytes``.

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
    window = {
        "inputs": _options.whole("inputs", inputs),
        "targets": _options.whole("targets", targets),
        "stride": _options.whole("stride", stride),
        "order_by": order_by,
        "group": names(group),
        "x": names(x),
        "y": names(y),
        "max_gap": None if max_gap is None else _options.number("max_gap", max_gap),
    }
    opened = Windows.__new__(Windows)
    opened._set = _feedline.open_windows(opening(given), steps(given), window)
    opened._is_tuple, opened._leaves, opened._made = False, [], None
    return opened
