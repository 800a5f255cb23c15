"""Writes coco_masks.json: COCO's annotations with polygons and run lengths, and the masks that pycocotools makes of
them, joined as torchvision's reference for segmentation does: levels and how often each comes, row after row. Needs
NumPy and pycocotools.
"""

import json
import pathlib

import numpy as np
import pycocotools
import pycocotools.mask as coco


def polygon(random, height, width):
    """Points about a centre, some of them twice or a little outside."""
    count = int(random.integers(3, 12))
    angles = np.sort(random.random(count)) * 2 * np.pi
    if random.random() < 0.2:
        random.shuffle(angles)
    x, y = random.random(2) * [width, height]
    radius = random.random(count) * random.choice([3, 12, 40])
    points = np.stack([x + radius * np.cos(angles), y + radius * np.sin(angles)], 1)
    if random.random() < 0.3:
        points = np.round(points)
    if random.random() < 0.2:
        points = np.repeat(points, 2, 0)
    low = 0 if random.random() < 0.7 else -0.2
    points = np.clip(points, low * min(width, height), [width * (1 - low), height * (1 - low)])
    return [round(float(place), 2) for place in points.ravel()]


def segmentation(random, height, width):
    kind = random.random()
    if kind < 0.6:
        return [polygon(random, height, width) for _ in range(int(random.integers(1, 4)))]
    mask = np.kron(random.random((9, 9)) < 0.3, np.ones((9, 9), bool))[:height, :width]
    text = coco.encode(np.asfortranarray(mask.astype(np.uint8)))
    if kind < 0.8:
        return {"counts": text["counts"].decode(), "size": text["size"]}
    flat = mask.ravel("F").astype(np.int8)
    ends = np.flatnonzero(np.diff(np.concatenate([[0], flat]))).tolist()
    return {"counts": np.diff([0, *ends, flat.size]).tolist(), "size": [height, width]}


def decoded(outline, height, width):
    made = coco.decode(coco.frPyObjects(outline, height, width) if not isinstance(outline, dict)
                       or isinstance(outline["counts"], list) else outline)
    return made.any(2) if made.ndim == 3 else made.astype(bool)


def main():
    random = np.random.default_rng(45)
    images, annotations, wanted = [], [], []
    for number in range(40):
        height, width = (int(side) for side in random.integers(1, 80, 2))
        images.append({"id": number, "file_name": f"{number}.png", "height": height, "width": width})
        own, labels = [], []
        for _ in range(int(random.integers(0, 6))):
            outline, label = segmentation(random, height, width), int(random.integers(1, 90))
            annotations.append({"id": len(annotations), "image_id": number, "category_id": label, "iscrowd": 0,
                                "bbox": [0, 0, 1, 1], "segmentation": outline})  # fmt: skip
            own.append(decoded(outline, height, width))
            labels.append(label)
        masks = np.array(own, int).reshape(-1, height, width)
        mask = (masks * np.array(labels, int).reshape(-1, 1, 1)).max(0, initial=0)
        mask[masks.sum(0) > 1] = 255
        flat = mask.ravel()
        starts = np.flatnonzero(np.diff(flat, prepend=-1))
        runs = zip(flat[starts], np.diff(starts, append=flat.size), strict=True)
        wanted.append([int(number) for run in runs for number in run])
    categories = [{"id": label, "name": str(label)} for label in range(1, 90)]
    whole = {"pycocotools": getattr(pycocotools, "__version__", "2.0.11"), "images": images,
             "categories": categories, "annotations": annotations, "wanted": wanted}  # fmt: skip
    pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(whole, separators=(",", ":")) + "\n")


main()
