"""Every option of every function that opens data, with every kind of data: it is used, or an error.

The options come from the signatures, so that a new one fails the test until its value stands here.
"""

from __future__ import annotations

import inspect
import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_files import tokenizer

import feedline
from feedline import transforms as T

pyarrow = pytest.importorskip("pyarrow", reason="not run: pyarrow is not installed")
parquet = pytest.importorskip("pyarrow.parquet", reason="not run: pyarrow is not installed")
PIL = pytest.importorskip("PIL.Image", reason="not run: Pillow is not installed")
wave = pytest.importorskip("wave")

#: Values that differ from the default of an option. ``memory_limit`` is a limit, which any data keep.
VALUES: dict[str, list[Any]] = {
    "split": ["train", "test", "validation"],
    "classes": [["x", "y"]],
    "max_length": [9, {"a": 9}],
    "nulls": ["fill"],
    "empty_members": [True],
    "cache_bytes": [1 << 20],
    "types": [{"a": "float64"}],
    "header": [True],
    "text": ["a"],
    "special_tokens": [True],
    "max_tokens": [3],
    "class_from": [1],
    "root": ["."],
    "label": ["label"],
    "listing_age": [60],
    "box_format": ["xywh"],
    "min_size": [2.0],
    "clip_boxes": [True],
    "max_boxes": [3],
    "one_based": [True],
    "crop_at": ["center"],
    "messages": ["other"],
    "tools": ["other"],
    "variables": ["other"],
    "skip_short": [True],
    "fit_on": [range(2)],
    "unknown": ["a"],
    "share": [["a", "b"]],
    "seed_generators": [False],
    "within": [2],
    "pad": [{"a": 1}],
}

#: Options that change every kind of data of a function, or name what the data must have.
ALWAYS: dict[str, set[str]] = {
    "open": {"memory_limit", "tokenizer", "files"},
    "table": {
        *("memory_limit", "select", "stack", "cast", "category", "max", "last", "days", "seconds", "standardize"),
        *("fill", "fill_mean", "mask", "saved", "fitted"),
    },
    "images": {
        *("transforms", "field", "channels_first", "scaled_decode", "decode", "mode", "annotations", "mask"),
        *("depth", "boxes", "points", "moves", "views", "beside", "text", "tokenizer", "own_sizes"),
    },
    "sounds": {"rate", "channels", "crop", "mel", "max_seconds", "field", "text", "tokenizer", "beside"},
    "chats": {
        *("of", "learn", "template", "context", "add_generation_prompt", "max_tokens", "today", "special_tokens"),
    },
    "tokens": {"window", "dtype", "stride", "separator", "memory_limit"},
}


def files(folder: Path) -> dict[str, Path]:
    """A file or a folder of each kind."""
    made = {name: folder / name for name in ("a.csv", "a.jsonl", "a.npy", "a.npz", "a.parquet", "a.arrow", "a.txt")}
    made["a.csv"].write_text("a,b\n1,2\n3,4\n")
    made["a.jsonl"].write_text('{"a": 1, "b": 2}\n{"a": 3, "b": 4}\n')
    np.save(made["a.npy"], np.zeros((2, 2), np.float32))
    np.savez(made["a.npz"], a=np.zeros(2), b=np.zeros(2))
    table = pyarrow.table({"a": [1, 3], "b": [2, 4]})
    parquet.write_table(table, made["a.parquet"])
    with pyarrow.ipc.new_file(made["a.arrow"], table.schema) as writer:
        writer.write_table(table)
    made["a.txt"].write_text("one\ntwo\n")
    for name in ("x", "y"):
        (folder / "classes" / name).mkdir(parents=True)
        PIL.fromarray(np.zeros((4, 4, 3), np.uint8)).save(folder / "classes" / name / "1.png")
        (folder / "sounds" / name).mkdir(parents=True)
        with wave.open(str(folder / "sounds" / name / "1.wav"), "wb") as sound:
            sound.setnchannels(1), sound.setsampwidth(2), sound.setframerate(8000)
            sound.writeframes(bytes(800))
    (folder / "shards").mkdir()
    for name in ("train", "test", "validation"):
        parquet.write_table(table, folder / "shards" / f"{name}-00000-of-00001.parquet")
    with tarfile.open(folder / "a.tar", "w") as archive:
        for name in ("x", "y"):
            archive.add(folder / "classes" / name / "1.png", f"{name}.png")
    (folder / "list.csv").write_text("path,label\nclasses/x/1.png,x\nclasses/y/1.png,y\n")
    (folder / "sounds.csv").write_text("path,label\nsounds/x/1.wav,x\nsounds/y/1.wav,y\n")
    (folder / "chats.jsonl").write_text(json.dumps({"messages": [{"role": "user", "content": "a"}]}) + "\n")
    np.arange(20, dtype=np.uint16).tofile(folder / "a.bin")
    made["classes"], made["shards"], made["a.tar"] = folder / "classes", folder / "shards", folder / "a.tar"
    made["sounds"], made["pattern"] = folder / "sounds", folder / "classes" / "*" / "*.png"
    made["list.csv"], made["sounds.csv"], made["chats.jsonl"] = (
        folder / name for name in ("list.csv", "sounds.csv", "chats.jsonl")
    )
    made["a.bin"] = folder / "a.bin"
    return made


#: The options that each function uses of each kind of data.
USES: dict[str, dict[str, set[str]]] = {
    "open": {
        "a.csv": {"nulls", "cache_bytes", "types", "header"},
        "a.jsonl": {"nulls", "cache_bytes", "types"},
        "a.parquet": {"nulls", "cache_bytes"},
        "a.arrow": {"nulls", "cache_bytes"},
        "a.npy": set(),
        "a.npz": set(),
        "a.txt": {"max_length"},
        "a.tar": {"empty_members", "max_length"},
        "classes": {"classes", "max_length"},
        "pattern": {"classes", "class_from", "max_length"},
        "shards": {"split", "nulls", "cache_bytes"},
    },
    "table": {
        "a.csv": {"cache_bytes", "types", "header"},
        "a.jsonl": {"cache_bytes", "types"},
        "a.parquet": {"cache_bytes"},
        "a.arrow": {"cache_bytes"},
        "a.npy": set(),
        "shards": {"split", "cache_bytes"},
    },
    "images": {
        "classes": {"classes"},
        "pattern": {"classes", "class_from"},
        "a.tar": set(),
        "list.csv": {"classes", "root", "label"},
    },
    "sounds": {"sounds": {"classes"}, "sounds.csv": {"classes", "root", "label"}},
    "chats": {"chats.jsonl": set()},
    "tokens": {"a.bin": set()},
}


def call(function: str, path: Path, folder: Path, options: Mapping[str, Any]) -> Any:
    if function == "images":
        return feedline.images(path, [T.Resize((4, 4))], **options)
    if function == "sounds":
        return feedline.sounds(path, **options)
    if function == "chats":
        template = "{% for m in messages %}{{ m.content }}{% endfor %}"
        return feedline.chats(path, folder / "tokenizer", template=template, learn="all", **options)
    if function == "tokens":
        return feedline.tokens(path, 4, dtype="uint16", **options)
    opens: Callable[..., Any] = getattr(feedline, function)
    return opens(path, **options)


@pytest.mark.parametrize("function", list(USES))
def test_an_option_is_used_or_refused_by_every_kind_of_data(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEEDLINE_CACHE", "off")
    made = files(tmp_path)
    tokenizer(tmp_path)
    signature = inspect.signature(getattr(feedline, function)).parameters.values()
    options = [one.name for one in signature if one.kind is one.KEYWORD_ONLY]
    unlisted = [name for name in options if name not in ALWAYS[function] and name not in VALUES]
    assert not unlisted, f"{function} has options that the test does not know: {unlisted}"
    for kind, used in USES[function].items():
        base: dict[str, Any] = {"split": "train"} if kind == "shards" else {}
        call(function, made[kind], tmp_path, base)
        for name in options:
            for value in VALUES[name] if name in VALUES and name not in ALWAYS[function] else ():
                shown = f"{function}({kind}, {name}={value!r})"
                if name == "root":
                    value = tmp_path
                if name in used:
                    if value != {"a": 9}:
                        call(function, made[kind], tmp_path, base | {name: value})
                    continue
                with pytest.raises(feedline.Error) as refused:
                    call(function, made[kind], tmp_path, base | {name: value})
                    pytest.fail(f"{shown} is taken and not used")
                assert "OpenOptions" not in str(refused.value), shown


@pytest.mark.parametrize("split", ["train", "test", "validation"])
def test_a_split_never_gives_all_rows(tmp_path: Path, split: str) -> None:
    made = files(tmp_path)
    for kind in made:
        if kind in ("shards", "chats.jsonl", "a.bin") or kind.startswith("sounds"):
            continue
        with pytest.raises(feedline.ConfigError, match="split="):
            feedline.open(made[kind], split=split)
    (tmp_path / "parts").mkdir()
    for part in ("0", "1"):
        (tmp_path / "parts" / f"{part}.csv").write_text("a,b\n1,2\n")
    with pytest.raises(feedline.ConfigError, match="no name states a set, such as train"):
        feedline.open(tmp_path / "parts", split=split)


def test_options_of_data_in_memory_are_used_or_refused() -> None:
    data = feedline.Data({"a": np.arange(3)})
    ids = feedline.Data({"a": [[1, 2], [3]]}, max_length={"a": 4})
    for refused in (
        lambda: feedline.Data(data, max_length={"a": 3}),
        lambda: feedline.Data(data, seed_generators=False),
        lambda: feedline.Data({"a": np.arange(3)}, seed_generators=False),
        lambda: ids.packed("a", 4, order="in order", within=2),
        lambda: ids.packed("a", 4, padded=False, pad={"a": 1}),
        lambda: feedline.Source(lambda: iter([{"a": [1]}]), max_length={"a": 4}).packed(
            "a", 4, padded=False, pad={"a": 1}
        ),
    ):
        with pytest.raises(feedline.ConfigError):
            refused()


def test_windows_name_the_step_that_they_do_not_have(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("t,v\n1,2\n2,3\n3,4\n")
    with pytest.raises(TypeError, match=r"feedline.windows has no standardize_by: is it standardize\?"):
        feedline.windows(path, 1, order_by="t", x="v", standardize_by="v")
    with pytest.raises(TypeError, match="feedline.windows has no colour"):
        feedline.windows(path, 1, order_by="t", x="v", colour="v")


@pytest.mark.parametrize("of", ["pandas", "polars", "pyarrow"])
def test_a_column_of_a_table_is_an_array(of: str) -> None:
    module = pytest.importorskip(of, reason=f"not run: {of} is not installed")
    columns = {"a": [1, 2], "b": [0.5, 0.25]}
    table = module.table(columns) if of == "pyarrow" else module.DataFrame(columns)
    if of == "pyarrow":
        rows = module.chunked_array([[1, None]])
    data = feedline.Data({"a": table["a"].to_numpy(), "b": table["b"].to_numpy()})
    assert [field.dtype for field in data.fields] == ["i64", "f64"]
    if of == "polars":
        rows = module.Series([1, None])
    if of != "pandas":
        with pytest.raises(feedline.ConfigError, match="missing values"):
            feedline.Data({"a": rows})


def test_a_sample_that_is_a_row_of_a_table_is_refused() -> None:
    pandas = pytest.importorskip("pandas", reason="not run: pandas is not installed")

    class Rows:
        def __init__(self) -> None:
            self.table = pandas.DataFrame({"a": [1, 2], "b": [0.5, 0.25]})

        def __len__(self) -> int:
            return len(self.table)

        def __getitem__(self, index: int) -> Any:
            return self.table.iloc[index]

    with pytest.raises(feedline.ConfigError, match="give a dict of its values"):
        feedline.Data(Rows())


def test_lists_of_texts_in_json_lines_are_refused_or_stated(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for value in (["one", "two"], {"a": 1}, [["one"]], [{"role": "user"}]):
        path.write_text(json.dumps({"id": 1, "texts": value}) + "\n" + json.dumps({"id": 2, "texts": value}) + "\n")
        with pytest.raises(feedline.DataError, match='key "texts" has lists of texts, or objects'):
            feedline.open(path, max_length=99)
        data = feedline.open(path, max_length=99, types={"texts": "text"})
        assert json.loads(bytes(data[0]["texts"])) == value
    path.write_text('{"texts": [1, 2]}\n{"texts": [3]}\n')
    assert feedline.open(path, max_length=9)[0]["texts"].tolist() == [1, 2]


def test_a_first_row_that_may_be_names_is_stated(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for text, names in (("a,1\n5,6\n7,8\n", ["a", "1"]), ("2019,2020\n1,2\n3,4\n", ["2019", "2020"])):
        path.write_text(text)
        for opens in (feedline.open, feedline.table):
            with pytest.raises(feedline.DataError, match="give header=True if it names the columns, header=False"):
                opens(path)
            data = opens(path, header=True)
            assert (len(data), [field.name for field in data.fields]) == (2, names)
    assert len(feedline.open(path, header=False)) == 3
    path.write_text("id,x,x\n1,2,3\n4,5,6\n")
    with pytest.raises(feedline.DataError, match='has "x" twice'):
        feedline.open(path)
