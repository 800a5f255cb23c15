"""The exceptions of feedline: a class for each kind of error, the place as attributes."""

from __future__ import annotations

import traceback
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


def describe(error: BaseException, raised_at: TracebackType | None) -> str:
    """The exception and the line that raised it, on one line."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    frames = traceback.extract_tb(raised_at)
    own = [frame for frame in frames if not frame.filename.startswith(_PACKAGE)]
    if own:
        text += f" (file {own[-1].filename}, line {own[-1].lineno})"
    return text


_PACKAGE = __file__.rsplit("_errors", 1)[0]
