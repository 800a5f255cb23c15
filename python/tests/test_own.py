"""Data sets and hooks written in Python, and composition."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from typing import Any

import numpy as np
import pytest
from conftest import hub_datasets, ids, numbers

import feedline


class Squares:
    """A data set of one's own: dicts of an array, a number, and a text."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": np.full((2, 3), index, np.float32), "id": index, "text": "x" * (index % 4)}


class Pairs:
    """A data set of tuples, as torch's."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return np.full(3, index, np.float32), index


def test_dicts_tuples_and_single_arrays() -> None:
    data = feedline.Data(Squares(), max_length={"text": 8})
    names = [field.name for field in data.fields]
    assert names == ["x", "id", "text"] and data.fields[2].max_length == 8
    for batch in feedline.Loader(data, 8, shuffle=1, framework="numpy"):
        assert (batch["x"][:, 0, 0] == batch["id"]).all() and batch["id"].dtype == np.int64
        assert [len(text) for text in batch["text"]] == [one % 4 for one in batch["id"]]
        del batch
    seen = []
    for x, y in feedline.Loader(Pairs(), 8, shuffle=1, framework="numpy"):
        assert (x[:, 0] == y).all()
        seen += y.tolist()
        del x, y
    assert sorted(seen) == list(range(50))
    single = feedline.Loader([np.arange(4) + one for one in range(10)], 5, framework="numpy")
    assert [batch["0"].sum() for batch in single] == [70, 170]


def test_the_workers_read_it() -> None:
    names = set()

    class Named(Squares):
        def __getitem__(self, index: int) -> dict[str, Any]:
            names.add(threading.get_ident())
            return {"id": index}

    data = feedline.Data(Named())
    names.clear()
    assert ids(feedline.Loader(data, 4, framework="numpy", workers=2, parallel="threads")) == list(range(50))
    assert threading.get_ident() not in names


def test_a_torch_dataset_and_one_of_hugging_face_work_as_they_are() -> None:
    datasets = hub_datasets()
    one = datasets.Dataset.from_dict({"x": [[float(n), 2.0 * n] for n in range(30)], "id": list(range(30))})
    loader = feedline.Loader(one, 7, shuffle=3, framework="numpy")
    for batch in loader:
        assert (batch["x"][:, 1] == 2 * batch["id"]).all()
        del batch
    state = loader.state_dict()
    other = one.map(lambda row: {"id": row["id"] + 1})
    with pytest.raises(feedline.StateError):
        feedline.Loader(other, 7, shuffle=3, framework="numpy").load_state_dict(state)
    torch = pytest.importorskip("torch", reason="not run: torch is not installed")
    tensors = torch.utils.data.TensorDataset(torch.arange(30).float(), torch.arange(30))
    for x, y in feedline.Loader(tensors, 7, framework="torch"):
        assert torch.equal(x, y.float())
        del x, y


def test_several_samples_in_one_call() -> None:
    calls = []

    class Batched(Pairs):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            calls.append(len(indices))
            if 33 in indices:
                raise OSError("the server is away")
            return [self[index] for index in indices]

        def __getitem__(self, index: int) -> Any:
            if index == 33:
                raise OSError("the server is away")
            return super().__getitem__(index)

    data = feedline.Data(Batched())
    with pytest.raises(feedline.SampleError, match="away") as raised:
        for _, y in feedline.Loader(data, 10, framework="numpy"):
            del y
    assert raised.value.sample == 33 and 1 < max(calls) <= 10


def test_an_exception_keeps_its_line() -> None:
    class Bad(Squares):
        def __getitem__(self, index: int) -> dict[str, Any]:
            if index == 33:
                raise KeyError("lost")  # this line
            return {"id": index}

    with pytest.raises(feedline.SampleError) as raised:
        ids(feedline.Loader(Bad(), 5, framework="numpy"))
    error = raised.value
    assert (error.sample, error.batch, error.stage) == (33, 6, "decode")
    assert isinstance(error.__cause__, KeyError)
    last = traceback.extract_tb(error.__cause__.__traceback__)[-1]
    assert last.line is not None and "this line" in last.line
    assert f"file {__file__}, line {last.lineno}" in str(error) and "\n" not in str(error)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"x": np.zeros(4)}, r"shape \(4,\), and sample 0 has \(3,\)"),
        ({"x": np.zeros(3, complex)}, "complex128"),
        ({"y": np.zeros(3)}, r"the fields \['y'\]"),
        ({"x": ["a", "b", "c"]}, "<U1"),
    ],
)
def test_a_sample_that_differs_from_the_first_is_named(second: Any, message: str) -> None:
    with pytest.raises(feedline.SampleError, match=message) as raised:
        list(feedline.Loader([{"x": np.zeros(3)}, second], 2, framework="numpy"))
    assert raised.value.sample == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("train.parquet", "feedline.open"),
        (iter([1]), "__len__"),
        ([], "empty"),
        ([{"x": object()}], "not an array"),
        ([{"x": np.uint64(1)}], "uint64"),
        ({"x": np.zeros(3), "y": np.zeros(4)}, "4"),
        ({"x": 3}, "one row per sample"),
    ],
)
def test_what_is_no_data_set_is_refused(data: Any, message: str) -> None:
    with pytest.raises(feedline.ConfigError, match=message):
        feedline.Data(data)


def test_a_hook_changes_a_batch_in_the_workers() -> None:
    def double(batch: dict[str, Any]) -> dict[str, Any]:
        batch["x"] *= 2
        return {"x": batch["x"], "id": batch["id"] + 1}

    loader = feedline.Loader(numbers(), 10, shuffle=3, framework="numpy", map_batch=double)
    for batch in loader:
        assert (batch["x"][:, 0] == 2000 * (batch["id"] - 1)).all()
        assert (batch["id"] == batch.ids + 1).all()
        del batch

    def bad(batch: dict[str, Any]) -> Any:
        return {**batch, "x": batch["x"][:3]}

    with pytest.raises(feedline.Error, match=r"the hook made \"x\" \(3, 5\)"):
        list(feedline.Loader(numbers(), 10, framework="numpy", map_batch=bad))

    def raises(batch: dict[str, Any]) -> Any:
        raise ZeroDivisionError("by hand")

    with pytest.raises(feedline.Error, match="by hand") as raised:
        list(feedline.Loader(numbers(), 10, framework="numpy", map_batch=raises))
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_composition() -> None:
    data = feedline.Data(numbers())

    def order(one: feedline.Data) -> list[int]:
        return ids(feedline.Loader(one, 7, framework="numpy"))

    assert order(data.take(3)) == [0, 1, 2]
    assert order(data.skip(97)) == [97, 98, 99]
    assert order(data.subset([5, 5, 2])) == [5, 5, 2]
    assert order(data.take(2).repeat(3)) == [0, 1, 0, 1, 0, 1]
    assert order(feedline.concat(data.take(2), data.skip(98))) == [0, 1, 98, 99]
    assert order(data.filter(lambda sample: sample["id"] % 30 == 0)) == [0, 30, 60, 90]
    train, test = data.split(0.9, 0.1, seed=3)
    assert sorted(order(train) + order(test)) == list(range(100)) and len(test) == 10
    doubled = data.map(lambda sample: {"id": sample["id"] * 2})
    assert order(doubled) == list(range(0, 200, 2))
    assert order(doubled.cached(1 << 20)) == order(doubled)
    renamed = data.map(lambda sample: {"other": sample["id"]})
    both = next(iter(feedline.Loader(feedline.zip(data, renamed), 5, framework="numpy")))
    assert (both["id"] == both["other"]).all()
    mixed = order(feedline.mix([(data.take(1), 1.0), (data.skip(99), 3.0)], samples=400))
    assert (mixed.count(0), mixed.count(99)) == (100, 300)
    with pytest.raises(feedline.ConfigError):
        feedline.concat(data, renamed)


def test_a_cache_that_python_reads_through_does_not_deadlock() -> None:
    """A thread that waits for the cache with the interpreter's lock would stop the worker that fills it."""
    data = (
        feedline.Data(Squares(), max_length={"text": 8})
        .map(lambda sample: {"id": sample["id"]})
        .cached(1 << 20)
    )
    loader = feedline.Loader(data, 2, framework="numpy", workers=4, parallel="threads")
    batches = iter(loader)
    for index in range(25):
        assert int(data[49 - index]["id"]) == 49 - index
        assert next(batches)["id"][1] == 2 * index + 1


def test_samplers() -> None:
    data, sampler = numbers(), feedline.Sampler
    labels = [int(one) for one in data["id"] % 4 == 0]
    balanced = sampler.balanced(labels, 2).draws(1000)
    drawn = ids(feedline.Loader(data, 10, sampler=balanced, seed=3, framework="numpy"))
    assert len(drawn) == 1000 and abs(sum(one % 4 == 0 for one in drawn) - 500) < 100
    weights = [1.0 if one < 2 else 0.0 for one in range(100)]
    assert set(ids(feedline.Loader(data, 10, sampler=sampler.weighted(weights), framework="numpy"))) == {0, 1}
    assert sorted(ids(feedline.Loader(data, 10, sampler=sampler.block(5, 4), framework="numpy"))) == list(
        range(100)
    )
    lengths = np.arange(100) % 10
    bucketed = sampler.bucketed(lengths.tolist(), 10, 1)
    for batch in feedline.Loader(data, 10, sampler=bucketed, framework="numpy"):
        assert np.ptp(lengths[batch.ids.astype(int)]) <= 1
        del batch
    with pytest.raises(feedline.ConfigError, match="two orders"):
        feedline.Loader(data, 10, sampler=bucketed, shuffle=3)


class Long:
    """Rows that take long to copy."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return np.zeros(100_000, np.uint8)


def test_few_workers_read_what_python_code_reads() -> None:
    """More threads would wait for the interpreter's lock; the rest of the data has a thread per core."""
    from feedline._workers import choice

    def threads(data: feedline.Data) -> int | None:
        return choice.Choice(data._leaves, None, "auto").threads

    arrays = feedline.Data({"x": np.zeros((50, 2, 3), np.float32)})
    own = feedline.Data(Squares(), max_length={"text": 4})
    python = [own, own.subset([1, 2]), feedline.Data(own), arrays.map(dict), feedline.zip(arrays.map(dict))]
    python += [feedline.concat(arrays, arrays.map(dict)), feedline.mix([(arrays, 1.0), (arrays.map(dict), 1.0)])]
    python += [feedline.Data(Long())]
    cores, has_lock = os.cpu_count() or 2, getattr(sys, "_is_gil_enabled", lambda: True)()
    # What the first sample took: quick ones, and others.
    for seconds, one, long in [(1e-6, 1, 2), (0.01, 2, 2)]:
        for data in python:
            for leaf in data._leaves:
                leaf.reader.first_seconds = seconds
        wanted = [min(one, cores)] * (len(python) - 1) + [min(long, cores)]
        assert [threads(data) for data in python] == (wanted if has_lock else [None] * len(python))
    assert [threads(data) for data in (arrays, feedline.concat(arrays, arrays.take(3)))] == [None] * 2
    with feedline.Loader(own, 5, workers=3, parallel="threads") as loader:
        assert sum(len(batch["id"]) for batch in loader.epoch(0)) == 50


def test_a_thread_keeps_what_a_sample_leaves_for_the_next_one() -> None:
    """As a file or a connection of each thread, which `threading.local` holds."""
    local, made, ended = threading.local(), [], []

    class Connection:
        def __init__(self) -> None:
            made.append(threading.get_ident())

        def __del__(self) -> None:
            ended.append(threading.get_ident())

    class Connected:
        def __len__(self) -> int:
            return 600

        def __getitem__(self, index: int) -> int:
            if threading.current_thread() is not threading.main_thread() and not hasattr(local, "connection"):
                local.connection = Connection()
            return index

    with feedline.Loader(Connected(), 4, framework="numpy", parallel="threads", workers=3) as loader:
        assert sum(batch.rows for batch in loader) == 600
    assert 1 <= len(made) <= 3 and len(set(made)) == len(made)
    # A thread ends with what it had.
    assert sorted(ended) == sorted(made)
