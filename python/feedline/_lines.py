"""The lines of the user's code that wait for batches."""

from __future__ import annotations

import functools
import importlib.metadata
import linecache
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

#: Frames of this package and of libraries are skipped: the line of a loop within Lightning is the user's
#: call.
_OURS = str(Path(__file__).parent)
_OTHERS = tuple({str(Path(path)) for name, path in sysconfig.get_paths().items() if "lib" in name or "std" in name})
#: The distributions of each package, by its name.
_installed = functools.cache(importlib.metadata.packages_distributions)


class Line(NamedTuple):
    """A line that has waited."""

    #: The file, or the cell of a notebook.
    file: str
    #: The number of the line.
    line: int
    #: The text of the line, if it is known.
    code: str
    #: Nanoseconds.
    waited: int
    #: The batches that it has waited for.
    batches: int

    def __str__(self) -> str:
        code = f" ({self.code})" if self.code else ""
        return f"{self.file}:{self.line}{code}"


class Lines:
    """Sums the waits of each line. A loader calls it with the nanoseconds of each wait."""

    def __init__(self) -> None:
        self._waits: dict[tuple[str, int], tuple[int, int]] = {}

    def __call__(self, waited: int) -> None:
        place = _caller()
        before, batches = self._waits.get(place, (0, 0))
        self._waits[place] = before + waited, batches + 1

    def longest(self) -> list[Line]:
        """Up to five lines, the one that has waited longest first."""
        waits = sorted(self._waits.items(), key=lambda item: -item[1][0])[:5]
        return [Line(file, line, linecache.getline(file, line).strip(), *wait) for (file, line), wait in waits]


@functools.cache
def _is_library(file: str, module: str) -> bool:
    if file.startswith((*_OTHERS, "<frozen")) or "site-packages" in file or "dist-packages" in file:
        return True
    if module == "__main__":
        return False
    # A folder of `pip install --target` may hold the user's modules as well.
    package, *parts = module.split(".")
    folders = Path(file).parents
    depth = len(parts) + file.endswith("__init__.py")
    return depth < len(folders) and any(folders[depth].glob("*.dist-info")) and package in _installed()


def _caller() -> tuple[str, int]:
    """The user's line that is calling this package, possibly through libraries."""
    frame, first = sys._getframe(1), None
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_OURS):
            first = first or (file, frame.f_lineno)
            if not _is_library(file, frame.f_globals.get("__name__", "__main__")):
                return file, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return first or ("?", 0)
