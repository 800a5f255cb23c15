"""Samples of more fields than a batch has columns: fields of one type and shape share one."""

from __future__ import annotations

from typing import Any

import numpy as np
import own_sets
import pytest

import feedline

WAYS: list[dict[str, Any]] = [{"workers": 0}, {"parallel": "threads", "workers": 2}, {"workers": 2}]


def check(batch: Any, ids: list[int]) -> None:
    own = own_sets.Many()
    assert list(batch) == list(own[0])
    for row, index in enumerate(ids):
        for name, value in own[index].items():
            found = batch[name].rows()[row] if name == "text" else batch[name][row]
            wanted = np.asarray(value)
            assert found.dtype == wanted.dtype and np.array_equal(found, wanted), name


@pytest.mark.parametrize("way", WAYS)
def test_fields_are_given_back_by_name(way: dict[str, Any]) -> None:
    data = feedline.Data(own_sets.Many(30), max_length={"text": 4})
    assert [field.name for field in data.fields] == list(own_sets.Many()[0])
    assert data.fields[0].shape == () and data.fields[25].shape == (2,) and data.fields[28].max_length == 4
    sample = data[7]
    assert sample["float3"] == 7 + 3 / 8 and sample["float3"].shape == () and sample["pair2"].tolist() == [7, 2]
    with feedline.Loader(data, 7, shuffle=3, framework="numpy", **way) as loader:
        seen = []
        for batch in loader:
            check(batch, batch.ids.tolist())
            seen += batch.ids.tolist()
            del batch
    assert sorted(seen) == list(range(30))


@pytest.mark.parametrize("way", WAYS)
def test_tuples_keep_their_order(way: dict[str, Any]) -> None:
    with feedline.Loader(own_sets.ManyPlaces(20), 5, framework="numpy", copy=True, **way) as loader:
        batches = list(loader)
    for step, batch in enumerate(batches):
        assert isinstance(batch, tuple) and len(batch) == 18
        for place, values in enumerate(batch):
            wanted = [index + place if place % 2 else place for index in range(5 * step, 5 * step + 5)]
            assert values.dtype == (np.int64 if place % 2 else np.float32) and values.tolist() == wanted


def test_torch_and_copies() -> None:
    torch = pytest.importorskip("torch", reason="not run: torch is not installed")
    data = feedline.Data(own_sets.Many(8), max_length={"text": 4})
    for copy in (False, True):
        with feedline.Loader(data, 4, framework="torch", copy=copy, workers=0) as loader:
            for step, batch in enumerate(loader):
                wanted = torch.arange(4 * step, 4 * step + 4, dtype=torch.float64) + 1 / 8
                assert torch.equal(batch["float1"], wanted)
                del batch


def test_a_misfit_is_named_by_its_own_field() -> None:
    class Odd(own_sets.Many):
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index) | ({"int3": 0.5} if index == 5 else {})

    data = feedline.Data(Odd(9), max_length={"text": 4})
    with feedline.Loader(data, 3, framework="numpy", workers=0) as loader:
        with pytest.raises(feedline.SampleError, match=r'field "int3" has 0.5.*int64') as raised:
            list(loader)
    assert raised.value.sample == 5


def test_composed_data_and_hooks() -> None:
    data = feedline.Data(own_sets.Many(12), max_length={"text": 4})
    check_all = feedline.Loader(feedline.concat(data.take(3), data.skip(3)), 4, framework="numpy", workers=0)
    with check_all as loader:
        for batch in loader:
            check(batch, batch.ids.tolist())
            del batch

    def changed(batch: dict[str, Any]) -> Any:
        assert batch["float2"].shape == (4,) and batch["pair0"].shape == (4, 2)
        batch["float2"] += 1
        return {**batch, "int1": batch["int2"], "int2": batch["int1"]}

    with feedline.Loader(data, 4, framework="numpy", workers=0, map_batch=changed) as loader:
        for step, batch in enumerate(loader):
            ids = np.arange(4 * step, 4 * step + 4)
            assert (batch["float2"] == ids + 2 / 8 + 1).all() and (batch["float3"] == ids + 3 / 8).all()
            assert (batch["int1"] == 2 * ids).all() and (batch["int2"] == ids).all()
            del batch
    mapped = data.map(lambda sample: {"sum": sum(sample[f"float{place}"] for place in range(20))})
    assert mapped[2]["sum"] == sum(2 + place / 8 for place in range(20))
    beside = feedline.zip(data, feedline.Data({"z": np.arange(12)}))
    assert list(beside[3]) == [*own_sets.Many()[0], "z"] and beside[3]["float19"] == 3 + 19 / 8
    with pytest.raises(feedline.ConfigError, match='two parts have a field "int4"'):
        feedline.zip(data, feedline.Data({"int4": np.arange(12)}))


def test_a_source_too() -> None:
    source = feedline.Source(lambda: (own_sets.Many()[index] for index in range(9)), max_length={"text": 4})
    assert [field.name for field in source.fields] == list(own_sets.Many()[0])
    with feedline.Loader(source, 3, framework="numpy") as loader:
        for step, batch in enumerate(loader):
            check(batch, list(range(3 * step, 3 * step + 3)))
            del batch


def test_too_many_kinds_of_fields_are_refused() -> None:
    samples = [{f"x{size}": np.zeros(size) for size in range(1, 18)}]
    with pytest.raises(feedline.ConfigError, match="17 fields of 17 types and shapes, and a batch has room for 16"):
        feedline.Data(samples)


class Ordered:
    """Samples of many numbers, whose names are in an order that is given."""

    def __init__(self, names: list[str], samples: int = 4) -> None:
        self.names, self.samples = names, samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: 100 * int(name[1:]) + index for name in self.names}


def orders() -> tuple[list[str], list[str], list[str]]:
    """Names, the same ones with those between the first and the last turned round, and others between these."""
    names = [f"k{place}" for place in range(20)]
    return names, [names[0], *names[-2:0:-1], names[-1]], [names[0], *(f"k{n}" for n in range(101, 119)), names[-1]]


@pytest.mark.parametrize("other", [1, 2])
def test_fields_in_another_order_are_not_taken_for_the_same(other: int, tmp_path: Any) -> None:
    names = orders()
    one, two = feedline.Data(Ordered(names[0])), feedline.Data(Ordered(names[other]))
    why = rf'part 1 of {{}} has the field "{names[other][1]}" where part 0 has "k1" \(field 1\): .* by map|part.map'
    for first, second in ((one, two), (one.take(3), two.skip(2)), (one.map(dict), two.map(dict))):
        with pytest.raises(feedline.ConfigError, match=why.format("concat")):
            feedline.concat(first, second)
        with pytest.raises(feedline.ConfigError, match=why.format("mix")):
            feedline.mix([(first, 1), (second, 1)], samples=8)
    assert one.fingerprint != two.fingerprint and one.fingerprint == feedline.Data(Ordered(names[0])).fingerprint
    sources = [feedline.Source(lambda by=by: iter(Ordered(by))) for by in (names[0], names[other])]
    assert sources[0].fingerprint != sources[1].fingerprint
    with feedline.Loader(one, 2, shuffle=1, framework="numpy") as loader:
        next(iter(loader))
        state = loader.state_dict()
    with feedline.Loader(two, 2, shuffle=1, framework="numpy") as loader, pytest.raises(feedline.Error):
        loader.load_state_dict(state)
    for data in (one, two, one):
        with feedline.Loader(data.cached(1 << 20, tmp_path / "cache"), 2, framework="numpy") as loader:
            for _ in range(2):
                for batch in loader:
                    assert all((batch[name] // 100 == int(name[1:])).all() for name in batch)
                    del batch
    in_order = feedline.concat(one, two.map(lambda sample: dict(zip(names[0], sample.values(), strict=True))))
    assert list(in_order[7]) == names[0]


def test_the_place_of_a_field_among_other_types_counts() -> None:
    names = [f"x{place}" for place in range(18)]
    types = {name: place % 2 == 0 for place, name in enumerate(names)}

    def of(order: list[str]) -> feedline.Data:
        return feedline.Data([{name: 1 if types[name] else 0.5 for name in order}] * 3)

    by_type = sorted(names, key=lambda name: not types[name])
    assert of(names).fingerprint != of(by_type).fingerprint
    with pytest.raises(feedline.ConfigError, match='part 1 of concat has the field "x2" where part 0 has "x1"'):
        feedline.concat(of(names), of(by_type))
    with pytest.raises(feedline.ConfigError, match="part 1 of concat has 17 fields, and part 0 has 18"):
        feedline.concat(of(names), of(names[:-1]))
    whole = feedline.Data([{name: 1 for name in names}] * 3)
    with pytest.raises(feedline.ConfigError, match=r'part 1 of concat has "x1" as i64 \[\], and part 0 as f64 \[\]'):
        feedline.concat(of(names), whole)


def test_numbers_of_packing_and_other_numbers_of_their_names_are_not_one_field() -> None:
    windows = feedline.Data([{"ids": [1, 2]}], max_length={"ids": 2}).packed("ids", 2)
    fields = {field.name: field for field in windows.fields}
    own = feedline.Data(
        [{name: value.astype(np.uint32) if fields[name].dtype == "i32" else value for name, value in windows[0].items()}],
        max_length={name: field.max_length for name, field in fields.items() if field.max_length is not None},
    )
    with pytest.raises(feedline.ConfigError, match=r'part 1 of concat has "\w+" as u32 .*, and part 0 as i32'):
        feedline.concat(windows, own)
    large = np.uint32(2**32 - 1)
    beside = feedline.zip(
        feedline.Data({"ids": [[1, 2]]}, max_length={"ids": 2}).unpadded("ids"), feedline.Data([{"segment": large}])
    )
    assert beside[0]["segment"] == large
    (batch,) = feedline.Loader(beside, 1, framework="numpy", workers=0)
    assert batch["segment"].tolist() == [int(large)]


def test_fingerprints_of_up_to_16_fields_stay() -> None:
    assert feedline.Data(Ordered([f"k{place}" for place in range(16)])).fingerprint == 12722084248846055179
