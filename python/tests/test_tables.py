"""Tables in memory, held against the same tables written to a file and opened."""

from __future__ import annotations

import datetime
import decimal
import gc
import io
import sys
import time
import wave
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import page_files
import pytest
from conftest import script

import feedline
from feedline import transforms as T

pa = pytest.importorskip("pyarrow", reason="not run: pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="not run: pyarrow is not installed")

ROWS = 23


def pandas() -> Any:
    return pytest.importorskip("pandas", reason="not run: pandas is not installed")


def polars() -> Any:
    return pytest.importorskip("polars", reason="not run: polars is not installed")


def as_parquet(table: Any, folder: Path) -> Path:
    path = folder / "t.parquet"
    pq.write_table(table, path, row_group_size=7)
    return path


def as_arrow(table: Any, folder: Path) -> Path:
    path = folder / "t.arrow"
    with pa.ipc.new_file(path, table.schema) as writer:
        # A file has one dictionary for a column.
        for batch in table.unify_dictionaries().combine_chunks().to_batches():
            writer.write_batch(batch)
    return path


def are_same(memory: feedline.Data, file: feedline.Data) -> None:
    """Fields, types, and the bytes of all values."""
    assert memory.fields == file.fields
    assert len(memory) == len(file)
    for at in range(len(file)):
        one, other = memory[at], file[at]
        assert list(one) == list(other)
        for name, value in other.items():
            if isinstance(value, (str, list)):
                assert one[name] == value, (at, name)
                continue
            assert one[name].dtype == value.dtype and one[name].shape == value.shape, (at, name)
            assert one[name].tobytes() == value.tobytes(), (at, name)


def told(call: Callable[[], Any], *, also: str = "") -> str:
    """The text of the error that ``call`` raises."""
    with pytest.raises(feedline.Error) as raised:
        call()
    assert also in str(raised.value), raised.value
    return str(raised.value)


def whole(kind: Any) -> Any:
    info = np.iinfo(kind)
    return pa.array(np.array([info.min, info.max, *range(ROWS - 2)], kind))


def columns() -> dict[str, Any]:
    """A column of each type that files have."""
    random = np.random.default_rng(7)
    words = ["", "é", "a longer text that no view holds", "b", *(str(n) for n in range(ROWS - 4))]
    days = [datetime.date(1960 + n, 1 + n % 12, 1 + n) for n in range(ROWS)]
    times = [datetime.datetime(1960 + n, 1, 1 + n, n, n, n) for n in range(ROWS)]
    lists = [list(range(n % 4)) for n in range(ROWS)]
    numbers = {np.dtype(kind).name: whole(kind) for kind in ("i1", "u1", "i2", "u2", "i4", "u4", "i8")}
    floats = {f"f{size}": pa.array(random.standard_normal(ROWS).astype(f"f{size}")) for size in (2, 4, 8)}
    return {
        **numbers,
        **floats,
        "nan": pa.array([float("nan"), float("inf"), -0.0] + [1.5] * (ROWS - 3)),
        "bool": pa.array((random.random(ROWS) < 0.5).tolist()),
        "text": pa.array(words),
        "large text": pa.array(words, pa.large_string()),
        "view": pa.array(words, pa.string_view()),
        "bytes": pa.array([word.encode() for word in words]),
        "fixed bytes": pa.array([f"{n:03}".encode() for n in range(ROWS)], pa.binary(3)),
        "list": pa.array(lists, pa.list_(pa.int32())),
        "large list": pa.array(lists, pa.large_list(pa.float32())),
        "pair": pa.array([[n, n + 1] for n in range(ROWS)], pa.list_(pa.float32(), 2)),
        "pairs": pa.array([[[n, 1]] * (n % 3) for n in range(ROWS)], pa.list_(pa.list_(pa.int16(), 2))),
        "texts": pa.array([words[: n % 4] for n in range(ROWS)], pa.list_(pa.string())),
        "lists": pa.array([[[1], [2, n]][: n % 3] for n in range(ROWS)], pa.list_(pa.list_(pa.int64()))),
        "category": pa.array([f"c{n % 3}" for n in range(ROWS)]).dictionary_encode(),
        "number category": pa.array([n % 3 for n in range(ROWS)]).dictionary_encode(),
        "date": pa.array(days, pa.date32()),
        "time of day": pa.array([moment.time() for moment in times], pa.time64("us")),
        "milliseconds": pa.array(times, pa.timestamp("ms")),
        "microseconds": pa.array(times, pa.timestamp("us", "UTC")),
        "nanoseconds": pa.array(times, pa.timestamp("ns")),
        "duration": pa.array([datetime.timedelta(n) for n in range(ROWS)], pa.duration("us")),
        "decimal": pa.array([decimal.Decimal(f"{n}.25") for n in range(ROWS)], pa.decimal128(9, 2)),
        "struct": pa.array([{"a": n, "b": {"c": f"{n}"}} for n in range(ROWS)]),
        "structs": pa.array([[{"role": "user", "n": n}] * (n % 3) for n in range(ROWS)]),
    }


@pytest.mark.parametrize("name", columns())
@pytest.mark.parametrize("write", [as_parquet, as_arrow])
def test_a_column_of_each_type_is_as_in_a_file(name: str, write: Callable[..., Path], tmp_path: Path) -> None:
    table = pa.table({"x": columns()[name], "id": np.arange(ROWS)})
    data = feedline.Data(table)
    are_same(data, feedline.open(write(table, tmp_path)))
    assert [int(sample["id"]) for sample in data] == list(range(ROWS))


@pytest.mark.parametrize("name", columns())
def test_a_column_with_nulls_is_as_in_a_file(name: str, tmp_path: Path) -> None:
    column = columns()[name]
    nulls = pa.array([n % 5 == 3 for n in range(ROWS)])
    column = pa.array([None if null else one for one, null in zip(column.to_pylist(), nulls.to_pylist(), strict=True)],
                      column.type) if not pa.types.is_dictionary(column.type) else column.take(
        pa.array([None if null else n for n, null in enumerate(nulls.to_pylist())]))
    table = pa.table({"x": column, "id": np.arange(ROWS)})
    path = as_parquet(table, tmp_path)
    are_same(feedline.open(table, nulls="fill"), feedline.open(path, nulls="fill"))
    if name not in ("struct", "structs", "texts", "lists", "view", "bytes"):
        category = ["x"] if "text" in name or name == "category" else ()
        are_same(*(feedline.table(given, mask="x", category=category) for given in (table, path)))
    refused = [told(lambda given=given: [*feedline.open(given)], also="null in row 3") for given in (table, path)]
    assert refused[0] in refused[1] or refused[0].split(":")[0] in refused[1]
    assert "parquet" not in refused[0]


def batched(table: Any, sizes: list[int]) -> Any:
    parts, at = [], 0
    for size in sizes:
        parts.append(table.slice(at, size))
        at += size
    return pa.concat_tables([*parts, table.slice(at)])


def test_several_batches_and_slices_with_an_offset_are_their_rows(tmp_path: Path) -> None:
    for name, column in columns().items():
        table = pa.table({"x": column, "id": np.arange(ROWS)})
        for part in (table.slice(3, 11), batched(table, [0, 1, 5, 0, 8, 0]), batched(table.slice(2), [3]).slice(1, 9)):
            wanted = feedline.open(as_parquet(part, tmp_path))
            are_same(feedline.Data(part), wanted)
            if name == "bool":
                continue
            [batch, *others] = part.combine_chunks().to_batches()
            assert not others
            are_same(feedline.Data(batch), wanted)


def random_table(random: np.random.Generator) -> Any:
    rows = int(random.integers(1, 40))
    made, all_columns = {}, columns()
    chosen = random.choice(sorted(set(all_columns) - {"structs", "view"}), int(random.integers(1, 5)), replace=False)
    for name in chosen:
        of = all_columns[str(name)]
        keys = random.integers(0, ROWS, rows)
        hidden = random.random(rows) < random.choice([0.0, 0.3])
        made[str(name)] = of.take(pa.array(keys, mask=hidden))
    table = pa.table(made)
    if random.random() < 0.5:
        first = int(random.integers(0, rows))
        table = table.slice(first, int(random.integers(1, rows - first + 1)))
    return batched(table, [int(random.integers(0, 9)) for _ in range(int(random.integers(0, 4)))])


def test_random_tables_are_as_in_a_file(tmp_path: Path) -> None:
    frames = pytest.importorskip("polars", reason="not run: polars is not installed")
    unlike = {"f2", "fixed bytes", "duration", "time of day", "struct", "decimal", "pair", "pairs"}
    unlike |= {"category", "number category"}
    by_polars = 0
    for seed in range(300):
        random = np.random.default_rng(seed)
        table = random_table(random)
        path = (as_parquet, as_arrow)[seed % 2](table, tmp_path)
        wanted = feedline.open(path, nulls="fill")
        given: Any = table
        # Polars has other types for some columns, and does not read slices of lists of one size.
        if seed % 3 == 0 and not unlike & set(table.column_names):
            given, by_polars = frames.from_arrow(table, rechunk=False), by_polars + 1
        try:
            are_same(feedline.open(given, nulls="fill"), wanted)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {table.schema}") from error
    assert by_polars > 20


def test_the_steps_of_a_table_are_those_of_a_file(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    table = pa.table({
        "age": pa.array([None if n % 7 == 3 else n for n in range(ROWS)], pa.int32()),
        "income": random.standard_normal(ROWS),
        "city": pa.array([["Oslo", "Rome", None][n % 3] for n in range(ROWS)]),
        "kind": pa.array([f"k{n % 4}" for n in range(ROWS)]).dictionary_encode(),
        "born": pa.array([datetime.date(2000, 1, 1 + n) for n in range(ROWS)]),
        "items": pa.array([[f"i{m}" for m in range(n % 5)] for n in range(ROWS)]),
        "note": pa.array(["x"] * ROWS),
    })
    steps: dict[str, Any] = {
        "select": ["x", "kind", "city", "born", "items"],
        "stack": {"x": ["age", "income"]},
        "standardize": "x",
        "fill_mean": "age",
        "category": {"city": None, "kind": ["k0", "k1", "k2"], "items": None},
        "unknown": "kind",
        "fill": {"city": "Rome"},
        "last": {"items": 2},
        "days": "born",
    }
    path = as_parquet(table, tmp_path)
    wanted = feedline.table(path, **steps)
    for given in (table, batched(table, [4, 9]), feedline.table):
        if given is feedline.table:
            given = polars().from_arrow(table)
        data = feedline.table(given, **steps)
        are_same(data, wanted)
        assert data.categories == wanted.categories
        loaders = [feedline.Loader(of, 5, shuffle=True, seed=3, framework="numpy", epochs=2) for of in (data, wanted)]
        for one, other in zip(*loaders, strict=True):
            assert all(np.array_equal(one[name], other[name]) for name in ("x", "city", "born"))
    # What one table has saved is for another, in memory or in a file.
    saved = tmp_path / "saved.json"
    feedline.table(table, **steps, saved=saved)
    are_same(feedline.table(path, **steps, fitted=saved), wanted)
    feedline.table(polars().from_arrow(table), **steps, saved=saved)
    changed = table.set_column(1, "income", pa.array(random.standard_normal(ROWS)))
    told(lambda: feedline.table(changed, **steps, saved=saved), also="saved.json")


def test_windows_of_a_table(tmp_path: Path) -> None:
    table = pa.table({"shop": ["A", "B"] * 10, "day": np.arange(20) // 2, "sold": np.arange(20)})
    how: Any = {"group": "shop", "order_by": "day", "x": "sold", "y": "sold"}
    are_same(
        feedline.windows(table, 3, 1, **how),
        feedline.windows(as_parquet(table, tmp_path), 3, 1, **how),
    )


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (pa.table({}), "no columns to read"),
        (pa.table({"x": pa.array([], pa.int32())}), "no samples"),
        (pa.Table.from_batches([], pa.schema([("x", pa.int32())])), "no samples"),
        (pa.table([pa.array([1]), pa.array([2])], names=["x", "x"]), 'two columns or arrays "x"'),
        (pa.table({"a": [1], "odd": pa.nulls(1)}), 'column "odd" holds nulls only'),
        (pa.table({"a": [1], "odd": pa.array([1], pa.decimal256(60, 0))}), 'column "odd" is of type Decimal256'),
        (pa.table({"a": [1], "odd": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8()))}), 'column "odd"'),
        (pa.table({"a": [1], "odd": pa.array([[[[1]]]])}), 'column "odd" is of type List'),
    ],
)
def test_a_table_that_is_not_read_is_refused_as_its_file(table: Any, why: str, tmp_path: Path) -> None:
    text = told(lambda: feedline.Data(table), also=why)
    path = as_arrow(table, tmp_path)
    assert text in told(lambda: feedline.open(path), also=why)
    assert "t.arrow" not in text
    if "odd" in table.column_names:
        assert feedline.table(table, select="a")[0]["a"] == 1


def test_types_that_a_file_does_not_have_either_are_refused() -> None:
    odd = pa.table({"a": [1, 2], "odd": pa.RunEndEncodedArray.from_arrays([2], [7])})
    told(lambda: feedline.Data(odd), also='"odd"')
    assert feedline.table(odd, select="a")[1]["a"] == 2


def test_rows_that_are_null_are_refused() -> None:
    class Rows:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            rows = pa.chunked_array([pa.array([{"a": 1}]), pa.array([{"a": 2}, None])])
            return rows.__arrow_c_stream__(requested_schema)

    told(lambda: feedline.Data(Rows()), also="row 2 of the table is null")


def test_options_for_other_data_are_refused() -> None:
    table = pa.table({"x": [1, 2]})
    for options in ({"split": "train"}, {"types": {"x": "text"}}, {"header": True}, {"class_from": 1},
                    {"empty_members": True}, {"listing_age": 3}, {"classes": ["a"]}):
        name = next(iter(options))
        text = told(lambda options=options: feedline.open(table, **options), also="this is table in memory")
        assert name in text or "stated to be" in text
    told(lambda: feedline.Data(table, seed_generators=False), also="seed_generators")
    told(lambda: feedline.images(table, annotations="boxes.json"), also="this is a table in memory")
    told(lambda: feedline.Source(table), also="give it to feedline.Data")
    told(lambda: feedline.table(table, select="y"), also='the columns are "x"')


def test_a_null_is_told_with_what_to_write() -> None:
    text = told(lambda: list(feedline.Data(pa.table({"x": [1, None]}))), also='column "x" has a null in row 1')
    assert 'feedline.open(..., nulls="fill")' in text and "feedline.table(..., fill=)" in text


def test_conversations_and_texts_of_a_table_are_tokens(tmp_path: Path) -> None:
    folder = page_files.tokenizer(tmp_path)
    said = [[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hi there"}]] * 2
    table = pa.table({"messages": said, "text": ["Hi there", "Hi"]})
    path = as_parquet(table, tmp_path)
    are_same(feedline.chats(table, folder), feedline.chats(path, folder))
    file = folder / "tokenizer.json"
    texts = table.select(["text"])
    are_same(feedline.open(texts, tokenizer=file), feedline.open(as_parquet(texts, tmp_path), tokenizer=file))
    packed = feedline.open(polars().from_arrow(texts), tokenizer=file).packed("ids", 4)
    assert sum(int(sample["used"]) for sample in packed) == 3
    summary = feedline.pack_tokens(texts, tmp_path / "packed.bin", tokenizer=file)
    assert (summary.documents, summary.tokens) == (2, 3)


def test_sounds_of_a_column_of_paths(tmp_path: Path) -> None:
    for name, rate in (("a.wav", 8000), ("b.wav", 8000)):
        with wave.open(str(tmp_path / name), "wb") as file:
            file.setparams((1, 2, rate, 0, "NONE", ""))
            file.writeframes(np.arange(100, dtype=np.int16).tobytes())
    table = pa.table({"path": ["a.wav", "b.wav"], "sentence": ["one", "two"]})
    wanted = feedline.sounds(as_parquet(table, tmp_path), text="sentence")
    are_same(feedline.sounds(table, text="sentence", root=tmp_path), wanted)


def test_max_length_of_a_table() -> None:
    table = pa.table({"t": ["ab", "c"], "u": ["d", "efg"]})
    assert [field.max_length for field in feedline.Data(table).fields] == [2, 3]
    assert [field.max_length for field in feedline.Data(table, max_length={"t": 9}).fields] == [9, 3]
    assert [field.max_length for field in feedline.open(table, max_length=5).fields] == [5, 5]
    told(lambda: feedline.Data(pa.table({"x": [1]}), max_length={"x": 3}), also="max_length")


# Frames of pandas and Polars.


@pytest.mark.filterwarnings("ignore:The DataFrame has column names of mixed type")
def test_a_frame_of_pandas_is_as_the_parquet_that_it_writes(tmp_path: Path) -> None:
    pd = pandas()
    frame = pd.DataFrame({
        "i": np.arange(ROWS, dtype=np.int16),
        "f": np.arange(ROWS) / 3,
        "b": [n % 2 == 0 for n in range(ROWS)],
        "s": [f"text {n}" for n in range(ROWS)],
        "c": pd.Categorical([f"c{n % 3}" for n in range(ROWS)]),
        "t": pd.date_range("2024-01-01", periods=ROWS),
        "v": [np.arange(n % 3) for n in range(ROWS)],
        3: np.arange(ROWS),
    })
    for given in (frame, frame[frame["i"] % 2 == 1], frame.iloc[::-1], frame.iloc[3:9]):
        path = tmp_path / "p.parquet"
        named = given.rename(columns=str)
        named.to_parquet(path, index=False)
        are_same(feedline.Data(given), feedline.open(path))
    assert feedline.Data(frame).fields[0].dtype == "i16"
    assert feedline.table(frame, select=["c"], category="c").categories == {"c": ["c0", "c1", "c2"]}


def test_nan_of_pandas_is_a_missing_value() -> None:
    pd = pandas()
    frame = pd.DataFrame({"x": [1.5, float("nan"), 3.0]})
    told(lambda: list(feedline.Data(frame)), also='column "x" has a null in row 1')
    assert np.isnan(feedline.open(frame, nulls="fill")[1]["x"])
    assert feedline.table(frame, fill_mean="x")[1]["x"] == 2.25
    whole = pd.DataFrame({"x": pd.array([1, None], "Int64")})
    assert feedline.table(whole, mask="x")[1] == {"x": 0, "x.present": False}


def test_an_index_is_left_out() -> None:
    pd = pandas()
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0]})
    two = pd.MultiIndex.from_arrays([[1, 2, 3, 4], [4, 5, 6, 7]], names=["a", None])
    for given in (frame, frame[1:], frame.iloc[[0, 3, 1]], frame.rename_axis("id"), frame.set_index(two)):
        assert [field.name for field in feedline.Data(given).fields] == ["x"]
    data = feedline.Data(frame.iloc[[0, 3, 1]].rename_axis("id").reset_index())
    assert [int(sample["id"]) for sample in data] == [0, 3, 1]


def test_a_frame_that_has_no_form_in_arrow_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pd = pandas()
    told(lambda: feedline.Data(pd.DataFrame({"odd": [1, "a", object()]})), also="odd")
    told(lambda: feedline.Data(pd.DataFrame([[1, 2]], columns=["x", "x"])), also="x")

    frame = pd.DataFrame({"x": [1]})
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        told(lambda: feedline.Data(frame), also="pip install pyarrow")
    pl = polars()
    monkeypatch.delattr(pl.DataFrame, "__arrow_c_stream__")
    told(lambda: feedline.Data(pl.DataFrame({"x": [1]})), also="polars 1.3")


def test_a_frame_of_polars_is_as_the_parquet_that_it_writes(tmp_path: Path) -> None:
    pl = polars()
    frame = pl.DataFrame({
        "i": pl.Series(range(ROWS), dtype=pl.Int8),
        "u": pl.Series(range(ROWS), dtype=pl.UInt32),
        "f": [n / 3 for n in range(ROWS)],
        "b": [n % 2 == 0 for n in range(ROWS)],
        "s": [f"a text of some length {n}" if n % 2 else "" for n in range(ROWS)],
        "l": [list(range(n % 3)) for n in range(ROWS)],
        "a": pl.Series([[n, n] for n in range(ROWS)], dtype=pl.Array(pl.Float32, 2)),
        "d": [datetime.date(2024, 1, 1 + n) for n in range(ROWS)],
        "t": [datetime.datetime(2024, 1, 1 + n) for n in range(ROWS)],
        "z": [b"bytes"[: n % 5] for n in range(ROWS)],
    })
    parts = pl.concat([frame[:5], frame[5:6], frame[6:]], rechunk=False)
    assert parts.n_chunks() == 3
    for given in (frame, frame[4:9], parts, frame.filter(pl.col("b"))):
        path = tmp_path / "p.parquet"
        given.write_parquet(path)
        are_same(feedline.Data(given), feedline.open(path))
    for kind in (pl.Categorical, pl.Enum(["a", "b", "c"])):
        named = pl.DataFrame({"c": pl.Series(["b", "c", "b"], dtype=kind)})
        data = feedline.table(named, category="c")
        assert [int(sample["c"]) for sample in data] == [0, 1, 0]
        assert data.categories == {"c": ["b", "c"]}
        assert bytes(feedline.Data(named)[1]["c"]) == b"c"
    nulls = pl.DataFrame({"x": [1.0, None, float("nan")]})
    assert [bool(sample["x.present"]) for sample in feedline.table(nulls, mask="x")] == [True, False, True]


def test_what_is_no_table_yet_is_told_what_to_do() -> None:
    pl, pd = polars(), pandas()
    lazy = pl.DataFrame({"a": [1, 2]}).lazy()
    for call in (feedline.Data, feedline.table, feedline.open, feedline.images, lambda x: feedline.Loader(x, 2)):
        told(lambda call=call: call(lazy), also="collect()")
        told(lambda call=call: call(pd.Series([1], name="a")), also="series.to_frame()")
    told(lambda: feedline.Data(pl.Series([1, 2])), also="series.to_frame()")
    told(lambda: feedline.Data(pa.chunked_array([[1, 2]])), also='pyarrow.table({"x": column})')
    told(lambda: feedline.Data(pa.array([1, 2])), also='pyarrow.table({"x": column})')


class Own:
    """A table of another library."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


def test_any_stream_of_arrow_is_a_table() -> None:
    table = pa.table({"x": np.arange(7), "t": list("abcdefg")})
    reader = pa.RecordBatchReader.from_batches(table.schema, iter(table.to_batches(max_chunksize=2)))
    for given in (Own(table), reader, table, table.combine_chunks().to_batches()[0]):
        assert [int(sample["x"]) for sample in feedline.Data(given)] == list(range(7))
    reader = pa.RecordBatchReader.from_batches(table.schema, iter(table.to_batches(max_chunksize=2)))
    loader = feedline.Loader(reader, 3, framework="numpy", epochs=1)
    assert [batch["x"].tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5], [6]]

    def broken() -> Any:
        yield table.to_batches()[0]
        raise OSError("the network is gone")

    reader = pa.RecordBatchReader.from_batches(table.schema, broken())
    told(lambda: feedline.Data(reader), also="the network is gone")

    class NoCapsule:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return 3

    with pytest.raises((TypeError, feedline.Error)):
        feedline.Data(NoCapsule())
    capsule = table.__arrow_c_stream__()
    class Twice:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return capsule

    assert len(feedline.Data(Twice())) == 7
    told(lambda: feedline.Data(Twice()), also="released")


def test_rows_of_a_dataset_of_hugging_face_are_read_by_index() -> None:
    class Dataset(Own):
        """As `datasets.Dataset`, whose indices and transforms its table does not have."""

        __module__ = "datasets.arrow_dataset"

        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> dict[str, int]:
            return {"x": 10 * range(3)[index]}

    data = feedline.Data(Dataset(pa.table({"x": [1, 2, 3]})))
    assert [int(sample["x"]) for sample in data] == [0, 10, 20]


# Memory.


def test_numbers_are_read_in_place_and_kept_as_long_as_the_data() -> None:
    array = np.arange(100_000)
    table = pa.table({"x": array, "y": np.arange(100_000) / 3})
    assert table["x"].chunk(0).buffers()[1].address == array.ctypes.data
    data = feedline.Data(table)
    # Arrow's memory must not change: here it shows that there is no copy.
    array[[0, 77, 99_999]] = -1
    assert [int(data[at]["x"]) for at in (0, 1, 77, 99_999)] == [-1, 1, -1, -1]
    loader = feedline.Loader(data, 100_000, framework="numpy", epochs=1, copy=True)
    assert np.array_equal(next(iter(loader))["x"], array)
    many = pa.table({f"c{n}": array if n == 3 else np.arange(100_000) for n in range(12)})
    wide = feedline.Data(batched(many, [10, 20_000]))
    wide[0]
    array[50_000] = -2
    assert wide[50_000]["c3"] == -2
    loader.close()
    del loader, data, wide
    base = weakref.ref(array)
    del table, many
    gc.collect()
    assert base() is not None
    del array
    gc.collect()
    assert base() is None


def test_the_memory_of_a_table_lives_as_long_as_the_data() -> None:
    made = feedline.Data(pa.table({"x": np.arange(10_000), "t": [str(n) for n in range(10_000)]}))
    framed = feedline.Data(polars().DataFrame({"x": range(10_000)}))
    gc.collect()
    np.random.default_rng(1).standard_normal(1 << 20)
    assert [int(made[at]["x"]) for at in range(0, 10_000, 99)] == list(range(0, 10_000, 99))
    assert bytes(made[9_999]["t"]) == b"9999"
    assert int(framed[5_000]["x"]) == 5_000


def test_a_row_of_one_large_batch_does_not_decode_the_batch() -> None:
    def seconds(rows: int) -> float:
        known = np.arange(rows) % 7 != 3
        table = pa.table({
            "x": pa.array(np.arange(rows), mask=~known),
            "b": pa.array(known),
            "t": pa.array(["text"]).take(pa.array(np.zeros(rows, np.int64))),
        })
        data = feedline.open(table, nulls="fill", max_length={"t": 4})
        picked = np.random.default_rng(1).integers(0, rows, 300)
        start = time.perf_counter()
        for at in picked:
            data[int(at)]
        return time.perf_counter() - start

    seconds(10_000)
    short, long = min(seconds(10_000) for _ in range(3)), min(seconds(2_000_000) for _ in range(3))
    assert long < 20 * short, (short, long)


# State, and processes.


def test_the_fingerprint_is_of_the_rows() -> None:
    table = pa.table({"x": np.arange(500), "t": [str(n) for n in range(500)]})

    def of(given: Any) -> int:
        return feedline.Data(given).fingerprint

    wanted = of(table)
    assert of(batched(table, [3, 100])) == of(pa.table(table.to_pydict())) == wanted
    assert of(polars().from_arrow(table)) == wanted
    assert of(pandas().DataFrame({"x": np.arange(500), "t": [str(n) for n in range(500)]})) == wanted
    values = np.arange(500)
    values[250] = 7
    for other in (
        table.slice(1),
        table.slice(0, 499),
        table.select(["x"]),
        table.rename_columns(["x", "u"]),
        table.set_column(0, "x", pa.array(values)),
        table.set_column(0, "x", pa.array(np.arange(500), pa.int32())),
    ):
        assert of(other) != wanted
    long = np.arange(1_000_000)
    wanted = of(pa.table({"x": long}))
    assert of(pa.table({"x": long + 1})) != wanted
    long[-1] = 0
    assert of(pa.table({"x": long})) != wanted
    assert of(pa.table({"x": [1, None]})) != of(pa.table({"x": [1, 0]})) != of(pa.table({"x": [None, 1]}))


def test_a_loader_resumes_with_the_same_rows_and_refuses_others() -> None:
    table = pa.table({"x": np.arange(100)})

    def loader(given: Any) -> feedline.Loader:
        return feedline.Loader(given, 8, shuffle=True, seed=5, framework="numpy", epochs=1)

    whole = [batch["x"].tolist() for batch in loader(table)]
    first = loader(table)
    batches = iter(first)
    seen = [next(batches)["x"].tolist() for _ in range(4)]
    state = first.state_dict()
    # The same rows, of another library.
    second = loader(polars().from_arrow(table))
    second.load_state_dict(state)
    assert seen + [batch["x"].tolist() for batch in second] == whole
    other = loader(pa.table({"x": np.arange(100) + 1}))
    with pytest.raises(feedline.StateError):
        other.load_state_dict(state)
        next(iter(other))


def double(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": 2 * sample["x"], "n": np.int64(len(sample["t"])), "t": sample["t"]}


def total(samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {"sum": np.array([sample["x"] for sample in samples])}


def test_a_map_of_a_table_runs_in_processes() -> None:
    table = batched(pa.table({"x": np.arange(50), "t": ["t" * (n % 4) for n in range(50)]}), [7, 20])
    frame = polars().from_arrow(table)
    shop = pandas().DataFrame({"x": np.arange(50), "t": ["t" * (n % 4) for n in range(50)]})
    reader = pa.RecordBatchReader.from_batches(table.schema, iter(table.to_batches()))
    encoded = pa.table({"x": table["x"], "t": table["t"].dictionary_encode()})
    opened = feedline.open(table.slice(0, 50), max_length=9)
    for given in (table, frame, shop, reader, Own(table), encoded, opened):
        data = feedline.Data(given).map(double, max_length={"t": 9})
        loader = feedline.Loader(data, 6, workers=2, parallel="processes", framework="numpy", epochs=1)
        batches = [batch["x"].tolist() for batch in loader]
        assert loader.report().data["own"]["processes"] == 2
        assert [n for batch in batches for n in batch] == [2 * n for n in range(50)]
        loader.close()
    collated = feedline.Data(table, collate_fn=total)
    loader = feedline.Loader(collated, 6, workers=2, parallel="processes", framework="numpy", epochs=1)
    assert [int(one) for batch in loader for one in batch["sum"]] == list(range(50))
    loader.close()


def test_a_program_ends_while_a_loader_reads_a_table() -> None:
    pandas()
    code = """
import feedline, numpy as np, pandas as pd
frame = pd.DataFrame({"x": np.arange(100_000), "y": np.arange(100_000) / 3, "t": ["a"] * 100_000})
data = feedline.Data(frame)
del frame
loader = feedline.Loader(data, 10, shuffle=True, seed=1, framework="numpy")
batches = iter(loader)
print(next(batches).rows)
"""
    run = script(code)
    assert (run.returncode, run.stdout.strip(), run.stderr) == (0, "10", "")


# Pictures and sounds.


def png(value: int) -> bytes:
    image = pytest.importorskip("PIL.Image", reason="not run: Pillow is not installed")
    to = io.BytesIO()
    image.fromarray(np.full((8, 8, 3), value, np.uint8)).save(to, "PNG")
    return to.getvalue()


def test_pictures_of_a_column_of_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(6):
        (tmp_path / f"{n}.png").write_bytes(png(40 * n))
    table = pa.table({"file": [f"{n}.png" for n in range(6)], "species": ["bee", "ant"] * 3, "id": np.arange(6)})
    path = as_parquet(table, tmp_path)
    wanted = feedline.images(path, [T.CenterCrop(4)], label="species")
    for given in (table, polars().from_arrow(table), table.to_pandas()):
        data = feedline.images(given, [T.CenterCrop(4)], label="species", root=tmp_path)
        are_same(data, wanted)
        assert data.classes == ["ant", "bee"]
    monkeypatch.chdir(tmp_path)
    are_same(feedline.images(table, [T.CenterCrop(4)], field="file", label="species"), wanted)
    missing = pa.table({"file": ["0.png", "no.png"], "label": ["a", "b"]})
    data = feedline.images(missing, [T.CenterCrop(4)])
    told(lambda: data[1], also='names in row 1')
    told(lambda: feedline.images(table.select(["id"])), also="looks like paths")
    loader = feedline.Loader(feedline.images(table, [T.CenterCrop(4)], label="species"), 4, framework="numpy")
    assert next(iter(loader))["image"].shape == (4, 3, 4, 4)


def test_pictures_of_a_column_of_bytes(tmp_path: Path) -> None:
    table = pa.table({"image": [png(40 * n) for n in range(6)], "label": np.arange(6)})
    wanted = feedline.images(as_parquet(table, tmp_path), [T.CenterCrop(4)])
    for given in (table, polars().from_arrow(table), table.to_pandas()):
        are_same(feedline.images(given, [T.CenterCrop(4)]), wanted)
    masked = pa.table({"image": table["image"], "seg": [png(n) for n in range(6)]})
    are_same(
        feedline.images(masked, [T.CenterCrop(4)], field="image", mask="seg"),
        feedline.images(as_parquet(masked, tmp_path), [T.CenterCrop(4)], field="image", mask="seg"),
    )


def test_a_column_of_paths_is_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one")
    (tmp_path / "b.txt").write_bytes(b"three")
    table = pa.table({"p": ["a.txt", "b.txt"], "id": [1, 2]})
    data = feedline.open(table, files="p", root=tmp_path)
    assert [bytes(sample["p"]) for sample in data] == [b"one", b"three"]


def test_a_table_is_pickled() -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="not run: pyarrow is not installed")
    import pickle

    given = pyarrow.table({"x": [1, 2, 3], "t": ["a", None, "c"]})
    for data in (feedline.Data(given.select(["x"])), feedline.table(given, select=["x"]), feedline.Data(given.select(["x"])).take(2)):
        again = pickle.loads(pickle.dumps(data))
        assert again.fingerprint == data.fingerprint
        assert [sample["x"].item() for sample in again] == [sample["x"].item() for sample in data]
