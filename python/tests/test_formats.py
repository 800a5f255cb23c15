"""Values of every format, held against the library that wrote the file. Each format gives 100 batches: two
shuffled epochs of 50, so that a thousand batches are compared in all."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import hub_datasets

import feedline

SAMPLES, BATCH = 400, 8

#: The result of a writer: the path to open, and each sample as it must arrive.
Written = tuple[Path, list[dict[str, Any]]]


def chance() -> np.random.Generator:
    return np.random.default_rng(7)


def npy(folder: Path) -> Written:
    array = chance().standard_normal((SAMPLES, 3, 5)).astype(np.float32)
    np.save(folder / "x.npy", array)
    return folder / "x.npy", [{"array": row} for row in array]


def npz(folder: Path) -> Written:
    x, y = chance().integers(0, 9, (SAMPLES, 4), np.int16), np.arange(SAMPLES)
    np.savez_compressed(folder / "x.npz", x=x, y=y)
    return folder / "x.npz", [{"x": a, "y": b} for a, b in zip(x, y, strict=True)]


def half_floats(folder: Path) -> Written:
    array = chance().standard_normal((SAMPLES, 6)).astype(np.float16)
    np.save(folder / "x.npy", array)
    return folder / "x.npy", [{"array": row} for row in array]


def table() -> Any:
    pyarrow = pytest.importorskip("pyarrow", reason="not run: pyarrow is not installed")
    random = chance()
    return pyarrow.table(
        {
            "id": pyarrow.array(np.arange(SAMPLES)),
            "score": pyarrow.array(random.standard_normal(SAMPLES)),
            "tokens": pyarrow.array(
                [random.integers(0, 99, n).tolist() for n in random.integers(0, 20, SAMPLES)],
                pyarrow.list_(pyarrow.int32()),
            ),
            "text": pyarrow.array(["é" * int(n) + str(n) for n in random.integers(0, 9, SAMPLES)]),
            "pair": pyarrow.array(
                random.standard_normal((SAMPLES, 2)).astype(np.float32).tolist(),
                pyarrow.list_(pyarrow.float32(), 2),
            ),
            "flag": pyarrow.array((random.random(SAMPLES) < 0.5).tolist()),
        }
    )


def rows_of(table: Any) -> list[dict[str, Any]]:
    """The samples of a table, by pyarrow's own conversion."""
    types = {"tokens": np.int32, "pair": np.float32, "flag": np.bool_, "id": np.int64, "score": np.float64}
    return [
        {
            name: np.frombuffer(value.encode(), np.uint8) if name == "text" else np.array(value, types[name])
            for name, value in row.items()
        }
        for row in table.to_pylist()
    ]


def parquet(folder: Path) -> Written:
    pytest.importorskip("pyarrow.parquet", reason="not run: pyarrow is not installed")
    import pyarrow.parquet

    pyarrow.parquet.write_table(table(), folder / "x.parquet", row_group_size=90, compression="zstd")
    return folder / "x.parquet", rows_of(pyarrow.parquet.read_table(folder / "x.parquet"))


def arrow_file(folder: Path) -> Written:
    pytest.importorskip("pyarrow.ipc", reason="not run: pyarrow is not installed")
    import pyarrow.ipc

    one = table()
    with pyarrow.ipc.new_file(folder / "x.arrow", one.schema) as writer:
        writer.write_table(one, max_chunksize=64)
    return folder / "x.arrow", rows_of(one)


def arrow_stream(folder: Path) -> Written:
    pytest.importorskip("pyarrow.ipc", reason="not run: pyarrow is not installed")
    import pyarrow.ipc

    one = table()
    with pyarrow.ipc.new_stream(folder / "x.arrows", one.schema) as writer:
        writer.write_table(one, max_chunksize=64)
    return folder / "x.arrows", rows_of(one)


def comma(folder: Path) -> Written:
    random = chance()
    rows = [(int(random.integers(-99, 99)), float(random.random())) for _ in range(SAMPLES)]
    with (folder / "x.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([("a", "b"), *rows])
    return folder / "x.csv", [{"a": np.int64(a), "b": np.float64(b)} for a, b in rows]


def json_lines(folder: Path) -> Written:
    random = chance()
    rows = [{"n": number, "v": random.random(3).tolist()} for number in range(SAMPLES)]
    (folder / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "x.jsonl", [{"n": np.int64(row["n"]), "v": np.array(row["v"])} for row in rows]


def text(folder: Path) -> Written:
    lines = [f"line {number}: " + "ä " * (number % 7) for number in range(SAMPLES)]
    (folder / "x.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "x.txt", [{"text": np.frombuffer(line.encode(), np.uint8)} for line in lines]


def safetensors(folder: Path) -> Written:
    module = pytest.importorskip("safetensors.numpy", reason="not run: safetensors is not installed")
    tensors = {"x": chance().random((SAMPLES, 4)), "y": np.arange(SAMPLES, dtype=np.int32)}
    module.save_file(tensors, folder / "x.safetensors")
    return folder / "x.safetensors", [
        {name: array[row] for name, array in tensors.items()} for row in range(SAMPLES)
    ]


def webdataset(folder: Path) -> Written:
    module = pytest.importorskip("webdataset", reason="not run: webdataset is not installed")
    samples = [
        (f"{number:06}", bytes([number % 256] * (number % 9 + 1)), number % 10) for number in range(SAMPLES)
    ]
    with module.TarWriter(str(folder / "x.tar")) as writer:
        for key, data, label in samples:
            writer.write({"__key__": key, "bin": data, "cls": label})
    return folder / "x.tar", [
        {"bin": np.frombuffer(data, np.uint8), "cls": np.frombuffer(str(label).encode(), np.uint8)}
        for _, data, label in samples
    ]


def mosaic(folder: Path) -> Written:
    module = pytest.importorskip("streaming", reason="not run: mosaicml-streaming is not installed")
    values = chance().random((SAMPLES, 3)).astype(np.float32)
    with module.MDSWriter(
        out=str(folder / "mds"), columns={"x": "ndarray:float32:3", "y": "int"}, size_limit=4096
    ) as to:
        for number, value in enumerate(values):
            to.write({"x": value, "y": number})
    return folder / "mds", [{"x": value, "y": np.int64(number)} for number, value in enumerate(values)]


def mnist(folder: Path) -> Written:
    images = chance().integers(0, 256, (SAMPLES, 4, 6), np.uint8)
    labels = np.arange(SAMPLES, dtype=np.uint8)
    head = struct.pack(">HBBIII", 0, 8, 3, *images.shape)
    with gzip.open(folder / "train-images-idx3-ubyte.gz", "wb") as file:
        file.write(head + images.tobytes())
    (folder / "train-labels-idx1-ubyte").write_bytes(
        struct.pack(">HBBI", 0, 8, 1, SAMPLES) + labels.tobytes()
    )
    return folder, [{"image": image, "label": label} for image, label in zip(images, labels, strict=True)]


def cifar(folder: Path) -> Written:
    images = chance().integers(0, 256, (SAMPLES, 3, 32, 32), np.uint8)
    labels = np.arange(SAMPLES, dtype=np.uint8) % 10
    for number in range(5):
        part = slice(80 * number, 80 * number + 80)
        records = np.concatenate([labels[part, None], images[part].reshape(80, -1)], axis=1)
        (folder / f"data_batch_{number + 1}.bin").write_bytes(records.tobytes())
    return folder, [{"image": image, "label": label} for image, label in zip(images, labels, strict=True)]


def classes(folder: Path) -> Written:
    """A folder for each class, of files of any content."""
    samples = []
    for label, name in enumerate(["ant", "bee"]):
        (folder / name).mkdir()
        for number in range(SAMPLES // 2):
            content = f"{name} {number}".encode()
            (folder / name / f"{number:03}.bin").write_bytes(content)
            samples.append({"data": np.frombuffer(content, np.uint8), "label": np.int64(label)})
    return folder, samples


def tar_gz(folder: Path) -> Written:
    with tarfile.open(folder / "x.tar.gz", "w:gz") as tar:
        for number in range(SAMPLES):
            content = struct.pack("<i", number)
            member = tarfile.TarInfo(f"{number:04}.n")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return folder / "x.tar.gz", [{"n": np.frombuffer(struct.pack("<i", n), np.uint8)} for n in range(SAMPLES)]


def zarr(folder: Path) -> Written:
    """Chunks of 7 samples and 2 columns, compressed by gzip; those beyond the array are padding."""
    array = chance().integers(-9, 9, (SAMPLES, 3), np.int32)
    about = {"zarr_format": 2, "shape": [SAMPLES, 3], "chunks": [7, 2], "dtype": "<i4", "order": "C",
             "compressor": {"id": "gzip"}, "filters": None, "fill_value": 0}  # fmt: skip
    store = folder / "x.zarr"
    store.mkdir()
    (store / ".zarray").write_text(json.dumps(about))
    padded = np.pad(array, ((0, -SAMPLES % 7), (0, 1)))
    for row in range(0, SAMPLES, 7):
        for column in (0, 2):
            chunk = gzip.compress(padded[row : row + 7, column : column + 2].tobytes())
            (store / f"{row // 7}.{column // 2}").write_bytes(chunk)
    return store, [{"array": row} for row in array]


WRITERS: list[Callable[[Path], Written]] = [
    npy, npz, half_floats, parquet, arrow_file, arrow_stream, comma, json_lines, text, safetensors,
    webdataset, mosaic, mnist, cifar, classes, tar_gz, zarr,
]  # fmt: skip


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_values_of_100_batches(write: Callable[[Path], Written], tmp_path: Path) -> None:
    path, wanted = write(tmp_path)
    data = feedline.open(path)
    assert len(data) == len(wanted) == SAMPLES
    loader, batches, seen = feedline.Loader(data, BATCH, shuffle=7, framework="numpy"), 0, []
    for _ in range(2):
        for batch in loader:
            check(batch, [wanted[one] for one in batch.ids])
            seen += batch.ids.tolist()
            batches += 1
            del batch
    assert batches == 100 and sorted(seen) == sorted([*range(SAMPLES)] * 2)


def check(batch: feedline.Batch, wanted: list[dict[str, Any]]) -> None:
    assert set(batch) == set(wanted[0])
    for name, field in batch.items():
        rows = field.rows() if isinstance(field, feedline.Ragged) else field
        for row, sample in zip(rows, wanted, strict=True):
            value = np.asarray(sample[name])
            assert row.dtype == value.dtype, (name, row.dtype, value.dtype)
            assert row.shape == value.shape and (row == value).all(), (name, row, value)


def test_a_sample_by_its_index(tmp_path: Path) -> None:
    path, wanted = parquet(tmp_path)
    data = feedline.open(path)
    for index in [0, 17, -1]:
        for name, value in data[index].items():
            assert (np.asarray(value) == wanted[index][name]).all()
    with pytest.raises(IndexError, match="there are 400"):
        data[400]
    assert data.path(3) == str(path)


def test_text_comes_as_text(tmp_path: Path) -> None:
    path, wanted = text(tmp_path)
    batch = next(iter(feedline.Loader(feedline.open(path, max_length=100), 4, framework="numpy")))
    assert batch["text"].text() == [bytes(sample["text"]).decode() for sample in wanted[:4]]


def test_nulls_are_refused_or_filled(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1.5,2\n,3\n")
    with pytest.raises(feedline.Error, match="null") as raised:
        list(feedline.Loader(feedline.open(tmp_path / "x.csv"), 2, framework="numpy"))
    assert raised.value.path == str(tmp_path / "x.csv")
    filled = feedline.open(tmp_path / "x.csv", nulls="fill")
    assert np.isnan(filled[1]["a"]) and filled[1]["b"] == 3


def test_errors_of_files_say_which(tmp_path: Path) -> None:
    with pytest.raises(feedline.DataError, match="/no/such/file"):
        feedline.open("/no/such/file")
    np.save(tmp_path / "x.npy", np.arange(10))
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-20])
    with pytest.raises(feedline.DataError) as raised:
        feedline.open(tmp_path / "x.npy")
    assert raised.value.path == str(tmp_path / "x.npy")
    for options in ({"split": "dev"}, {"nulls": "drop"}, {"max_length": {"nothing": 3}}):
        path, _ = text(tmp_path)
        with pytest.raises(feedline.ConfigError):
            feedline.open(path, **options)


def test_tokens_are_those_of_hugging_faces_package(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="not run: tokenizers is not installed")
    lines = [f"the cat number {number} sat on the mat, and no. {number * 7} did not" for number in range(200)]
    (tmp_path / "x.jsonl").write_text(
        "".join(json.dumps({"n": n, "text": line}) + "\n" for n, line in enumerate(lines))
    )
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    tokenizer.train_from_iterator(
        lines, tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=["[E]"])
    )
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing("$A [E]", special_tokens=[("[E]", 0)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    for special in (False, True):
        options = {"tokenizer": tmp_path / "tokenizer.json", "special_tokens": special}
        data = feedline.open(tmp_path / "x.jsonl", **options)
        batches = 0
        for batch in feedline.Loader(data, 2, shuffle=7, framework="numpy"):
            for row, one in zip(batch["ids"].rows(), batch["n"], strict=True):
                assert row.tolist() == tokenizer.encode(lines[one], add_special_tokens=special).ids
            del batch, row
            batches += 1
        assert batches == 100
    cut = feedline.open(tmp_path / "x.jsonl", max_tokens=5, **options)
    assert cut.lengths("ids").max() == 5
    windows = data.packed("ids", 64)
    everything = [
        one for batch in feedline.Loader(windows, 4, framework="numpy") for one in batch["used"].tolist()
    ]
    assert sum(everything) == data.lengths("ids").sum()


def test_a_saved_data_set_of_hugging_face_and_its_classes(tmp_path: Path) -> None:
    datasets = hub_datasets()
    features = datasets.Features(
        {"label": datasets.ClassLabel(names=["ant", "bee"]), "x": datasets.Value("float32")}
    )
    rows = {"label": [n % 2 for n in range(90)], "x": [n / 4 for n in range(90)]}
    whole = datasets.Dataset.from_dict(rows, features=features)
    datasets.DatasetDict({"train": whole, "test": whole.select(range(7))}).save_to_disk(
        str(tmp_path / "saved")
    )
    data = feedline.open(tmp_path / "saved", split="train")
    assert data.classes == ["ant", "bee"] and len(feedline.open(tmp_path / "saved", split="test")) == 7
    for batch in feedline.Loader(data, 9, shuffle=3, framework="numpy"):
        for label, x, one in zip(batch["label"], batch["x"], batch.ids, strict=True):
            assert (label, x) == (rows["label"][one], rows["x"][one])
        del batch


def test_a_missing_file_names_the_one_that_is_most_like_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "numbers.npy", np.arange(3))
    monkeypatch.chdir(tmp_path)
    right = tmp_path / "data" / "numbers.npy"
    for wrong, told in (
        (tmp_path / "data" / "nunbers.npy", right),
        (tmp_path / "dta" / "numbers.npy", tmp_path / "data"),
        ("data/number.npy", "data/numbers.npy"),
    ):
        for function in (feedline.open, feedline.table, feedline.images):
            with pytest.raises(feedline.DataError, match=rf"no such file: is it {re.escape(str(told))}\? \(file .*{Path(wrong).name}"):
                function(wrong)
    with pytest.raises(feedline.DataError, match="no such file: check the path"):
        feedline.open(tmp_path / "zzz")
