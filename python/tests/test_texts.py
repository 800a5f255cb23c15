"""Fields of texts: a batch has them as lists of `str`."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline

TEXTS = ["", "a", "caf\u00e9 \u4e2d", "x" * 300, "b\0c"]
LISTS = [[], ["a", ""], ["caf\u00e9"], ["x" * 40] * 3, ["\ud800", '"']]
WAYS: list[dict[str, Any]] = [{"workers": 0}, {"parallel": "threads", "workers": 3}, {"parallel": "processes", "workers": 2}]


class Samples:
    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> Any:
        return {"id": index, "text": TEXTS[index % 5], "tags": LISTS[(index + 1) % 5], "raw": TEXTS[index % 5].encode()}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("copy", [False, True])
def test_texts_of_samples_are_texts_by_their_type(way: dict[str, Any], copy: bool) -> None:
    for data in (Samples(), feedline.Data(Samples()).subset(range(50)), feedline.concat(feedline.Data(Samples()))):
        with feedline.Loader(data, 8, shuffle=1, framework="numpy", copy=copy, **way) as loader:
            rows = 0
            for batch in loader:
                ids = batch["id"].tolist()
                assert batch["text"] == [TEXTS[index % 5] for index in ids]
                assert batch["tags"] == [LISTS[(index + 1) % 5] for index in ids]
                assert [bytes(row).decode() for row in batch["raw"].rows()] == batch["text"]
                assert "text" in batch._repr_html_()
                rows += len(ids)
                del batch
            assert rows == 50


def test_texts_of_a_source_and_of_columns() -> None:
    source = feedline.Source([{"id": index, "text": TEXTS[index % 5]} for index in range(20)], max_length={"text": 400})
    with feedline.Loader(source, 6, framework="numpy") as loader:
        assert [text for batch in loader for text in batch["text"]] == TEXTS * 4
    with feedline.Loader({"text": TEXTS, "tags": LISTS[1:] + [["z"]]}, 2, framework="numpy", workers=0) as loader:
        assert [text for batch in loader for text in batch["text"]] == TEXTS
    with feedline.Loader({"tags": LISTS[1:] + [["z"]]}, 2, framework="numpy", workers=0) as loader:
        assert [tags for batch in loader for tags in batch["tags"]] == [*LISTS[1:], ["z"]]


def test_samples_have_texts_too() -> None:
    data = feedline.Data(Samples())
    for of in (data, data.subset(range(50)), feedline.concat(data)):
        assert of[2]["text"] == TEXTS[2] and of[2]["tags"] == LISTS[3] and bytes(of[2]["raw"]).decode() == TEXTS[2]
    mapped = data.map(lambda sample: {"text": sample["text"].upper(), "tags": sample["tags"]})
    with feedline.Loader(mapped, 5, framework="numpy", workers=0) as loader:
        assert next(iter(loader))["text"] == [text.upper() for text in TEXTS]
    joined = lambda samples: [sample["text"] + "".join(sample["tags"]) for sample in samples]
    for of in (Samples(), data, data.take(50)):
        with feedline.Loader(of, 5, collate_fn=joined, workers=0) as loader:
            assert next(iter(loader)) == [TEXTS[at] + "".join(LISTS[(at + 1) % 5]) for at in range(5)]


def test_parts_with_other_texts_are_not_joined() -> None:
    texts, lists, raw = (feedline.Data([{"x": x}]) for x in ("plain", ["a", "b"], b"raw"))
    with pytest.raises(feedline.ConfigError, match='part 1 of concat has "x" as other pictures or texts than part 0'):
        feedline.concat(texts, lists)
    with feedline.Loader(feedline.concat(texts, raw), 2, framework="numpy") as loader:
        assert next(iter(loader))["x"].text() == ["plain", "raw"]
    with feedline.Loader(feedline.concat(texts, raw), 2, text="x", framework="numpy") as loader:
        assert next(iter(loader))["x"] == ["plain", "raw"]


def test_an_empty_list_comes_first() -> None:
    for samples in ([{"x": []}, {"x": ["a", "b"]}], [{"x": []}, {"x": [1, 2]}]):
        with feedline.Loader(samples, 2, framework="numpy", workers=0) as loader:
            batch = next(iter(loader))
            rows = batch["x"] if isinstance(samples[1]["x"][0], str) else [row.tolist() for row in batch["x"].rows()]
            assert rows == [sample["x"] for sample in samples]


def test_a_later_sample_without_a_list_of_texts_is_an_error() -> None:
    data = [{"tags": ["a"]}, {"tags": ["b", 5]}]
    with feedline.Loader(data, 2, framework="numpy", workers=0) as loader:
        with pytest.raises(feedline.SampleError, match=r"""field "tags" is \['b', 5\], and sample 0 has a list of texts"""):
            list(loader)


def test_texts_of_files_are_named(tmp_path: Path) -> None:
    lines = tmp_path / "texts.jsonl"
    lines.write_text("".join(json.dumps({"id": at, "text": text}) + "\n" for at, text in enumerate(TEXTS)))
    with tarfile.open(tmp_path / "texts.tar", "w") as tar:
        for number, text in enumerate(TEXTS):
            for name, content in ((f"{number}.txt", text.encode()), (f"{number}.cls", str(number).encode())):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    for path, name in ((lines, "text"), (tmp_path / "texts.tar", "txt")):
        options = {} if path is lines else {"empty_members": True}
        data = feedline.open(path, **options)
        for copy in (False, True):
            with feedline.Loader(data, 2, text=name, framework="numpy", copy=copy) as loader:
                assert [text for batch in loader for text in batch[name]] == TEXTS
        with feedline.Loader(data, 5, framework="numpy") as loader:
            assert next(iter(loader))[name].text() == TEXTS


def test_lists_of_texts_of_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="not run: pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    lists = LISTS[:4]
    parquet.write_table(pyarrow.table({"tags": lists, "x": range(4)}), tmp_path / "tags.parquet")
    with feedline.Loader(feedline.open(tmp_path / "tags.parquet"), 3, text="tags", framework="numpy") as loader:
        assert [tags for batch in loader for tags in batch["tags"]] == lists


def test_captions_of_a_table_of_paths(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="not run: pandas is not installed")
    image = pytest.importorskip("PIL.Image", reason="not run: Pillow is not installed")
    for number in range(3):
        image.fromarray(np.full((4, 4, 3), number, np.uint8)).save(tmp_path / f"{number}.png")
    paths = [str(tmp_path / f"{number}.png") for number in range(3)]
    captions = ["one", "", "three words here"]
    several = [["Hi", "there"], ["x"], []]
    for column, wanted in ((captions, captions), (several, several)):
        table = pandas.DataFrame({"path": paths, "caption": column})
        data = feedline.images(table, [feedline.transforms.Resize((4, 4))], text="caption")
        with feedline.Loader(data, 3, framework="numpy") as loader:
            batch = next(iter(loader))
            assert batch["caption"] == wanted and batch["image"][:, 0, 0, 0].tolist() == [0, 1, 2]
        assert [sample["caption"] for sample in data] == wanted
    with pytest.raises(feedline.ConfigError, match='"caption" has lists of texts, and tokenizer is for one text'):
        feedline.images(table, text="caption", tokenizer=tmp_path / "tokenizer.json")


def test_texts_of_a_file_for_collate_fn(tmp_path: Path) -> None:
    lines = tmp_path / "texts.jsonl"
    lines.write_text("".join(json.dumps({"id": at, "text": text}) + "\n" for at, text in enumerate(TEXTS)))
    collate = lambda samples: {"text": [sample["text"] + "!" for sample in samples]}
    with feedline.Loader(feedline.open(lines), 5, collate_fn=collate, text="text", workers=0) as loader:
        assert next(iter(loader)) == {"text": [text + "!" for text in TEXTS]}


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    data = feedline.Data({"x": np.arange(4), "text": ["a", "b", "c", "d"]})
    for options, match in (
        ({"text": "none"}, r"""text names "none", and the fields are \['x', 'text'\]"""),
        ({"text": ["text", "x"]}, r"""text names "x", which has i64 \[\]: it is for UTF-8"""),
        ({"text": "text", "pad": {"text": 0}}, 'text names "text", and pad names it, too: leave one of them out'),
        ({"text": 5}, "text is 5: give names of fields"),
    ):
        with pytest.raises(feedline.ConfigError, match=match):
            feedline.Loader(data, 2, framework="numpy", **options)
    with feedline.Loader(data, 4, pad={"text": 0}, framework="numpy") as loader:
        assert next(iter(loader))["text"].values.tobytes() == b"abcd"
    lines = tmp_path / "raw.npz"
    np.savez(lines, raw=np.full((3, 2), 255, np.uint8))
    raw = feedline.Data([{"raw": b"\xff\xfe"}])
    with feedline.Loader(raw, 1, text="raw", framework="numpy", workers=0) as loader:
        with pytest.raises(feedline.DataError, match='field "raw" has bytes that are no text: .*leave it out of text'):
            next(iter(loader))["raw"]
