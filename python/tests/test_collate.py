"""`collate_fn`, as torch's DataLoader has it, in threads and in processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import own_sets
import pytest

import feedline
from feedline._workers.choice import has_lock

WAYS: list[dict[str, Any]] = [
    {"workers": 0},
    {"parallel": "threads", "workers": 3},
    {"workers": 1},
    {"workers": 2},
    {"workers": 8},
]


def wanted(function: Any, data: Any, order: list[int], size: int) -> list[Any]:
    """The batches of DataLoader's loop."""
    return [function([data[i] for i in order[at : at + size]]) for at in range(0, len(order), size)]


def equal(one: Any, other: Any) -> bool:
    if isinstance(other, dict):
        return list(one) == list(other) and all(equal(one[name], other[name]) for name in other)
    if isinstance(other, (tuple, list)):
        return type(one) is type(other) and len(one) == len(other) and all(map(equal, one, other))
    return one.dtype == other.dtype and np.array_equal(one, other)


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_is_what_the_function_returns(way: dict[str, Any]) -> None:
    for function, data, options in (
        (own_sets.padded, own_sets.Texts(50), {"max_length": {"items": 3}}),
        (own_sets.padded, own_sets.Texts(50), {}),
        (own_sets.in_nest, own_sets.Numbers(50), {}),
        (own_sets.only_ids, own_sets.Strange(50), {}),
    ):
        more: dict[str, Any] = {**way, **options}
        with feedline.Loader(data, 8, shuffle=3, collate_fn=function, framework="numpy", copy=True, **more) as loader:
            order = [int(i) for batch in plain(50) for i in batch.ids]
            for epoch in range(2):
                batches = list(loader.epoch(0))
                assert len(batches) == 7
                assert all(map(equal, batches, wanted(function, data, order, 8))), (function, epoch)


def plain(count: int) -> Any:
    return feedline.Loader({"x": np.arange(count)}, 8, shuffle=3, framework="numpy", copy=True).epoch(0)


def test_random_numbers_belong_to_draws_and_to_batches() -> None:
    seen = []
    for way in WAYS:
        data = own_sets.Noise(40)
        with feedline.Loader(data, 8, shuffle=5, collate_fn=own_sets.mixed, framework="numpy", **way) as loader:
            rows = []
            for batch in loader.epoch(1):
                rows += [batch[name].tobytes() for name in batch]
                del batch
            seen.append(rows)
    assert all(one == seen[0] for one in seen)
    # A sample has the same numbers as without the function.
    own = {}
    with feedline.Loader(own_sets.Noise(40), 5, shuffle=5, framework="numpy", workers=0) as loader:
        for batch in loader.epoch(1):
            own |= dict(zip(batch["id"].tolist(), batch["python"].tolist(), strict=True))
            del batch
    assert np.frombuffer(seen[0][1]).tolist() == [own[i] for i in np.frombuffer(seen[0][0], np.int64).tolist()]
    shifts = {np.frombuffer(one)[0] for one in seen[0][2::3]}
    assert len(shifts) == 5, "each batch has numbers of its own"


@pytest.mark.parametrize("way", WAYS[::3])
def test_resumes(way: dict[str, Any]) -> None:
    data = feedline.Data(own_sets.Texts(50), collate_fn=own_sets.padded, max_length={"items": 3})
    with feedline.Loader(data, 8, shuffle=3, framework="numpy", copy=True, **way) as loader:
        batches = list(loader.epoch(0))
        begun = loader.epoch(0)
        for _ in range(3):
            next(begun)
        state = loader.state_dict()
    with feedline.Loader(data, 8, shuffle=3, framework="numpy", copy=True, **way) as loader:
        loader.load_state_dict(state)
        assert all(map(equal, list(loader), [dict(batch) for batch in batches[3:]]))


def test_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch", reason="not run: torch is not installed")

    def collate(samples: list[Any]) -> Any:
        return torch.stack([torch.from_numpy(sample["x"]) for sample in samples]), torch.tensor([s["id"] for s in samples])

    with feedline.Loader(own_sets.Numbers(20), 6, collate_fn=collate, framework="torch", workers=0) as loader:
        for step, (x, y) in enumerate(loader):
            ids = list(range(6 * step, min(6 * step + 6, 20)))
            assert y.tolist() == ids and x.dtype == torch.float32 and x.shape == (len(ids), 2, 3)
            assert torch.equal(x[:, 0, 0], torch.tensor(ids) * 1.5)
            del x, y
    from torch.utils.data import default_collate

    with feedline.Loader(own_sets.Pairs(20), 6, collate_fn=default_collate, framework="torch", workers=1) as loader:
        pairs = [(first.tolist(), second.tolist()) for first, second in loader]
    assert pairs[1] == ([[index] * 4 for index in range(6, 12)], list(range(6, 12)))


def test_composed_before_and_not_behind() -> None:
    data = feedline.Data({"id": np.arange(30)}).subset(range(5, 25))
    collated = feedline.Data(data, collate_fn=lambda samples: {"sum": np.array([s["id"] + 1 for s in samples])})
    with feedline.Loader(collated, 8, framework="numpy", workers=0) as loader:
        assert [int(one) for batch in loader for one in batch["sum"]] == list(range(6, 26))
    assert collated[3]["sum"] == 9
    for compose in (
        lambda: collated.take(3),
        lambda: collated.map(dict),
        lambda: feedline.concat(collated, collated),
        lambda: feedline.Loader(collated, 4, collate_fn=dict),
    ):
        with pytest.raises(feedline.ConfigError, match="collate_fn makes whole batches.*comes last"):
            compose()


def test_what_cannot_be_a_batch_is_refused() -> None:
    def refused(function: Any, match: str, **options: Any) -> None:
        with pytest.raises(feedline.ConfigError, match=match):
            given = {"map_batch": print, **options}
            feedline.Loader(own_sets.Texts(9), 4, collate_fn=function, framework="numpy", **given)

    ids = lambda samples: np.array([sample["id"] for sample in samples])
    refused(lambda samples: {"id": ids(samples), "loss": 0.5}, r'returned "loss", float.*a row for each sample')
    refused(lambda samples: {"id": ids(samples), "n": ["a"] * len(samples)}, r"""returned "n.0", 'a'""")
    refused(lambda samples: {"all": np.arange(7)}, r'returned "all", ndarray of the shape \(7,\)')
    refused(lambda samples: [{"a.b": ids(samples), "a": {"b": ids(samples)}}], 'two fields that are called "0.a.b"')
    refused(lambda samples: {f"x{len(samples)}": ids(samples)}, "the same fields each time")
    refused(5, "collate_fn is int: give a function")
    with pytest.raises(feedline.ConfigError, match="collate_fn is for samples that are read by index"):
        feedline.Loader(iter, 4, collate_fn=ids) if False else feedline.Loader(
            feedline.Source([{"x": 1}]), 4, collate_fn=ids
        )
    with pytest.raises(feedline.ConfigError, match="give max_length with the samples"):
        feedline.Loader(feedline.Data(own_sets.Numbers()), 4, max_length={"x": 3})


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("options", [{}, {"map_batch": own_sets.unchanged}])
def test_bad_samples_are_replaced_as_without_it(way: dict[str, Any], options: Any, caplog: pytest.LogCaptureFixture) -> None:
    data = own_sets.Faulty(60, ".", "raise", 33, always=True)
    given: dict[str, Any] = {"shuffle": 2, "framework": "numpy", "bad_samples": 3, **way}
    with feedline.Loader(data, 8, **given) as loader:
        wanted = [(batch.ids.tolist(), batch["id"].tolist(), batch.substituted) for batch in loader]
        reported = loader.state_dict()["bad_samples"]
    with feedline.Loader(data, 8, collate_fn=own_sets.in_dict, **given, **options) as loader:
        found = [(batch.ids.tolist(), batch["id"].tolist(), batch.substituted) for batch in loader]
        assert loader.state_dict()["bad_samples"] == reported
    assert found == wanted and sum(len(substituted) for *_, substituted in found) == 1
    logged = [text for record in caplog.records if "unreadable" in (text := record.getMessage())]
    assert len(logged) == 2 and logged[0] == logged[1] and "unreadable sample 33: KeyError: 'lost'" in logged[0]
    # An error of the function is not one of a sample.
    with feedline.Loader(own_sets.Numbers(60), 8, collate_fn=own_sets.fails, **given, **options) as loader:
        with pytest.raises(feedline.SampleError, match="KeyError.*33") as raised:
            list(loader)
    assert raised.value.sample is None and raised.value.batch is not None


@pytest.mark.parametrize("way", WAYS[::3])
def test_later_results_are_checked(way: dict[str, Any]) -> None:
    data = own_sets.Texts(40)
    with feedline.Loader(
        data, 8, collate_fn=own_sets.padded, max_length={"items": 1}, framework="numpy", **way
    ) as loader, pytest.raises(feedline.SampleError, match='"items" has 2 items, and max_length allows 1'):
        list(loader)
    with feedline.Loader(own_sets.Numbers(60), 8, collate_fn=own_sets.fails, framework="numpy", **way) as loader:
        with pytest.raises(feedline.SampleError, match="KeyError.*33") as raised:
            list(loader)
    assert raised.value.batch == 4
    with feedline.Loader(own_sets.Faulty(60, ".", "raise", 33, always=True), 8, collate_fn=own_sets.fails, **way) as loader:
        with pytest.raises(feedline.SampleError, match="KeyError.*lost") as raised:
            list(loader)
    assert raised.value.sample == 33


@pytest.mark.skipif(not has_lock(), reason="not run: a free-threaded build reads by threads")
def test_a_worker_that_dies_of_a_batch_is_tried_again_and_then_an_error() -> None:
    with feedline.Loader(own_sets.Numbers(60), 8, collate_fn=own_sets.dies, framework="numpy", workers=2) as loader:
        with pytest.raises(feedline.SampleError, match="3 worker processes died while they read it"):
            list(loader)


def test_a_function_that_cannot_be_pickled_is_named() -> None:
    with pytest.raises(feedline.ConfigError, match=r"collate_fn is a lambda, which cannot be sent to a process"):
        feedline.Loader(
            own_sets.Numbers(), 4, collate_fn=lambda samples: {"n": np.zeros(len(samples))}, workers=1, parallel="processes"
        )
