"""Each sample several times in a row: values, counts and groups, in every order and on any number of ranks."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest

import feedline

COPIES, PROMPTS = 4, 21


def data() -> feedline.Data:
    return feedline.Data({"prompt": np.arange(100, 100 + PROMPTS)}).repeated(COPIES)


def batches(rank: int, ranks: int, epoch: int = 0, of: Any = None, size: int = 8, **options: Any) -> list[list[int]]:
    given = data() if of is None else of
    with feedline.Loader(given, size, world=(rank, ranks), framework="numpy", **options) as loader:
        return [batch["prompt"][: batch.valid_rows].tolist() for batch in loader.epoch(epoch)]


def groups(rows: list[int]) -> list[int]:
    """The prompts of a batch, which has whole groups."""
    assert len(rows) % COPIES == 0
    found = [rows[at : at + COPIES] for at in range(0, len(rows), COPIES)]
    assert all(len(set(group)) == 1 for group in found), rows
    return [group[0] for group in found]


def test_copies_follow_each_other_in_sequence() -> None:
    rows = [row for batch in batches(0, 1) for row in batch]
    assert rows == [prompt for prompt in range(100, 100 + PROMPTS) for _ in range(COPIES)]
    assert len(data()) == COPIES * PROMPTS
    assert [int(data()[at]["prompt"]) for at in (0, 3, 4, -1)] == [100, 100, 101, 120]


WEIGHTS = [1.0] * (PROMPTS - 1) + [0.0]
ORDERS: list[dict[str, Any]] = [
    {},
    {"shuffle": 3},
    {"sampler": feedline.Sampler.block(4, 8), "seed": 3},
    {"sampler": feedline.Sampler.weighted(WEIGHTS, replacement=False), "seed": 3},
]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("last_batch", ["keep", "drop", "pad"])
def test_groups_are_whole_and_come_once_on_any_number_of_ranks(ranks: int, order: Any, last_batch: str) -> None:
    of = [batches(rank, ranks, 1, last_batch=last_batch, **order) for rank in range(ranks)]
    assert len({len(steps) for steps in of}) == 1
    found = [prompt for steps in of for rows in steps for prompt in groups(rows)]
    assert set(Counter(found).values()) == {1}
    wanted = {100 + prompt for prompt in range(PROMPTS) if WEIGHTS[prompt] or "sampler" not in order}
    if isinstance(order.get("sampler"), feedline.Sampler) and "block" in repr(order["sampler"]):
        wanted = set(range(100, 100 + PROMPTS))
    assert set(found) == wanted if last_batch != "drop" else set(found) < wanted | {0}


def test_a_shuffled_epoch_has_another_order_of_the_prompts() -> None:
    zero, one = ([prompt for rows in batches(0, 1, epoch, shuffle=3) for prompt in groups(rows)] for epoch in (0, 1))
    assert sorted(zero) == sorted(one) and zero != one != sorted(one)


@pytest.mark.parametrize("after", range(1, 11))
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_a_run_resumes_after_any_step_on_another_number_of_ranks(after: int, ranks: int) -> None:
    with feedline.Loader(data(), 8, shuffle=5, world=(0, 1), framework="numpy") as loader:
        epoch = loader.epoch(2)
        before = [prompt for _ in range(after) for prompt in groups(next(epoch)["prompt"].tolist())]
        state = loader.state_dict()
    rest: list[int] = []
    for rank in range(ranks):
        with feedline.Loader(data(), 4, shuffle=5, world=(rank, ranks), framework="numpy") as loader:
            loader.load_state_dict(state)
            for batch in loader:
                rest += groups(batch["prompt"][: batch.valid_rows].tolist())
    assert sorted(before + rest) == list(range(100, 100 + PROMPTS))


class Noisy:
    """Samples that draw a random number."""

    def __len__(self) -> int:
        return PROMPTS

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"prompt": np.int64(index), "noise": np.float64(np.random.rand())}


@pytest.mark.parametrize("workers", [0, 2])
def test_each_copy_has_its_own_random_numbers_which_no_world_changes(workers: int) -> None:
    def noise(ranks: int) -> dict[int, list[float]]:
        found: dict[int, list[float]] = {}
        for rank in range(ranks):
            given = feedline.Data(Noisy()).repeated(COPIES)
            with feedline.Loader(
                given, 8, shuffle=5, world=(rank, ranks), workers=workers, parallel="processes", framework="numpy"
            ) as loader:
                for batch in loader.epoch(1):
                    for prompt, one in zip(batch["prompt"].tolist(), batch["noise"].tolist(), strict=True):
                        found.setdefault(prompt, []).append(one)
        return found

    alone = noise(1)
    assert all(len(set(copies)) == COPIES for copies in alone.values())
    assert alone == noise(3)


def test_a_collate_fn_gets_whole_groups() -> None:
    def collate(samples: list[Any]) -> dict[str, Any]:
        return {"prompt": np.stack([sample["prompt"] for sample in samples])}

    for shuffle in (None, 3):
        with feedline.Loader(data(), 8, shuffle=shuffle, collate_fn=collate, framework="numpy") as loader:
            found = [prompt for batch in loader for prompt in groups(batch["prompt"].tolist())]
        assert sorted(found) == list(range(100, 100 + PROMPTS))


class Broken(Noisy):
    """Prompt 5 cannot be read."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 5:
            raise ValueError("no prompt")
        return super().__getitem__(index)


def test_a_group_that_cannot_be_read_gets_the_copies_of_one_other_prompt() -> None:
    given = feedline.Data(Broken()).repeated(COPIES)
    with feedline.Loader(given, 8, bad_samples=4, framework="numpy") as loader:
        found = Counter(prompt for batch in loader for prompt in groups(batch["prompt"].tolist()))
    assert 5 not in found and sorted(found.values()) == [1] * (PROMPTS - 2) + [2]


def test_the_data_is_pickled_and_its_fingerprint_has_the_copies() -> None:
    again = pickle.loads(pickle.dumps(data()))
    assert len(again) == COPIES * PROMPTS and again.fingerprint == data().fingerprint
    once = feedline.Data({"prompt": np.arange(100, 100 + PROMPTS)})
    assert len({data().fingerprint, once.repeat(COPIES).fingerprint, once.repeated(2).fingerprint}) == 3
    assert batches(0, 1, of=once.repeated(1), size=5) == batches(0, 1, of=once, size=5)


def test_what_would_part_the_copies_is_refused() -> None:
    with pytest.raises(feedline.ConfigError, match="batch size is 6, and groups of 4 samples stay together: give a mul"):
        feedline.Loader(data(), 6, shuffle=True)
    with pytest.raises(feedline.ConfigError, match="repeated is 0: give a whole number from 1"):
        feedline.Data({"prompt": np.arange(3)}).repeated(0)
    with pytest.raises(feedline.ConfigError, match="repeated 4 times already"):
        data().repeated(2)
    for part in (
        lambda: data().take(3),
        lambda: data().subset([0]),
        lambda: data().split(0.5, 0.5),
        lambda: data().map(dict),
        lambda: feedline.concat(data(), data()),
        lambda: feedline.mix([(data(), 1)]),
    ):
        with pytest.raises(feedline.ConfigError, match="call repeated last"):
            part()
