"""Masks, boxes and points that move with their picture, held against torchvision v2 with the same parameters."""

from __future__ import annotations

import importlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline
from feedline import transforms as T

Image = pytest.importorskip("PIL.Image", reason="not run: Pillow is not installed")

MOVING = [
    T.Pad(3), T.RandomResizedCrop(40, scale=(0.3, 1.0)), T.RandomHorizontalFlip(), T.RandomVerticalFlip(),
    T.RandomCrop(32), T.ColorJitter(0.2), T.CenterCrop((30, 36)),
]  # fmt: skip


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Photographs and masks: palettes and gray."""
    random = np.random.default_rng(45)
    for folder in ("photographs", "masks", "depth"):
        (tmp_path / folder).mkdir()
    for number in range(24):
        height, width = (int(side) for side in random.integers(40, 90, 2))
        mask = np.kron(random.integers(0, 21, (12, 12), np.uint8), np.ones((8, 8), np.uint8))[:height, :width]
        # The picture says the number of the mask.
        picture = np.stack([mask * 12, mask * 12, 255 - mask * 12], -1)
        Image.fromarray(picture).save(tmp_path / "photographs" / f"{number}.png")
        shown = Image.fromarray(mask)
        if number % 2:
            shown.putpalette(random.integers(0, 256, 768, np.uint8).tobytes())
        shown.save(tmp_path / "masks" / f"{number}.png")
        Image.fromarray(mask.astype(np.uint16) * 2900).save(tmp_path / "depth" / f"{number}.png")
    return tmp_path


def table(folder: Path) -> Path:
    """Photographs with boxes, classes and points, as Parquet with lists."""
    pa = pytest.importorskip("pyarrow", reason="not run: pyarrow is not installed")
    pq = pytest.importorskip("pyarrow.parquet", reason="not run: pyarrow is not installed")
    random = np.random.default_rng(46)
    rows = []
    for path in sorted((folder / "photographs").iterdir()):
        width, height = Image.open(path).size
        count = int(random.integers(0, 7))
        corners = random.random((count, 2, 2)) * [width, height]
        boxes = np.concatenate([corners.min(1), corners.max(1) - corners.min(1)], 1)
        rows.append(
            {
                "image": path.read_bytes(),
                "bbox": boxes.tolist(),
                "category": random.integers(0, 9, count).tolist(),
                "points": (random.random((count, 2)) * [width, height]).tolist(),
            }
        )
    four, two = pa.list_(pa.list_(pa.float64(), 4)), pa.list_(pa.list_(pa.float64(), 2))
    schema = pa.schema(
        {"image": pa.binary(), "bbox": four, "category": pa.list_(pa.int64()), "points": two}.items()
    )
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / "boxes.parquet")
    return folder / "boxes.parquet"


def coco(folder: Path) -> Path:
    """The photographs with boxes, as COCO's file."""
    random = np.random.default_rng(47)
    images, annotations = [], []
    for number in range(24):
        width, height = Image.open(folder / "photographs" / f"{number}.png").size
        images.append({"id": 1000 - number, "file_name": f"{number}.png", "width": width, "height": height})
        for _ in range(int(random.integers(0, 6))):
            (left, right), (top, bottom) = (sorted(random.random(2) * side) for side in (width, height))
            box = [left, top, right - left, bottom - top]
            annotations.append(
                {"id": len(annotations), "image_id": 1000 - number, "category_id": int(random.choice([1, 3])),
                 "bbox": box, "area": box[2] * box[3], "iscrowd": 0}
            )  # fmt: skip
    random.shuffle(annotations)
    categories = [{"id": 3, "name": "cat"}, {"id": 1, "name": "person"}]
    path = folder / "instances.json"
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return path


def batches(data: feedline.Data, **options: Any) -> Any:
    return feedline.Loader(data, 8, shuffle=7, framework="numpy", copy=True, **options)


def test_masks_follow_their_picture_and_are_torchvisions_with_the_same_moves(pairs: Path) -> None:
    torch = pytest.importorskip("torch", reason="not run: torch is not installed")
    tv = pytest.importorskip("torchvision", reason="not run: torchvision is not installed")
    F = importlib.import_module("torchvision.transforms.v2.functional")
    data = feedline.images(pairs / "photographs", MOVING, mask=pairs / "masks", moves=True)
    assert [field.name for field in data.fields] == ["image", "mask", "moves"]
    seen = 0
    for batch in batches(data):
        for mask, moves, one in zip(batch["mask"], batch["moves"].rows(), batch.ids, strict=True):
            path = Path(data.path(int(one)) or "")
            whole = torch.from_numpy(np.array(Image.open(pairs / "masks" / path.name)))
            wanted = tv.tv_tensors.Mask(whole)
            for name, options in T.moves(moves):
                wanted = getattr(F, name)(wanted, **options)
            assert (mask == wanted.numpy()).all(), path
            seen += 1
    assert seen == 24


def test_pictures_are_torchvisions_with_the_same_moves_within_two_levels(pairs: Path) -> None:
    torch = pytest.importorskip("torch", reason="not run: torch is not installed")
    pytest.importorskip("torchvision", reason="not run: torchvision is not installed")
    F = importlib.import_module("torchvision.transforms.v2.functional")
    steps = [step for step in MOVING if not isinstance(step, T.ColorJitter)]
    data = feedline.images(pairs / "photographs", steps, moves=True)
    worst, off = 0, 0
    for batch in batches(data):
        for image, moves, one in zip(batch["image"], batch["moves"].rows(), batch.ids, strict=True):
            wanted = torch.from_numpy(np.array(Image.open(data.path(int(one))).convert("RGB"))).permute(2, 0, 1)
            for name, options in T.moves(moves):
                wanted = getattr(F, name)(wanted, **options)
            far = np.abs(image.astype(int) - wanted.numpy().astype(int))
            worst, off = max(worst, int(far.max())), off + int((far > 1).sum())
    assert worst <= 2, (worst, off)


@pytest.mark.parametrize("to", ["xyxy", "xywh", "cxcywh", "xyxyn", "cxcywhn"])
def test_boxes_and_points_are_torchvisions_with_the_same_moves(pairs: Path, to: str) -> None:
    torch = pytest.importorskip("torch", reason="not run: torch is not installed")
    tv = pytest.importorskip("torchvision", reason="not run: torchvision is not installed")
    F = importlib.import_module("torchvision.transforms.v2.functional")
    path = table(pairs)
    files = feedline.open(path)
    given = {"boxes": ("bbox", "xywh"), "beside": ["category"], "points": "points", "box_format": to}
    data = feedline.images(path, MOVING, moves=True, **given)
    kept = left_out = 0
    for batch in batches(data):
        rows = zip(*(batch[name].rows() for name in ("bbox", "category", "points", "moves")), strict=True)
        for (boxes, classes, points, moves), one in zip(rows, batch.ids, strict=True):
            sample = files[int(one)]
            width, height = Image.open(sorted((pairs / "photographs").iterdir())[int(one)]).size
            given_boxes = torch.from_numpy(sample["bbox"].reshape(-1, 4).astype(np.float32))
            moved = tv.tv_tensors.BoundingBoxes(given_boxes, format="XYWH", canvas_size=(height, width))
            spots = torch.from_numpy(sample["points"].reshape(-1, 2).astype(np.float32))
            spots = tv.tv_tensors.KeyPoints(spots, canvas_size=(height, width))
            for name, options in T.moves(moves):
                moved, spots = (getattr(F, name)(part, **options) for part in (moved, spots))
            moved, valid = F.sanitize_bounding_boxes(F.clamp_bounding_boxes(moved))
            moved = F.convert_bounding_box_format(moved, new_format=to.rstrip("n").upper()).numpy()
            if to.endswith("n"):
                moved = moved / np.array([36, 30, 36, 30])
            assert np.abs(boxes - moved).max(initial=0) < 1e-3
            assert (classes == sample["category"][valid.numpy()]).all()
            plain = spots.as_subclass(torch.Tensor).reshape(-1, 1, 2)
            wanted, _ = F.sanitize_keypoints(plain, canvas_size=(30, 36))
            assert np.abs(points - wanted.reshape(-1, 2).numpy()).max(initial=0) < 1e-3
            kept, left_out = kept + len(boxes), left_out + len(valid) - len(boxes)
    assert kept > 10 and left_out > 5, (kept, left_out)


def test_cocos_boxes_are_those_of_the_file_and_are_torchvisions_with_the_same_moves(pairs: Path) -> None:
    torch = pytest.importorskip("torch", reason="not run: torch is not installed")
    tv = pytest.importorskip("torchvision", reason="not run: torchvision is not installed")
    F = importlib.import_module("torchvision.transforms.v2.functional")
    file = json.loads(coco(pairs).read_text())
    data = feedline.images(pairs / "photographs", MOVING, annotations=pairs / "instances.json", moves=True)
    assert data.classes == ["N/A", "person", "N/A", "cat"] and len(data) == 24
    kept = 0
    for batch in batches(data):
        rows = zip(*(batch[name].rows() for name in ("boxes", "labels", "area", "moves")), strict=True)
        for (boxes, labels, areas, moves), image, one in zip(rows, batch["image_id"], batch.ids, strict=True):
            # In the order of ids, as pycocotools' `getImgIds` sorted, and its `loadAnns` of each.
            assert image == sorted(image["id"] for image in file["images"])[int(one)]
            own = [annotation for annotation in file["annotations"] if annotation["image_id"] == image]
            width, height = Image.open(data.path(int(one))).size
            given = torch.tensor([annotation["bbox"] for annotation in own], dtype=torch.float32).reshape(-1, 4)
            moved = tv.tv_tensors.BoundingBoxes(given, format="XYWH", canvas_size=(height, width))
            for name, options in T.moves(moves):
                moved = getattr(F, name)(moved, **options)
            moved, valid = F.sanitize_bounding_boxes(F.clamp_bounding_boxes(moved))
            wanted = F.convert_bounding_box_format(moved, new_format="XYXY").numpy()
            assert np.abs(boxes - wanted).max(initial=0) < 1e-3
            own = [annotation for annotation, is_kept in zip(own, valid.tolist(), strict=True) if is_kept]
            assert labels.tolist() == [annotation["category_id"] for annotation in own]
            assert areas.tolist() == [float(np.float32(annotation["area"])) for annotation in own]
            kept += len(own)
    assert kept > 20


def objects(folder: Path) -> Path:
    """The photographs with people, crowds and other objects, as COCO's file with outlines."""
    random = np.random.default_rng(48)
    file = json.loads(coco(folder).read_text())
    sides = {image["id"]: (image["height"], image["width"]) for image in file["images"]}
    for place, annotation in enumerate(file["annotations"]):
        height, width = sides[annotation["image_id"]]
        points = random.random((2, 5, 2)) * [width, height]
        annotation["segmentation"] = points.round(2).reshape(2, -1).tolist()
        if annotation["category_id"] == 1:
            annotation["keypoints"] = [int(number) for number in random.integers(0, 3, 12)]
        if place % 4 == 0:
            ends = np.sort(random.integers(0, height * width, 6))
            runs = np.diff([0, *ends, height * width]).tolist()
            annotation |= {"iscrowd": 1, "segmentation": {"counts": runs, "size": [height, width]}}
    path = folder / "objects.json"
    path.write_text(json.dumps(file))
    return path


def test_cocos_annotations_and_masks_are_those_of_pycocotools(pairs: Path) -> None:
    pytest.importorskip("pycocotools", reason="not run: pycocotools is not installed")
    theirs = importlib.import_module("pycocotools.coco").COCO(str(objects(pairs)))
    whole = [T.CenterCrop(96)]  # a border, and no pixel is cut
    data = feedline.images(
        pairs / "photographs", whole, annotations=pairs / "objects.json", mask="segmentation", box_format="xywh",
        min_size=0.0,
    )  # fmt: skip
    assert [field.name for field in data.fields] == [
        "image", "segmentation", "boxes", "keypoints", "labels", "iscrowd", "area", "image_id"
    ]  # fmt: skip
    seen, images = 0, sorted(theirs.getImgIds())
    assert len(data) == len(images)
    for sample, image in zip(data, images, strict=True):
        own = theirs.loadAnns(theirs.getAnnIds(image))
        height, width = theirs.imgs[image]["height"], theirs.imgs[image]["width"]
        top, left = (int(np.ceil((96 - side) / 2)) if side % 2 == 0 else (96 - side) // 2 for side in (height, width))
        masks = np.array([theirs.annToMask(one) for one in own], int).reshape(-1, height, width)
        wanted = (masks * np.array([one["category_id"] for one in own], int).reshape(-1, 1, 1)).max(0, initial=0)
        wanted[masks.sum(0) > 1] = 255
        assert (sample["segmentation"] == np.pad(wanted, [(top, 96 - top - height), (left, 96 - left - width)])).all()
        own = [one for one in own if one["bbox"][2] * one["bbox"][3] >= 1.001]
        is_kept = sample["boxes"].reshape(-1, 4)[:, 2:].prod(1) >= 1.001
        boxes = sample["boxes"].reshape(-1, 4)[is_kept] - [left, top, 0, 0]
        assert np.abs(boxes - np.array([one["bbox"] for one in own]).reshape(-1, 4)).max(initial=0) < 1e-3
        assert sample["labels"][is_kept].tolist() == [one["category_id"] for one in own]
        assert sample["iscrowd"][is_kept].tolist() == [bool(one["iscrowd"]) for one in own]
        assert np.allclose(sample["area"][is_kept], [one["area"] for one in own]) and sample["image_id"] == image
        points = np.array([one.get("keypoints", [0] * 12) for one in own], np.float32).reshape(-1, 4, 3)
        points[..., :2] = np.where(points[..., 2:] > 0, points[..., :2] + [left, top], 0)
        assert (sample["keypoints"][is_kept] == points).all()
        seen += len(own)
    assert seen > 30
    assert theirs.loadCats(3)[0]["name"] == data.classes[3]
    for options in ({"mask": "masks"}, {"mask": ["segmentation", "other"]}, {"boxes": "bbox"}):
        with pytest.raises(feedline.ConfigError, match="annotations have boxes"):
            feedline.images(pairs / "photographs", whole, annotations=pairs / "objects.json", **options)


def test_columns_of_objects_as_the_hub_has_them_are_boxes(pairs: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="not run: pyarrow is not installed")
    pq = pytest.importorskip("pyarrow.parquet", reason="not run: pyarrow is not installed")
    picture = (pairs / "photographs" / "0.png").read_bytes()
    objects = [
        {"id": [7, 8], "bbox": [[1.0, 2.0, 8.0, 9.0], [0.0, 0.0, 3.0, 4.0]], "category": [4, 5]},
        {"id": [], "bbox": [], "category": []},
        {"id": [9], "bbox": [[5.0, 5.0, 2.0, 2.0]], "category": [6]},
    ]
    rows = [{"image": {"bytes": picture, "path": "0.png"}, "image_id": at, "objects": of} for at, of in enumerate(objects)]
    pq.write_table(pa.Table.from_pylist(rows), pairs / "hub.parquet")
    width, height = Image.open(pairs / "photographs" / "0.png").size
    data = feedline.images(
        pairs / "hub.parquet",
        [T.Pad(1), T.CenterCrop((height, width))],
        field="image.bytes",
        boxes=("objects.bbox", "xywh"),
        beside=["objects.category", "objects.id"],
        box_format="xywh",
    )
    for sample, of in zip(data, objects, strict=True):
        assert sample["objects.bbox"].reshape(-1, 4).tolist() == of["bbox"]
        assert sample["objects.category"].tolist() == of["category"] and sample["objects.id"].tolist() == of["id"]


def test_points_may_be_lists_of_lists_as_pyarrow_makes_them(pairs: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="not run: pyarrow is not installed")
    pq = pytest.importorskip("pyarrow.parquet", reason="not run: pyarrow is not installed")
    path = pairs / "photographs" / "0.png"
    width, height = Image.open(path).size
    for points in ([[3.0, 4.0], [7.5, 9.0]], [[3.0, 4.0, 2.0], [7.5, 9.0, 1.0]]):
        rows = [{"image": path.read_bytes(), "at": of} for of in ([], points, points[:1])]
        pq.write_table(pa.Table.from_pylist(rows), pairs / "points.parquet")
        data = feedline.images(pairs / "points.parquet", [T.CenterCrop((height, width))], field="image", points="at")
        assert [sample["at"].tolist() for sample in data] == [[], points, points[:1]]


def test_captions_are_read_where_they_are_named_and_what_is_left_out_is_said(
    pairs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    captions = ["a dog", "", "two cats, éà"]
    with tarfile.open(pairs / "captions.tar", "w") as tar:
        for number, caption in enumerate(captions):
            for name, content in (("png", (pairs / f"photographs/{number}.png").read_bytes()), ("txt", caption.encode())):
                member = tarfile.TarInfo(f"{number}.{name}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    data = feedline.images(pairs / "captions.tar", [T.CenterCrop(32)], beside="txt")
    assert not caplog.records
    assert [bytes(sample["txt"]).decode() for sample in data] == captions
    (batch,) = feedline.Loader(data, 3, framework="numpy")
    assert batch["txt"].text() == captions and batch["image"].shape == (3, 3, 32, 32)
    data = feedline.images(pairs / "captions.tar", [T.CenterCrop(32)], text="txt")
    for of in (data, data.subset([0, 1, 2]), feedline.concat(data)):
        assert [batch["txt"] for batch in feedline.Loader(of, 3, framework="numpy")] == [captions]
    (pairs / "tokenizer.json").write_text(
        '{"model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "a": 1, "dog": 2, "two": 3, "cats": 4}},'
        ' "pre_tokenizer": {"type": "Whitespace"}}'
    )
    data = feedline.images(pairs / "captions.tar", [T.CenterCrop(32)], text="txt", tokenizer=pairs / "tokenizer.json")
    assert [sample["ids"].tolist() for sample in data] == [[1, 2], [], [3, 4, 0, 0]]
    with pytest.raises(feedline.ConfigError, match='tokenizer is for the field of texts: name it, text="sentence"'):
        feedline.images(pairs / "captions.tar", tokenizer=pairs / "tokenizer.json")
    with pytest.raises(feedline.ConfigError, match="text is of the whole picture, and fields beside boxes"):
        feedline.images(pairs / "captions.tar", text="txt", boxes="at")
    pictures = feedline.images(pairs / "captions.tar", [T.CenterCrop(32)])
    assert [field.name for field in pictures.fields] == ["image"]
    (record,) = caplog.records
    assert "leaves out fields that vary in length: 'txt': name those that you need by beside=" in record.getMessage()


def test_coordinates_of_pascal_voc_may_count_from_one(pairs: Path) -> None:
    width, height = Image.open(pairs / "photographs" / "0.png").size
    (pairs / "voc").mkdir()
    boxes = [(1, 1, width, height), (5, 5, 5, 5)]
    sides = [
        f"<object><name>x</name><bndbox><xmin>{a}</xmin><ymin>{b}</ymin><xmax>{c}</xmax><ymax>{d}</ymax></bndbox></object>"
        for a, b, c, d in boxes
    ]
    size = f"<size><width>{width}</width><height>{height}</height></size>"
    (pairs / "voc" / "0.xml").write_text(f"<annotation>{size}{''.join(sides)}</annotation>")
    crop = [T.CenterCrop((height, width))]

    def read(**options: Any) -> list[list[float]]:
        data = feedline.images(pairs / "photographs", crop, annotations=pairs / "voc", **options)
        return [list(box) for box in data[0]["boxes"].tolist()]

    assert read() == [[1, 1, width, height]]
    assert read(one_based=True) == [[0, 0, width, height], [4, 4, 5, 5]]
    (pairs / "voc" / "0.xml").write_text("<annotation><size><width>7</width><height>9</height></size></annotation>")
    with pytest.raises(feedline.Error, match=f"of a picture of 7 x 9, and it is {width} x {height}"):
        read()


def test_depth_of_sixteen_bits_and_gray_and_alpha_keep_their_numbers(pairs: Path, tmp_path: Path) -> None:
    crop = [T.CenterCrop(32)]
    both = feedline.images(pairs / "photographs", crop, mask=pairs / "masks")
    depth = feedline.images(pairs / "depth", crop, mode="u16")
    beside = feedline.images(pairs / "photographs", crop, depth=pairs / "depth")
    index = feedline.images(pairs / "masks", crop, mode="index")
    gray = feedline.images(pairs / "photographs", crop, mode="gray")
    assert depth.fields[0][1:3] == ("u16", (1, 32, 32)) and gray.fields[0][1:3] == ("u8", (1, 32, 32))
    for one in range(len(both)):
        mask = both[one]["mask"]
        assert (depth[one]["image"] == mask.astype(np.uint16) * 2900).all()
        assert (beside[one]["depth"] == mask.astype(np.uint16) * 2900).all()
        assert (index[one]["image"] == mask).all()
        wanted = Image.open(both.path(one)).convert("L")
        left, top = (round((side - 32) / 2) for side in wanted.size)
        wanted = np.asarray(wanted.crop((left, top, left + 32, top + 32)))
        assert (gray[one]["image"][0] == wanted).all()
    folder = tmp_path / "alpha"
    folder.mkdir()
    pixels = np.random.default_rng(3).integers(0, 256, (40, 50, 4), np.uint8)
    Image.fromarray(pixels).save(folder / "0.png")
    Image.fromarray(pixels[..., :3]).save(folder / "1.png")
    rgba = feedline.images(folder, [T.CenterCrop((40, 50))], mode="rgba", channels_first=False)
    assert (rgba[0]["image"] == pixels).all()
    assert (rgba[1]["image"][..., 3] == 255).all() and (rgba[1]["image"][..., :3] == pixels[..., :3]).all()


def test_bad_boxes_and_masks_are_bad_samples_that_name_their_file(pairs: Path) -> None:
    Image.fromarray(np.zeros((8, 9), np.uint8)).save(pairs / "masks" / "5.png")
    crop = [T.RandomCrop(32)]
    data = feedline.images(pairs / "photographs", crop, mask=pairs / "masks")
    with pytest.raises(feedline.SampleError, match=r"the mask is 9 x 8, and its picture is .*masks/5\.png"):
        list(batches(data))
    loader = batches(data, bad_samples=1)
    assert sum(batch.rows for batch in loader) == 24
    pq = pytest.importorskip("pyarrow.parquet", reason="not run: pyarrow is not installed")
    path = table(pairs)
    columns = pq.read_table(path)
    for box, why in (
        ([float("nan"), 0.0, 3.0, 3.0], "not finite"),
        ([0.0, 0.0, 300.0, 3.0], "outside of its picture"),
        ([5.0, 5.0, -3.0, 3.0], "ends before it begins"),
    ):
        rows = columns.to_pylist()
        rows[3] |= {"bbox": [box], "category": [1], "points": []}
        pq.write_table(columns.from_pylist(rows, columns.schema), path)
        data = feedline.images(path, crop, boxes=("bbox", "xywh"), beside="category")
        with pytest.raises(feedline.SampleError, match=f'"bbox": box 0, .*{why}.*boxes.parquet'):
            list(batches(data))
        assert sum(batch.rows for batch in batches(data, bad_samples=1)) == 24


@pytest.fixture
def on_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes decode also without a GPU, where they are slower and give the same."""
    monkeypatch.setattr(
        "feedline._loader.decodes_on_lanes", lambda data, gpu: data._set.lanes_decode_on is not None
    )


#: Without a change of colours after the resize, which would enlarge a difference of one level.
ON_LANES = [
    T.Pad(3), T.RandomResizedCrop(40, scale=(0.3, 1.0)), T.RandomHorizontalFlip(), T.RandomVerticalFlip(),
    T.RandomCrop(32), T.RandomErasing(),
]  # fmt: skip


def both(path: Path, **options: Any) -> tuple[feedline.Data, feedline.Data]:
    """The same pictures, decoded by lanes and by workers."""
    lanes = feedline.images(path, ON_LANES, decode="auto", moves=True, **options)
    return lanes, feedline.images(path, ON_LANES, moves=True, **options)


def same(ours: feedline.Data, theirs: feedline.Data, rows: int, **options: Any) -> None:
    """All fields are equal, and pixels within a level."""
    assert ours.fields == theirs.fields and ours.classes == theirs.classes
    loader, seen = batches(ours, **options), 0
    assert "decoded on the CPU" in repr(loader)
    for found, wanted in zip(loader, batches(theirs, **options), strict=True):
        assert found.ids.tolist() == wanted.ids.tolist()
        assert found.substituted == wanted.substituted
        for field in theirs.fields:
            one, other = found[field.name], wanted[field.name]
            if field.name == "image" or field.name.startswith("view"):
                assert np.abs(one.astype(int) - other).max() <= 1
            else:
                pairs = zip(one, other, strict=True) if isinstance(other, tuple) else [(one, other)]
                assert type(one) is type(other) and all(np.array_equal(a, b) for a, b in pairs), field
        seen += found.rows
    assert seen == rows


@pytest.mark.usefixtures("on_lanes")
def test_masks_boxes_and_points_are_the_same_where_lanes_decode(pairs: Path) -> None:
    masks = {"mask": pairs / "masks"}
    same(*both(pairs / "photographs", **masks), 24)
    lanes, workers = both(pairs / "photographs", **masks)
    same(lanes.take(9).repeat(2), workers.take(9).repeat(2), 18)
    same(*both(pairs / "photographs", depth=pairs / "depth"), 24)
    boxes: dict[str, Any] = {"boxes": ("bbox", "xywh"), "points": "points", "beside": "category"}
    same(*both(table(pairs), **boxes, box_format="cxcywhn"), 24)
    same(*both(table(pairs), **boxes), 24, pad={"bbox": -1.0, "category": 0})
    same(*both(table(pairs), **boxes), 24, max_per_batch={"bbox": 48})
    same(*both(pairs / "photographs", annotations=coco(pairs)), 24)
    same(*both(pairs / "photographs", annotations=objects(pairs), mask="segmentation"), 24)


@pytest.mark.usefixtures("on_lanes")
def test_views_are_the_same_where_lanes_decode(pairs: Path) -> None:
    small = [T.RandomResizedCrop(12), T.RandomVerticalFlip()]
    path = pairs / "photographs" / "7.png"
    path.write_bytes(path.read_bytes()[:300])
    for options in ({"views": [(2, ON_LANES), (3, small)]}, {"transforms": ON_LANES, "views": 2}):
        lanes, workers = (
            feedline.images(pairs / "photographs", decode=decode, **options) for decode in ("auto", "cpu")
        )
        assert [field.name for field in lanes.fields] == [f"view{at}" for at in range(len(lanes.fields))]
        same(lanes.repeat(2), workers.repeat(2), 48, bad_samples=9)
    with pytest.raises(feedline.ConfigError, match="field is for"):
        feedline.images(pairs / "photographs", ON_LANES, views=2, decode="gpu", field="image")


@pytest.mark.usefixtures("on_lanes")
def test_bad_pictures_and_masks_get_the_same_substitutes_where_lanes_decode(pairs: Path) -> None:
    for path in (pairs / "photographs" / "3.png", pairs / "masks" / "8.png"):
        path.write_bytes(path.read_bytes()[:200])
    Image.fromarray(np.zeros((8, 9), np.uint8)).save(pairs / "masks" / "5.png")
    lanes, workers = both(pairs / "photographs", mask=pairs / "masks")
    same(lanes, workers, 24, bad_samples=9)
    with pytest.raises(feedline.SampleError, match=r"the mask is 9 x 8, and its picture is .*masks/5\.png"):
        list(feedline.Loader(lanes.subset([14, 19, 20]), 1, framework="numpy"))


def test_a_manifest_names_photographs_and_their_masks(pairs: Path) -> None:
    rows = [f"photographs/{number}.png,masks/{number}.png,{number % 3}" for number in range(24)]
    (pairs / "pairs.csv").write_text("\n".join(["file,mask,kind", *rows]) + "\n")
    steps = [T.RandomCrop(32), T.RandomHorizontalFlip()]
    data = feedline.images(pairs / "pairs.csv", steps, mask="mask")
    assert [field.name for field in data.fields] == ["image", "mask", "kind"]
    for batch in batches(data):
        assert (batch["image"][:, 0] == batch["mask"] * 12).all()
        assert (batch["kind"] == batch.ids % 3).all()


def test_views_are_random_crops_of_one_decoded_picture(pairs: Path) -> None:
    steps = [T.RandomResizedCrop(16), T.RandomHorizontalFlip(), T.ColorJitter(0.4)]
    two = feedline.images(pairs / "photographs", steps, views=2)
    alone = feedline.images(pairs / "photographs", steps)
    assert [field.name for field in two.fields] == ["view0", "view1"]
    for batch, one in zip(batches(two), batches(alone), strict=True):
        assert (batch["view0"] == one["image"]).all() and (batch["view0"] != batch["view1"]).any()
    many = feedline.images(pairs / "photographs", views=[(2, steps), (3, [T.RandomResizedCrop(8)])])
    assert [field.shape[1] for field in many.fields] == [16, 16, 8, 8, 8]
    for options, why in (
        ({"views": 0}, "no views"),
        ({"views": 2, "mask": pairs / "masks"}, "pictures alone"),
        ({"views": [(1, steps)]}, "transforms of their own"),
        ({"views": 2, "mode": "rgba"}, "rgb or gray"),
    ):
        with pytest.raises(feedline.ConfigError, match=why):
            feedline.images(pairs / "photographs", steps, **options)


def test_a_sample_that_is_drawn_several_times_in_an_epoch_is_moved_anew_each_time(pairs: Path) -> None:
    steps = [T.RandomResizedCrop(16), T.RandomHorizontalFlip()]
    data = feedline.images(pairs / "photographs", steps, mask=pairs / "masks", moves=True)
    sampler = feedline.Sampler.weighted([1.0] + [0.01] * 23).draws(200)
    seen: dict[int, list[bytes]] = {}
    for batch in feedline.Loader(data, 8, sampler=sampler, seed=3, framework="numpy"):
        for moves, image, mask, one in zip(
            batch["moves"].rows(), batch["image"], batch["mask"], batch.ids, strict=True
        ):
            seen.setdefault(int(one), []).append(np.asarray(moves).tobytes())
            assert image.shape[1:] == mask.shape
    most = max(seen.values(), key=len)
    assert len(most) > 50 and len(set(most)) > 0.9 * len(most)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"mask": "masks", "scaled_decode": True}, "leave out scaled_decode"),
        ({"mask": "masks", "decode": "cuda"}, "decode"),
        ({"moves": True, "decode": "gpu", "mode": "gray"}, "mode gray"),
        ({"mask": "no such"}, 'no field "no such"'),
        ({"boxes": ("a", "b", "c")}, "give the field and the format"),
        ({"boxes": ("bbox", "yxyx")}, "box format"),
        ({"mode": "cmyk"}, "mode"),
        ({"mode": "u16", "decode": "auto"}, "mode u16"),
        ({"one_based": True}, "give annotations"),
    ],
)
def test_what_cannot_be_is_refused(pairs: Path, options: dict[str, Any], why: str) -> None:
    with pytest.raises(feedline.ConfigError, match=why):
        feedline.images(pairs / "photographs", [T.CenterCrop(8)], **options)


def test_a_picture_and_a_mask_that_are_zipped_are_told_what_to_write(pairs: Path) -> None:
    def part(folder: str) -> feedline.Data:
        return feedline.images(pairs / folder, [T.RandomCrop(32)])

    mask = feedline.images(pairs / "masks", [T.RandomCrop(32)], mode="index")
    with pytest.raises(feedline.ConfigError, match=r'feedline.images\(path, transforms, mask="masks"\)'):
        feedline.zip(part("photographs"), mask.map(lambda sample: {"mask": sample["image"]}))
    with pytest.raises(feedline.ConfigError, match="RandAugment"):
        feedline.images(pairs / "photographs", [T.RandAugment(), T.CenterCrop(8)], mask=pairs / "masks")
