"""Where the time of a loader went."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Sequence
from typing import Any

from ._lines import Line


class Report:
    """An account of a loader's time: every nanosecond has one cause. Created by :meth:`Loader.report`.

    Prints as a table with a diagnosis; a notebook shows the page.
    """

    #: The diagnosis: the limit of the run, and settings that would help.
    diagnosis: str
    #: All numbers. Times are in nanoseconds.
    data: dict[str, Any]
    #: The report as one self-contained HTML page.
    page: str

    def __init__(
        self,
        text: str,
        diagnosis: str,
        data: str,
        page: str,
        own: dict[str, Any] | None,
        profile: str,
        lines: Sequence[Line],
        growths: int,
    ) -> None:
        self._profile = profile
        self._text, self.diagnosis, self.data, self.page = text, diagnosis, json.loads(data), page
        if own is not None:
            self.data["own"] = own
            self._text += f"{_told(own)}\n"
        self.data["growths"] = growths
        if growths:
            times = "once" if growths == 1 else f"{growths} times"
            self._text += f"the slots were made larger for longer samples {times}, and the times above are those since then\n"
        self.data["lines"] = [line._asdict() for line in lines]
        for line in lines:
            self._text += f"waits at {line}: {line.waited / 1e9:.2f} s for {line.batches} batches\n"

    def save_profile(self, path: str | os.PathLike[str]) -> None:
        """Writes the service times of the last batches, a few kilobytes of JSON.

        From it, ``python -m feedline whatif FILE --workers 8`` predicts the effect of other settings, and
        ``doctor --profile FILE`` names the limit of the run.
        """
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._profile + "\n")

    def __str__(self) -> str:
        return f"{self._text}{self.diagnosis}"

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        style = "width: 100%; height: 640px; border: 0"
        return f'<iframe srcdoc="{html.escape(self.page)}" style="{style}"></iframe>'


def _told(own: dict[str, Any]) -> str:
    """How the user's own data set is read."""
    died = f"; {own['deaths']} died and were replaced" if own["deaths"] else ""
    what = "your data set is read by" if own["is_data"] else "map_batch is called by"
    return f"{what} {own['workers']}{died}"
