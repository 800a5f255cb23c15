"""The steps of a table, held against the same steps by NumPy on what pyarrow reads."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline

pyarrow = pytest.importorskip("pyarrow", reason="not run: pyarrow is not installed")

ROWS = 300
CITIES = ["Rome", "Oslo", "Åre", "Łódź"]


def columns(seed: int = 7, missing: bool = True) -> dict[str, list[Any]]:
    random = np.random.default_rng(seed)
    start = datetime.date(1999, 12, 25)

    def holes(values: list[Any]) -> list[Any]:
        return [None if missing and random.random() < 0.1 else value for value in values]

    return {
        "age": random.integers(18, 90, ROWS).tolist(),
        "income": holes(random.normal(3000, 700, ROWS).round(2).tolist()),
        "size": holes(random.integers(-5, 5, ROWS).tolist()),
        "city": [CITIES[place] for place in random.integers(0, len(CITIES), ROWS)],
        "born": [start + datetime.timedelta(int(days)) for days in random.integers(-20000, 8000, ROWS)],
        "at": [
            datetime.datetime(2024, 2, 28, 23) + datetime.timedelta(seconds=int(passed))
            for passed in random.integers(0, 10**7, ROWS)
        ],
        "label": random.integers(0, 3, ROWS).tolist(),
    }


def arrow(given: dict[str, list[Any]]) -> Any:
    types = {"born": pyarrow.date32(), "at": pyarrow.timestamp("us")}
    return pyarrow.table({name: pyarrow.array(values, types.get(name)) for name, values in given.items()})


def parquet(folder: Path, name: str, given: dict[str, list[Any]]) -> Path:
    import pyarrow.parquet

    pyarrow.parquet.write_table(arrow(given), folder / f"{name}.parquet", row_group_size=70)
    return folder / f"{name}.parquet"


def arrow_file(folder: Path, name: str, given: dict[str, list[Any]]) -> Path:
    import pyarrow.feather

    pyarrow.feather.write_feather(arrow(given), folder / f"{name}.arrow", compression="uncompressed")
    return folder / f"{name}.arrow"


def comma(folder: Path, name: str, given: dict[str, list[Any]]) -> Path:
    lines = [",".join(given)]
    for row in zip(*given.values(), strict=True):
        lines.append(",".join("" if value is None else _text(value) for value in row))
    (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / f"{name}.csv"


def json_lines(folder: Path, name: str, given: dict[str, list[Any]]) -> Path:
    rows = [
        {key: _text(value) if isinstance(value, datetime.date) else value for key, value in row.items()}
        for row in (dict(zip(given, values, strict=True)) for values in zip(*given.values(), strict=True))
    ]
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / f"{name}.jsonl"


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime.date) else str(value)


Writer = Callable[[Path, str, "dict[str, list[Any]]"], Path]


@pytest.fixture(params=[parquet, arrow_file, comma, json_lines])
def write(request: pytest.FixtureRequest) -> Writer:
    writer: Writer = request.param
    return writer


def read(data: feedline.Data) -> dict[str, Any]:
    """All rows, through shuffled batches of a loader, in the order of the file."""
    ids, parts = [], []
    for batch in feedline.Loader(data, 32, shuffle=3, framework="numpy"):
        ids.append(batch.ids.copy())
        parts.append({name: batch[name].copy() for name in batch})
        del batch
    order = np.argsort(np.concatenate(ids))
    return {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]}


def filled(values: list[Any], fill: float) -> Any:
    return np.array([fill if value is None else value for value in values], np.float64)


def mean(values: list[Any]) -> float:
    return float(np.mean([value for value in values if value is not None]))


def standard(values: Any, of: list[Any] | None = None) -> Any:
    there = np.array([value for value in (values if of is None else of) if value is not None], np.float64)
    return (values - there.mean()) / there.std()


def test_every_step_gives_the_values_of_numpy(tmp_path: Path, write: Writer) -> None:
    given = columns()
    data = feedline.table(
        write(tmp_path, "train", given),
        select=["x", "city", "born", "at", "label", "size"],
        stack={"x": ["age", "income"]},
        cast={"label": np.int16},
        category="city",
        days="born",
        seconds=["at"],
        standardize="x",
        fill={"size": -100},
        fill_mean="income",
    )
    assert [field.name for field in data.fields] == ["x", "city", "born", "at", "label", "size"]
    rows = read(data)
    age, income = np.array(given["age"], np.float64), filled(given["income"], mean(given["income"]))
    wanted = np.stack([standard(age), standard(income, given["income"])], 1)
    assert rows["x"].dtype == np.float32 and np.allclose(rows["x"], wanted, rtol=1e-6, atol=1e-6)
    names = sorted(CITIES)
    assert data.categories == {"city": names}
    assert rows["city"].dtype == np.int64 and [names[place] for place in rows["city"]] == given["city"]
    epoch = datetime.date(1970, 1, 1)
    assert rows["born"].dtype == np.int32
    assert rows["born"].tolist() == [(one - epoch).days for one in given["born"]]
    utc = [one.replace(tzinfo=datetime.timezone.utc).timestamp() for one in given["at"]]
    assert rows["at"].dtype == np.float64 and rows["at"].tolist() == utc
    assert rows["label"].dtype == np.int16 and rows["label"].tolist() == given["label"]
    assert (rows["size"] == filled(given["size"], -100)).all()


def test_a_saved_result_gives_the_validation_set_the_numbers_of_the_training_set(
    tmp_path: Path, write: Writer
) -> None:
    train, val = columns(), columns(seed=8)
    val["city"][3] = "Bern"

    def opened(path: Path, **steps: Any) -> feedline.Data:
        return feedline.table(
            path, select=["income", "city"], category=["city"], standardize=["income"], mask="income", **steps
        )

    saved = tmp_path / "train.json"
    first = opened(write(tmp_path, "train", train), unknown="city", saved=saved)
    second = opened(write(tmp_path, "val", val), unknown="city", fitted=saved)
    assert first.categories == second.categories == {"city": sorted(CITIES)}
    for data, given in ((first, train), (second, val)):
        rows = read(data)
        there = np.array([value is not None for value in given["income"]])
        assert [field.name for field in data.fields] == ["income", "income.present", "city"]
        assert (rows["income.present"] == there).all() and (rows["income"][~there] == 0).all()
        wanted = standard(filled(given["income"], 0), train["income"])
        assert np.allclose(rows["income"][there], wanted[there], rtol=1e-6, atol=1e-6)
    assert read(second)["city"][3] == len(CITIES)
    # A state of other numbers is refused.
    state = feedline.Loader(first, 8, framework="numpy").state_dict()
    with pytest.raises(feedline.StateError):
        feedline.Loader(second.take(ROWS - 1), 8, framework="numpy").load_state_dict(state)
    # Other data does not match the file; the error says what to do.
    with pytest.raises(feedline.Error, match=r"made of other data, .* remove the file, .* `fitted` in place"):
        opened(write(tmp_path, "val", val), unknown="city", saved=saved)
    saved.unlink()
    with pytest.raises(feedline.Error, match=r"no saved table: build the training set first"):
        opened(write(tmp_path, "val", val), fitted=saved)
    opened(write(tmp_path, "train", train), saved=saved)
    with pytest.raises(feedline.Error, match=r'"city" has "Bern" in row 3') as raised:
        read(opened(write(tmp_path, "val", val), fitted=saved))
    assert raised.value.sample == 3


def test_a_missing_value_is_an_error_that_names_row_and_column(tmp_path: Path, write: Writer) -> None:
    given = columns(missing=False)
    given["income"][17] = None
    data = feedline.table(write(tmp_path, "one", given), select=["income", "label"])
    with pytest.raises(feedline.Error, match=r'"income"') as raised:
        read(data)
    assert raised.value.sample == 17


def test_a_stated_list_and_a_text_for_missing_values(tmp_path: Path) -> None:
    given: dict[str, list[Any]] = {"city": ["Rome", None, "Oslo"], "n": [1, 2, 3]}
    data = feedline.table(
        parquet(tmp_path, "one", given),
        category={"city": ["none", "Oslo", "Rome"], "n": [3, 2, 1]},
        fill={"city": "none"},
    )
    assert [(int(one["city"]), int(one["n"])) for one in data] == [(2, 2), (0, 1), (1, 0)]
    assert data.categories == {"city": ["none", "Oslo", "Rome"], "n": ["3", "2", "1"]}


def test_a_stated_list_has_values_of_the_columns_type(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text("c,n,t\nTrue,1,a\nfalse,2,b\nTRUE,1,7\n")

    def numbers(column: str, names: list[Any]) -> list[int]:
        data = feedline.table(path, category={column: names}, unknown=column, select=[column])
        return [int(row[column]) for row in data]

    assert numbers("c", [False, True]) == numbers("c", list(np.array([False, True]))) == [1, 0, 1]
    assert numbers("c", ["false", "true"]) == [1, 0, 1]
    assert numbers("n", [2, 1]) == numbers("n", list(np.array([2, 1]))) == numbers("n", ["2", "1"]) == [1, 0, 1]
    assert numbers("t", ["b", "a"]) == [1, 0, 2]
    for column, names, message in [
        ("c", ["False", "True"], r'"c" is bool, and .* has "False": write "false"'),
        ("c", [0, 1], r'"c" is bool, and .* has the whole number 0'),
        ("n", [1.0, 2.0], r'category "n" has 1.0, which is neither a text, nor a whole number or a bool'),
        ("n", [None], r'category "n" has None'),
        ("n", [True], r'"n" is i64, and .* has the bool true'),
        ("n", ["1", 1], r'category "n" has "1" twice'),
        ("t", [7], r'"t" is text, and .* has the whole number 7: write the text, such as "7"'),
    ]:
        with pytest.raises(feedline.ConfigError, match=message):
            numbers(column, names)
    assert feedline.table(tmp_path / "c.csv", category="n", select=["n"]).categories == {"n": ["1", "2"]}
    path.write_text("code,v\n0870,1\n870,2\n0871,3\n")
    assert feedline.table(path, category="code").categories == {"code": ["0870", "0871", "870"]}
    given = {"tags": [["a", "bc"], ["ab", "c"], ["abc"], []]}
    lists = feedline.table(parquet(tmp_path, "lists", given), category="tags")
    assert lists.categories == {"tags": ["a", "ab", "abc", "bc", "c"]}
    assert [row["tags"].tolist() for row in lists] == [[0, 3], [1, 4], [2], []]


def test_lists_share_a_vocabulary_and_have_negatives(tmp_path: Path) -> None:
    given = {"history": [["c", "a", "d"], [], ["b"]], "next": ["b", "c", "a"], "id": [1, 2, 3]}
    path = parquet(tmp_path, "sessions", given)
    common: dict[str, Any] = {"category": ["history", "next"], "share": ["history", "next"]}
    data = feedline.table(path, **common)
    assert data.categories == {"history": ["a", "b", "c", "d"], "next": ["a", "b", "c", "d"]}
    assert [(row["history"].tolist(), int(row["next"])) for row in data] == [([2, 0, 3], 1), ([], 2), ([1], 0)]
    for kept, wanted in (({"max": {"history": 2}}, [2, 0]), ({"last": {"history": 2}}, [0, 3])):
        assert feedline.table(path, **common, **kept)[0]["history"].tolist() == wanted
    drawn = data.take(2).negatives(["next"], 8, 4, seed=3)
    seen: dict[int, set[int]] = {0: set(), 1: set()}
    with feedline.Loader(drawn, 2, framework="numpy", copy=True) as loader:
        epochs = [[batch["next.negatives"].tolist() for batch in loader] for _ in range(6)]
    for (rows,) in epochs:
        for row, items in enumerate(rows):
            seen[row].update(items)
    assert seen == {0: {0, 2, 3}, 1: {0, 1, 3}} and epochs[0] != epochs[1]
    for change, why in (
        ({"share": ["history", "id"]}, 'share names "id", which is no category'),
        ({"max": {"history": 0}}, 'max of "history" is 0'),
        ({"max": {"next": 3}}, "keeps no items"),
        ({"last": ["history"]}, "give a dict, such as last="),
    ):
        with pytest.raises(feedline.ConfigError, match=why):
            feedline.table(path, **common | change)


def test_negatives_are_no_items_of_a_list_that_is_cut(tmp_path: Path) -> None:
    histories = [[0, 1, 2, 3, 4], [5], [], [6, 7, 0, 1]]
    path = parquet(tmp_path, "sessions", {"history": histories, "id": [0, 1, 2, 3]})

    def drawn(data: feedline.Data) -> dict[int, set[int]]:
        seen: dict[int, set[int]] = {}
        with feedline.Loader(data.negatives("history", 99, 8), 2, framework="numpy") as loader:
            for batch in loader:
                for row, items in zip(batch["id"].tolist(), batch["history.negatives"].tolist()):
                    seen.setdefault(row, set()).update(items)
        return seen

    wanted = {row: set(range(8)) - set(items) for row, items in enumerate(histories)}
    for cut in ({"last": {"history": 1}}, {"max": {"history": 2}}, {}):
        data = feedline.table(path, **cut)  # type: ignore[arg-type]
        train, val = data.split(0.5, 0.5, seed=1)
        for part in (data, train, val, data.subset([3, 0]), data.skip(1), data.cached(1 << 20), data.repeat(2)):
            rows = {int(row["id"]) for row in part}
            assert drawn(part) == {row: wanted[row] for row in rows}
        mapped = data.map(lambda row: row, max_length={"history": 5})
        if cut:
            with pytest.raises(feedline.ConfigError, match="call negatives first, and map afterwards"):
                mapped.negatives("history", 1, 8)
        else:
            assert drawn(mapped) == wanted


def test_unsigned_numbers_are_whole_numbers(tmp_path: Path) -> None:
    import pyarrow.parquet

    ids = pyarrow.array([7, 2**63 - 1, 2**63], pyarrow.uint64())
    pyarrow.parquet.write_table(pyarrow.table({"id": ids}), tmp_path / "u.parquet")
    data = feedline.table(tmp_path / "u.parquet")
    assert [int(data[row]["id"]) for row in range(2)] == [7, 2**63 - 1] and data[0]["id"].dtype == np.int64
    with pytest.raises(feedline.DataError, match="9223372036854775808 in row 2, which i64 does not hold"):
        data[2]


def test_whole_numbers_keep_their_digits_or_are_refused(tmp_path: Path) -> None:
    big = 2**53 + 1
    gap = tmp_path / "gap.csv"
    gap.write_text(f"id,v\n{big},1\n,1\n")
    for steps in ({"fill": {"id": big}}, {"fill": {"id": np.int64(big)}}):
        data = feedline.table(gap, **steps)
        assert [int(row["id"]) for row in data] == [big, big] and data[0]["id"].dtype == np.int64
    assert [int(row["id"]) for row in feedline.table(gap, mask="id")] == [big, 0]
    with pytest.raises(feedline.ConfigError, match=f"f64 does not hold {big}, which fills"):
        feedline.table(gap, fill={"id": big}, cast={"id": "float64"})
    with pytest.raises(feedline.Error, match=f"does not hold all of its whole numbers: .* {big} of line 2"):
        feedline.open(gap, nulls="fill")
    with pytest.raises(feedline.ConfigError, match='fill of "id" by 1000'):
        feedline.table(gap, fill={"id": 10**40})
    with pytest.raises(feedline.ConfigError, match="one of its values, written as a text"):
        feedline.table(gap, category="id", fill={"id": 1})
    (tmp_path / "x.csv").write_text(f"id\n{big}\n0.5\n")
    with pytest.raises(feedline.Error, match=f'its whole numbers: .* types={{NAME: "text"}}.* {big} of line 2'):
        feedline.open(tmp_path / "x.csv")


def test_types_of_columns_can_be_stated(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"zip,n\n007,{2**53 + 1}\n12,0.5\n")
    rows = feedline.open(path, types={"zip": "text", "n": "text"})
    assert [bytes(row["n"]).decode() for row in rows] == [str(2**53 + 1), "0.5"]
    assert [bytes(row["zip"]).decode() for row in rows] == ["007", "12"]
    path.write_text("n\n1\n2\n")
    for opened in (feedline.open(path, types={"n": "float64"}), feedline.table(path, types={"n": "float64"})):
        assert [(row["n"].dtype.name, float(row["n"])) for row in opened] == [("float64", 1), ("float64", 2)]
    with pytest.raises(feedline.ConfigError, match="use one of int64, uint64, float64, bool, text"):
        feedline.open(path, types={"n": "float32"})
    with pytest.raises(feedline.ConfigError, match='"m"'):
        feedline.open(path, types={"m": "text"})
    np.save(tmp_path / "x.npy", np.arange(3))
    table = parquet(tmp_path, "one", columns(missing=False))
    for other in (tmp_path / "x.npy", table):
        with pytest.raises(feedline.ConfigError, match=r"only CSV and JSON Lines .*; cast it by feedline\.table"):
            feedline.open(other, types={"n": "text"})


def test_a_table_of_pandas_and_one_that_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(",a,b\n0,1,x\n1,2,y\n")
    assert [int(row["x"][0]) for row in feedline.table(path, stack={"x": ["a"]}, select=["x"])] == [1, 2]
    path.write_text("a,b\n1,x\n2,\"some tex")
    with pytest.raises(feedline.Error, match="line 3 opens a quote that never closes"):
        feedline.open(path)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ({"select": ["age", "wealth"]}, "wealth"),
        ({"stack": {"x": []}}, "no columns"),
        ({"stack": {"x": ["age", "city"]}}, "city"),
        ({"cast": {"age": "complex64"}}, "complex64.*float32"),
        ({"cast": {"age": "number"}}, "number"),
        ({"unknown": "city"}, "category"),
        ({"category": {"city": []}}, "empty list"),
        ({"standardize": "city"}, "city"),
        ({}, "city.*varies in size"),
        ({"fill_mean": "income", "mask": "income"}, "income.*twice"),
        ({"category": "city", "standardize": "city"}, "city"),
    ],
)
def test_steps_that_cannot_be_are_one_error(tmp_path: Path, steps: dict[str, Any], message: str) -> None:
    path = parquet(tmp_path, "one", columns(missing=False))
    with pytest.raises(feedline.ConfigError, match=message) as raised:
        feedline.table(path, **steps)
    assert "\n" not in str(raised.value)


def test_a_resumed_table_goes_on(tmp_path: Path) -> None:
    def loader() -> feedline.Loader:
        data = feedline.table(tmp_path / "one.parquet", select=["label"], category="label")
        return feedline.Loader(data, 16, shuffle=5, framework="numpy")

    parquet(tmp_path, "one", columns())
    whole = [batch.ids.tolist() for batch in loader()]
    one = loader()
    batches = iter(one)
    for _ in range(7):
        next(batches)
    again = loader()
    again.load_state_dict(one.state_dict())
    assert [batch.ids.tolist() for batch in again] == whole[7:]


def test_rows_in_memory_are_those_of_the_file_in_the_same_order_after_a_resume(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet", reason="not run: pyarrow is not installed")

    rng = np.random.default_rng(5)
    columns = {f"f{at}": rng.standard_normal(3000).astype(np.float32) for at in range(20)}
    columns["label"] = rng.integers(0, 1000, 3000)
    path = tmp_path / "a.parquet"
    pq.write_table(pyarrow.table(columns), path, row_group_size=400)
    names = [f"f{at}" for at in range(20)]
    row = 20 * 4 + 8

    def open_with(cache_bytes: int | None) -> feedline.Data:
        return feedline.table(path, stack={"x": names}, standardize="f3", cache_bytes=cache_bytes)

    def batches(data: feedline.Data, state: Any = None, limit: int = 10**9) -> tuple[list[Any], Any]:
        rows = []
        with feedline.Loader(data, 64, shuffle=7, framework="numpy", workers=2) as loader:
            if state is not None:
                loader.load_state_dict(state)
            for batch in loader:
                rows.append((batch.ids.tolist(), batch["x"].tobytes(), batch["label"].tobytes()))
                if len(rows) == limit:
                    break
            return rows, loader.state_dict()

    memory, other = open_with(None), open_with(3000 * row - 1)
    assert memory.fingerprint == other.fingerprint
    whole, _ = batches(memory)
    assert whole == batches(other)[0] and len(whole) == 47
    by_id = np.array(columns["label"])
    for ids, _, labels in whole:
        assert np.array_equal(np.frombuffer(labels, np.int64), by_id[ids])
    for step in range(1, 47, 5):
        first, state = batches(memory, limit=step)
        assert first + batches(other, state)[0] == whole
    with feedline.Loader(memory, 64, shuffle=7) as loader:
        assert sum(len(batch.ids) for batch in loader) == 3000
        assert "in memory, decoded once" in str(loader.report())
    with feedline.Loader(other, 64, shuffle=7) as loader:
        assert sum(len(batch.ids) for batch in loader) == 3000
        assert f"cache_bytes of {3000 * row} holds them in memory" in str(loader.report())
