"""Fields in every framework: types, ragged, padded and packed ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import numbers

import feedline

TYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "int64", "float16", "float32", "float64"]


class Texts:
    """Texts of different lengths."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"tokens": np.arange(index % 7, dtype=np.int32) + index, "id": index}


def texts() -> feedline.Data:
    return feedline.Data(Texts(), max_length={"tokens": 8})


def test_every_type_arrives_as_such(framework: str) -> None:
    arrays = {name: np.arange(40).reshape(20, 2).astype(name) for name in TYPES}
    for batch in feedline.Loader(arrays, 6, shuffle=3, framework=framework):
        for name in TYPES:
            array = batch[name]
            # JAX has no 64-bit types unless it is told to.
            kept = framework != "jax" or not name.endswith("64")
            assert not kept or str(array.dtype).removeprefix("torch.") == name
            assert (np.asarray(array) == arrays[name][batch.ids.astype(int)]).all()
        del batch, array


def test_bfloat16(framework: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="not run: ml_dtypes is not installed")
    values = np.arange(16).astype(ml_dtypes.bfloat16).reshape(8, 2)
    batch = next(iter(feedline.Loader({"x": values}, 8, framework=framework)))
    assert str(batch["x"].dtype).removeprefix("torch.") == "bfloat16"
    assert (
        np.asarray(batch["x"].astype("float32") if framework != "torch" else batch["x"].float()) == values
    ).all()


def test_the_framework_that_is_imported_is_chosen() -> None:
    from conftest import script

    code = "import {}\nimport feedline\nprint(feedline.Loader({{'x': [1, 2]}}, 1))"
    for name in ["numpy", "torch", "jax"]:
        pytest.importorskip(name, reason=f"not run: {name} is not installed")
        assert f"{name} on cpu" in script(code.format(name)).stdout


def test_ragged_fields_are_values_and_offsets(framework: str) -> None:
    for batch in feedline.Loader(texts(), 8, shuffle=3, framework=framework):
        tokens = batch["tokens"]
        assert np.asarray(tokens.offsets).dtype == np.int32 and len(tokens.offsets) == batch.rows + 1
        for row, one in zip(tokens.rows(), np.asarray(batch["id"]), strict=True):
            assert np.asarray(row).tolist() == [int(one) + item for item in range(one % 7)]
        del batch, tokens, row


def test_nested_tensors() -> None:
    pytest.importorskip("torch", reason="not run: torch is not installed")
    batch = next(iter(feedline.Loader(texts(), 8, framework="torch")))
    nested = batch["tokens"].nested()
    assert nested.is_nested and [len(row) for row in nested.unbind()] == [0, 1, 2, 3, 4, 5, 6, 0]


@pytest.mark.parametrize("pad", [None, -100, (-100,), (-100, 4), (-100, 4, "right"), (None, 5, "left"), (7, "left")])
def test_padded_fields_are_rows_of_one_width(framework: str, pad: Any) -> None:
    parts = (pad[0], 1, pad[1]) if pad == (7, "left") else pad if isinstance(pad, tuple) else (pad,)
    value, multiple, side = (parts[0] or 0, *parts[1:], *(1, "right")[len(parts) - 1 :])
    for batch in feedline.Loader(texts(), 6, framework=framework, pad={"tokens": pad}):
        tokens = batch["tokens"]
        lengths, values = np.asarray(tokens.lengths), np.asarray(tokens.values)
        assert values.shape == (batch.rows, -(-lengths.max() // multiple) * multiple)
        for row, length, one in zip(values, lengths, np.asarray(batch["id"]), strict=True):
            row = row if side == "right" else row[::-1]
            items = [one + item for item in range(one % 7)]
            assert row[:length].tolist() == (items if side == "right" else items[::-1])
            assert (row[length:] == value).all()
        del batch, tokens, lengths, values, row


@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "?"])
@pytest.mark.parametrize("lengths", [[0, 0, 0], [4, 4, 4, 4, 4], [1, 0, 7, 3, 2, 64, 65], [1]], ids=str)
@pytest.mark.parametrize("last_batch", ["keep", "pad"])
def test_rows_padded_on_the_left_end_in_one_column(dtype: str, lengths: list[int], last_batch: Any) -> None:
    numbers = np.random.default_rng(7)
    rows = [numbers.integers(0, 2 if dtype == "?" else 100, (length, 2)).astype(dtype) for length in lengths]
    own = feedline.Data([{"x": row} for row in rows], max_length={"x": 65})
    for multiple, side in ((1, "left"), (64, "left"), (3, "left"), (3, "right")):
        pad: Any = {"x": (1, multiple, side)}
        with feedline.Loader(own, 2, pad=pad, last_batch=last_batch, framework="numpy") as loader:
            batches = [(values.copy(), numbers.tolist()) for values, numbers in (batch["x"] for batch in loader)]
        for at, (values, found) in zip(range(0, len(rows), 2), batches, strict=True):
            wanted = rows[at : at + 2]
            wanted += rows[: 2 - len(wanted)] if last_batch == "pad" and len(rows) > 1 else []
            wanted += wanted[: len(values) - len(wanted)]
            width = -(-max(1, *(len(row) for row in wanted), 1) // multiple) * multiple
            full = np.ones((len(wanted), width, 2), dtype)
            for to, row in zip(full, wanted, strict=True):
                to[slice(width - len(row), width) if side == "left" else slice(len(row))] = row
            assert values.dtype == full.dtype and found == [len(row) for row in wanted]
            assert np.array_equal(values, full)


def test_padding_that_is_none_is_refused_by_its_name() -> None:
    for pad, match in (
        ((0, 4, "top"), "the side of pad\\['tokens'\\] 'top': use \"left\" or \"right\""),
        ((0, 4, "left", 1), "value, multiple, side"),
        ((), "value, multiple, side"),
    ):
        with pytest.raises(feedline.ConfigError, match=match):
            feedline.Loader(texts(), 6, pad={"tokens": pad})  # type: ignore[dict-item]


def test_packed_windows(framework: str) -> None:
    windows = texts().packed("tokens", 16)
    seen = 0
    for batch in feedline.Loader(windows, 2, framework=framework):
        used = np.asarray(batch["used"])
        seen += int(used.sum())
        for row in np.asarray(batch["position"]):
            assert row[0] == 0
        ends = batch["cu_seqlens"].values
        for field in (batch["position"], batch["used"], ends):
            assert str(field.dtype).endswith("int32") and "uint" not in str(field.dtype)
            assert (np.asarray(field + field) == 2 * np.asarray(field)).all()  # torch adds no uint32
        assert np.asarray(ends)[0] == 0 and np.asarray(ends)[-1] == 16 * batch.rows
        del batch, field, ends
    one = windows.take(2)[1]
    assert one["cu_seqlens"][0] == 0 and one["cu_seqlens"][-1] == 16 and one["cu_seqlens"].dtype == np.int32
    assert [field.dtype for field in windows.fields][1:] == ["i32"] * 4
    mapped = windows.map(lambda sample: {"position": sample["position"].astype(np.uint32)})
    assert mapped.fields[0].dtype == "u32"
    assert seen == sum(index % 7 for index in range(60))
    assert texts().lengths("tokens").tolist() == [index % 7 for index in range(60)]


def test_copies_of_ragged_fields() -> None:
    kept = [
        batch["tokens"] for batch in feedline.Loader(texts(), 4, framework="numpy", copy=True, prefetch=2)
    ]
    assert [len(row) for tokens in kept for row in tokens.rows()] == [index % 7 for index in range(60)]


def test_jax_shares_the_memory() -> None:
    jax = pytest.importorskip("jax", reason="not run: jax is not installed")
    batch = next(iter(feedline.Loader(numbers(), 10, framework="jax")))
    array = batch["x"]
    assert isinstance(array, jax.Array) and array.unsafe_buffer_pointer() % 64 == 0
    field = batch._inner.field("x")
    shared = np.from_dlpack(field).ctypes.data
    assert array.unsafe_buffer_pointer() == shared
    assert float(jax.jit(lambda x: x.sum())(array)) == np.asarray(array).sum()


def test_a_batch_goes_to_a_device_as_trainers_ask() -> None:
    torch = pytest.importorskip("torch", reason="not run: torch is not installed")
    for copy in (False, True):
        batch = next(iter(feedline.Loader(texts(), 8, framework="torch", copy=copy)))
        assert batch.to("cpu") is batch and batch.to(torch.device("cpu"), non_blocking=True) is batch
        moved = batch.to("meta")
        assert moved["id"].device.type == "meta" and moved["id"].shape == batch["id"].shape
        assert type(moved["tokens"]) is feedline.Ragged and moved["tokens"].values.device.type == "meta"
    with pytest.raises(feedline.ConfigError, match='framework="torch"'):
        next(iter(feedline.Loader(numbers(), 8, framework="numpy"))).to("cpu")


def test_a_batch_is_a_mapping() -> None:
    batch = next(iter(feedline.Loader(numbers(), 10, framework="numpy")))
    assert list(batch) == ["x", "id"] and len(batch) == 2 and "x" in batch
    assert dict(**batch).keys() == {"x", "id"}
    assert (batch.rows, batch.valid_rows, batch.epoch, batch.step) == (10, 10, 0, 0)
    assert batch.ids.tolist() == list(range(10)) and batch.substituted == []
    assert repr(batch) == "Batch(epoch 0, step 0, 10 rows of x, id)"
    with pytest.raises(KeyError, match="the fields are"):
        batch["y"]


@pytest.mark.parametrize(("last", "rows", "valid"), [("keep", 5, 5), ("drop", 15, 15), ("pad", 15, 5)])
def test_the_last_batch(last: str, rows: int, valid: int) -> None:
    *_, batch = feedline.Loader(numbers(20), 15, framework="numpy", last_batch=last)
    assert (batch.rows, batch.valid_rows, len(batch["x"])) == (rows, valid, rows)
