"""Times as people write them, as numbers of a column: exactly, or an error.

A time with a zone is converted to UTC. One without is taken as the values of the column are.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from . import _options
from ._errors import ConfigError, shown


class Unit(NamedTuple):
    """The unit of a column of times, since 1970."""

    name: str
    per_second: Fraction
    #: Whether the column has floats, so that a time may be a part of a unit.
    is_float: bool = False


_PER_SECOND = {"day": Fraction(1, 86_400), "s": Fraction(1), "ms": Fraction(1_000)}
_PER_SECOND |= {"us": Fraction(1_000_000), "ns": Fraction(1_000_000_000)}
#: What the steps ``days`` and ``seconds`` of a table make.
DAYS, SECONDS = Unit("days", Fraction(1, 86_400)), Unit("s", Fraction(1), True)

#: Seconds of NumPy's units. Years and months are of no one length.
_NUMPY = {unit: Fraction(of) for unit, of in {"W": 604_800, "D": 86_400, "h": 3_600, "m": 60, "s": 1}.items()}
_NUMPY |= {unit: Fraction(1, 1_000**power) for power, unit in enumerate(("ms", "us", "ns", "ps", "fs", "as"), 1)}
_ISO = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(\.\d{1,18})?)?(?:(Z)|([+-])(\d\d):?(\d\d))?)?")


def stated(name: Any) -> Unit | None:
    """The unit of the option ``unit``."""
    if name is None:
        return None
    word = _options.word("unit", name, *_PER_SECOND)
    return Unit("days" if word == "day" else word, _PER_SECOND[word])


def point(name: str, value: Any, unit: Unit | None, column: str) -> float:
    """``value``, a number or a time, in the unit of ``column``; ``None`` if that is not known."""
    if hasattr(value, "to_datetime64"):
        # Of pandas, which has nanoseconds.
        value = value.to_datetime64()
    if isinstance(value, (timedelta, np.timedelta64)):
        raise ConfigError(f"{name} is {shown(value)}, a length of time: give a time, such as {_EXAMPLE}")
    return _number(name, value, _since_1970(value), unit, column, f"a time, such as {_EXAMPLE}")


def span(name: str, value: Any, unit: Unit | None, column: str) -> float:
    """``value``, a number or a length of time, in the unit of ``column``."""
    if hasattr(value, "to_timedelta64"):
        value = value.to_timedelta64()
    seconds = None
    if isinstance(value, timedelta):
        seconds = _seconds(value)
    elif isinstance(value, np.timedelta64):
        seconds = _of_numpy(value)
    how = "a length of time, such as datetime.timedelta(days=1)"
    return _number(name, value, seconds, unit, column, how)


_EXAMPLE = '"2026-02-15" or datetime(2026, 2, 15, 12)'


def _number(name: str, value: Any, seconds: Fraction | None, unit: Unit | None, column: str, how: str) -> float:
    """The number of a value that is ``seconds``, or else a number already."""
    if seconds is None:
        is_odd = isinstance(value, (str, bytes, date, np.datetime64, np.timedelta64))
        try:
            number = None if is_odd else float(value)
        except (TypeError, ValueError, OverflowError):
            number = None
        if number is None:
            raise ConfigError(f"{name} is {shown(value)}: give a number, or {how}")
        if isinstance(value, (int, np.integer)) and int(number) != value:
            why = f"{name} is {shown(value)}: limits are float64, and no float64 is this number"
            raise ConfigError(f"{why}: give another")
        return number
    if unit is None:
        raise ConfigError(
            f'{name} is {shown(value)}, and the unit of "{column}" is not stated: give unit="us", if that is the unit '
            f'of its numbers, or days="{column}" or seconds="{column}"; or give a number'
        )
    exact = seconds * unit.per_second
    if exact.denominator > 1 and not unit.is_float:
        raise ConfigError(
            f"{name} is {shown(value)}, {float(exact)} {unit.name}, which is no whole number of {unit.name}: give one, "
            f"or the number {float(exact)}"
        )
    if Fraction(float(exact)) != exact:
        raise ConfigError(
            f"{name} is {shown(value)}, {float(exact)!r} {unit.name} when rounded: limits are float64, and no float64 "
            "is this time: give a time of fewer digits, or a number"
        )
    return float(exact)


def _since_1970(value: Any) -> Fraction | None:
    """The seconds since 1970; ``None`` for what is no time."""
    if isinstance(value, datetime):
        utc = value.replace(tzinfo=timezone.utc) if value.tzinfo is None else value
        return _seconds(utc - datetime(1970, 1, 1, tzinfo=timezone.utc))
    if isinstance(value, date):
        return Fraction(86_400 * (value.toordinal() - date(1970, 1, 1).toordinal()))
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else _of_numpy(value.astype("M8[D]") if _has_months(value) else value)
    found = _ISO.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    day, hour, minute, second, part, _, sign, hours, minutes = found.groups()
    try:
        start = datetime.fromisoformat(f"{day}T{hour or '00'}:{minute or '00'}:{second or '00'}+00:00")
    except ValueError:
        return None
    ahead = 3_600 * int(hours or 0) + 60 * int(minutes or 0)
    if ahead >= 86_400 or int(minutes or 0) >= 60:
        return None
    since = _seconds(start - datetime(1970, 1, 1, tzinfo=timezone.utc))
    return since + Fraction(f"0{part or ''}") - (-ahead if sign == "-" else ahead)


def _seconds(span: timedelta) -> Fraction:
    return Fraction(span // timedelta(microseconds=1), 1_000_000)


def _has_months(value: np.datetime64 | np.timedelta64) -> bool:
    return np.datetime_data(value.dtype)[0] in ("Y", "M")


def _of_numpy(value: np.datetime64 | np.timedelta64) -> Fraction | None:
    """The seconds of a value of NumPy; ``None`` if its unit has no one length."""
    unit, count = np.datetime_data(value.dtype)
    if np.isnat(value) or unit not in _NUMPY:
        return None
    return Fraction(int(value.astype(np.int64)) * count) * _NUMPY[unit]
