"""Data sets with exceptions of all kinds, for `test_causes.py` and the worker processes, which import them from here."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


class TextRaises(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


class TextExits(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class TextIsANumber(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # noqa: PLE0307


class ReprRaises(Exception):
    def __repr__(self) -> str:
        raise KeyError("no repr")


class Carries(Exception):
    """An exception with an attribute."""

    def __init__(self, held: Any) -> None:
        super().__init__("bad row")
        self.held = held


class Needs(Exception):
    """An exception that cannot be made of its text alone."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


class EndsWhenUnpickled(Exception):
    def __reduce__(self) -> Any:
        return os._exit, (3,)


class ExitsWhenUnpickled(Exception):
    def __reduce__(self) -> Any:
        return sys.exit, (3,)


class EndsWhenPickled(Exception):
    def __reduce__(self) -> Any:
        os._exit(4)


class BlocksWhenUnpickled(Exception):
    def __reduce__(self) -> Any:
        return time.sleep, (1000,)


class ForksWhenUnpickled(Exception):
    def __reduce__(self) -> Any:
        return os.fork, ()


class NoAttributes(Exception):
    def __setattr__(self, name: str, value: Any) -> None:
        raise TypeError("none here")


class Odd(type):
    def __instancecheck__(cls, other: Any) -> bool:
        raise KeyError("who asks")


class OfAnOddClass(Exception, metaclass=Odd):
    pass


def deep() -> Any:
    """An exception with a traceback of very many frames."""
    sys.setrecursionlimit(200_000)

    def down(left: int) -> None:
        if left == 0:
            raise ValueError("deep")
        down(left - 1)

    try:
        down(100_000)
    except ValueError as error:
        return error


def chained() -> Any:
    """An exception with a long chain of causes."""
    error: BaseException = ValueError("first")
    for number in range(3000):
        later = ValueError(f"number {number}")
        later.__cause__ = error
        error = later
    return error


def noted() -> Any:
    error = ValueError("noted")
    error.__notes__ = 7  # type: ignore[assignment]
    return error


#: What is raised, and a part of its text.
KINDS: dict[str, tuple[Callable[[], BaseException], str]] = {
    "plain": (lambda: ValueError("plain words"), "ValueError: plain words"),
    "no text": (MemoryError, "MemoryError"),
    "__str__ raises": (TextRaises, "TextRaises: its text cannot be made: KeyError"),
    "__str__ exits": (TextExits, "TextExits: its text cannot be made: SystemExit"),
    "__str__ returns 5": (TextIsANumber, "TextIsANumber: its text cannot be made: TypeError"),
    "__repr__ raises": (lambda: ReprRaises("read me"), "ReprRaises: read me"),
    "text of 17 MB": (lambda: ValueError("long " * 3_500_000), "ValueError: long long"),
    "text of 70 MB": (lambda: ValueError("long " * 14_000_000), "ValueError: long long"),
    "lines": (lambda: ValueError("one\ntwo\n" * 10), "ValueError: one two one"),
    "carries 70 MB": (lambda: Carries(np.zeros(70 << 20, np.uint8)), "Carries: bad row"),
    "carries a lambda": (lambda: Carries(lambda: 0), "Carries: bad row"),
    "needs two values": (lambda: Needs(1, 2), "Needs: 1 and 2"),
    "lone surrogate": (lambda: ValueError("caf\udce9.jpg is empty"), r"ValueError: caf\udce9.jpg is empty"),
    "a file of such a name": (lambda: opened("/nonexistent/caf\udce9.jpg"), "FileNotFoundError"),
    "ends when unpickled": (lambda: EndsWhenUnpickled("away"), "EndsWhenUnpickled: away"),
    "exits when unpickled": (lambda: ExitsWhenUnpickled("away"), "ExitsWhenUnpickled: away"),
    "ends when pickled": (lambda: EndsWhenPickled("away"), "EndsWhenPickled: away"),
    "blocks when unpickled": (lambda: BlocksWhenUnpickled("stuck"), "BlocksWhenUnpickled: stuck"),
    "forks when unpickled": (lambda: ForksWhenUnpickled("two"), "ForksWhenUnpickled: two"),
    "holds one that ends": (lambda: ValueError(EndsWhenUnpickled("away")), "ValueError: away"),
    "no attributes": (lambda: NoAttributes("mine"), "NoAttributes: mine"),
    "odd class": (lambda: OfAnOddClass("odd"), "OfAnOddClass: odd"),
    "100,000 frames": (deep, "ValueError: deep"),
    "3,000 causes": (chained, "ValueError: number 2999"),
    "notes that are none": (noted, "ValueError: noted"),
    "SystemExit": (lambda: SystemExit(3), "SystemExit: 3"),
    "KeyboardInterrupt": (lambda: KeyboardInterrupt("own"), "KeyboardInterrupt: own"),
    "StopIteration": (lambda: StopIteration("own"), "StopIteration: own"),
    "GeneratorExit": (lambda: GeneratorExit("own"), "GeneratorExit: own"),
}


def opened(path: str) -> BaseException:
    try:
        open(path)  # noqa: SIM115
    except OSError as error:
        return error
    raise AssertionError(path)


class Raises:
    """Samples of which one raises an exception of a kind."""

    def __init__(self, kind: str, at: int = 13) -> None:
        self.kind, self.at = kind, at

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == self.at:
            raise KINDS[self.kind][0]()
        return {"id": index}


class Hook:
    """A function of a batch, or of a list of samples, that raises an exception of a kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, given: Any) -> Any:
        ids = np.array(given["id"] if isinstance(given, dict) else [one["id"] for one in given])
        if 13 in ids:
            raise KINDS[self.kind][0]()
        return {"id": ids}


class Shard:
    """A shard that raises an exception of a kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for index in range(40):
            if index == 13:
                raise KINDS[self.kind][0]()
            yield {"id": index}


class Loads:
    """A set that does something when a worker loads it."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"id": index}

    def __setstate__(self, state: Any) -> None:
        vars(self).update(state)
        if self.what == "exit":
            os._exit(7)
        if self.what == "kill":
            os.kill(os.getpid(), 11)
        if self.what == "fork":
            os.fork()
        if self.what in KINDS:
            raise KINDS[self.what][0]()


class Wide:
    """Samples of 160 KB."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"id": index, "x": np.full(20_000, index)}


def doubled(batch: dict[str, Any]) -> dict[str, Any]:
    """A function of a batch of `Wide`."""
    return {"id": batch["id"], "x": 2 * batch["x"]}


class Forks:
    """A sample forks, and the child comes back from it: by its return, or by an exception."""

    def __init__(self, samples: int, how: str, at: int) -> None:
        self.samples, self.how, self.at = samples, how, at

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == self.at:
            forks(self.how)
        return {"id": index, "x": np.array([index, 3 * index])}


def forks(how: str) -> None:
    """Forks a child that comes back."""
    child = os.fork()
    if child == 0 and how == "raises":
        raise ValueError("child")
    if child != 0 and how == "is waited for":
        os.waitpid(child, 0)


class ForksInBatch:
    """A function of a batch that forks, as `Forks`."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        if int(batch["id"][0]) == 96:
            forks(self.how)
        return {"id": batch["id"], "x": batch["x"] + batch["id"][:, None]}


class Recurses:
    """A sample recurses without end, through C, with a limit that its stack does not have."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 13:
            sys.setrecursionlimit(1 << 30)
            repr(Endless())
        return {"id": index}


class Endless:
    def __repr__(self) -> str:
        return f"{[self, Endless()]}"


class Nested:
    """A sample that makes a loader of its own, and reads it."""

    def __init__(self, parallel: Any) -> None:
        self.parallel = parallel

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 0:
            # It says what the fields are, in the process that has the loader.
            return {"id": index, "sum": 780}
        import feedline

        data = Raises("plain", at=-1)
        with feedline.Loader(data, 8, framework="numpy", workers=2, parallel=self.parallel) as loader:
            return {"id": index, "sum": sum(int(batch["id"].sum()) for batch in loader)}
