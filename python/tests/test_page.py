"""Every piece of Python in docs/data.md, run on small files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import page_files
import pytest
from test_bucket import pictures, served

import feedline

PAGE = Path(__file__).parent.parent.parent / "docs" / "data.md"

#: Sets that open in at most five lines: a part of their piece, an expression over what it leaves, and its
#: value.
SETS: dict[str, tuple[str, Any]] = {
    'select=["x", "kind"])': (
        "sorted((row['kind'].item(), *row['x'].tolist()) for row in data)",
        [(0, 1.5, 2.5), (1, 3, 4), (2, 5.25, 6)],
    ),
    'columns = feedline.open("flowers.arrow")': (
        "[(row['length'].item(), row['kind'].item()) for row in columns]",
        [(1.5, 0), (3, 1), (5.25, 2)],
    ),
    'saved="train.table.json"': ("(cities, val[0]['city'].item(), val[0]['x'].tolist())", (["Oslo", "Rome", "none"], 1, [0.5, 0])),
    'feedline.table("shards"': (
        "[(shards.categories['code'][row['code']], row['rare'].item()) for row in shards]",
        [("7", -1), ("12", 2.5), ("A7", -1)],
    ),
    "cache_bytes=8 << 30": ("[row['x'].tolist() for row in flowers]", [[1.5, 2.5], [3, 4], [5.25, 6]]),
    "Sampler.shuffled()  #": ("sorted(row for batch in shuffled for row in batch['x'].tolist())", [[1.5, 2.5], [3, 4], [5.25, 6]]),
    "feedline.tokens(": (
        "(data.fate, ids.tolist(), targets[0].tolist())",
        (
            "5 of 15 tokens are in no window, 1 documents have none",
            [[1, 2, 3, 4], [5, 6, 7, 8], [5, 6, 7, 8]],
            [2, 3, 4, 5],
        ),
    ),
    "classes=train.classes": (
        "(train.classes, images.shape[1:], [row['label'].item() for row in val])",
        (["ant", "bee", "cat"], (3, 8, 8), [0, 2]),
    ),
    "class_from=1": (
        "(data.classes, [row['label'].item() for row in data], [row['label'].item() for row in both])",
        (["ant", "bee", "cat"], [0, 1, 2], [0, 1, 2, 0, 2]),
    ),
    '"pictures.csv"': ("(data.classes, data[2]['species'].item())", (["an ant", "bee"], 1)),
    'files="clip"': ("(data.classes, [bytes(row['clip']) for row in data])", (["no", "yes"], [b"yes", b"no"])),
    "archives = ": ("[row['label'].item() for row in archives]", [0, 1, 5, 6]),
    '"mnist"': ("(train[0]['label'].item(), test[0]['image'].tolist())", (7, [[0, 1], [2, 3]])),
    "cifar": ("([row['label'].item() for row in train], test[0]['label'].item())", ([1, 2, 3, 4, 5], 6)),
    '"xy.npz"': ("(data[1]['array'].tolist(), both[2]['y'].item())", ([3, 4, 5], 9)),
    '"mds"': (
        "([bytes(row) for row in encoded], labels.tolist(), [bytes(row['a']) for row in streamed])",
        ([b"one", b"three"] * 2, [0, 7, 1, 7], [b"ab", b"cdef"]),
    ),
    "remote = ": ("[row['label'].item() for row in remote]", [0, 1, 5, 6]),
    "listing_age": ("[row['label'].item() for row in data]", [0, 0, 1]),
}

#: Files of the page, and others that hold the same.
SAME = {"flowers.arrow": [".csv", ".jsonl", ".parquet"], "pictures.csv": [".jsonl", ".parquet"]}

#: Other pieces, by a part of them, and a name that they leave.
OTHERS = {
    "feedline.windows(": "shop",
    "sessions.jsonl": "following",
    "wiki.bin": "position",
    "cut=True": "labels",
    '"tokenizer").unpadded': "max_seqlen",
    "Sampler.alike": "cu_seqlens",
    'of="preferences"': "rejected",
    "feedline.Source(": "segment",
    'mask="masks"': "mask",
    "instances.json": "boxes",
    "views=": "other",
    "feedline.MelSpectrogram": "mels",
    '"words", rate=': "waveform",
    "Sampler.balanced": "balanced",
    ".folds(": "fold",
    "Sampler.by_epoch": "curriculum",
    ".repeated(4)": "groups",
    "Sampler.batches": "own",
    "longest_first": "longest_first",
    "losses": "losses",
    "predicted": "predicted",
}


def pieces() -> list[str]:
    """The pieces of the page."""
    return [piece.split("```")[0] for piece in PAGE.read_text().split("```python\n")[1:]]


def piece(part: str) -> str:
    (one,) = [piece for piece in pieces() if part in piece]
    return one


def run(code: str) -> dict[str, Any]:
    """The names that a piece leaves."""
    scope: dict[str, Any] = {"feedline": feedline, "__builtins__": __builtins__}
    exec(compile(code, str(PAGE), "exec"), scope)
    return scope


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The files that the page names, and the bucket."""
    monkeypatch.setenv("FEEDLINE_CACHE", str(tmp_path / "cache"))
    with served(pictures() | page_files.archives(), monkeypatch):
        page_files.write(tmp_path)
        monkeypatch.chdir(tmp_path)
        yield tmp_path


@pytest.mark.parametrize("part", SETS)
def test_a_set_opens_in_at_most_five_lines(part: str, folder: Path) -> None:
    code, (what, value) = piece(part), SETS[part]
    assert len(code.splitlines()) <= 5
    for name, endings in SAME.items():
        for other in [name.rpartition(".")[0] + ending for ending in endings] if name in code else []:
            assert eval(what, run(code.replace(name, other))) == value, other
    assert eval(what, run(code)) == value


@pytest.mark.parametrize("part", OTHERS)
def test_other_pieces_run_in_at_most_ten_lines(part: str, folder: Path) -> None:
    code = piece(part)
    assert len(code.splitlines()) <= 10
    assert OTHERS[part] in run(code)


def test_every_piece_of_the_page_is_run() -> None:
    assert sorted(pieces()) == sorted(map(piece, [*SETS, *OTHERS]))


def test_the_report_has_the_sampler_of_the_page(folder: Path) -> None:
    code = piece("Sampler.shuffled()  #")
    beyond = run(code.replace('"width"]})', '"width"]}, cache_bytes=1)'))["data"]
    shuffled = str(feedline.Loader(beyond, 2, shuffle=7, framework="numpy").report())
    assert "decoded in groups: cache_bytes of 48 holds them" in shuffled
    assert "write sampler=Sampler.block(1, 1), with the same seed, in place of shuffle" in shuffled


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
