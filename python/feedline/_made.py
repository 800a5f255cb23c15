"""How data is pickled: by the call that made it, which another process makes again."""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import io
import os
import pickle
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ._errors import ConfigError, DataError, one_line
from ._tables import arrow, is_table

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: The options that are paths, beside the first argument.
_PATHS = ("path", "root", "tokenizer", "annotations", "saved", "fitted")

#: The text of the error of a missing file.
_NO_FILE = "no such file: check the path"


class Made(NamedTuple):
    """The call that has made data."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def again(self, fingerprint: int | None = None) -> Any:
        """Makes the data again, in another process; refuses data of another fingerprint."""
        made = self.function(*self.arguments, **self.options)
        if fingerprint is not None and made.fingerprint != fingerprint:
            raise DataError(
                f"{made!r} is not the data that was pickled, because its files or arrays have changed since it was "
                "opened: open it again, and leave them as they are"
            )
        return made


def keeps_its_call(function: _Function) -> _Function:
    """Lets the data that a function returns be made again: by the same call."""
    names = list(inspect.signature(function).parameters)
    paths = {names[0], *_PATHS}

    def kept(name: str | None, value: Any) -> Any:
        if name in paths:
            return placed(value)
        # The caller may change a list later.
        return value.copy() if type(value) in (list, dict, set) else value

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        # The stream of a table may be read once.
        if arguments and is_table(arguments[0]):
            arguments = (arrow(arguments[0]), *arguments[1:])
        elif is_table(options.get(names[0])):
            options[names[0]] = arrow(options[names[0]])
        with suggesting():
            made = function(*arguments, **options)
        given = tuple(kept(*one) for one in zip_longest(names[: len(arguments)], arguments))
        made._made = Made(call, given, {name: kept(name, value) for name, value in options.items()})
        return made

    return call  # type: ignore[return-value]


@contextlib.contextmanager
def suggesting() -> Iterator[None]:
    """Lets the error of a missing file name the one beside it that is most like it."""
    try:
        yield
    except DataError as error:
        path, text = error.path, str(error)
        if path is None or not text.startswith(_NO_FILE) or "://" in path:
            raise
        folder, name = os.path.split(path)
        while folder and not os.path.isdir(folder):
            folder, name = os.path.split(folder)
        with contextlib.suppress(OSError):
            names = {one.casefold(): one for one in os.listdir(folder or ".")}
            named = [one for one in names if os.path.splitext(one)[0] == name.casefold()]
            for like in (named or difflib.get_close_matches(name.casefold(), names, 1))[:1]:
                nearest = names[like]
                error.args = (text.replace(_NO_FILE, f"no such file: is it {os.path.join(folder, nearest)}?", 1), *error.args[1:])
        raise


def placed(value: Any) -> Any:
    """A path, or paths, from the root, because another process may have another current folder."""
    if type(value) in (list, tuple):
        return type(value)(map(placed, value))
    if not isinstance(value, (str, os.PathLike)) or "://" in os.fspath(value):
        return value
    return os.path.join(os.getcwd(), value)


def one_of(function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any], *places: int) -> Any:
    """One of the results of a function that returns several."""
    made = function(*arguments, **options)
    for place in places:
        made = made[place]
    return made


def check(made: Made) -> None:
    """Refuses a call whose arguments cannot be pickled, and names the first one."""
    from ._workers.packing import _culprit, _described

    function, arguments, options = made
    if function is one_of:
        function, arguments, options = arguments[:3]
    names = inspect.signature(function).parameters
    for name, piece in [*zip(names, arguments, strict=False), *options.items()]:
        error = refusal(piece)
        if error is not None:
            of = "Data" if function.__qualname__ == "Data" else function.__qualname__
            place, culprit = _culprit(piece, f"{name} of {of}", set())
            raise ConfigError(
                f"the data cannot be pickled: {place} is {_described(culprit)} ({one_line(str(error), 200)}): give a "
                "function or an object of a class of a module, whose attributes can be pickled, or open the data in "
                "the process that needs it"
            ) from error


def refusal(piece: Any) -> Exception | None:
    """Why a piece cannot be pickled; ``None`` if it can be. Data and arrays are left to their own pickling, so that
    they are not pickled twice."""
    try:
        for one in _leaves(piece):
            # Out of band, so that buffers are not copied.
            pickle.Pickler(io.BytesIO(), 5, buffer_callback=lambda _: False).dump(one)
    except Exception as error:  # noqa: BLE001
        return error
    return None


def _leaves(piece: Any) -> Iterator[Any]:
    piece = list(piece.values()) if type(piece) is dict else piece
    if type(piece) in (list, tuple) and len(piece) < 100:
        for one in piece:
            yield from _leaves(one)
    elif not hasattr(piece, "_made") and not isinstance(piece, (str, int, float, type(None), np.ndarray)):
        yield piece
