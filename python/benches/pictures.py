"""Pictures for measurements: smooth ones with noise, so that their JPEGs are as large as photographs."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np


def smooth(count: int) -> Iterable[Any]:
    """Pictures of Pillow, of 500 x 375."""
    from PIL import Image

    chance = np.random.default_rng(7)
    for _ in range(count):
        small = Image.fromarray(chance.integers(0, 256, (24, 32, 3), np.uint8)).resize((500, 375))
        noise = chance.integers(-9, 10, (375, 500, 3))
        yield Image.fromarray(np.clip(np.asarray(small) + noise, 0, 255).astype(np.uint8))


def jpegs(count: int) -> list[bytes]:
    """The pictures as JPEG, of 30 to 60 KB."""
    files = []
    for picture in smooth(count):
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return files


def write_tar(path: Path, files: Iterable[bytes]) -> None:
    """A WebDataset shard of JPEGs with classes from 0 to 9."""
    with tarfile.open(path, "w") as archive:
        for at, file in enumerate(files):
            for name, content in ((f"{at:05}.jpg", file), (f"{at:05}.cls", str(at % 10).encode())):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
