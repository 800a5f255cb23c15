"""An exception of a worker, from one process to another.

Its text, its pickling and its unpickling are code of its class, which may fail, block or end the process.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import sys
import time
import traceback
from typing import Any, NoReturn

from .._errors import describe, text_of

#: Max bytes of a pickled exception: a larger one arrives as its text.
_MOST = 32 << 20
#: Max frames of a traceback, max characters of one of its lines, and of all.
_FRAMES, _LINE, _TRACE = 200, 10_000, 1 << 20
#: Seconds for an exception to be pickled and unpickled.
_PATIENCE = 2.0


class WorkerTraceback(Exception):
    """The traceback of a worker process, as text: the ``__cause__`` of the exception that it raised."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._text = text

    def __str__(self) -> str:
        return f'\n"""\n{self._text}"""'


def packed(error: BaseException) -> bytes:
    """An exception, packed for another process."""
    own: bytes | None = None
    with contextlib.suppress(BaseException):
        _say_why_without_gpu(error)
        own = _pickled(error)
    line = describe(error, error.__traceback__)
    return pickle.dumps((type(error).__name__, text_of(error), line, trace_of(error), own))


def rebuilt(data: bytes) -> tuple[str, BaseException]:
    """The text of an exception with the line that raised it, and the exception."""
    kind, text, line, trace, own = pickle.loads(data)
    error: Any = None
    if own is not None:
        with contextlib.suppress(BaseException):
            error = pickle.loads(own)
    if not issubclass(type(error), BaseException):
        error = RuntimeError(f"{kind}: {text}")
    # Its class may have a `__setattr__` of its own.
    BaseException.__setattr__(error, "__cause__", WorkerTraceback(trace))
    return line, error


def trace_of(error: BaseException) -> str:
    """The traceback of an exception, cut to a size that can be sent."""
    raised_at, last = error.__traceback__, error.__traceback__
    for _ in range(_FRAMES):
        last = last and last.tb_next
    # Endless recursion may have millions of frames: the last ones are told.
    while raised_at is not None and last is not None:
        raised_at, last = raised_at.tb_next, last.tb_next
    try:
        lines = traceback.format_exception(type(error), error, raised_at, limit=-_FRAMES)
    except BaseException as failed:  # noqa: BLE001
        return f"its traceback cannot be made: {type(failed).__name__}\n"
    text = "".join(line if len(line) <= _LINE else f"{line[:_LINE]}...\n" for line in lines)
    if len(text) > _TRACE:
        text = f"{text[: _TRACE // 2]}\n...\n{text[-_TRACE // 2 :]}"
    return str.encode(text, "utf-8", "backslashreplace").decode()


def _pickled(error: BaseException) -> bytes | None:
    """A pickled exception that can be unpickled; ``None`` if there is none."""
    if not _is_plain(error):
        return _tried(error)
    try:
        own = pickle.dumps(error)
        pickle.loads(own)
    except Exception:  # noqa: BLE001
        return None
    return own if len(own) <= _MOST else None


def _is_plain(error: BaseException) -> bool:
    """Whether unpickling an exception runs no code of its class, nor of the values that it has."""
    kinds = [kind for kind in type(error).__mro__ if kind.__module__ != "builtins"]
    if type(type(error)) is not type or any(not _CODE.isdisjoint(vars(kind)) for kind in kinds):
        return False
    # At most some hundred values are looked at.
    left, looked = [error.args, vars(error)], 0
    while left and looked < 200:
        value, looked = left.pop(), looked + 1
        if type(value) in (tuple, list):
            left += value
        elif type(value) is dict:
            left += [*value, *value.values()]
        elif type(value) not in (str, bytes, int, float, bool, type(None)):
            return False
    return not left


#: Methods that run when an object is pickled or unpickled.
_CODE = frozenset(
    "__init__ __new__ __reduce__ __reduce_ex__ __getstate__ __setstate__ __getnewargs__ __getnewargs_ex__ "
    "__getattribute__ __getattr__ __setattr__ __slots__".split()
)


def _tried(error: BaseException) -> bytes | None:
    """As :func:`_pickled`, in a child of this process."""
    try:
        reading, writing = os.pipe()
    except OSError:
        return None
    try:
        child = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        return None
    if child == 0:
        _try(error, writing)
    os.close(writing)
    with os.fdopen(reading, "rb", 0) as pipe:
        own = _received(pipe, time.monotonic() + _PATIENCE)
    if own is None:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return own if status == 0 else None


def _try(error: BaseException, writing: int) -> NoReturn:
    try:
        # If the worker dies meanwhile, nobody else ends this process.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(2 * _PATIENCE))
        own = pickle.dumps(error)
        if len(own) <= _MOST and _is_safe(own):
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(own)
            os._exit(0)
    finally:
        os._exit(1)


def _is_safe(own: bytes) -> bool:
    """Whether an exception comes out, and no other process."""
    process = os.getpid()
    if not issubclass(type(pickle.loads(own)), BaseException) or os.getpid() != process:
        return False
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


def _received(pipe: Any, until: float) -> bytes | None:
    """The bytes of a pipe up to its end; ``None`` if that does not come in time."""
    found = bytearray()
    while select.select([pipe], [], [], max(until - time.monotonic(), 0))[0]:
        part = pipe.read(1 << 20)
        if not part:
            return bytes(found)
        found += part
    return None


def end_forked() -> NoReturn:
    """Ends this process: a child that a sample has forked, and that came back from it."""
    with contextlib.suppress(Exception):
        told = "feedline: a process that a sample has forked came back from it, and ends: end it by os._exit(0)"
        print(told, file=sys.stderr, flush=True)
    os._exit(1)


_NO_GPU = (
    "a worker process has no GPU: give the loader device=..., or read the data by threads "
    '(parallel="threads")'
)


def _say_why_without_gpu(error: BaseException) -> None:
    text = text_of(error)
    names_one = "CUDA" in text or "NVIDIA" in text
    if names_one and _NO_GPU not in text and len(error.args) == 1:
        error.args = (f"{error.args[0]} ({_NO_GPU})",)


def refuse_gpu(torch: Any) -> None:
    """Makes the first use of a GPU in this process an error that says why."""

    def refused(*_: Any) -> None:
        raise RuntimeError(f"CUDA is not for worker processes: {_NO_GPU}")

    torch.cuda._lazy_init = refused
