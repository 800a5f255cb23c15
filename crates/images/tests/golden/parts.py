"""Writes parts.tsv and parts/: masks, boxes and points, moved by torchvision v2's functional calls.

    python crates/images/tests/golden/parts.py

Needs torch and torchvision (written with torchvision 0.29), Pillow and NumPy.

| line | columns |
| --- | --- |
| mask | moves; the file before; the file after |
| boxes | width; height; moves; boxes, xyxy; moved boxes; 1 for each that SanitizeBoundingBoxes keeps |
| points | width; height; moves; points; moved points; 1 for each that SanitizeKeyPoints keeps |

A move is `crop top left height width`, `pad top right bottom left`, `resize height width`, `mirror`, `upend` (top
and bottom) or `turn` (a quarter clockwise).
"""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms.v2 import functional as F

HERE = Path(__file__).parent


def drawn(random: np.random.Generator, height: int, width: int) -> list[list]:
    """Moves as a list of transforms may draw them."""
    moves = []
    for _ in range(random.integers(1, 5)):
        kind = random.choice(["crop", "pad", "resize", "mirror", "upend"])
        if kind == "crop":
            h, w = int(random.integers(1, height + 1)), int(random.integers(1, width + 1))
            top, left = int(random.integers(0, height - h + 1)), int(random.integers(0, width - w + 1))
            moves.append([kind, top, left, h, w])
            height, width = h, w
        elif kind == "pad":
            sides = [int(side) for side in random.integers(0, 6, 4)]
            moves.append([kind, *sides])
            height, width = height + sides[0] + sides[2], width + sides[1] + sides[3]
        elif kind == "resize":
            height, width = (int(side) for side in random.integers(3, 90, 2))
            moves.append([kind, height, width])
        else:
            moves.append([kind])
    return moves


def moved(part, moves):
    for kind, *of in moves:
        if kind == "crop":
            part = F.crop(part, *of)
        elif kind == "pad":
            top, right, bottom, left = of
            part = F.pad(part, [left, top, right, bottom])
        elif kind == "resize":
            part = F.resize(part, of)
        elif kind == "mirror":
            part = F.horizontal_flip(part)
        elif kind == "upend":
            part = F.vertical_flip(part)
    return part


def text(moves) -> str:
    return ";".join(" ".join(map(str, move)) for move in moves)


def numbers(rows) -> str:
    return ";".join(" ".join(repr(float(number)) for number in row) for row in rows)


def main() -> None:
    random = np.random.default_rng(45)
    (HERE / "parts").mkdir(exist_ok=True)
    lines = []
    for number in range(8):
        height, width = (int(side) for side in random.integers(20, 60, 2))
        small = random.integers(0, 21, (height // 4 + 1, width // 4 + 1), np.uint8)
        mask = np.kron(small, np.ones((4, 4), np.uint8))[:height, :width]
        mask[random.random(mask.shape) < 0.05] = 255
        before = Image.fromarray(mask)
        if number % 2:
            before.putpalette(random.integers(0, 256, 768, np.uint8).tobytes())
        before.save(HERE / "parts" / f"{number}.png")
        moves = drawn(random, height, width)
        after = moved(tv_tensors.Mask(torch.from_numpy(mask)), moves)
        Image.fromarray(after.numpy()).save(HERE / "parts" / f"{number}-moved.png")
        lines.append(["mask", text(moves), f"{number}.png", f"{number}-moved.png"])
    for _ in range(60):
        height, width = (int(side) for side in random.integers(20, 200, 2))
        moves = drawn(random, height, width)
        corners = random.random((12, 2, 2)) * [width, height]
        boxes = np.concatenate([corners.min(1), corners.max(1)], 1).astype(np.float32)
        canvas = {"format": "XYXY", "canvas_size": (height, width)}
        after = moved(tv_tensors.BoundingBoxes(torch.from_numpy(boxes), **canvas), moves)
        # Rounding may move a box beyond the picture, where it would be removed.
        after = F.clamp_bounding_boxes(after)
        _, kept = F.sanitize_bounding_boxes(after)
        row = [width, height, text(moves), numbers(boxes), numbers(after), "".join(str(int(of)) for of in kept)]
        lines.append(["boxes", *map(str, row)])
        points = (random.random((12, 2)) * [width, height]).astype(np.float32)
        after = moved(tv_tensors.KeyPoints(torch.from_numpy(points), canvas_size=(height, width)), moves)
        _, kept = F.sanitize_keypoints(after.as_subclass(torch.Tensor).reshape(12, 1, 2), canvas_size=after.canvas_size)
        row = [width, height, text(moves), numbers(points), numbers(after), "".join(str(int(of)) for of in kept)]
        lines.append(["points", *map(str, row)])
    (HERE / "parts.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
