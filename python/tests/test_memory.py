"""A sample is what was read, also if the data set fills the same memory for every sample."""

from __future__ import annotations

import os
from typing import Any

import memory_sets
import numpy as np
import pytest
from memory_sets import Filled, FilledAtOnce, FilledTensor, Out, Resting

import feedline
from feedline import _own
from feedline._workers import worker

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

WAYS: list[dict[str, Any]] = [
    {"workers": 0},
    {"parallel": "threads", "workers": 3},
    {"parallel": "processes", "workers": 2},
]
SETS: list[Any] = [
    *(Filled(how) for how in ("array", "view", "part", "ring", "tuple", "dict", "numbers", "list", "slow")),
    *(Filled(how) for how in ("arrays in a list", "bytes")),
    Filled("array", fresh=100),
    Filled("array", size=3000),
    Filled("view", size=40_000),
    Filled("ring", size=3000),
    FilledAtOnce("array"),
    FilledAtOnce("view"),
]


def check(data: Any, way: dict[str, Any], batch: int = 16, seed: int = 3, **options: Any) -> None:
    samples = []
    with feedline.Loader(data, batch, shuffle=seed, framework="numpy", **way, **options) as loader:
        for one in loader:
            ids, values = one if isinstance(one, tuple) else (one["id"], one["x"])
            assert (np.asarray(values).reshape(len(ids), -1) == np.asarray(ids)[:, None]).all(), (ids, values)
            samples += np.asarray(ids).tolist()
            del one, ids, values
    if not isinstance(data, feedline.Data):
        assert sorted(samples) == list(range(len(data)))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("data", SETS, ids=[f"{type(one).__name__} {one.how} {one.size}" for one in SETS])
def test_rows_are_those_of_their_samples(data: Any, way: dict[str, Any]) -> None:
    check(data, way)


@pytest.mark.parametrize("way", WAYS)
def test_tensors_too(way: dict[str, Any]) -> None:
    pytest.importorskip("torch", reason="not run: torch is not installed")
    for how in ("tensor", "view"):
        check(FilledTensor(how), way)
        check(FilledTensor(how), way, collate_fn=memory_sets.stacked)
        check(FilledTensor(how, size=3000), way)


def test_sizes_of_torch_are_no_tensors() -> None:
    torch = pytest.importorskip("torch", reason="not run: torch is not installed")
    data = [{"id": index, "x": torch.Size([index] * 3)} for index in range(40)]
    check(feedline.Data(data), WAYS[0])


def copied(sample: Any) -> Any:
    return {"id": sample["id"], "x": sample["x"]}


class Mapping:
    """A function of a sample that fills an array of its own."""

    def __init__(self) -> None:
        self.array = np.zeros(5, np.int64)

    def __call__(self, sample: Any) -> Any:
        self.array[:] = sample["id"]
        return {"id": sample["id"], "x": self.array}


@pytest.mark.parametrize("size", [6, 3000])
@pytest.mark.parametrize("how", ["array", "view", "ring", "tuple", "dict", "list"])
def test_threads_find_memory_that_is_filled_anew_from_some_sample_on(how: str, size: int) -> None:
    for seed in range(40):
        check(Filled(how, size=size, fresh=100), WAYS[1], seed=seed)
        check(Filled(how, size=size, fresh=100, rows=np.arange(100).repeat(size).reshape(100, size)), WAYS[1], seed=seed)
        if how == "array":
            check(Filled(how, size=size, fresh=100), WAYS[1], seed=seed, collate_fn=memory_sets.stacked)


@pytest.mark.parametrize("size", [6, 3000])
def test_threads_find_tensors_that_are_filled_anew_from_some_sample_on(size: int) -> None:
    pytest.importorskip("torch", reason="not run: torch is not installed")
    for seed in range(40):
        for how in ("tensor", "view"):
            check(FilledTensor(how, size=size, fresh=100), WAYS[1], seed=seed)


@pytest.mark.parametrize("size", [6, 3000])
@pytest.mark.parametrize("fresh", [0, 6])
def test_threads_find_functions_that_fill_one_array(fresh: int, size: int) -> None:
    given = {"id": np.arange(300), "x": np.zeros((300, size), np.int64)}
    for seed in range(40):
        check(feedline.Data(given), WAYS[1], seed=seed, map_batch=Out(size, fresh).map)
        check(Filled("array", samples=300), WAYS[1], seed=seed, collate_fn=Out(size, fresh))


@pytest.mark.parametrize("way", WAYS)
def test_maps_functions_of_batches_and_compositions_too(way: dict[str, Any]) -> None:
    check(feedline.Data(Filled("array")).map(copied), way)
    check(feedline.Data({"id": np.arange(100)}).map(Mapping()), way)
    for how in ("array", "view", "dict", "ring"):
        check(Filled(how), way, collate_fn=memory_sets.stacked)
        check(Filled(how, fresh=100), way, collate_fn=memory_sets.stacked)
    check(Filled("array", fresh=100), way, collate_fn=Out())
    whole = feedline.concat(feedline.Data(Filled("array")), feedline.Data(Filled("view")))
    check(whole, way)
    given = {"id": np.arange(300), "x": np.zeros((300, 6), np.int64)}
    with feedline.Loader(given, 16, shuffle=3, framework="numpy", map_batch=Out().map, **way) as loader:
        for batch in loader:
            assert (batch["x"] == batch["id"][:, None]).all()
            del batch


@pytest.mark.parametrize("way", WAYS)
def test_batches_of_one_row_and_ragged_rows_too(way: dict[str, Any]) -> None:
    check(Filled("array", samples=60), way, batch=1)
    check(Filled("slow", samples=40), way, batch=2)
    data = feedline.Data(Filled("array"), max_length={"x": 8})
    with feedline.Loader(data, 16, framework="numpy", **way) as loader:
        for batch in loader:
            for index, row in zip(batch["id"].tolist(), batch["x"].rows(), strict=True):
                assert row.tolist() == [index] * 6
            del batch


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [8, 3000])
def test_memory_that_stays_as_it_is_may_be_shared(way: dict[str, Any], size: int) -> None:
    data = Resting(size)
    with feedline.Loader(data, 16, shuffle=1, framework="numpy", **way) as loader:
        for batch in loader:
            ids = batch["id"]
            assert (batch["row"] == data.matrix[ids % 20]).all() and (batch["one"] == data.one).all()
            assert (batch["window"] == ids[:, None] + np.arange(9)).all()
            del batch, ids


FRESH: dict[str, Any] = {
    "dict": lambda index: {"id": index, "x": np.full(3000, index)},
    "tuple": lambda index: (index, np.full(3000, index)),
    "array": lambda index: np.full(30, index),
    "view": lambda index: {"x": np.full(31, index)[1:]},
    "list": lambda index: {"x": [index, index]},
    "tensor": lambda index: {"x": torch.full((30,), index)},
}


@pytest.mark.parametrize("how", FRESH)
def test_threads_read_new_memory_beside_one_another(how: str) -> None:
    if how == "tensor" and torch is None:
        pytest.skip("not run: torch is not installed")
    reader = _own.Reader(Made(FRESH[how]), {})
    count, _, error, _, then = reader.read_many(range(16), None, range(16), _own.BESIDE)
    assert (count, error, then) == (16, None, _own.BESIDE)


def test_threads_read_kept_memory_alone_until_it_is_known_to_stay() -> None:
    matrix = np.arange(600).reshape(200, 3)
    made = Made(lambda index: {"row": matrix[index]})
    reader = _own.Reader(made, {})
    assert reader.read_many(range(5), None, range(5), _own.BESIDE)[::4] == (0, _own.ALONE_IN_THREADS)
    # Three arrays could be filled in turn.
    assert reader.read_many(range(3), None, range(3), _own.ALONE_IN_THREADS)[::4] == (3, _own.ALONE_IN_THREADS)
    assert reader.read_many(range(3, 8), None, range(5), _own.ALONE_IN_THREADS)[::4] == (5, _own.BESIDE)
    assert reader.read_many(range(8, 24), None, range(16), _own.BESIDE)[::4] == (16, _own.BESIDE)
    # Memory of another object is not known.
    buffer = np.zeros(3, np.int64)
    made.function = lambda index: {"row": buffer}
    assert reader.read_many([3], None, [0], _own.BESIDE)[::4] == (0, _own.ALONE_IN_THREADS)


def test_threads_read_an_array_of_all_samples_beside_one_another_once_it_has_stayed() -> None:
    one = np.arange(3)
    reader = _own.Reader(Made(lambda index: {"id": index, "one": one}), {})
    ways = [reader.read_many([index], None, [index], _own.ALONE_IN_THREADS)[4] for index in range(16)]
    assert ways[0] == _own.ALONE_IN_THREADS and ways[-1] == _own.BESIDE
    assert reader.read_many([20], None, [20], _own.BESIDE)[::4] == (1, _own.BESIDE)


def test_threads_do_not_take_an_array_that_is_filled_at_times_for_one_that_stays() -> None:
    one = np.zeros(3, np.int64)

    def fill(index: int) -> Any:
        one[:] = index // 5
        return {"id": index, "one": one}

    reader = _own.Reader(Made(fill), {})
    for index in range(30):
        then = reader.read_many([index], None, [index], _own.ALONE_IN_THREADS)[4]
        assert then == _own.ALONE_IN_THREADS or reader._fills


class Made:
    """Samples that a function makes."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> Any:
        return self.function(index)


def test_samples_without_shared_memory_are_read_once() -> None:
    class Apart(Resting):
        def __getitem__(self, index: int) -> Any:
            self.reads += 1
            return {"row": np.repeat(self.series, 2).reshape(400, 2)[index], "view": self.series[2 * index : 2 * index + 2]}

    data = Apart()
    with feedline.Loader(data, 16, framework="numpy", workers=0, epochs=1) as loader:
        data.reads = 0
        assert sum(batch.rows for batch in loader) == 200
    # The first batch may be read again, since the first sample is kept.
    assert data.reads <= 201


@pytest.mark.parametrize(("size", "recurs", "how"), [(8, 20, (True, False)), (3000, 20, (False, True)), (9000, 50, (False, False))])
def test_a_process_copies_short_rows_and_writes_long_ones_at_once_unless_they_rarely_recur(
    size: int, recurs: int, how: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_process", os.getpid())
    matrix, ids = np.arange(recurs * size).reshape(recurs, size), np.random.default_rng(1).permutation(200).tolist()
    reader = _own.Reader([{"row": matrix[index % recurs]} for index in range(200)], {})
    rows = worker.Rows(reader.columns, 200, (), bytearray(200 * 8 * size + 1000))
    assert worker._fill(rows, reader, lambda which: reader.samples([ids[at] for at in which], None), 200) == (200, None)
    assert (rows.arrays[0] == matrix[np.array(ids) % recurs]).all()
    assert (reader.copies, reader.is_one_by_one) == how
    check(Filled("array", size=3000, fresh=100), WAYS[2])
