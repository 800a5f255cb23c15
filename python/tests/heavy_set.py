"""A module that has many objects, as those of large libraries."""

from __future__ import annotations

from typing import Any

import own_sets

OBJECTS = [[number] for number in range(400_000)]


class Heavy(own_sets.Numbers):
    """Reads one of them."""

    def __getitem__(self, index: int) -> Any:
        return {"id": OBJECTS[index][0]}
