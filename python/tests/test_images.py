"""Pictures, held against Pillow."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import script

import feedline
from feedline import transforms as T

Image = pytest.importorskip("PIL.Image", reason="not run: Pillow is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes of smooth pictures: PNG and JPEG."""
    random = np.random.default_rng(7)
    for number in range(40):
        small = random.integers(0, 256, (6, 8, 3), np.uint8)
        picture = Image.fromarray(small).resize((96, 80), Image.BICUBIC)
        parent = tmp_path / f"class{number % 2}"
        parent.mkdir(exist_ok=True)
        if number < 20:
            picture.save(parent / f"{number:02}.png")
        else:
            picture.save(parent / f"{number:02}.jpg", quality=92)
    return tmp_path


def pixels(path: str) -> Any:
    return Image.open(path).convert("RGB")


def batches(data: feedline.Data, **options: Any) -> Any:
    return feedline.Loader(data, 8, shuffle=7, framework="numpy", **options)


def test_decoded_pictures_are_pillows(folder: Path) -> None:
    data = feedline.images(folder, [T.CenterCrop((80, 96))], channels_first=False)
    for _ in range(2):
        for batch in batches(data):
            for row, label, one in zip(batch["image"], batch["label"], batch.ids, strict=True):
                path = data.path(int(one))
                assert path is not None and f"class{label}" in path
                wanted = np.asarray(pixels(path)).astype(int)
                worst = np.abs(row.astype(int) - wanted).max()
                assert worst == 0 if path.endswith("png") else worst <= 2, path
            del batch, row


def test_transforms_are_pillows_and_torchvisions(folder: Path) -> None:
    steps = [T.Resize((40, 48)), T.CenterCrop(32), T.Normalize()]
    data = feedline.images(folder, steps)
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    for batch in batches(data):
        assert batch["image"].shape[1:] == (3, 32, 32) and batch["image"].dtype == np.float32
        for row, one in zip(batch["image"], batch.ids, strict=True):
            small = pixels(data.path(int(one)) or "").resize((48, 40), Image.BILINEAR).crop((8, 4, 40, 36))
            wanted = ((np.asarray(small) / 255 - mean) / std).transpose(2, 0, 1)
            # Two levels of 255, in normalised units.
            assert np.abs(row - wanted).max() < 3 / 255 / 0.22
        del batch, row


def test_random_transforms_are_the_same_after_a_resume_and_differ_between_epochs(folder: Path) -> None:
    steps = [
        T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.RandomVerticalFlip(),
        T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.RandomGrayscale(), T.GaussianBlur(3),
        T.RandomErasing(), T.RandAugment(), T.Normalize(),
    ]  # fmt: skip
    data = feedline.images(folder, steps)

    def taken(loader: feedline.Loader, epoch: int) -> Any:
        return np.concatenate([batch["image"].copy() for batch in loader.epoch(epoch)])

    one = batches(data, workers=1)
    first, second = taken(one, 0), taken(one, 1)
    assert (first != second).any()
    again = batches(data, workers=3)
    part = [next(again.epoch(0))["image"].copy()]
    resumed = batches(data, workers=2)
    resumed.load_state_dict(again.state_dict())
    assert (np.concatenate([*part, taken(resumed, 0)]) == first).all()
    assert (taken(resumed, 1) == second).all()


def test_a_map_over_random_pictures_is_random_too(folder: Path) -> None:
    data = feedline.images(folder, [T.RandomCrop(16)]).map(lambda one: {"mean": one["image"].mean()})
    loader = feedline.Loader(data, 40, framework="numpy")
    epochs = [next(loader.epoch(epoch))["mean"].copy() for epoch in (0, 1, 0)]
    assert (epochs[0] != epochs[1]).any() and (epochs[0] == epochs[2]).all()
    with pytest.raises(feedline.ConfigError, match="random"):
        data.filter(lambda one: True)


def test_a_list_without_a_size_and_a_bad_picture_are_errors(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(feedline.ConfigError, match="end with one size"):
        feedline.images(folder)
    with pytest.raises(feedline.ConfigError, match="interpolation"):
        feedline.images(folder, [T.Resize(8, "cubic")])
    (folder / "class0" / "00.png").write_bytes(b"\x89PNG\r\n\x1a\n nothing")
    data = feedline.images(folder, [T.Resize((8, 8))])
    with pytest.raises(feedline.Error, match=r"00\.png") as raised:
        list(batches(data))
    assert raised.value.sample == 0 and raised.value.stage == "decode"
    caplog.clear()
    loader = batches(data, bad_samples=1)
    seen = [(batch.rows, batch.step, batch.substituted) for batch in loader]
    assert sum(count for count, *_ in seen) == 40
    assert loader.state_dict()["bad_samples"] is not None
    ((step, row, substitute),) = [(step, *one) for _, step, replaced in seen for one in replaced]
    (told,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert told.startswith(f"batch {step}, row {row}: unreadable sample 0: PNG: the file does not begin with")
    assert told.endswith(f"; sample {substitute} instead")
    assert told.count(str(data.path(0))) == 1 and str(data.path(substitute)) not in told


def test_names_and_options() -> None:
    shown = [T.Resize(8), T.Pad(2), T.RandomCrop((3, 4)), T.TrivialAugmentWide(), T.RandomErasing(0.2)]
    assert repr(shown) == "[Resize(8), Pad(2), RandomCrop((3, 4)), TrivialAugmentWide(), RandomErasing(0.2)]"


@pytest.fixture
def on_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes decode also without a GPU, where they are slower and give the same."""
    monkeypatch.setattr(
        "feedline._loader.decodes_on_lanes", lambda data, gpu: data._set.lanes_decode_on is not None
    )


LIST = [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.Normalize()]


def test_auto_without_a_gpu_is_the_cpu(folder: Path) -> None:
    auto, cpu = (feedline.images(folder, LIST, decode=decode) for decode in ("auto", "cpu"))
    assert "staged" in repr(batches(auto)) and auto.fingerprint == cpu.fingerprint
    found, wanted = rows_of(auto), rows_of(cpu)
    assert all((found[place][0] == wanted[place][0]).all() for place in wanted)
    halves = auto.split(0.5, 0.5)
    assert len(feedline.concat(*halves)) == 40


def rows_of(data: feedline.Data, **options: Any) -> dict[int, Any]:
    """The pictures and labels of two epochs, by epoch and sample."""
    rows = {}
    loader = batches(data, **options)
    for epoch in range(2):
        for batch in loader.epoch(epoch):
            for row, label, one in zip(batch["image"], batch["label"], batch.ids, strict=True):
                rows[epoch, int(one)] = (row.copy(), int(label))
            del batch, row
    return rows


@pytest.mark.usefixtures("on_lanes")
@pytest.mark.parametrize(
    ("steps", "near"),
    [
        # Without scaling the results are bit-identical; with scaling they differ by at most one level of 255.
        ([T.CenterCrop((40, 48)), T.RandomHorizontalFlip(), T.ColorJitter(0.4, 0.4, 0.4, 0.1)], 0),
        ([T.Resize((20, 20))], 1),
        ([T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.Normalize()], 1.01 / 255 / 0.224),
    ],
)
def test_lanes_give_the_pictures_of_the_workers(
    folder: Path, steps: Any, near: float
) -> None:
    ours = feedline.images(folder, steps, decode="auto")
    theirs = feedline.images(folder, steps)
    assert ours.fields == theirs.fields and ours.classes == theirs.classes and len(ours) == len(theirs)
    found, wanted = rows_of(ours), rows_of(theirs)
    assert found.keys() == wanted.keys() and len(found) == 80
    for place, (picture, label) in wanted.items():
        assert found[place][0].dtype == picture.dtype and found[place][1] == label
        worst = np.abs(found[place][0].astype(np.float32) - picture).max()
        assert worst <= near, (place, worst)


@pytest.mark.usefixtures("on_lanes")
def test_a_state_counts_what_was_delivered_not_what_lanes_decode(folder: Path) -> None:
    def made(**options: Any) -> feedline.Loader:
        return batches(feedline.images(folder, LIST, decode="auto"), **options)

    def taken(loader: Any) -> list[Any]:
        return [(batch.step, batch.ids.tolist(), batch["image"].copy()) for batch in loader]

    one = made()
    whole, second = taken(one.epoch(0)), taken(one.epoch(1))
    for steps in range(6):
        one = made(prefetch=9)
        epoch = one.epoch(0)
        for _ in range(steps):
            next(epoch)
        state = one.state_dict()
        assert (state["step"], state["samples"]) == (steps, 8 * steps)
        again = made(workers=2)
        again.load_state_dict(state)
        rest = taken(again)
        wanted = whole[steps:] if steps < 5 else second
        assert [row[:2] for row in rest] == [row[:2] for row in wanted]
        assert all((a[2] == b[2]).all() for a, b in zip(rest, wanted, strict=True))
    assert again.order_hash == one_hash(made(), 2)


def one_hash(loader: feedline.Loader, epochs: int) -> int:
    for epoch in range(epochs):
        for batch in loader.epoch(epoch):
            del batch
    return loader.order_hash


@pytest.mark.usefixtures("on_lanes")
def test_pictures_of_lanes_outlive_the_loader_and_the_loop_may_be_left(folder: Path) -> None:
    loader = batches(feedline.images(folder, [T.Resize((20, 20))], decode="auto").repeat(10))
    batch = next(loader.epoch(0))
    image, copy = batch["image"], batch["image"].copy()
    del batch
    for _ in range(3):  # epochs that are left
        epoch = loader.epoch(1)
        next(epoch), next(epoch)
    loader.close()
    assert (image == copy).all()
    with pytest.raises(feedline.StoppedError):
        loader.epoch(0)
    assert "decoded on the CPU" in repr(loader)


EXIT = """
import sys
import feedline
from feedline import _loader, transforms
_loader.decodes_on_lanes = lambda data, gpu: True
data = feedline.images(sys.argv[1], [transforms.Resize((20, 20))], decode="auto").repeat(100)
loader = feedline.Loader(data, 4, framework="numpy")
batches = iter(loader)
image = next(batches)["image"]
print(image.shape)
if sys.argv[2] == "dropped":
    del loader, batches
"""


@pytest.mark.parametrize("end", ["open", "dropped"])
def test_the_interpreter_exits_while_lanes_decode(folder: Path, end: str) -> None:
    done = script(EXIT, str(folder), end)
    assert (done.returncode, done.stdout, done.stderr) == (0, "(4, 3, 20, 20)\n", "")


@pytest.mark.usefixtures("on_lanes")
def test_what_lanes_cannot_do_is_said(folder: Path) -> None:
    data = feedline.images(folder, [T.Resize((20, 20))], decode="gpu")
    with pytest.raises(feedline.DeviceError, match="JPEG is decoded on CUDA devices only.*CPU"):
        batches(data)
    with pytest.raises(feedline.ConfigError, match="decode"):
        feedline.images(folder, [T.Resize(20)], decode="cuda")
    for step in (T.RandAugment(), T.TrivialAugmentWide()):
        with pytest.raises(feedline.ConfigError, match="host only"):
            feedline.images(folder, [T.Resize((20, 20)), step], decode="auto")
    with pytest.raises(feedline.ConfigError, match="end with one size"):
        feedline.images(folder, decode="auto")
    with pytest.raises(feedline.ConfigError, match="concat needs decoded pictures"):
        feedline.concat(data, data)
    with pytest.raises(feedline.ConfigError, match="map_batch needs pictures that the workers"):
        batches(feedline.images(folder, [T.Resize((20, 20))], decode="auto"), map_batch=lambda batch: None)


@pytest.mark.usefixtures("on_lanes")
def test_damaged_pictures_are_bad_samples_of_lanes_as_of_the_workers(folder: Path) -> None:
    path = folder / "class0" / "20.jpg"
    path.write_bytes(path.read_bytes()[:-300])
    other = folder / "class1" / "21.jpg"
    other.write_bytes(b"\xff\xd8 nothing")
    steps = [T.RandomResizedCrop(8)]
    auto, cpu = (feedline.images(folder, steps, decode=decode) for decode in ("auto", "cpu"))
    for data in (auto, cpu):
        with pytest.raises(feedline.Error, match=r"2[01]\.jpg") as raised:
            list(batches(data))
        assert raised.value.sample is not None and raised.value.batch is not None

    def taken(data: feedline.Data) -> list[Any]:
        loader = batches(data, bad_samples=9)
        found = [
            (batch.ids.tolist(), batch.substituted) for epoch in (0, 1) for batch in loader.epoch(epoch)
        ]
        assert {Path(data.path(bad)).name for bad in _bad(loader)} == {"20.jpg", "21.jpg"}
        return found

    assert taken(auto) == taken(cpu)


def _bad(loader: feedline.Loader) -> list[int]:
    """The samples that could not be read."""
    return [one["sample"] for one in json.loads(loader.state_dict()["bad_samples"])["samples"]]
