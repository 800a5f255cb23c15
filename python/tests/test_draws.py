"""Random numbers belong to draws, no rank gets an empty batch, and parts of a zip are not cropped apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline
from feedline import transforms as T

Image = pytest.importorskip("PIL.Image")


def pictures(folder: Path, transforms: list[Any], count: int = 8) -> feedline.Data:
    """Pictures of noise: the crops of one differ."""
    random = np.random.default_rng(0)
    (folder / "x").mkdir(parents=True, exist_ok=True)
    for index in range(count):
        pixels = random.integers(0, 256, (64, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "x" / f"{index:02}.png")
    return feedline.images(folder, transforms)


def rows(loader: feedline.Loader, epoch: int = 1) -> list[tuple[int, bytes]]:
    """The samples and pictures of an epoch."""
    every = []
    for batch in loader.epoch(epoch):
        pairs = zip(batch.ids.tolist(), batch["image"], strict=True)
        every += [(sample, image.tobytes()) for sample, image in pairs][: batch.valid_rows]
    return every


def test_a_sample_that_is_drawn_again_is_cropped_anew(tmp_path: Path) -> None:
    data = pictures(tmp_path, [T.RandomCrop(32)])
    labels = [0] * 7 + [1]
    sampler = feedline.Sampler.balanced(labels, 2)
    assert repr(sampler) == "Sampler.balanced(8 samples, 2 classes, 14 draws per epoch)"
    loader = feedline.Loader(data, 4, sampler=sampler, seed=3, framework="numpy")
    seen = rows(loader)
    assert sum(sample == 7 for sample, _ in seen) == 7 and len(set(seen)) == 14
    # A map in Python gets the numbers of the draw, too.
    mapped = data.map(lambda sample: sample)
    again = feedline.Loader(mapped, 3, sampler=sampler, seed=3, framework="numpy")
    assert len(set(rows(again))) == 14


def test_a_draw_is_cropped_alike_on_any_number_of_ranks(tmp_path: Path) -> None:
    data = pictures(tmp_path, [T.RandomCrop(32), T.RandomHorizontalFlip()])
    sampler = feedline.Sampler.weighted([1.0] * 7 + [9.0]).draws(23)

    def of(size: int, batch: int) -> list[tuple[int, bytes]]:
        ranks = [
            rows(feedline.Loader(data, batch, sampler=sampler, seed=3, framework="numpy", world=(rank, size)))
            for rank in range(size)
        ]
        return sorted(row for rank in ranks for row in rank)

    assert of(1, 5) == of(2, 3) == of(3, 2)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("batch", [1, 2, 16])
def test_no_rank_gets_an_empty_batch(size: int, batch: int) -> None:
    for length in {1, size, size + 1, size * batch + 1, 3 * size * batch + size - 1, 97}:
        samples: list[int] = []
        steps = set()
        for rank in range(size):
            data = {"x": np.arange(length)}
            loader = feedline.Loader(data, batch, shuffle=7, framework="numpy", world=(rank, size))
            batches = [(batch["x"][: batch.valid_rows].tolist(), batch.rows) for batch in loader]
            assert all(rows > 0 for _, rows in batches)
            samples += [sample for valid, _ in batches for sample in valid]
            steps.add(len(batches))
            assert len(loader) == len(batches)
        assert sorted(samples) == list(range(length)) and len(steps) == 1


def test_an_image_and_its_mask_are_not_cropped_apart(tmp_path: Path) -> None:
    crop = [T.RandomCrop(32)]
    image = pictures(tmp_path / "image", crop)
    mask = pictures(tmp_path / "mask", crop).map(lambda sample: {"mask": sample["image"]}).take(8)
    with pytest.raises(feedline.ConfigError, match=r"parts 0 \(image.*\) and 1 \(mask\) of the zip crop, flip"):
        feedline.zip(image, mask)
    assert len(feedline.zip(image, mask, independent=True)) == 8
    fixed = pictures(tmp_path / "mask", [T.CenterCrop(32)]).map(lambda sample: {"mask": sample["image"]})
    assert len(feedline.zip(image, fixed)) == 8
