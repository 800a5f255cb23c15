"""Samples of varying length without a limit: slots grow with the longest, and nothing else depends on it."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import feedline

#: The first sample is short, so that slots must grow; the last one is the longest.
LENGTHS = [1, *(number * 37 % 23 for number in range(60)), 100, 7, 3000, 2, 0, 900]


class Documents:
    """Samples of so many items; each is the number of its sample."""

    def __init__(self, lengths: Sequence[int] = LENGTHS) -> None:
        self._lengths = lengths

    def __len__(self) -> int:
        return len(self._lengths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        length = self._lengths[index]
        ids, text = np.full(length, index, np.int32), "x" * (length % 7)
        return {"ids": ids, "text": text, "number": index, "process": os.getpid()}


def data(lengths: Sequence[int] = LENGTHS) -> feedline.Data:
    return feedline.Data(Documents(lengths), max_length={"ids": None})


def numbers(batch: Any, lengths: Sequence[int] = LENGTHS) -> list[int]:
    """The samples of a batch, whose values are checked."""
    ids, counts = batch["ids"]
    found: list[int] = batch["number"].tolist()
    assert ids.shape == (len(found), max(max(lengths[number] for number in found), 1))
    for row, count, number in zip(ids, counts, found, strict=True):
        assert count == lengths[number]
        assert (row[:count] == number).all()
        assert (row[count:] == -1).all()
    assert batch["text"] == ["x" * (lengths[number] % 7) for number in found]
    return found


@pytest.mark.parametrize("options", [{}, {"workers": 2, "parallel": "processes"}], ids=["threads", "processes"])
def test_each_sample_comes_once_and_whole_and_processes_stay(options: dict[str, Any]) -> None:
    with feedline.Loader(
        data(), 4, pad={"ids": -1}, shuffle=True, seed=3, framework="numpy", **options
    ) as loader:
        processes = set()
        for epoch in range(3):
            found = []
            for batch in loader.epoch(epoch):
                found += numbers(batch)
                processes |= set(batch["process"].tolist())
            assert sorted(found) == list(range(len(LENGTHS)))
        assert len(processes) <= 2
        report = loader.report()
        # 16 items, and 128, 1024 and 4096 at most.
        assert 1 <= report.data["growths"] <= 3
        assert "made larger for longer samples" in str(report)


def test_a_loader_pads_fields_of_lists_without_another_word() -> None:
    samples = [{"ids": [1, 2]}, {"ids": [1, 2, 3]}, {"ids": list(range(100))}]
    rows = [row.tolist() for batch in feedline.Loader(samples, 1, pad={"ids": 0}, framework="numpy") for row in batch["ids"][0]]
    assert rows == [sample["ids"] for sample in samples]


@pytest.mark.parametrize("texts", [["a", "bb"], np.array(["a", "bb"]), np.array(["a", "bb"], object)], ids=["list", "str", "object"])
def test_texts_of_a_dict_vary(texts: Any) -> None:
    (batch,) = feedline.Loader({"t": texts}, 2, framework="numpy")
    assert batch["t"] == ["a", "bb"]


def test_lists_of_several_lengths_in_a_dict_vary() -> None:
    columns = {"ids": [[1], [1, 2, 3], list(range(50))], "text": ["a", "", "x" * 40], "label": [0, 1, 2]}
    loader = feedline.Loader(columns, 3, pad={"ids": 0}, framework="numpy")
    (batch,) = loader
    assert batch["ids"][1].tolist() == [1, 3, 50]
    assert batch["text"] == ["a", "", "x" * 40]


def test_the_order_the_widths_and_a_resume_do_not_depend_on_the_room() -> None:
    def run(stop: int, is_grown: bool, batch_size: int = 4, workers: int = 1) -> tuple[list[Any], int]:
        documents = data()
        if is_grown:
            assert len(documents[LENGTHS.index(3000)]["ids"]) == 3000
        seen = []
        options: dict[str, Any] = {"pad": {"ids": -1}, "shuffle": True, "seed": 5, "framework": "numpy"}
        with feedline.Loader(documents, batch_size, **options) as loader:
            batches = iter(loader)
            for _ in range(stop):
                seen += numbers(next(batches))
            state = loader.state_dict()
        with feedline.Loader(data(), batch_size, workers=workers, parallel="threads", **options) as loader:
            loader.load_state_dict(state)
            for batch in loader:
                seen += numbers(batch)
            return seen, loader.order_hash

    expected = run(0, True)
    steps = -(-len(LENGTHS) // 4)
    for stop in range(0, steps + 1, 2):
        for is_grown in (False, True):
            assert run(stop, is_grown, workers=1 + stop % 3) == expected, (stop, is_grown)


def test_compositions_grow_with_the_data_that_they_are_made_of() -> None:
    documents = data()
    train, validation = documents.split(0.6, 0.4, seed=1)
    folds = documents.folds(3, seed=2)
    composed = [
        *(train, validation, documents.take(62), documents.skip(60).repeat(3), documents.cached(1 << 16)),
        *(feedline.concat(validation, train), feedline.mix([(train, 0.5), (validation, 0.5)]), *folds[1]),
        documents.subset([63, 0, 62]),
    ]
    for part in composed:
        expected = None if part is composed[6] else sorted(int(sample["number"]) for sample in part)
        with feedline.Loader(part, 3, pad={"ids": -1}, shuffle=True, framework="numpy") as loader:
            found = sorted(number for batch in loader for number in numbers(batch))
        assert expected is None or found == expected
    # The longest is in one of the two, which has room now; the other gets it when it needs it.
    assert {len(sample["ids"]) for sample in feedline.concat(train, validation)} == set(LENGTHS)


def test_mapped_samples_grow_by_themselves() -> None:
    doubled = data().map(lambda sample: {"ids": np.repeat(sample["ids"], 2)}, max_length={"ids": None})
    with feedline.Loader(doubled, 4, pad={"ids": -1}, framework="numpy") as loader:
        counts = [count for batch in loader for count in batch["ids"][1].tolist()]
    assert counts == [2 * length for length in LENGTHS]


def collated(samples: list[Any]) -> dict[str, Any]:
    width = max(len(sample["ids"]) for sample in samples)
    ids = np.full((len(samples), width), -1)
    for row, sample in zip(ids, samples, strict=True):
        row[: len(sample["ids"])] = sample["ids"]
    return {"ids": ids, "number": np.array([sample["number"] for sample in samples])}


@pytest.mark.parametrize("options", [{}, {"workers": 2, "parallel": "processes"}], ids=["threads", "processes"])
def test_rows_of_a_collate_fn_grow(options: dict[str, Any]) -> None:
    documents = Documents([2, *LENGTHS])
    with feedline.Loader(
        documents, 4, collate_fn=collated, max_length={"ids": None}, framework="numpy", **options
    ) as loader:
        widths = [batch["ids"].shape[1] if hasattr(batch["ids"], "shape") else batch["ids"][0].shape[1] for batch in loader]
    lengths = [2, *LENGTHS]
    assert widths == [max(1, *lengths[at : at + 4]) for at in range(0, len(lengths), 4)]


class Drawn(Documents):
    """Documents with random numbers of the global generators and of a generator of their own."""

    def __init__(self, lengths: Sequence[int] = LENGTHS) -> None:
        super().__init__(lengths)
        self.generator = np.random.default_rng(1)

    def __getitem__(self, index: int) -> dict[str, Any]:
        drawn = {"drawn": np.random.rand(), "python": random.random(), "own": self.generator.random()}
        return super().__getitem__(index) | drawn


def cropped(sample: dict[str, Any]) -> dict[str, Any]:
    """A sample that fits any slot, of one that may not."""
    names = ("number", "drawn", "python", "own")
    return {"first": sample["ids"][:1].sum(), "later": np.random.rand()} | {name: sample[name] for name in names}


@pytest.mark.parametrize("options", [{}, {"workers": 2, "parallel": "processes"}], ids=["threads", "processes"])
def test_a_sample_that_is_read_again_within_a_map_draws_the_same_numbers(options: dict[str, Any]) -> None:
    def run(limit: int | None) -> list[Any]:
        drawn = feedline.Data(Drawn(), max_length={"ids": limit}).map(cropped)
        with feedline.Loader(drawn, 4, shuffle=True, seed=9, framework="numpy", copy=True, **options) as loader:
            return [[batch[name].tolist() for name in batch] for epoch in range(2) for batch in loader.epoch(epoch)]

    assert run(None) == run(3000)
    np.random.seed(0)
    state = feedline.Data(Drawn(), max_length={"ids": None})[LENGTHS.index(3000)], np.random.rand()
    np.random.seed(0)
    again = feedline.Data(Drawn(), max_length={"ids": 3000})[LENGTHS.index(3000)], np.random.rand()
    assert (state[0]["drawn"], state[1]) == (again[0]["drawn"], again[1])


def test_many_parts_grow() -> None:
    parts = [data([1, 40]) for _ in range(1200)]
    with feedline.Loader(feedline.concat(*parts), 64, pad={"ids": -1}, framework="numpy") as loader:
        assert sum(batch["ids"][1].sum() for batch in loader) == 1200 * 41


def test_room_keeps_within_a_stated_number_of_items_of_a_batch() -> None:
    with feedline.Loader(
        data(), 4, pad={"ids": -1}, max_per_batch={"ids": 4 * 3000 + 100}, framework="numpy"
    ) as loader:
        assert [number for batch in loader for number in numbers(batch)] == list(range(len(LENGTHS)))
    with feedline.Loader(data(), 1, max_per_batch={"ids": 3100}, framework="numpy") as loader:
        assert [batch["number"].tolist() for batch in loader] == [[number] for number in range(len(LENGTHS))]


def test_a_growth_that_fails_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = feedline.Loader(data(), 4, pad={"ids": -1}, framework="numpy")
    batches, found = iter(loader), []
    from feedline import _loader

    made = _loader._feedline.Loader

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(_loader._feedline, "Loader", interrupted)
        for batch in batches:
            found += numbers(batch)
    assert _loader._feedline.Loader is made
    for batch in batches:
        found += numbers(batch)
    assert found == list(range(len(LENGTHS)))
    assert loader.report().data["growths"] > 0


def test_a_long_sample_is_never_replaced_as_a_bad_one() -> None:
    with feedline.Loader(data(), 4, pad={"ids": -1}, bad_samples=0.5, framework="numpy") as loader:
        found = [number for batch in loader for number in numbers(batch)]
        assert found == list(range(len(LENGTHS)))


def test_a_batch_that_is_held_stays_as_it_is() -> None:
    loader = feedline.Loader(data(), 4, pad={"ids": -1}, framework="numpy", held_timeout=30)
    batches, held = iter(loader), []
    for _ in range(2):
        held.append(next(batches))
    before = [batch["ids"][0].copy() for batch in held]
    rest = [numbers(batch) for batch in batches]
    assert loader.report().data["growths"] > 0
    assert len(rest) == len(loader) - 2
    assert all((batch["ids"][0] == copy).all() for batch, copy in zip(held, before, strict=True))


def test_nothing_is_allocated_once_the_longest_was_there() -> None:
    with feedline.Loader(data(), 4, pad={"ids": -1}, framework="numpy") as loader:
        for _ in loader.epoch(0):
            pass
        memory, growths = loader.memory, loader.report().data["growths"]
        for epoch in range(1, 4):
            for _ in loader.epoch(epoch):
                pass
        assert (loader.memory, loader.report().data["growths"]) == (memory, growths)


def test_an_empty_first_sample_has_the_type_of_a_later_one() -> None:
    samples = [{"boxes": np.zeros((0, 4))}, {"boxes": np.ones((40, 4), np.float32)}, {"boxes": np.zeros((0, 4), np.float32)}]
    loader = feedline.Loader(feedline.Data(samples, max_length={"boxes": None}), 3, framework="numpy")
    (batch,) = loader
    values, offsets = batch["boxes"]
    assert (values.shape, values.dtype, offsets.tolist()) == ((40, 4), np.float32, [0, 0, 40, 40])


def test_what_keeps_the_size_of_a_slot_needs_a_limit() -> None:
    with pytest.raises(feedline.ConfigError, match=r'record needs slots of one size.*max_length=\{"ids": ...\}'):
        feedline.Loader(data(), 4, pad={"ids": 0}, record="runs")


def test_a_limit_refuses_and_bad_samples_replace() -> None:
    limited = feedline.Data(Documents(), max_length={"ids": 100, "text": 6})
    with pytest.raises(feedline.SampleError, match="3000 items, and max_length allows 100"):
        for _ in feedline.Loader(limited, 4, pad={"ids": -1}, framework="numpy"):
            pass
    with feedline.Loader(limited, 4, pad={"ids": -1}, bad_samples=2, framework="numpy") as loader:
        assert sum(len(batch.substituted) for batch in loader) == 2


def test_random_runs_with_resumes() -> None:
    for seed in range(30):
        chosen = random.Random(seed)
        lengths = [chosen.choice([0, 1, 2, 15, 16, 17, 40, chosen.randrange(1, 700)]) for _ in range(chosen.randrange(1, 40))]
        size, shuffles = chosen.randrange(1, 9), chosen.random() < 0.7
        options: dict[str, Any] = {"pad": {"ids": -1}, "shuffle": shuffles, "seed": seed, "framework": "numpy"}

        def opened(lengths: list[int] = lengths) -> Any:
            return data(lengths)

        with feedline.Loader(opened(), size, workers=1, **options) as loader:
            expected = [number for batch in loader for number in numbers(batch, lengths)]
        assert sorted(expected) == list(range(len(lengths)))
        found: list[int] = []
        state = None
        while True:
            with feedline.Loader(opened(), size, workers=chosen.randrange(1, 4), parallel="threads", **options) as loader:
                if state is not None:
                    loader.load_state_dict(state)
                stop = chosen.randrange(1, 6)
                is_over = True
                for step, batch in enumerate(loader):
                    found += numbers(batch, lengths)
                    if step + 1 == stop:
                        is_over = False
                        break
                state = loader.state_dict()
            if is_over or len(found) >= len(lengths):
                break
        assert found == expected, seed


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
