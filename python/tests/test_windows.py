"""Windows of time, held against the same windows by pandas, value by value."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline

pandas = pytest.importorskip("pandas", reason="not run: pandas is not installed")


def sales(seed: int = 7) -> Any:
    """Rows of 30 groups in a random order; days are missing."""
    chance = np.random.default_rng(seed)
    parts = []
    for shop in ("Rome", "Oslo", "Łódź"):
        for item in range(10):
            days = np.flatnonzero(chance.random(60) < 0.93) + int(chance.integers(-5, 5))
            values = chance.normal(10, 3, (len(days), 2)).astype(np.float32)
            part = pandas.DataFrame({"shop": shop, "item": item, "day": days[: int(chance.integers(1, 60))]})
            part["sold"], part["price"] = values[: len(part), 0], values[: len(part), 1]
            parts.append(part)
    return pandas.concat(parts).sample(frac=1, random_state=seed).reset_index(drop=True)


def written(folder: Path, frame: Any, format: str) -> Path:
    path = folder / f"sales.{format}"
    if format == "parquet":
        frame.to_parquet(path, row_group_size=200)
    elif format == "jsonl":
        frame.to_json(path, orient="records", lines=True, double_precision=15, force_ascii=False)
    else:
        frame.to_csv(path, index=False)
    return path


def by_pandas(
    frame: Any, inputs: int, targets: int, stride: int, gap: int, dtype: Any = np.float32
) -> tuple[dict[str, Any], int]:
    """The windows of each group, by slices of a sorted frame; and those over a gap."""
    fields: dict[str, list[Any]] = {"x": [], "y": [], "group": [], "start": []}
    over = 0
    shops, items = (sorted(frame[name].unique(), key=lambda v: v.encode() if isinstance(v, str) else v) for name in ("shop", "item"))
    groups = {key: rows.sort_values("day") for key, rows in frame.groupby(["shop", "item"])}
    for shop, item in sorted(groups, key=lambda key: (key[0].encode(), key[1])):
        rows = groups[shop, item]
        for start in range(0, len(rows) - inputs - targets + 1, stride):
            window = rows.iloc[start : start + inputs + targets]
            if (window["day"].diff().iloc[1:] > gap).any():
                over += 1
                continue
            fields["x"].append(window.iloc[:inputs][["sold", "price"]].to_numpy(dtype))
            fields["y"].append(window.iloc[inputs:][["sold"]].to_numpy(dtype))
            fields["group"].append([shops.index(shop), items.index(item)])
            fields["start"].append(window["day"].iloc[0])
    return {name: np.array(values) for name, values in fields.items()}, over


@pytest.mark.parametrize("format", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("cache_bytes", [1, 512 << 20])
def test_windows_are_those_of_pandas(tmp_path: Path, format: str, cache_bytes: int) -> None:
    pytest.importorskip("pyarrow", reason="not run: pyarrow is not installed")
    frame = sales()
    path = written(tmp_path, frame, format)
    compared = 0
    for inputs, targets, stride, gap in ((7, 2, 1, 1), (3, 1, 4, 2), (1, 5, 3, 100)):
        data = feedline.windows(
            path, inputs, targets, stride, group=["shop", "item"], order_by="day", x=["sold", "price"], y="sold",
            max_gap=gap, cache_bytes=cache_bytes,
        )  # fmt: skip
        wanted, over = by_pandas(frame, inputs, targets, stride, gap)
        assert len(data) == len(wanted["start"]) and f"; {over} over gaps are left out" in (data.fate or "")
        with feedline.Loader(data, 64, shuffle=3, framework="numpy", copy=True) as loader:
            for batch in loader:
                for name, values in wanted.items():
                    assert np.array_equal(batch[name], values[batch.ids]), name
                    compared += batch[name].size
        assert data.categories == {"shop": ["Oslo", "Rome", "Łódź"], "item": [str(item) for item in range(10)]}
    assert compared > 12_000


def test_numbers_are_those_of_the_training_rows(tmp_path: Path) -> None:
    path = written(tmp_path, sales(), "csv")
    frame = pandas.read_csv(path)
    window: dict[str, Any] = {"group": ["shop", "item"], "order_by": "day", "x": ["sold", "price"], "y": "sold"}
    saved = tmp_path / "fold.json"
    fold = ("day", None, 30)
    data = feedline.windows(path, 4, 2, **window, standardize=["sold"], fit_on=fold, saved=saved)
    train = frame[frame["day"] < 30]["sold"].astype(np.float64)
    wanted, _ = by_pandas(frame, 4, 2, 1, 1000, np.float64)
    sold = ((wanted["y"] - train.mean()) / train.std(ddof=0)).astype(np.float32)
    for sample, own in zip(data, sold, strict=True):
        np.testing.assert_allclose(sample["y"], own, rtol=1.2e-7)
    parts = data.targets_in(stop=30), data.targets_in(start=30)
    starts = np.array([sample["start"] for sample in parts[0]])
    assert len(parts[0]) and len(parts[1]) and starts.max() < 30 and len(parts[0]) + len(parts[1]) <= len(data)
    again = feedline.windows(path, 4, 2, **window, standardize=["sold"], fit_on=fold, fitted=saved)
    assert again.fingerprint == data.fingerprint
    for other in (("day", None, 31), range(100), [1, 2, 3], None):
        with pytest.raises(feedline.DataError, match="fitted on rows with .*give each fold a file of its own"):
            feedline.windows(path, 4, 2, **window, standardize=["sold"], fit_on=other, saved=saved)
    leaks = feedline.windows(path, 4, 2, **window, standardize=["sold"])
    with pytest.raises(feedline.ConfigError, match="made of all rows, .* by fit_on=, or .* by fitted="):
        leaks.targets_in(stop=30)


def test_a_state_resumes_and_ranks_share_an_epoch(tmp_path: Path) -> None:
    path = written(tmp_path, sales(), "csv")

    def data() -> feedline.Windows:
        return feedline.windows(path, 5, 1, group=["shop", "item"], order_by="day", x="sold", y="sold", max_gap=1)

    def batches(loader: Any) -> list[tuple[Any, Any]]:
        return [(batch.ids.tolist(), batch["x"].tolist()) for batch in loader]

    with feedline.Loader(data(), 16, shuffle=5, framework="numpy") as loader:
        whole = batches(loader)
    with feedline.Loader(data(), 16, shuffle=5, framework="numpy") as loader:
        epoch = iter(loader)
        for _ in range(7):
            next(epoch)
        state = loader.state_dict()
    with feedline.Loader(data(), 16, shuffle=5, framework="numpy") as loader:
        loader.load_state_dict(state)
        assert batches(loader) == whole[7:]
    ranks = []
    for rank in range(2):
        with feedline.Loader(data(), 8, shuffle=5, framework="numpy", world=(rank, 2)) as loader:
            ranks.append(batches(loader))
    ids = [sorted(a[0] + b[0]) for a, b in zip(*ranks, strict=True)]
    assert [sorted(own) for own, _ in whole][: len(ids) - 1] == ids[:-1]


def test_bad_inputs_are_one_error_each(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("t,x,g\n1,1,A\n2,2,A\n3,,A\n2,5,B\n")
    window: dict[str, Any] = {"group": "g", "order_by": "t", "x": "x", "y": "x"}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"order_by": "u"}, 'there is no column "u"|is no column "u"'),
        ({"x": ["x", "v"]}, 'is no column "v"'),
        ({"stack": {"z": ["x"]}}, "windows have no stack"),
        ({"mask": "x"}, "windows have no mask"),
        ({"fit_on": range(9)}, "fit_on names row 8, and the table has 4"),
        ({"fit_on": "t"}, "fit_on is 't': give rows such as"),
        ({"max_gap": 0}, "max_gap is not above 0"),
        ({"group": ["g", 3]}, "3 is no name of a column"),
    ]
    for change, why in cases:
        with pytest.raises(feedline.ConfigError, match=why):
            feedline.windows(path, 1, 1, **(window | change))
    with pytest.raises(feedline.DataError, match='longer than every group: the longest of group "A" has 3 rows'):
        feedline.windows(path, 9, 1, **window)
    with pytest.raises(TypeError, match="filled"):
        feedline.windows(path, 1, 1, **window, filled=3)
    data = feedline.windows(path, 1, 1, **window)
    assert data[0]["y"].item() == 2 and len(data) == 2
    with pytest.raises(feedline.DataError, match='column "x".*row 2'):
        data[1]
    # Windows without the row of the missing cell can be read.
    with feedline.Loader(data, 1, framework="numpy", bad_samples=1) as loader:
        assert len(list(loader)) == 2


HOURS = {"day": 24, "s": 3600, "ms": 3_600_000, "us": 3_600_000_000, "ns": 3_600_000_000_000}


def hourly(folder: Path, name: str = "hours.csv") -> Path:
    """A row every six hours from 2026-02-10 on; 60 rows, without the rows 20 and 21."""
    times = [datetime(2026, 2, 10) + timedelta(hours=6 * at) for at in range(60) if at not in (20, 21)]
    frame = pandas.DataFrame({"t": times, "v": np.arange(58.0)})
    path = folder / name
    if name.endswith("parquet"):
        frame.to_parquet(path)
    else:
        frame.assign(t=[time.isoformat() for time in times]).to_csv(path, index=False)
    return path


def of_hours(path: Path, **options: Any) -> feedline.Windows:
    return feedline.windows(path, 2, 1, **{"order_by": "t", "x": "v", "y": "v", **options})


EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    "stop",
    [
        "2026-02-15",
        "2026-02-15T00:00",
        "2026-02-15 00:00:00.000000000",
        "2026-02-15T00:00:00Z",
        "2026-02-15T02:00:00+02:00",
        "2026-02-14T19:00-0500",
        date(2026, 2, 15),
        datetime(2026, 2, 15),
        datetime(2026, 2, 15, 2, tzinfo=EAST),
        np.datetime64("2026-02-15"),
        np.datetime64("2026-02-15T00:00", "ns"),
        np.datetime64("2026-02-15", "h"),
        pandas.Timestamp("2026-02-15"),
        pandas.Timestamp("2026-02-15T02:00", tz=EAST),
        1771113600,
        np.float64(1771113600),
    ],
    ids=repr,
)
def test_a_limit_is_a_time_as_people_write_it(tmp_path: Path, stop: Any) -> None:
    data = of_hours(hourly(tmp_path), seconds="t")
    parts = data.targets_in(stop=stop), data.targets_in(start=stop)
    # Rows 0 to 19 come before, and each window has three.
    assert len(parts[0]) == 18 and len(parts[0]) + len(parts[1]) == len(data) == 56
    assert parts[0].fingerprint == data.targets_in(stop=1771113600.0).fingerprint


@pytest.mark.parametrize(
    "gap",
    [timedelta(hours=6), np.timedelta64(6, "h"), np.timedelta64(21_600_000, "ms"), pandas.Timedelta("6h"), 21600],
    ids=repr,
)
def test_a_gap_is_a_length_of_time(tmp_path: Path, gap: Any) -> None:
    data = of_hours(hourly(tmp_path), seconds="t", max_gap=gap)
    assert "; 2 over gaps are left out" in (data.fate or "") and len(data) == 54
    assert data.fingerprint == of_hours(hourly(tmp_path), seconds="t", max_gap=21600.0).fingerprint


def test_the_unit_of_a_file_is_stated(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="not run: pyarrow is not installed")
    frame = pandas.read_csv(hourly(tmp_path), parse_dates=["t"])
    for unit in ("s", "ms", "us", "ns"):
        path = tmp_path / f"{unit}.parquet"
        frame.assign(t=frame["t"].astype(f"datetime64[{unit}]").astype("int64")).to_parquet(path)
        data = of_hours(path, unit=unit, max_gap=timedelta(hours=6))
        assert len(data) == 54 and data[0]["start"] == 1770681600 * HOURS[unit] // 3600
        assert len(data.targets_in(stop="2026-02-15")) == 18
        # A time with nanoseconds is one of no other unit.
        fine = np.datetime64("2026-02-15T00:00:00.000000512")
        if unit == "ns":
            assert len(data.targets_in(stop=fine)) == 18
        else:
            with pytest.raises(feedline.ConfigError, match=f"stop is .* is no whole number of {unit}"):
                data.targets_in(stop=fine)
        # The training rows, too.
        one, other = (
            of_hours(path, unit=unit, standardize="v", fit_on=("t", None, stop))
            for stop in ("2026-02-15", 1771113600 * HOURS[unit] // 3600)
        )
        assert one.fingerprint == other.fingerprint and one[0]["x"].tolist() == other[0]["x"].tolist()
    with pytest.raises(feedline.ConfigError, match=r"stop is .* no float64"):
        data.targets_in(stop=np.datetime64("2026-02-15T00:00:00.000000001"))
    with pytest.raises(feedline.ConfigError, match="stop is 9007199254740993: .* no float64"):
        data.targets_in(stop=2**53 + 1)


def test_days_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "days.csv"
    path.write_text("t,v\n2026-02-13,1\n2026-02-14,2\n2026-02-15,3\n2026-02-17,4\n")
    data = of_hours(path, days="t", max_gap=timedelta(days=1))
    assert len(data) == 1 and data.targets_in(start="2026-02-15").fingerprint
    for stop in (datetime(2026, 2, 15, 12), "2026-02-15T00:00:00.5", "2026-02-15T00:00+01:00"):
        with pytest.raises(feedline.ConfigError, match=r"stop is .* is no whole number of days: give"):
            data.targets_in(stop=stop)
    with pytest.raises(feedline.ConfigError, match=r"max_gap is .* 1\.5 days, .* no whole number of days: .* 1\.5"):
        of_hours(path, days="t", max_gap=timedelta(hours=36))
    assert len(of_hours(path, days="t", max_gap=1.5)) == 1
    table = {"days": "t", "standardize": "v", "fit_on": ("t", "2026-02-14", date(2026, 2, 16))}
    found = [float(sample["v"]) for sample in feedline.table(path, **table)]
    assert found == [float(sample["v"]) for sample in feedline.table(path, **{**table, "fit_on": ("t", 20498, 20500)})]


def test_a_time_without_a_unit_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="not run: pyarrow is not installed")
    data = of_hours(hourly(tmp_path, "hours.parquet"))
    for stop in ("2026-02-15", date(2026, 2, 15), np.datetime64("2026-02-15")):
        why = r'the unit of "t" is not stated: give unit="us", .* seconds="t"'
        with pytest.raises(feedline.ConfigError, match=why):
            data.targets_in(stop=stop)
    with pytest.raises(feedline.ConfigError, match='max_gap is .*the unit of "t" is not stated'):
        of_hours(hourly(tmp_path, "hours.parquet"), max_gap=timedelta(1))
    with pytest.raises(feedline.ConfigError, match='a limit of fit_on is .*the unit of "v" is not stated'):
        feedline.table(hourly(tmp_path), standardize="v", seconds="t", fit_on=("v", "2026-02-15", None))
    twice = 'unit="day", and seconds makes seconds of "t": leave unit out'
    for unit, why in ((5, 'unit 5: use "day", "s"'), ("day", twice)):
        with pytest.raises(feedline.ConfigError, match=why):
            of_hours(hourly(tmp_path), seconds="t", unit=unit)


@pytest.mark.parametrize(
    ("stop", "why"),
    [
        ("90", "stop is '90': give a number, or a time"),
        ("2026-02-30", "stop is '2026-02-30': .* such as"),
        ("2026-02-15T25:00", "such as"),
        ("2026-02-15Z", "such as"),
        ("15.2.2026", "such as"),
        (timedelta(1), "stop is .* a length of time: give a time"),
        (np.timedelta64(1, "D"), "a length of time: give a time"),
        (np.datetime64("NaT"), "stop is .*NaT"),
        (pandas.NaT, "stop is .*NaT"),
        (object(), "stop is .*: give a number, or a time"),
    ],
    ids=repr,
)
def test_what_is_no_time_is_refused(tmp_path: Path, stop: Any, why: str) -> None:
    data = of_hours(hourly(tmp_path), seconds="t")
    with pytest.raises(feedline.ConfigError, match=why):
        data.targets_in(stop=stop)


@pytest.mark.parametrize(
    "gap",
    [date(2026, 2, 15), "1 day", "2026-02-15", np.timedelta64(1, "M"), np.timedelta64(1), np.timedelta64("NaT")],
    ids=repr,
)
def test_what_is_no_length_of_time_is_refused(tmp_path: Path, gap: Any) -> None:
    with pytest.raises(feedline.ConfigError, match=r"max_gap is .*: give a number, or a length of time"):
        of_hours(hourly(tmp_path), seconds="t", max_gap=gap)
