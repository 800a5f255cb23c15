"""The exceptions of feedline: a class for each kind of error, the place as attributes."""

from __future__ import annotations

from types import TracebackType

__all__ = [
    "BudgetError",
    "ConfigError",
    "DataError",
    "DeviceError",
    "Error",
    "ForkedError",
    "SampleError",
    "SlotsHeldError",
    "StateError",
    "StoppedError",
]


class Error(Exception):
    """The base class of all errors of feedline.

    The text is one line: what is wrong, where, and what to do. An exception of your own code, raised by a
    data set or a hook, is the ``__cause__``, with its traceback.

    Attributes, each ``None`` if it is not known:
        stage: The stage of the pipeline: ``sampler``, ``decode``, ``transfer``, ``device map`` or ``compute``.
        batch: The step of the batch within its epoch.
        sample: The id of the sample.
        path: The file or the URL.
        offset: The byte in the file.

    >>> import feedline
    >>> try:
    ...     feedline.open("/no/such/file")
    ... except feedline.Error as error:
    ...     print(type(error).__name__, error.path)
    DataError /no/such/file
    """

    #: The stage of the pipeline: ``sampler``, ``decode``, ``transfer``, ``device map`` or
    #: ``compute``.
    stage: str | None = None
    #: The step of the batch within its epoch.
    batch: int | None = None
    #: The id of the sample.
    sample: int | None = None
    #: The file or the URL.
    path: str | None = None
    #: The byte in the file.
    offset: int | None = None
    #: The field of a sample that is longer than its slot has room for, and the number of its items.
    _needs: tuple[str, int] | None = None


class ConfigError(Error, ValueError):
    """An option or an argument is invalid."""


class BudgetError(Error):
    """The loader would need more memory than it may use."""


class DataError(Error):
    """A file is missing, truncated or malformed."""


class SampleError(Error):
    """A sample could not be read."""


class DeviceError(Error):
    """The device does not exist, or a call of it failed."""


class SlotsHeldError(Error):
    """Batches or their arrays hold every slot, so that no batch can arrive."""


class ForkedError(Error):
    """The process was forked from the one that made the loader."""


class StateError(Error, ValueError):
    """A saved state is damaged, or belongs to other data."""


class StoppedError(Error):
    """The loader is closed."""


_KINDS: dict[str, type[Error]] = {
    "Config": ConfigError,
    "Budget": BudgetError,
    "Data": DataError,
    "Sample": SampleError,
    "Device": DeviceError,
    "DeviceLost": DeviceError,
    "Unavailable": DeviceError,
    "SlotsHeld": SlotsHeldError,
    "Forked": ForkedError,
    "Cursor": StateError,
    "Stopped": StoppedError,
}


def of_kind(kind: str) -> type[Error]:
    """The class for an error kind of the compiled part."""
    return _KINDS.get(kind, Error)


#: Max characters of an exception's text, of that within the text of an error, and of a value's.
_TEXT, _LINE, _VALUE = 10_000, 500, 80


def describe(error: BaseException, raised_at: TracebackType | None) -> str:
    """The exception and the line that raised it, on one line."""
    text = one_line(": ".join(filter(None, (type(error).__name__, text_of(error)))), _LINE)
    # Endless recursion may have millions of frames.
    place, line = None, 0
    while raised_at is not None:
        path = raised_at.tb_frame.f_code.co_filename
        if not path.startswith(_PACKAGE):
            place, line = path, raised_at.tb_lineno
        raised_at = raised_at.tb_next
    if place is not None:
        text += _encodable(f" (file {place}, line {line})")
    return text


def text_of(error: BaseException) -> str:
    """The text of an exception, whatever the code of its class does: one that can be encoded, and is not huge."""
    try:
        return _encodable(cut(str(error), _TEXT))
    except BaseException as failed:  # noqa: BLE001
        try:
            return _encodable(f"its text cannot be made: {type(failed).__name__}: {failed}")
        except BaseException:  # noqa: BLE001
            return f"its text cannot be made: {type(failed).__name__}"


def shown(value: object) -> str:
    """A value that was given, as one short line: its ``repr`` may be a whole table, or fail."""
    try:
        text = _encodable(repr(value))
    except Exception:  # noqa: BLE001
        text = f"an object of type {type(value).__name__}"
    return one_line(text, _VALUE)


def one_line(text: str, most: int) -> str:
    """A text on one line of at most ``most`` characters."""
    return cut(" ".join(text[: 10 * most].split()), most)


def cut(text: str, most: int) -> str:
    """The first characters of a text, with dots if it has more."""
    return text if len(text) <= most else text[: most - 3] + "..."


def _encodable(text: str) -> str:
    # A file name that is not UTF-8 has lone surrogates.
    return str.encode(text, "utf-8", "backslashreplace").decode()


_PACKAGE = __file__.rsplit("_errors", 1)[0]
