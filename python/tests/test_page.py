"""Every piece of Python in docs/data.md, run on small files."""

from __future__ import annotations

import json
import struct
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_bucket import pictures, served

import feedline

PAGE = Path(__file__).parent.parent.parent / "docs" / "data.md"
WORDS = ["?", "<s>", "</s>", "user", "assistant", ":", "Hi", "there"]
TEMPLATE = (
    "{% for m in messages %}{{ m.role }} : {% if m.role == 'assistant' %}{% generation %}{{ m.content }} "
    "{{ eos_token }} {% endgeneration %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}assistant : {% endif %}"
)


def pieces() -> list[str]:
    """The pieces of the page."""
    return [piece.split("```")[0] for piece in PAGE.read_text().split("```python\n")[1:]]


def megatron(folder: Path, name: str, documents: list[list[int]]) -> Path:
    """A pair of .bin and .idx, of uint16."""
    ids = [np.array(document, np.uint16) for document in documents]
    lengths = [len(document) for document in ids]
    starts = np.cumsum([0, *lengths[:-1]]) * 2
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(ids), len(ids) + 1)
    index += np.array(lengths, np.int32).tobytes() + np.array(starts, np.int64).tobytes()
    (folder / f"{name}.idx").write_bytes(index + np.arange(len(ids) + 1, dtype=np.int64).tobytes())
    (folder / f"{name}.bin").write_bytes(np.concatenate(ids).tobytes())
    return folder / f"{name}.bin"


def tokenizer(folder: Path, template: str = TEMPLATE) -> Path:
    """A tokenizer of words with a chat template."""
    (folder / "tokenizer").mkdir()
    model = {"type": "WordLevel", "unk_token": "?", "vocab": {word: id for id, word in enumerate(WORDS)}}
    whole = {"model": model, "pre_tokenizer": {"type": "WhitespaceSplit"}}
    (folder / "tokenizer" / "tokenizer.json").write_text(json.dumps(whole))
    config = {"eos_token": "</s>", "chat_template": template}
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(config))
    return folder / "tokenizer"


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def bitmap_bytes(blue: int, green: int = 2, red: int = 3) -> bytes:
    """A picture of 8 x 8 pixels of one colour."""
    header = struct.pack("<13I", 246, 0, 54, 40, 8, 8, 1 | 24 << 16, 0, 192, 0, 0, 0, 0)
    return b"BM" + header + bytes([blue, green, red]) * 64


def bitmap(path: Path, *colour: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bitmap_bytes(*colour))


def sawtooth(path: Path, frames: int) -> None:
    """A sound of 8,000 frames a second."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as to:
        to.setparams((1, 2, 8000, frames, "NONE", ""))
        to.writeframes((np.arange(frames) % 41 * 300).astype("<i2").tobytes())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The files that the page names, and the bucket."""
    monkeypatch.setenv("FEEDLINE_CACHE", str(tmp_path / "cache"))
    with served(pictures(), monkeypatch):
        yield files_of(tmp_path, monkeypatch)


def files_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tokenizer(tmp_path)
    chats = [{"messages": [said("user", "Hi"), said("assistant", answer)]} for answer in ("Hi", "Hi there")]
    lines(tmp_path / "chats.jsonl", *chats)
    pairs = [
        {"prompt": [said("user", "Hi")], "chosen": [said("assistant", a)], "rejected": [said("assistant", b)]}
        for a, b in (("Hi there", "Hi"), ("Hi", "there"))
    ]
    lines(tmp_path / "pairs.jsonl", *pairs)
    for name, first, count in (("web", 100, 20), ("wiki", 200, 12), ("math", 300, 8)):
        ids = list(range(first, first + count))
        megatron(tmp_path, name, [ids[:3], ids[3:]])
    for number, name in enumerate(("train/ant", "train/bee", "train/cat", "val/ant", "val/cat")):
        bitmap(tmp_path / "pictures" / name / "1.bmp", number)
    rows = "train/bee/1.bmp,bee\ntrain/bee/2.bmp,an ant\nval/cat/1.bmp,bee\n"
    (tmp_path / "pictures.csv").write_text("file,species\n" + rows)
    (tmp_path / "flowers.csv").write_text("length,width,kind\n1.5,2.5,0\n3,4,1\n5.25,6,2\n")
    days = [(shop, day) for shop in "BA" for day in (5, 0, 7, 2, 1, 6, 4, 3) if (shop, day) != ("B", 2)]
    sales = "".join(f"{shop},{day},{day + 1 if day < 6 else 100},0.5\n" for shop, day in days)
    sessions = [([5, 7, 2, 3], 4), ([], 0), ([9], 9)]
    lines(tmp_path / "sessions.jsonl", *({"history": past, "next": item} for past, item in sessions))
    (tmp_path / "sales.csv").write_text("shop,day,sold,price\n" + sales)
    (tmp_path / "clips.csv").write_text("clip,word\n1.wav,yes\n2.wav,no\n")
    (tmp_path / "1.wav").write_bytes(b"yes")
    (tmp_path / "2.wav").write_bytes(b"no")
    for name, frames in (("speech/1", 1600), ("speech/2", 4000), ("words/no/1", 1600), ("words/yes/1", 9000)):
        sawtooth(tmp_path / f"{name}.wav", frames)
    said_there = "speech/1.wav,Hi there\nspeech/2.wav,Hi Hi there\n"
    (tmp_path / "speech.csv").write_text("path,sentence\n" + said_there)
    for number in range(3):
        bitmap(tmp_path / "photographs" / f"{number}.bmp", number)
        bitmap(tmp_path / "masks" / f"{number}.bmp", number, number, number)
    images = [{"id": number, "file_name": f"{number}.bmp"} for number in range(3)]
    boxes = [{"image_id": 2, "category_id": 1, "bbox": [0, 0, 8, 8]}, {"image_id": 0, "category_id": 2, "bbox": [1, 1, 3, 4]}]
    named = [{"id": 1, "name": "bee"}, {"id": 2, "name": "ant"}]
    whole = {"images": images, "annotations": boxes, "categories": named}
    (tmp_path / "instances.json").write_text(json.dumps(whole))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_piece_runs_in_at_most_ten_lines(folder: Path) -> None:
    names = []
    for piece in pieces():
        assert len(piece.splitlines()) <= 10
        scope: dict[str, Any] = {"feedline": feedline, "__builtins__": __builtins__}
        exec(compile(piece, str(PAGE), "exec"), scope)
        words = {"windows", "max_seqlen", "chosen", "labels", "sampler", "both", "species", "mask", "boxes", "flowers"}
        words |= {"other", "shop", "mels", "waveform", "following", "balanced", "fold", "curriculum", "predicted"}
        names.append(set(scope) & words)
    text = [{"windows"}, {"labels"}, {"labels", "max_seqlen"}, {"sampler"}, {"chosen"}, {"windows"}]
    assert names[:9] == [{"flowers"}, {"shop"}, {"following"}, *text]
    pictures = [{"mask"}, {"boxes", "labels"}, {"other"}, {"both"}, {"species"}, set()]
    sampling = [{"balanced"}, {"fold"}, {"curriculum", "sampler"}, {"predicted"}]
    assert names[9:] == [*pictures, {"mels", "sampler"}, {"waveform"}, *sampling, set()]


def test_lists_and_manifests_of_the_page(folder: Path) -> None:
    crop = [feedline.transforms.CenterCrop(8)]
    listed = feedline.images("pictures/train/*/*.bmp", crop)
    assert listed.classes == ["ant", "bee", "cat"]
    assert [(int(row["label"]), int(row["image"][2, 0, 0])) for row in listed] == [(0, 0), (1, 1), (2, 2)]
    both = feedline.images("pictures/*/*/*.bmp", crop, class_from=1)
    assert [int(row["label"]) for row in both] == [0, 1, 2, 0, 2]
    with pytest.raises(feedline.ConfigError, match="class_from="):
        feedline.images("pictures/*/*/*.bmp", crop)
    data = feedline.images("pictures.csv", crop, root="pictures")
    assert data.classes == ["an ant", "bee"] and [field.name for field in data.fields] == ["image", "species"]
    with feedline.Loader(data, 3, bad_samples=1, framework="numpy") as loader:
        (batch,) = loader
        assert batch["species"].tolist()[::2] == [1, 1] and len(batch.substituted) == 1
    with feedline.Loader(data, 3, framework="numpy") as loader, pytest.raises(feedline.SampleError, match="row 1"):
        list(loader)
    named = feedline.images("pictures.csv", crop, root=folder / "pictures", field="file", label="species")
    assert named.classes == data.classes and named.fingerprint == data.fingerprint
    with pytest.raises(feedline.ConfigError, match='no column "kind" of labels'):
        feedline.images("pictures.csv", crop, root="pictures", label="kind")
    with pytest.raises(feedline.ConfigError, match="root= is for a manifest"):
        feedline.images("pictures/train", crop, root="pictures")
    stated = feedline.images("pictures.csv", crop, root="pictures", classes=["bee", "cow"])
    assert int(stated[0]["species"]) == 0
    clips = feedline.open("clips.csv", files="clip", label="word")
    assert clips.classes == ["no", "yes"] and [bytes(row["clip"]) for row in clips] == [b"yes", b"no"]
    with pytest.raises(feedline.ConfigError, match="files="):
        feedline.open("clips.csv", root="pictures")


def test_the_values_of_the_page(folder: Path) -> None:
    data = feedline.chats("chats.jsonl", "tokenizer").packed("ids", 8, labels="labels", cut=True)
    assert [row["ids"].tolist() for row in data] == [[3, 5, 4, 5, 6, 7, 2, 0], [3, 5, 4, 5, 6, 2, 0, 0]]
    assert data[0]["labels"].tolist() == [-100, -100, -100, -100, 6, 7, 2, -100]
    assert data[0]["segment"].tolist() == [1] * 7 + [0] and data[0]["segment"].dtype == np.int32
    assert data.fate == "2 documents of 13 items: 0 empty, 0 split, 0 cut by 0 items; 2 windows, 18.75 % padding"
    flat = feedline.chats("chats.jsonl", "tokenizer").unpadded("ids", labels="labels")
    with feedline.Loader(flat, 2, framework="numpy") as loader:
        for batch in loader:
            assert batch["ids"].values.tolist() == [3, 5, 4, 5, 6, 2, 3, 5, 4, 5, 6, 7, 2]
            assert batch["position"].values.tolist() == [*range(6), *range(7)]
            assert batch["cu_seqlens"].values.tolist() == [0, 6, 13] and batch["cu_seqlens"].values.dtype == np.int32
            assert batch.longest("cu_seqlens") == 7 and batch.longest("ids") == 7
            with pytest.raises(feedline.ConfigError):
                batch.longest("none")
    windows = [feedline.open(path).packed("ids", 4, order="in order") for path in ("web.bin", "wiki.idx", "math.bin")]
    mixed = feedline.mix([(windows[0], 0.6), (windows[1], 0.3), (windows[2], 0.1)], seed=7)
    sets = [int(row["ids"][0]) // 100 for row in mixed]
    assert [sets.count(one) for one in (1, 2, 3)] == [6, 3, 1]
