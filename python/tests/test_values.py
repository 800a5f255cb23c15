"""Values of Python are kept exactly, or refused: arrays, own samples, maps, sources, hooks, padding, fills."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline
from feedline._columns import Columns, Misfit
from feedline._own import Reader

#: A first value, and a later one of another type that does not fit the type of the first.
CHANGED = [
    (np.int8(5), 300),
    (np.int8(5), np.uint8(200)),
    (np.uint8(5), -1),
    (np.int32(5), 2**40),
    (5, 2**63),
    (5, 2**70),
    (5, 0.5),
    (5, float("nan")),
    (5, float("inf")),
    (5, 2.0**63),
    (np.bool_(True), 2),
    (np.float16(1), 70000.0),
    (np.float16(1), np.int16(32767)),
    (np.float32(1), 1e300),
    (np.float32(1), 16777217),
    (np.float32(1), 0.1),
    (np.float32(1), np.int64(2**63 - 1)),
    (1.0, 2**53 + 1),
    (1.0, np.uint64(2**64 - 1)),
    (np.zeros(2, np.uint8), np.array([300, 301], np.uint16)),
    (np.zeros(2, np.float32), np.array([1.0, 1e39])),
]

#: Pairs as above whose value fits and is kept.
KEPT = [
    (np.int8(5), 100),
    (5, np.uint64(7)),
    (5, 2.0),
    (5, True),
    (True, 0),
    (1.0, 3),
    (1.0, 2**53),
    (1.0, np.float32(0.1)),
    (np.float32(1), 0.5),
    (np.float32(1), 16777216),
    (np.float32(1), float("nan")),
    (np.zeros(2, np.float16), np.array([np.inf, 2.5])),
]


def by_samples(first: Any, second: Any) -> Any:
    return feedline.Loader([{"x": first}, {"x": second}], 2, framework="numpy")


def by_map(first: Any, second: Any) -> Any:
    data = feedline.Data({"id": np.arange(2)})
    return feedline.Loader(data.map(lambda at: {"x": (first, second)[int(at["id"])]}), 2, framework="numpy")


def by_source(first: Any, second: Any) -> Any:
    return feedline.Loader(feedline.Source([{"x": first}, {"x": second}]), 2, framework="numpy")


def by_hook(first: Any, second: Any) -> Any:
    rows = np.stack([np.asarray(first)] * 2)
    return feedline.Loader({"x": rows}, 2, framework="numpy", map_batch=lambda batch: {"x": [second, second]})


WAYS = [by_samples, by_map, by_source, by_hook]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("first", "second"), CHANGED)
def test_a_value_that_would_change_is_refused(way: Callable[..., Any], first: Any, second: Any) -> None:
    with pytest.raises(feedline.Error, match='"x"') as raised:
        list(way(first, second))
    types = {str(np.asarray(second).dtype), "whole number beyond"}
    assert any(one in str(raised.value) for one in types), raised.value
    if way is by_samples:
        assert raised.value.sample == 1 and isinstance(raised.value.__cause__, ValueError)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("first", "second"), KEPT)
def test_a_value_that_the_first_type_has_is_kept(way: Callable[..., Any], first: Any, second: Any) -> None:
    (batch,) = way(first, second)
    assert batch["x"].dtype == np.asarray(first).dtype
    assert np.array_equal(batch["x"][1], np.asarray(second), equal_nan=batch["x"].dtype.kind == "f")


@pytest.mark.parametrize("dtype", [">i4", ">f4", ">f8", ">u2", ">i8", ">f2"])
def test_values_have_the_byte_order_of_the_machine(dtype: str) -> None:
    rows = np.arange(1, 9).reshape(4, 2).astype(dtype)
    ways = [
        feedline.Data({"x": rows}),
        feedline.Data([{"x": row} for row in rows]),
        feedline.Data([{"x": row[0]} for row in rows]),
        feedline.Data([{"x": row} for row in rows], max_length={"x": 2}),
        feedline.Data({"id": np.arange(4)}).map(lambda at: {"x": rows[int(at["id"])]}),
    ]
    for data in ways:
        got = [np.asarray(sample["x"]).tolist() for sample in data]
        wanted = rows[:, 0] if data is ways[2] else rows
        assert got == wanted.tolist()
        assert data[0]["x"].dtype == np.dtype(dtype).newbyteorder("=")
    (batch,) = feedline.Loader(feedline.Source([{"x": row} for row in rows]), 4, framework="numpy")
    assert batch["x"].tolist() == rows.tolist()
    zeros = {"x": np.zeros((4, 2), np.dtype(dtype).newbyteorder("="))}
    (batch,) = feedline.Loader(zeros, 4, framework="numpy", map_batch=lambda batch: {"x": rows})
    assert batch["x"].tolist() == rows.tolist()
    # A first row in the machine's byte order, and a later one in the other.
    (batch,) = by_samples(rows[0].astype(rows.dtype.newbyteorder("=")), rows[1])
    assert batch["x"].tolist() == rows[:2].tolist()


LAYOUTS = {
    "reversed": lambda a: a[:, ::-1],
    "every second": lambda a: a[:, ::2],
    "fortran": np.asfortranarray,
    "broadcast": lambda a: np.broadcast_to(a[0], a.shape),
    "matrix": np.asmatrix,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_of_any_layout_are_kept(layout: str) -> None:
    rows = LAYOUTS[layout](np.arange(24, dtype=np.int32).reshape(4, 6))
    for data in (feedline.Data({"x": rows}), feedline.Data([{"x": row} for row in np.asarray(rows)])):
        assert [sample["x"].tolist() for sample in data] == rows.tolist()


NO_VALUES = [
    (np.ma.array([1.0, 2.0], mask=[False, True]), "masked"),
    ([np.ma.array([1], mask=[True]), np.ma.array([2])], "masked"),
    (np.zeros(2, [("a", "i4"), ("b", "f4")]), r'x\["a"\]'),
    (np.array([1, None]), "has None"),
    (np.array(["a", "b"]), "give str"),
    (np.array([b"a", b"b"]), "give str"),
    (np.array(["2020-01-01", "NaT"], "datetime64[D]"), "int64"),
    (np.array([1, 2], "timedelta64[s]"), "int64"),
    (np.array([1j, 2]), "x.real"),
    (np.array([1, 2], np.uint64), "uint64.*np.int64"),
    (np.array([1, 2], np.longdouble), "np.float64"),
    ([0.5, 2**53 + 1], "beyond 2\\^53"),
]


@pytest.mark.parametrize(("value", "message"), NO_VALUES)
def test_what_is_no_array_of_numbers_is_one_clear_error(value: Any, message: str) -> None:
    if "give str" not in message:
        # One text per sample.
        with pytest.raises(feedline.ConfigError, match=message):
            feedline.Data({"x": value})
    with pytest.raises(feedline.ConfigError, match=message):
        feedline.Data([{"x": value}])
    if "uint64" not in message and "float64" not in message:
        like = np.zeros(2)
        for way in WAYS:
            with pytest.raises(feedline.Error, match=message):
                list(way(like, value))


def test_bool_stays_bool(framework: str, tmp_path: Path) -> None:
    mask = np.arange(12).reshape(4, 3) % 2 == 0
    np.savez(tmp_path / "x.npz", m=mask)
    (tmp_path / "x.csv").write_text("m\ntrue\nfalse\n")
    own = feedline.Data([{"m": row, "one": bool(row[0])} for row in mask])
    ways = [feedline.Data({"m": mask}), own, own.map(dict), feedline.open(tmp_path / "x.npz")]
    for data in ways:
        assert data.fields[0].dtype == "bool" and data[0]["m"].dtype == np.bool_
        batch = next(iter(feedline.Loader(data, 4, framework=framework)))
        assert str(batch["m"].dtype).removeprefix("torch.") == "bool"
        assert (np.asarray(batch["m"]) == mask).all() and (np.asarray(~batch["m"]) == ~mask).all()
    assert [bool(sample["m"]) for sample in feedline.open(tmp_path / "x.csv")] == [True, False]
    # A hook gets it as such, and ragged fields have it too.
    loader = feedline.Loader({"m": mask}, 4, framework=framework, map_batch=lambda batch: {"m": ~batch["m"]})
    assert (np.asarray(next(iter(loader))["m"]) == ~mask).all()
    rows = feedline.Data([{"m": mask[0][:length]} for length in (1, 3)], max_length={"m": 3})
    padded = next(iter(feedline.Loader(rows, 2, framework=framework, pad={"m": True})))["m"]
    assert np.asarray(padded.values).tolist() == [[True, True, True], [True, False, True]]


class Rows:
    """Rows of different lengths."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"r": np.ones(index + 1, self.dtype)}


def padded(dtype: Any, value: Any) -> Any:
    data = feedline.Data(Rows(dtype), max_length={"r": 2})
    (batch,) = feedline.Loader(data, 2, framework="numpy", pad={"r": value})
    return batch["r"].values[0, 1]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (np.uint16, -100),
        (np.uint16, 70000),
        (np.uint8, 1.5),
        (np.uint8, float("nan")),
        (np.int64, 2**63),
        (np.int64, 0.5),
        (np.float64, 2**53 + 1),
        (np.float32, 16777217),
        (np.float32, 1e300),
        (np.float16, -1e9),
        (np.bool_, 2),
        (np.int32, "0"),
        (np.int32, [0]),
    ],
)
def test_a_pad_that_the_field_does_not_have_is_refused(dtype: Any, value: Any) -> None:
    with pytest.raises(feedline.ConfigError, match='pad.*"r"'):
        padded(dtype, value)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (np.int64, 2**53 + 1),
        (np.int32, -100),
        (np.uint16, 65535),
        (np.float32, 0.1),
        (np.float32, -1e30),
        (np.float16, float("-inf")),
        (np.bool_, False),
        (np.int32, np.int64(7)),
        (np.int32, 1.0),
    ],
)
def test_a_pad_is_kept(dtype: Any, value: Any) -> None:
    assert padded(dtype, value) == dtype(value)


def test_fills_and_categories_are_what_they_say(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,c,d\n1,true,x\n,false,y\n")
    for value in (None, [1], 1j, b"x"):
        with pytest.raises(feedline.ConfigError, match='"a"'):
            feedline.table(path, select=["a"], fill={"a": value})
    for value in (7, np.int32(7), np.float32(7), np.array(7), 2**53 + 1, np.int64(2**53 + 1)):
        table = feedline.table(path, select=["a"], fill={"a": value})
        assert [int(sample["a"]) for sample in table] == [1, int(value)]
    with pytest.raises(feedline.ConfigError, match="list"):
        feedline.table(path, select=["d"], category={"d": "xy"})


def test_a_sample_with_a_field_more_is_refused() -> None:
    with pytest.raises(feedline.SampleError, match=r"\['x', 'y'\]") as raised:
        list(feedline.Loader([{"x": 1}, {"x": 1, "y": 2}], 2, framework="numpy"))
    assert raised.value.sample == 1


def test_samples_before_a_bad_one_are_there() -> None:
    good = [{"x": np.int8(index)} for index in range(9)]
    data = [*good[:5], {"x": 300}, *good[5:]]
    loader = feedline.Loader(data, 5, framework="numpy", bad_samples=1)
    batches = [batch["x"].tolist() for batch in loader]
    assert batches[0] == [0, 1, 2, 3, 4] and batches[1][1:] == [5, 6, 7, 8]


def made(columns: Columns, samples: list[Any]) -> list[Any]:
    """The rows that ``write`` and ``pack`` make, which are the same."""
    out: list[Any] = []
    for (_, _, shape, most), dtype in zip(columns.fields, columns.dtypes, strict=True):
        if most is None:
            out.append(np.zeros((len(samples), *shape), dtype))
        else:
            items, lengths = np.zeros((most * len(samples), *shape), dtype), np.zeros(len(samples), np.int64)
            out.append((items, lengths, most))
    columns.write(samples, out)
    for to, packed in zip(out, columns.pack(samples), strict=True):
        if isinstance(to, tuple):
            values, lengths = packed
            assert lengths == to[1].tolist() and values == to[0][: sum(lengths)].tobytes()
        else:
            assert packed == to.tobytes()
    return out


@pytest.mark.parametrize("width", [3, 5000])
def test_samples_are_stacked_as_numpy_does(width: int) -> None:
    samples = [(np.arange(width) + index, index, float(index)) for index in range(7)]
    columns = Columns(deepcopy(samples[0]), {})
    assert columns.is_tuple and [field[1] for field in columns.fields] == ["i64", "i64", "f64"]
    x, y, z = made(columns, samples)
    assert (x == np.stack([sample[0] for sample in samples])).all()
    assert y.tolist() == list(range(7)) and z.tolist() == list(range(7))
    assert made(columns, [])[0].shape == (0, width)
    ragged = [{"t": np.arange(index, dtype=np.int32), "s": "ä" * index} for index in range(4)]
    columns = Columns(deepcopy(ragged[0]), {"t": 3, "s": 6})
    (values, lengths, _), (text, _, _) = made(columns, ragged)
    assert lengths.tolist() == [0, 1, 2, 3] and values[:6].tolist() == [0, 0, 1, 0, 1, 2]
    assert bytes(text).decode() == "ä" * 6 + "\0" * 12
    with pytest.raises(Misfit, match="max_length allows 3") as misfit:
        columns.pack([*ragged, {"t": np.zeros(4, np.int32), "s": ""}])
    assert misfit.value.position == 4


def test_tensors_are_stacked_as_torch_does() -> None:
    torch = pytest.importorskip("torch", reason="not run: torch is not installed")
    samples = [(torch.arange(4) + index, torch.tensor(index), torch.full((2,), index) > 1) for index in range(5)]
    x, y, z = made(Columns(deepcopy(samples[0]), {}), samples)
    assert (x == torch.stack([one[0] for one in samples]).numpy()).all() and y.tolist() == list(range(5))
    assert z.dtype == np.bool_ and z[:, 0].tolist() == [False, False, True, True, True]
    with pytest.raises(Misfit, match="float32.*int64") as misfit:
        Columns(samples[0], {}).pack([samples[0], (torch.arange(4) + 0.5, *samples[1][1:])])
    assert misfit.value.position == 1
    with pytest.raises(Misfit, match="shape"):
        Columns(samples[0], {}).pack([samples[0], (torch.arange(5), *samples[1][1:])])


def test_the_first_bad_sample_of_all_fields_is_named() -> None:
    columns = Columns({"a": np.int8(0), "b": np.int8(0)}, {})
    with pytest.raises(Misfit) as misfit:
        columns.pack([{"a": 1, "b": 1}, {"a": 1, "b": 300}, {"a": 300, "b": 1}])
    assert misfit.value.position == 1


def test_one_call_reads_many_quick_samples_and_one_slow_one() -> None:
    class Timed:
        seconds = 0.0

        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> int:
            time.sleep(self.seconds)
            return index

    timed = Timed()
    reader = Reader(timed, {})
    timed.seconds = 0.01
    assert reader.samples(range(100), None) == ([0], None)
    timed.seconds = 0.0
    calls: list[int] = []
    rows = Columns.rows

    def counted(self: Columns, samples: Any, *how: Any) -> Any:
        calls.append(len(samples))
        return rows(self, samples, *how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Columns, "rows", counted)
        loader = feedline.Loader(timed, 100, framework="numpy", workers=1, parallel="threads")
        got = [int(one) for batch in loader for one in batch["0"]]
    assert got == list(range(100)) and max(calls) > 20


def test_indices_and_steps_are_what_they_say() -> None:
    data = feedline.Data({"x": np.arange(4)})
    assert [int(one["x"]) for one in data.subset(np.array([3, 1], np.uint8))] == [3, 1]
    for indices in (np.arange(4) % 2 == 0, [True, False], [1.7], np.array([1.0])):
        with pytest.raises(feedline.ConfigError, match="indices"):
            data.subset(indices)
    with pytest.raises(feedline.ConfigError, match="range"):
        feedline.Loader(data, 1, framework="numpy", skip={0: range(0, 4, 2)})


def of_empty(empty: Any, later: Any) -> dict[str, Any]:
    """Data and a source whose first samples have an empty list."""
    samples = [{"n": 0, "ids": empty}, {"n": 1, "ids": empty}, {"n": 2, "ids": later}]

    class Own:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            return samples[index]

    class Batched(Own):
        def __getitems__(self, indices: list[int]) -> Any:
            return [samples[index] for index in indices]

    varies = {"max_length": {"ids": 4}}

    def padded(batch: list[Any]) -> Any:
        most = max(len(sample["ids"]) for sample in batch)
        return {"ids": np.array([[*sample["ids"], *[0] * (most - len(sample["ids"]))] for sample in batch])}

    return {
        "list": feedline.Data(samples, **varies),
        "own": feedline.Data(Own(), **varies),
        "batched": feedline.Data(Batched(), **varies),
        "columns": feedline.Data({"ids": [empty, empty, later]}, **varies),
        "tuples": feedline.Data([(one["ids"],) for one in samples], max_length={"0": 4}),
        "map": feedline.Data({"n": np.arange(3)}).map(lambda one: {"ids": samples[int(one["n"])]["ids"]}, **varies),
        "collate_fn": feedline.Data(samples, collate_fn=padded, **varies),
        "source": feedline.Source(lambda: iter(samples), **varies),
    }


@pytest.mark.parametrize("empty", [[], (), np.array([])], ids=["list", "tuple", "array"])
@pytest.mark.parametrize(("later", "dtype"), [([1, 2], "i64"), ([0.5], "f64"), (np.array([3], np.uint8), "u8"), ([True], "bool")])
def test_an_empty_list_in_front_does_not_set_the_type(empty: Any, later: Any, dtype: str) -> None:
    for name, data in of_empty(empty, later).items():
        field = next(field for field in data.fields if field.name in ("ids", "0"))
        assert name == "collate_fn" and dtype == "u8" or field.dtype == dtype, (name, field)
        with feedline.Loader(data, 1, framework="numpy", copy=True, **({} if name == "source" else {"workers": 0})) as loader:
            values = [batch[0] if isinstance(batch, tuple) else batch["ids"] for batch in loader]
        values = [getattr(one, "values", one) for one in values]
        assert [np.asarray(one).ravel().tolist() for one in values] == [[], [], list(later)], name


def test_empty_lists_alone_are_of_whole_numbers() -> None:
    data = feedline.Data({"ids": [[]] * 3}, max_length={"ids": 4})
    assert data.fields[0].dtype == "i64" and data[0]["ids"].dtype == np.int64
    late = feedline.Data([{"ids": []}] * 150 + [{"ids": [0.5]}], max_length={"ids": 4})
    with pytest.raises(feedline.SampleError, match="0.5 .*which int64 does not hold"):
        list(feedline.Loader(late, 50, framework="numpy", workers=0))
    of_shape = feedline.Data([{"ids": []}, {"ids": [[1, 2], [3, 4]]}], max_length={"ids": 4})
    assert of_shape.fields[0].shape == (2,) and of_shape[1]["ids"].tolist() == [[1, 2], [3, 4]]
    typed = feedline.Data([{"ids": np.zeros(0, np.int16)}, {"ids": [1, 2]}], max_length={"ids": 4})
    assert typed.fields[0].dtype == "i16"


def test_packing_keeps_whole_numbers_after_an_empty_document() -> None:
    windows = feedline.Data({"ids": [[], [1, 2], [3]]}, max_length={"ids": 4}).packed("ids", 4)
    assert windows[0]["ids"].tolist() == [1, 2, 3, 0] and windows[0]["ids"].dtype == np.int64


def test_an_empty_tensor_does_not_set_the_type() -> None:
    torch = pytest.importorskip("torch", reason="not run: torch is not installed")
    data = feedline.Data([{"ids": torch.tensor([])}, {"ids": torch.tensor([1, 2])}], max_length={"ids": 4})
    assert data.fields[0].dtype == "i64" and data[1]["ids"].tolist() == [1, 2]
