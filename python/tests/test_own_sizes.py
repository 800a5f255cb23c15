"""Pictures of their own sizes: a list of arrays, as detection needs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline
from feedline import transforms as T

Image = pytest.importorskip("PIL.Image", reason="not run: Pillow is not installed")

SIZES = [(40, 60), (33, 21), (50, 50), (17, 90), (64, 48), (20, 31), (45, 44)]


def pixels(number: int) -> Any:
    return np.random.default_rng(number).integers(0, 256, (*SIZES[number], 3), np.uint8)


@pytest.fixture()
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pictures").mkdir()
    images, annotations = [], []
    for number, (height, width) in enumerate(SIZES):
        Image.fromarray(pixels(number)).save(tmp_path / f"pictures/{number}.png")
        images.append({"id": number, "file_name": f"{number}.png", "height": height, "width": width})
        for at in range(number % 3):
            box = [2 + at, 3, width // 2, height // 3]
            annotations.append({"id": len(annotations), "image_id": number, "category_id": 1 + at, "bbox": box, "iscrowd": 0, "area": 1})
    kinds = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    (tmp_path / "boxes.json").write_text(json.dumps({"images": images, "annotations": annotations, "categories": kinds}))
    return tmp_path


def wanted_size(height: int, width: int, size: int, most: int) -> tuple[int, int]:
    """As torchvision resizes the shorter side, with ``max_size``."""
    short, long = min(height, width), max(height, width)
    new_short, new_long = size, int(size * long / short)
    if new_long > most:
        new_short, new_long = int(most * new_short / new_long), most
    return (new_short, new_long) if height < width else (new_long, new_short)


WAYS: list[dict[str, Any]] = [{"workers": 0}, {"workers": 3}, {"workers": 3, "copy": True}]


@pytest.mark.parametrize("way", WAYS)
def test_each_picture_has_its_own_size(folder: Path, way: dict[str, Any]) -> None:
    for channels_first in (True, False):
        data = feedline.images(folder / "pictures/*.png", own_sizes=6000, channels_first=channels_first)
        for of in (data, data.subset(range(7)), feedline.concat(data)):
            with feedline.Loader(of, 3, shuffle=4, framework="numpy", **way) as loader:
                seen = []
                for batch in loader:
                    for image, size, number in zip(batch["image"], batch["image.size"].tolist(), batch.ids.tolist(), strict=True):
                        right = pixels(number)
                        assert tuple(size) == SIZES[number]
                        assert np.array_equal(image, right.transpose(2, 0, 1) if channels_first else right)
                        seen.append(number)
                    del batch, image
                assert sorted(seen) == list(range(7))
            assert np.array_equal(of[3]["image"], pixels(3).transpose(2, 0, 1) if channels_first else pixels(3))


def test_the_shorter_side_is_resized_up_to_a_longest_one(folder: Path) -> None:
    steps = [T.Resize(24, max_size=36), T.Normalize()]
    data = feedline.images(folder / "pictures/*.png", steps, own_sizes=36 * 36)
    for number in range(7):
        size = wanted_size(*SIZES[number], 24, 36)
        one = feedline.images(str(folder / f"pictures/{number}.p*g"), [T.Resize(size), T.Normalize()])
        found = data[number]
        assert tuple(found["image.size"].tolist()) == size, (number, SIZES[number])
        assert found["image"].dtype == np.float32 and np.array_equal(found["image"], one[0]["image"])
    with feedline.Loader(data, 7, framework="numpy") as loader:
        batch = next(iter(loader))
        assert all(np.array_equal(image, data[number]["image"]) for number, image in enumerate(batch["image"]))
    for mode, channels in (("gray", 1), ("rgba", 4)):
        data = feedline.images(folder / "pictures/*.png", own_sizes=6000, mode=mode)
        assert [image.shape for image in next(iter(feedline.Loader(data, 7, framework="numpy")))["image"]] == [
            (channels, *size) for size in SIZES
        ]


def test_boxes_move_with_them(folder: Path) -> None:
    steps = [T.Resize(24, max_size=36), T.RandomHorizontalFlip(1.0)]
    data = feedline.images(folder / "pictures", steps, annotations=folder / "boxes.json", own_sizes=36 * 36)
    with feedline.Loader(data, 3, framework="numpy") as loader:
        number = 0
        for batch in loader:
            for image, boxes in zip(batch["image"], batch["boxes"].rows(), strict=True):
                height, width = SIZES[number]
                new = wanted_size(height, width, 24, 36)
                assert image.shape == (3, *new)
                for at, box in enumerate(boxes):
                    x, y, w, h = 2 + at, 3, width // 2, height // 3
                    across, down = new[1] / width, new[0] / height
                    right = [new[1] - (x + w) * across, y * down, new[1] - x * across, (y + h) * down]
                    assert np.allclose(box, right, atol=1e-3), number
                assert len(boxes) == number % 3
                number += 1
            del batch, image, boxes
        assert number == 7


def test_a_larger_picture_is_a_bad_sample(folder: Path) -> None:
    data = feedline.images(folder / "pictures/*.png", own_sizes=50 * 50)
    with feedline.Loader(data, 7, framework="numpy") as loader:
        with pytest.raises(feedline.SampleError, match="the picture is 48 x 64 after the transforms, more than 2500 pixels"):
            list(loader)
    with feedline.Loader(data, 7, framework="numpy", bad_samples=1) as loader:
        (batch,) = loader
        assert [row for row, _ in batch.substituted] == [4]
    for options, match in (
        ({"views": 2}, "own_sizes is for decode"),
        ({"decode": "gpu"}, "own_sizes is for decode"),
        ({"own_sizes": 0}, "own_sizes is 0: give a whole number from 1"),
    ):
        with pytest.raises(feedline.ConfigError, match=match):
            feedline.images(folder / "pictures/*.png", **{"own_sizes": 9999, **options})
    with pytest.raises(feedline.ConfigError, match='"image" has own_sizes, and pad and device_map are for arrays'):
        feedline.Loader(data, 2, pad={"image": 0}, framework="numpy")
    with pytest.raises(feedline.ConfigError, match="Resize: max_size is 10: it is for a length of the shorter side"):
        feedline.images(folder / "pictures/*.png", [T.Resize(24, max_size=10)])


def test_tensors_of_torch(folder: Path) -> None:
    torch = pytest.importorskip("torch", reason="not run: torch is not installed")
    data = feedline.images(folder / "pictures/*.png", [T.Normalize()], own_sizes=6000)
    with feedline.Loader(data, 4, framework="torch") as loader:
        for batch in loader:
            assert all(type(image) is torch.Tensor and image.dtype == torch.float32 for image in batch["image"])
            assert batch.to("cpu") is batch
            del batch


def test_parts_of_other_pictures_are_not_joined(folder: Path) -> None:
    part = lambda **options: feedline.images(folder / "pictures/*.png", own_sizes=6000, **options)
    for options in ({"mode": "gray"}, {"channels_first": False}):
        for join in (lambda *parts: feedline.concat(*parts), lambda *parts: feedline.mix([(one, 1) for one in parts])):
            with pytest.raises(feedline.ConfigError, match='has "image" as other pictures or texts than part 0'):
                join(part(), part(**options))
