"""Batches of one's own: by a function or a batch sampler, shared by steps, resumed at any step on any world."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import feedline

SAMPLES, STEPS, SIZE = 60, 13, 5


def named(epoch: int, step: int) -> list[int]:
    """1 to 5 samples, in no order, another choice in each epoch."""
    order = np.random.default_rng(epoch).permutation(SAMPLES).tolist()
    sizes = [1 + (epoch + at) % SIZE for at in range(STEPS)]
    return order[sum(sizes[:step]) : sum(sizes[: step + 1])]


def whole(epoch: int) -> list[list[int]]:
    return [named(epoch, step) for step in range(STEPS)]


def loader(
    rank: int = 0, ranks: int = 1, of: Any = named, steps: int | None = STEPS, repeats: bool = False, **options: Any
) -> feedline.Loader:
    sampler = feedline.Sampler.batches(of, steps, repeats=repeats)
    given = {"batch_size": SIZE, "world": (rank, ranks), "framework": "numpy"} | options
    return feedline.Loader({"x": np.arange(SAMPLES) * 10}, sampler=sampler, **given)


def rows(batches: Any) -> list[list[int]]:
    return [(batch["x"][: batch.valid_rows] // 10).tolist() for batch in batches]


def in_turn(of: list[list[list[int]]]) -> list[list[int]]:
    """The batches of all ranks, step by step, without those of no rank."""
    return [batch for step in zip(*of, strict=True) for batch in step if batch]


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_rank_r_takes_every_step_r_modulo_ranks(ranks: int) -> None:
    for epoch in (0, 1, 4):
        of = []
        for rank in range(ranks):
            with loader(rank, ranks) as one:
                assert len(one) == -(-STEPS // ranks)
                of.append(rows(one.epoch(epoch)))
                whole_steps = STEPS // ranks
                assert of[-1][:whole_steps] == whole(epoch)[rank::ranks][:whole_steps]
        assert in_turn(of) == whole(epoch)


@pytest.mark.parametrize("last_batch", ["keep", "pad", "drop"])
def test_a_rank_without_a_batch_gets_one_without_valid_rows_or_none(last_batch: Any) -> None:
    found = []
    for rank in range(4):
        with loader(rank, 4, last_batch=last_batch) as one:
            found.append([(batch.valid_rows, batch.rows) for batch in one.epoch(0)])
    if last_batch == "drop":
        assert {len(batches) for batches in found} == {3}
    else:
        # 13 steps: only rank 0 has one more.
        assert [batches[3][0] for batches in found] == [3, 0, 0, 0]
        assert all(batches[3][1] > 0 for batches in found)


@pytest.mark.parametrize("after", range(1, 7))
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_a_run_resumes_at_any_step_also_on_another_world(after: int, ranks: int) -> None:
    with loader(0, 2) as one:
        epoch = one.epoch(3)
        for _ in range(after):
            next(epoch)
        state = one.state_dict()
    assert (state["epoch"], state["step"], state["samples"]) == (3, after, None)
    of = []
    for rank in range(ranks):
        with loader(rank, ranks) as one:
            one.load_state_dict(state)
            batches = iter(one)
            assert len(batches) == -(-(STEPS - 2 * after if after < 7 else 0) // ranks)
            of.append(rows(batches))
            assert one.next_epoch == 4
    assert in_turn(of) == whole(3)[2 * after :]


def test_an_epoch_goes_on_into_the_next() -> None:
    with loader() as one:
        assert [rows(one) for _ in range(4)] == [whole(epoch) for epoch in range(4)]


def test_a_state_of_other_batches_or_another_batch_size_is_refused() -> None:
    with loader() as one:
        next(iter(one))
        state = one.state_dict()
    others: list[dict[str, Any]] = [
        {"of": lambda epoch, step: named(epoch, step)[::-1]},
        {"batch_size": SIZE + 1},
        {"repeats": True},
        {"steps": STEPS - 1},
    ]
    for other in others:
        with loader(**other) as one, pytest.raises(feedline.StateError):
            one.load_state_dict(state)


def test_a_sample_that_comes_twice_is_refused_unless_it_may() -> None:
    def twice(epoch: int, step: int) -> list[int]:
        return [7, step] if step in (2, 9) else [step]

    with pytest.raises(feedline.ConfigError, match="sample 7 comes twice in epoch 0, in the batches of steps 2 and 7"):
        loader(of=twice)
    with loader(of=twice, repeats=True) as one:
        assert rows(one) == [twice(0, step) for step in range(STEPS)]

    def later(epoch: int, step: int) -> list[int]:
        return [step, step] if (epoch, step) == (1, 4) else [step]

    with loader(of=later) as one:
        assert rows(one.epoch(0)) == [[step] for step in range(STEPS)]
        with pytest.raises(feedline.ConfigError, match="sample 4 comes twice in epoch 1, in the batches of steps 4 and 4"):
            rows(one.epoch(1))


def test_each_draw_of_a_sample_has_random_numbers_of_its_own_on_any_world() -> None:
    class Noisy:
        def __len__(self) -> int:
            return SAMPLES

        def __getitem__(self, index: int) -> dict[str, Any]:
            return {"x": np.int64(index), "noise": np.float64(np.random.rand())}

    def noise(ranks: int) -> list[float]:
        of = []
        for rank in range(ranks):
            sampler = feedline.Sampler.batches(lambda epoch, step: [3, 3], 6, repeats=True)
            with feedline.Loader(Noisy(), 4, sampler=sampler, world=(rank, ranks), framework="numpy") as one:
                of.append([batch["noise"].tolist() for batch in one])
        return list(itertools.chain(*itertools.chain(*zip(*of, strict=True))))

    assert len(set(noise(1))) == 12 and noise(1) == noise(2) == noise(3)


def test_wrong_batches_are_refused_with_epoch_and_step() -> None:
    def at(epoch: int, step: int, what: Any) -> Any:
        return lambda e, s: what if (e, s) == (epoch, step) else [s]

    wrong = [
        (at(0, 3, [SAMPLES]), "step 3 of epoch 0 has sample 60: the data set has ids 0 to 59"),
        (at(0, 3, range(30, 36)), "step 3 of epoch 0 has 6 samples, and the batch size is 5"),
        (at(0, 3, []), "step 3 of epoch 0 has no samples"),
        (at(0, 3, [0.5]), r"step 3 of epoch 0: .*a batch is float64 \[1\]: give whole numbers"),
        (at(0, 3, [True, False]), r"a batch is bool \[2\]"),
        (at(0, 3, [-1]), "a batch has the id -1"),
        (at(0, 3, 5), "step 3 of epoch 0: .*not iterable"),
    ]
    for of, why in wrong:
        with pytest.raises(feedline.ConfigError, match=why):
            loader(of=of)
    with loader(of=at(2, 3, [SAMPLES])) as one:
        assert len(rows(one.epoch(1))) == STEPS
        with pytest.raises(feedline.ConfigError, match="step 3 of epoch 2 has sample 60"):
            rows(one.epoch(2))
    drawn = iter(range(10_000))
    with pytest.raises(feedline.ConfigError, match="gave other ones for epoch 0 in a second pass"):
        loader(of=lambda epoch, step: [next(drawn) % SAMPLES], repeats=True)
    with pytest.raises(feedline.ConfigError, match="need steps="):
        feedline.Sampler.batches(named)
    with pytest.raises(feedline.ConfigError, match="steps is 0"):
        feedline.Sampler.batches(named, 0)
    with pytest.raises(feedline.ConfigError, match="give a function of epoch and step"):
        feedline.Sampler.batches(5)
    with pytest.raises(feedline.ConfigError, match="batches of your own are no groups"):
        sampler = feedline.Sampler.batches(named, STEPS)
        feedline.Loader(feedline.Data({"x": np.arange(SAMPLES)}).repeated(5), 5, sampler=sampler)
    with pytest.raises(feedline.ConfigError, match="batches of your own are of a data set"):
        feedline.Loader(feedline.Source(lambda: iter([{"x": np.int64(1)}])), 5, sampler=sampler)
    with pytest.raises(TypeError, match="give sampler=feedline.Sampler.batches"):
        feedline.Loader({"x": np.arange(3)}, batch_sampler=[[0]])


def test_the_exception_of_a_function_is_the_cause_of_the_error() -> None:
    def fails(epoch: int, step: int) -> list[int]:
        if (epoch, step) == (1, 2):
            raise KeyError("no such shard")
        return [step]

    with loader(of=fails) as one:
        rows(one.epoch(0))
        with pytest.raises(feedline.ConfigError, match="step 2 of epoch 1") as raised:
            rows(one.epoch(1))
    assert isinstance(raised.value.__cause__, KeyError)


class Groups:
    """A batch sampler in the manner of torch: lists of batches, another order in each epoch."""

    def __init__(self, seed: int = 3) -> None:
        self.seed, self.epoch = seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return STEPS

    def __iter__(self) -> Any:
        return iter(whole(self.epoch))


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_batch_sampler_with_set_epoch_is_listed_for_each_epoch(ranks: int) -> None:
    for epoch in (0, 2):
        of = []
        for rank in range(ranks):
            with loader(rank, ranks, of=Groups(), steps=None) as one:
                of.append(rows(one.epoch(epoch)))
        assert in_turn(of) == whole(epoch)


def test_batch_samplers_of_torch() -> None:
    data = pytest.importorskip("torch.utils.data", reason="not run: torch is not installed")
    in_order = data.BatchSampler(data.SequentialSampler(range(SAMPLES)), SIZE, drop_last=False)
    with loader(of=in_order, steps=None) as one:
        assert rows(one.epoch(0)) == rows(one.epoch(1)) == list(in_order)
    shared = data.DistributedSampler(range(SAMPLES), 1, 0, seed=7)
    with loader(of=data.BatchSampler(shared, SIZE, drop_last=False), steps=None) as one:
        found = [rows(one.epoch(epoch)) for epoch in (0, 1)]
    for epoch in (0, 1):
        shared.set_epoch(epoch)
        assert found[epoch] == list(data.BatchSampler(shared, SIZE, drop_last=False))
    assert found[0] != found[1]
    with pytest.raises(feedline.ConfigError, match="lists other batches each time: give it or its sampler a set_epoch"):
        loader(of=data.BatchSampler(data.RandomSampler(range(SAMPLES)), SIZE, drop_last=False), steps=None)
    with pytest.raises(feedline.ConfigError, match="DistributedSampler.* has num_replicas=2"):
        of_a_rank = data.DistributedSampler(range(SAMPLES), 2, 0)
        loader(of=data.BatchSampler(of_a_rank, SIZE, drop_last=False), steps=None)
    with pytest.raises(feedline.ConfigError, match="BatchSampler"):
        feedline.Loader({"x": np.arange(SAMPLES)}, SIZE, sampler=in_order)


@pytest.mark.parametrize("steps", [STEPS - 1, STEPS + 1])
def test_a_batch_sampler_of_another_length_is_refused(steps: int) -> None:
    class Other(Groups):
        def __len__(self) -> int:
            return steps

    with pytest.raises(feedline.ConfigError, match=f"a length of {steps} batches, and"):
        loader(of=Other(), steps=None)
    with pytest.raises(feedline.ConfigError, match="has a length: leave it out"):
        loader(of=Groups(), steps=STEPS)


def test_substitutes_skips_and_collate_fn_take_short_batches() -> None:
    class Broken:
        def __len__(self) -> int:
            return SAMPLES

        def __getitem__(self, index: int) -> dict[str, Any]:
            if index == named(0, 4)[2]:
                raise ValueError("broken")
            return {"x": np.int64(index)}

    sampler = feedline.Sampler.batches(named, STEPS)
    with feedline.Loader(Broken(), SIZE, sampler=sampler, bad_samples=1, framework="numpy") as one:
        found = [batch["x"].tolist() for batch in one.epoch(0)]
    assert [len(batch) for batch in found] == [len(batch) for batch in whole(0)]
    changed = [step for step in range(STEPS) if found[step] != named(0, step)]
    assert changed == [4] and found[4][2] in range(SAMPLES)
    with loader(skip={0: range(2, 5)}) as one:
        assert rows(one.epoch(0)) == whole(0)[:2] + whole(0)[5:]

    def collate(samples: list[Any]) -> Any:
        return {"x": np.stack([sample["x"] for sample in samples])}

    with feedline.Loader(
        {"x": np.arange(SAMPLES) * 10}, SIZE, sampler=sampler, collate_fn=collate, framework="numpy"
    ) as one:
        assert rows(one.epoch(1)) == whole(1)


def test_a_curriculum_changes_the_batches_from_an_epoch_on() -> None:
    first = feedline.Sampler.batches(lambda epoch, step: [step], STEPS)
    sampler = feedline.Sampler.by_epoch({0: first, 2: feedline.Sampler.batches(named, STEPS)})
    with feedline.Loader({"x": np.arange(SAMPLES) * 10}, SIZE, sampler=sampler, framework="numpy") as one:
        assert rows(one.epoch(1)) == [[step] for step in range(STEPS)]
        assert rows(one.epoch(2)) == whole(2)
