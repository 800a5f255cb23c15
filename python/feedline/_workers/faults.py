"""An exception of a worker, from one process to another."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

from .._errors import describe


class WorkerTraceback(Exception):
    """The traceback of a worker process, as text: the ``__cause__`` of the exception that it raised."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._text = text

    def __str__(self) -> str:
        return f'\n"""\n{self._text}"""'


def packed(error: BaseException) -> bytes:
    """An exception, packed for another process."""
    _say_why_without_gpu(error)
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    line = describe(error, error.__traceback__)
    try:
        own = pickle.dumps(error)
        pickle.loads(own)
    except Exception:
        own = None
    return pickle.dumps((type(error).__name__, str(error), line, trace, own))


def rebuilt(data: bytes) -> tuple[str, BaseException]:
    """The text of an exception with the line that raised it, and the exception."""
    kind, text, line, trace, own = pickle.loads(data)
    error: Any = None
    if own is not None:
        try:
            error = pickle.loads(own)
        except Exception:
            error = None
    if not isinstance(error, BaseException):
        error = RuntimeError(f"{kind}: {text}")
    error.__cause__ = WorkerTraceback(trace)
    return line, error


_NO_GPU = (
    "a worker process has no GPU: give the loader device=..., or read the data by threads "
    '(parallel="threads")'
)


def _say_why_without_gpu(error: BaseException) -> None:
    names_one = "CUDA" in str(error) or "NVIDIA" in str(error)
    if names_one and _NO_GPU not in str(error) and len(error.args) == 1:
        error.args = (f"{error.args[0]} ({_NO_GPU})",)


def refuse_gpu(torch: Any) -> None:
    """Makes the first use of a GPU in this process an error that says why."""

    def refused(*_: Any) -> None:
        raise RuntimeError(f"CUDA is not for worker processes: {_NO_GPU}")

    torch.cuda._lazy_init = refused
