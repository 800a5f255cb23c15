"""A function of tensors ahead of the step: exact states, own random numbers, no slot held, errors in turn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import ids, numbers

import feedline
from feedline._device_map import DeviceMap

torch = pytest.importorskip("torch", reason="not run: torch is not installed")


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next batch is always mapped ahead, not only if it has arrived."""
    monkeypatch.setattr(DeviceMap, "_next_ready", lambda self: self._inner.next())


def loader(function: Any, batch_size: int = 10, **options: Any) -> feedline.Loader:
    options = {"shuffle": 7, **options}
    return feedline.Loader(numbers(), batch_size, framework="torch", device_map=function, **options)


def double(batch: dict[str, Any]) -> dict[str, Any]:
    return {"y": batch["x"] * 2, "id": batch["id"]}


def noise(batch: dict[str, Any]) -> dict[str, Any]:
    return {"noise": torch.rand(4), "id": batch["id"]}


def test_batches_have_the_fields_that_the_function_makes() -> None:
    for step, batch in enumerate(loader(double, last_batch="pad", batch_size=30)):
        assert list(batch) == ["y", "id"] and batch.step == step and batch.epoch == 0
        assert (batch["y"][:, 0] == 2000 * batch["id"]).all()
        assert batch["id"].tolist() == batch.ids.tolist()
        assert (batch.rows, batch.valid_rows) == (30, 10 if step == 3 else 30)
        assert batch.substituted == []
        assert batch.to("cpu") is batch
        with pytest.raises(KeyError, match="the fields are"):
            batch["x"]

    def in_place(batch: dict[str, Any]) -> None:
        batch["y"] = batch.pop("x") * 2

    assert all((batch["y"][:, 0] == 2000 * batch["id"]).all() for batch in loader(in_place))


def test_tuples_stay_tuples() -> None:
    class Pairs:
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> tuple[np.float32, int]:
            return np.float32(index), index

    def add(batch: dict[str, Any]) -> dict[str, Any]:
        first, second = batch.values()
        return {"first": first + 1, "second": second}

    batches = list(feedline.Loader(Pairs(), 3, framework="torch", device_map=add))
    assert all(isinstance(batch, tuple) for batch in batches)
    assert [(one.tolist(), two.tolist()) for one, two in batches] == [
        ([1, 2, 3], [0, 1, 2]),
        ([4, 5, 6], [3, 4, 5]),
    ]


def test_ragged_and_padded_fields_go_through() -> None:
    class Texts:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> dict[str, Any]:
            return {"text": np.arange(index + 1, dtype=np.int64)}

    data = feedline.Data(Texts(), max_length={"text": 9})
    for pad in (None, {"text": -1}):
        own = feedline.Loader(data, 2, framework="torch", pad=pad)
        mapped = feedline.Loader(data, 2, framework="torch", pad=pad, device_map=lambda batch: batch)
        for one, other in zip(own, mapped, strict=True):
            assert type(one["text"]) is type(other["text"])
            for part, same in zip(one["text"], other["text"], strict=True):
                assert part.tolist() == same.tolist()


def test_the_batch_behind_is_mapped_before_one_is_handed_over(ahead: None) -> None:
    seen: list[int] = []

    def watch(batch: dict[str, Any]) -> dict[str, Any]:
        seen.append(int(batch["id"][0]))
        return batch

    delivered = []
    for number, batch in enumerate(loader(watch)):
        delivered.append(int(batch["id"][0]))
        assert len(seen) == min(number + 2, 10)
    assert seen == delivered


@pytest.mark.usefixtures("ahead")
def test_a_batch_that_was_only_mapped_ahead_is_not_in_the_state() -> None:
    own = feedline.Loader(numbers(), 10, shuffle=7, framework="torch")
    mapped = loader(double)
    for epoch in range(2):
        for one, other in zip(own.epoch(epoch), mapped.epoch(epoch), strict=True):
            assert one["id"].tolist() == other["id"].tolist()
            assert own.state_dict() == mapped.state_dict()
            assert own.order_hash == mapped.order_hash
            del one
    whole = ids(own.epoch(2))
    for steps in (1, 4, 9):
        batches = iter(mapped.epoch(2))
        before = ids([next(batches) for _ in range(steps)])
        again = loader(double)
        again.load_state_dict(mapped.state_dict())
        assert before + ids(again) == whole


@pytest.mark.usefixtures("ahead")
def test_a_bad_sample_of_a_batch_ahead_is_not_in_the_state(caplog: pytest.LogCaptureFixture) -> None:
    class Bad:
        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> dict[str, Any]:
            if index == 7:
                raise ValueError("bad seven")
            return {"id": np.int64(index)}

    one = feedline.Loader(Bad(), 5, framework="torch", bad_samples=1, device_map=lambda batch: batch)
    batches = iter(one)
    next(batches)
    assert one.state_dict()["bad_samples"] is None
    assert caplog.text == ""
    ((row, substitute),) = next(batches).substituted
    assert row == 2 and "7" in one.state_dict()["bad_samples"]
    assert "batch 1, row 2: unreadable sample 7: ValueError: bad seven (file " in caplog.text
    assert f"; sample {substitute} instead" in caplog.text


def test_random_numbers_belong_to_the_batch_and_the_loop_keeps_its_own() -> None:
    torch.manual_seed(3)
    alone = [torch.rand(2).tolist() for _ in range(10)]
    torch.manual_seed(3)
    drawn, own = [], []
    one = loader(noise)
    for batch in one:
        drawn.append(batch["noise"].tolist())
        own.append(torch.rand(2).tolist())
    assert own == alone
    assert len({tuple(row) for row in drawn}) == 10
    assert [batch["noise"].tolist() for batch in loader(noise, workers=1, prefetch=2).epoch(0)] == drawn
    assert [batch["noise"].tolist() for batch in one.epoch(1)] != drawn
    other = loader(noise, shuffle=8)
    assert next(iter(other))["noise"].tolist() not in drawn
    ranks = [next(iter(loader(noise, world=(rank, 2))))["noise"].tolist() for rank in range(2)]
    assert ranks[0] != ranks[1]


def test_random_numbers_after_a_resume_are_those_of_an_epoch_without_one() -> None:
    whole = [batch["noise"].tolist() for batch in loader(noise)]
    one = loader(noise)
    batches = iter(one)
    for _ in range(3):
        next(batches)
    again = loader(noise)
    again.load_state_dict(one.state_dict())
    assert [batch["noise"].tolist() for batch in again] == whole[3:]


def test_no_gradients() -> None:
    weight = torch.ones(5, requires_grad=True)
    for batch in loader(lambda batch: {"y": batch["x"] * weight}):
        assert not batch["y"].requires_grad
    assert torch.is_grad_enabled()


@pytest.mark.usefixtures("ahead")
def test_what_is_passed_on_is_a_copy_and_holds_no_slot() -> None:
    def views(batch: dict[str, Any]) -> dict[str, Any]:
        return {"x": batch["x"][2:, 1:3], "id": batch["id"], "twice": batch["x"].view(-1)}

    kept = list(loader(views, prefetch=1, held_timeout=0.5))
    for batch in kept:
        assert (batch["x"][:, 0] == 1000 * batch["id"][2:] + 1).all()
        assert (batch["twice"].view(10, 5)[:, 0] == 1000 * batch["id"]).all()


def test_an_input_that_is_kept_is_an_error() -> None:
    kept: list[Any] = []

    def keep(batch: dict[str, Any]) -> dict[str, Any]:
        kept.append(batch["x"][3])
        return {"id": batch["id"]}

    with pytest.raises(feedline.Error, match=r"kept a tensor .*clone\(\).*batch 0") as raised:
        list(loader(keep))
    assert raised.value.batch == 0 and raised.value.stage == "device map"

    def in_a_cycle(batch: dict[str, Any]) -> dict[str, Any]:
        cycle: list[Any] = [batch["x"]]
        cycle.append(cycle)
        return {"id": batch["id"]}

    assert len(ids(loader(in_a_cycle))) == 100


@pytest.mark.usefixtures("ahead")
def test_an_exception_comes_in_its_turn_with_the_line_of_the_user() -> None:
    def bad(batch: dict[str, Any]) -> dict[str, Any]:
        if (batch["id"] == 25).any():
            raise ZeroDivisionError("by hand")
        return batch

    one, seen = loader(bad, shuffle=None, prefetch=2), []
    batches = iter(one)
    for _ in range(2):
        seen += ids([next(batches)])
        assert one.state_dict()["samples"] == len(seen)
    with pytest.raises(feedline.Error, match=rf"by hand \(file {__file__}, line \d+\) .*batch 2") as raised:
        next(batches)
    assert isinstance(raised.value.__cause__, ZeroDivisionError) and raised.value.batch == 2
    # The position is before the batch, and the epoch is over, as after any error.
    assert seen == list(range(20)) and one.state_dict()["samples"] == 20
    assert list(batches) == []
    del raised
    # No slot is lost: another epoch gets as far.
    assert ids([next(one_more) for one_more in [iter(one.epoch(1))] for _ in range(2)]) == list(range(20))


@pytest.mark.usefixtures("ahead")
@pytest.mark.parametrize("call", [1, 2, 3])
def test_an_interrupt_loses_no_batch(call: int) -> None:
    calls = 0

    def interrupted(batch: dict[str, Any]) -> dict[str, Any]:
        nonlocal calls
        calls += 1
        if calls == call:
            raise KeyboardInterrupt
        return batch

    whole = ids(feedline.Loader(numbers(), 10, shuffle=7, framework="torch"))
    one, seen, interrupts = loader(interrupted), [], 0
    batches = iter(one)
    while len(seen) < 100:
        try:
            seen += ids([next(batches)])
        except KeyboardInterrupt:
            interrupts += 1
        assert one.state_dict()["samples"] == len(seen)
    assert interrupts == 1 and seen == whole and next(batches, None) is None


@pytest.mark.usefixtures("ahead")
def test_an_epoch_that_is_left_gives_its_slots_back() -> None:
    one = loader(double, prefetch=1, held_timeout=0.5)
    plain = feedline.Loader(numbers(), 10, shuffle=7, framework="torch")
    for epoch in range(5):
        next(iter(one.epoch(epoch)))
        assert ids(one.epoch(epoch)) == ids(plain.epoch(epoch))
    state = one.state_dict()
    batches = iter(one.epoch(5))
    next(batches)
    # The open iterator goes on at the state.
    one.load_state_dict(state)
    assert list(batches) == [] and ids(one) == ids(plain.epoch(5))
    one.close()
    with pytest.raises(feedline.StoppedError):
        next(iter(one))


@pytest.mark.usefixtures("ahead")
def test_sources_of_an_unknown_length() -> None:
    class Stream:
        def __iter__(self) -> Any:
            return iter({"id": np.int64(index)} for index in range(25))

    one = feedline.Loader(feedline.Source(Stream()), 10, framework="torch", device_map=lambda batch: batch)
    for _ in range(2):
        assert ids(one) == list(range(25))
    batches = iter(one)
    before = ids([next(batches)])
    again = feedline.Loader(feedline.Source(Stream()), 10, framework="torch", device_map=lambda batch: batch)
    again.load_state_dict(one.state_dict())
    assert before + ids(again) == list(range(25))


def test_wrong_arguments_and_results() -> None:
    with pytest.raises(feedline.ConfigError, match="device_map is 3: give a function"):
        loader(3)
    with pytest.raises(feedline.ConfigError, match="device_map is for torch, not numpy"):
        feedline.Loader(numbers(), 10, framework="numpy", device_map=double)
    for result, why in (
        ([1], "returned list: return a dict of tensors, or nothing"),
        ({"x": 1}, "returned int for 'x'"),
        ({"x": np.zeros(3)}, "returned ndarray for 'x'"),
        ({1: torch.zeros(3)}, "returned Tensor for 1"),
    ):
        with pytest.raises(feedline.Error, match=why):
            next(iter(loader(lambda batch, result=result: result)))
    one = loader(double)
    with pytest.raises(AttributeError, match="device_map of a loader cannot be changed"):
        one.device_map = double
