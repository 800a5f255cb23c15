"""`feedline.compare`: another loader and ours, held against each other."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conftest import PACKAGE, numbers, skip_if_emulated

import feedline
from feedline import compare


def batches_of(data: dict[str, Any], size: int = 10, order: Any = None) -> list[dict[str, Any]]:
    """The batches of a loader that is not ours."""
    order = np.arange(len(data["id"])) if order is None else order
    return [{name: np.array(value[order[at : at + size]]) for name, value in data.items()}
            for at in range(0, len(order), size)]


def loader(data: Any = None, size: int = 10, **options: Any) -> feedline.Loader:
    return feedline.Loader(numbers() if data is None else data, size, framework="numpy", **options)


def test_the_same_batches_are_equal() -> None:
    with loader() as ours:
        result = compare(batches_of(numbers()), ours, seconds=0)
    assert (result.equal, result.order, result.same_batches, result.difference) == (True, "equal", True, None)
    for side in (result.first, result.second):
        assert (side.batches, side.samples, side.is_whole) == (10, 100, True)
    assert (result.first.name, result.second.name) == ("list", "feedline.Loader")
    assert result.speed is None and result.first.first_batch is None and "not measured" in repr(result)


def test_a_shuffle_on_either_side_is_the_same_set_in_another_order() -> None:
    orders = np.random.default_rng(3).permutation(100)
    for other, options in ((batches_of(numbers()), {"shuffle": 7}), (batches_of(numbers(), order=orders), {})):
        with loader(**options) as ours:
            result = compare(other, ours, seconds=0)
        assert (result.equal, result.order, result.same_batches) == (True, "other", False)
        assert result.difference is None and "in another order" in repr(result)


def test_an_epoch_of_exactly_the_max_batches_is_whole() -> None:
    with loader(shuffle=7) as ours:
        for batches, order in ((10, "other"), (9, "unknown")):
            result = compare(batches_of(numbers()), ours, batches=batches, seconds=0)
            assert result.order == order and result.first.is_whole == result.second.is_whole == (batches == 10)


def test_batches_of_other_sizes_have_the_same_samples() -> None:
    with loader(size=7) as ours:
        result = compare(batches_of(numbers()), ours, seconds=0)
    assert (result.equal, result.order, result.same_batches) == (True, "equal", False)
    assert result.second.batches == 15 and "batches of other sizes" in repr(result)


@pytest.mark.parametrize("size", [10, 7])
def test_the_first_value_that_differs_is_named_with_both(size: int) -> None:
    data = numbers()
    data["x"][37, 2] = -5.0
    data["x"][61, 0] = -6.0
    with loader(data, size) as ours:
        result = compare(batches_of(numbers()), ours, seconds=0)
    assert (result.equal, result.order) == (False, "differ")
    second = f"row {37 % size} of batch {37 // size}"
    for part in ('field "x"', "[2]", "row 7 of batch 3", second, "37002.0", "-5.0", "list", "feedline.Loader"):
        assert part in (result.difference or ""), part
    assert result.difference and result.difference in repr(result)


def test_samples_that_one_side_lacks_are_counted_and_the_first_is_named() -> None:
    rest = np.delete(np.arange(100), [23, 40])
    with loader(shuffle=5) as ours:
        result = compare(batches_of(numbers(), order=rest), ours, seconds=0)
    assert (result.equal, result.order) == (False, "differ")
    assert "2 of 100 samples of feedline.Loader are not in list" in (result.difference or "")
    # One that is left out moves all others.
    with loader() as ours:
        result = compare(batches_of(numbers(), order=rest), ours, seconds=0)
    assert "the first in row 3 of batch 2" in (result.difference or "")


def test_a_sample_that_comes_twice_is_not_the_same_set() -> None:
    twice = np.arange(100)
    twice[50] = 7
    with loader(shuffle=5) as ours:
        result = compare(batches_of(numbers(), order=twice), ours, seconds=0)
    assert result.equal is False and "1 of 100 samples of list" in (result.difference or "")


def changed(field: str, value: Any) -> list[dict[str, Any]]:
    return batches_of({**numbers(), field: value})


@pytest.mark.parametrize(
    ("other", "words", "order"),
    [
        (changed("x", numbers()["x"].astype(np.float64)), ('"x"', "float64", "float32"), "equal"),
        (changed("id", np.arange(100, dtype=np.int32)), ('"id"', "int32", "int64"), "equal"),
        (changed("x", numbers()["x"][:, :4]), ('"x"', "[4]", "[5]"), "differ"),
        (changed("y", np.arange(100)), ('"y"', "list"), "equal"),
        ([{"id": batch["id"]} for batch in batches_of(numbers())], ('"x"', "feedline.Loader"), "equal"),
    ],
)
def test_keys_types_and_shapes_that_differ_are_named(other: Any, words: tuple[str, ...], order: str) -> None:
    with loader() as ours:
        result = compare(other, ours, seconds=0)
    assert (result.equal, result.order) == (False, order)
    for word in words:
        assert word in (result.difference or ""), result.difference


def test_fields_by_place_are_compared_with_fields_by_name_and_that_is_said() -> None:
    other = [(batch["x"], batch["id"]) for batch in batches_of(numbers())]
    with loader() as ours:
        result = compare(other, ours, seconds=0)
    assert (result.equal, result.order) == (False, "equal")
    assert '"0", "1"' in (result.difference or "") and '"x", "id"' in (result.difference or "")
    samples = list(zip(numbers()["x"], numbers()["id"], strict=True))
    with loader(samples) as ours:
        assert compare([list(batch) for batch in other], ours, seconds=0).equal is True


def test_signs_of_zero_and_nan_are_no_difference_and_a_missing_nan_is() -> None:
    data = {"id": np.arange(4), "x": np.array([0.0, np.nan, 1.0, np.nan])}
    with loader(data, 2) as ours:
        values = np.array([[-0.0, np.nan], [1.0, -np.nan]])
        same = [{"id": np.arange(2 * at, 2 * at + 2), "x": values[at]} for at in (0, 1)]
        assert compare(same, ours, seconds=0).equal is True
        same[1]["x"] = np.array([1.0, 2.0])
        assert "2.0" in (compare(same, ours, seconds=0).difference or "")


def test_texts_and_padded_fields_are_compared_row_by_row() -> None:
    texts = ["a", "be", "", "żółć"] * 5
    samples = [{"text": text, "tokens": np.arange(at % 4)} for at, text in enumerate(texts)]
    data = feedline.Data(samples, max_length={"text": 20, "tokens": 4})
    other = []
    for at in range(0, 20, 5):
        part = samples[at : at + 5]
        width = max(len(sample["tokens"]) for sample in part)
        tokens = [np.pad(sample["tokens"], (0, width - len(sample["tokens"]))) for sample in part]
        other.append({"text": [sample["text"] for sample in part], "tokens": np.stack(tokens)})
    with loader(data, 5, pad={"tokens": 0}) as ours:
        assert compare(other, ours, seconds=0).equal is True
        other[2]["text"][3] = "bf"
        result = compare(other, ours, seconds=0)
        assert 'field "text" at [1]' in (result.difference or "") and "row 3 of batch 2" in (result.difference or "")
    with loader(data, 5) as ours:
        ragged = list(loader(data, 5, copy=True))
        assert compare(ragged, ours, seconds=0).equal is True


def endless(shuffled: bool = False) -> Iterator[dict[str, Any]]:
    chance = np.random.default_rng(1)
    for at in itertools.count(step=10):
        ids = chance.integers(0, 10**9, 10) if shuffled else np.arange(at, at + 10)
        yield {"id": ids}


def test_endless_loaders_are_bounded() -> None:
    with loader({"id": np.arange(10_000)}) as ours:
        result = compare(endless(), ours, batches=5, seconds=0)
        assert (result.equal, result.order) == (True, "equal") and not result.first.is_whole
        assert (result.first.batches, result.second.samples) == (5, 50) and "first 5 batches" in repr(result)
        # What is not read may be what is missing.
        result = compare(endless(shuffled=True), ours, batches=5, seconds=0)
        assert (result.equal, result.order) == (None, "unknown") and "batches=" in repr(result)
        result = compare(endless(), ours, batches=5, seconds=0.05)
        assert result.speed is not None and result.speed > 0
        # It has no second begin.
        assert result.first.first_batch is None and result.second.first_batch is not None


def test_a_loader_that_ends_early_differs_from_one_that_goes_on() -> None:
    with loader({"id": np.arange(10_000)}) as ours:
        result = compare(itertools.islice(endless(), 3), ours, batches=5, seconds=0)
    assert (result.equal, result.order) == (False, "differ")
    assert "ends after 30" in (result.difference or "")


def test_what_is_read_once_is_compared_and_not_timed() -> None:
    with loader() as ours:
        result = compare(iter(batches_of(numbers())), ours, seconds=0.05)
        assert result.equal is True and result.speed is None
        assert result.first.samples_per_second is None and (result.second.samples_per_second or 0) > 0
    source = feedline.Source(({"id": at} for at in range(20)), once=True)
    with feedline.Loader(source, 10, framework="numpy") as ours:
        result = compare([{"id": np.arange(at, at + 10)} for at in (0, 10)], ours, seconds=0.05)
        assert result.equal is True and result.second.samples_per_second is None


def test_speed_is_that_of_samples_and_the_first_batch_is_apart() -> None:
    with loader(size=20) as ours:
        result = compare(batches_of(numbers(1000), 10), ours, seconds=0.05, passes=2)
    for side, rows in ((result.first, 10), (result.second, 20)):
        assert side.samples_per_second == pytest.approx(rows * (side.batches_per_second or 0), rel=0.2)
        assert side.first_batch is not None and side.first_batch > 0
    assert result.speed == (result.second.samples_per_second or 0) / (result.first.samples_per_second or 1)
    # One batch: there is nothing after the first.
    with loader(size=100) as ours:
        result = compare(batches_of(numbers(), 100), ours, seconds=0.02, passes=1)
        assert result.speed is not None and result.speed > 0


class Grows:
    """An iterable whose batches take memory."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        # Blocks of a size that the allocator gives back at once.
        self.kept = [np.ones(40 << 20, np.uint8) for _ in range(2)]
        yield from batches_of(numbers())
        self.kept = []


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="not run: no peak of memory can be reset here")
def test_the_peak_of_this_process_is_counted() -> None:
    skip_if_emulated("its own memory is counted too")
    with loader() as ours:
        result = compare(Grows(), ours, seconds=0.3, passes=1)
    assert result.first.memory is not None and result.first.memory > 40 << 20
    assert result.second.memory is not None and result.second.memory < 40 << 20
    assert result.second.slots == ours.memory["pinned"] and "slots" in repr(result)


class Fails:
    def __iter__(self) -> Iterator[dict[str, Any]]:
        yield from batches_of(numbers())[:3]
        raise KeyError("of the user")


class FailsAtOnce:
    def __iter__(self) -> Iterator[dict[str, Any]]:
        raise OSError("no disk")


def test_an_error_is_the_users_and_says_which_of_the_two() -> None:
    with loader() as ours:
        for pair, place in (((Fails(), ours), "first"), ((ours, Fails()), "second")):
            why = f"the {place}, Fails, raised KeyError: 'of the user'.* batch 3"
            with pytest.raises(feedline.Error, match=why) as raised:
                compare(*pair, seconds=0)
            assert isinstance(raised.value.__cause__, KeyError) and raised.value.batch == 3
        with pytest.raises(feedline.Error, match="the first, FailsAtOnce, raised OSError: no disk"):
            compare(FailsAtOnce(), ours, seconds=0)
        assert compare(batches_of(numbers()), ours, seconds=0).equal


class Interrupted:
    def __iter__(self) -> Iterator[dict[str, Any]]:
        random.random()
        raise KeyboardInterrupt


class Draws:
    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in batches_of(numbers()):
            random.random()
            np.random.random()
            yield batch


def test_random_states_and_the_place_of_a_loader_are_left_as_they_were() -> None:
    with loader(shuffle=3) as ours:
        wanted = [[batch["id"].tolist() for batch in ours.epoch(epoch)] for epoch in range(3)]
    for taken in (0, 4, 10):
        with loader(shuffle=3) as ours:
            epoch = iter(ours)
            seen = [next(epoch)["id"].tolist() for _ in range(taken)]
            random.seed(5)
            np.random.seed(5)
            states = random.getstate(), np.random.get_state()[1].tolist()
            compare(Draws(), ours, seconds=0.02, passes=1)
            with pytest.raises(KeyboardInterrupt):
                compare(Interrupted(), ours)
            assert states == (random.getstate(), np.random.get_state()[1].tolist())
            if taken in (0, 10):
                seen += [batch["id"].tolist() for batch in ours]
                assert seen == wanted[0] + (wanted[1] if taken else []), taken
            else:
                assert seen + [batch["id"].tolist() for batch in ours] == wanted[0]
                assert [batch["id"].tolist() for batch in ours] == wanted[1]


@pytest.mark.parametrize(
    ("first", "second", "options", "why"),
    [
        (5, [], {}, "the first is 5, which gives no batches"),
        ([], feedline.Data(numbers()), {}, r"the second is a Data: give feedline\.Loader\(data"),
        ([], [], {"batches": 0}, "batches is 0"),
        ([], [], {"seconds": "long"}, "seconds is 'long'"),
        ([], [], {"seconds": float("nan")}, "seconds is nan"),
        ([], [], {"passes": 0}, "passes is 0"),
        ([{"x": object()}], [], {}, 'field "x" of batch 0 of the first'),
        ([{"x": np.arange(3), "y": np.arange(4)}], [], {}, "3 and 4 rows"),
    ],
)
def test_what_cannot_be_compared_is_refused(first: Any, second: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(feedline.ConfigError, match=why):
        compare(first, second, **{"seconds": 0, **options})
    with loader() as ours, pytest.raises(feedline.ConfigError, match="the same object"):
        compare(ours, ours)


def test_nothing_at_all_is_equal_to_nothing_and_differs_from_something() -> None:
    assert compare([], [[]][0:0], seconds=0.01).order == "equal"
    with loader() as ours:
        result = compare([], ours, seconds=0.01)
        assert result.equal is False and "ends after 0" in (result.difference or "")


def test_a_notebook_shows_the_table_without_markup_of_the_data() -> None:
    other = changed("<b>", np.arange(100))
    with loader() as ours:
        result = compare(other, ours, seconds=0.02, passes=1)
    page = result._repr_html_()
    assert "<table>" in page and "feedline.Loader" in page and "samples/s" in page
    assert "&lt;b&gt;" in page and "<b>&" not in page
    assert len(repr(result).splitlines()) < 16 and all(len(line) < 120 for line in repr(result).splitlines())


TORCH = """
import torch, numpy as np, feedline

class Own(torch.utils.data.Dataset):
    def __len__(self):
        return 96
    def __getitem__(self, index):
        return {"x": torch.full((3,), float(index)), "id": index}

if __name__ == "__main__":
    from torch.utils.data import DataLoader
    own = Own()
    generator = torch.Generator().manual_seed(1)
    torch.manual_seed(2)
    states = torch.get_rng_state(), generator.get_state()
    for workers in (0, 2):
        for shuffle in (False, True):
            theirs = DataLoader(own, 16, shuffle=shuffle, num_workers=workers, generator=generator)
            with feedline.Loader(own, 16, shuffle=shuffle, workers=workers, framework="torch") as ours:
                result = feedline.compare(theirs, ours, seconds=0.2, passes=1)
            print(result.equal, result.order, result.difference, result.speed > 0, result.first.name)
            print("children", workers, result.first.children > 0, result.second.children > 0)
    assert torch.equal(states[0], torch.get_rng_state()) and torch.equal(states[1], generator.get_state())
    half = DataLoader(own, 16, collate_fn=lambda samples: {"x": torch.stack([s["x"] for s in samples]).bfloat16()})
    whole = [{"x": batch["x"].float()} for batch in half]
    results = [feedline.compare(half, other, seconds=0) for other in (list(half), whole)]
    print("half", results[0].equal, results[1].difference)
"""


def test_a_dataloader_of_torch_with_and_without_workers(tmp_path: Any) -> None:
    pytest.importorskip("torch", reason="not run: torch is not installed")
    path = tmp_path / "compares.py"
    path.write_text(TORCH)
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": str(PACKAGE)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    orders = [line for line in lines if line.startswith(("True", "False", "None"))]
    assert orders == ["True equal None True DataLoader", "True other None True DataLoader"] * 2
    children = [line for line in lines if line.startswith("children")]
    assert children == ["children 0 False False"] * 2 + ["children 2 True True"] * 2
    assert lines[8] == 'half True field "x" is bfloat16 [3] of DataLoader and float32 [3] of list', done.stdout


def test_tensors_on_a_gpu_come_to_the_host() -> None:
    torch = pytest.importorskip("torch", reason="not run: torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("not run: no GPU")
    other = [{name: torch.as_tensor(value, device="cuda") for name, value in batch.items()}
             for batch in batches_of(numbers())]
    with feedline.Loader(numbers(), 10, framework="torch", device="cuda:0") as ours:
        state = torch.cuda.get_rng_state()
        assert compare(other, ours, seconds=0.1, passes=1).equal is True
        assert torch.equal(state, torch.cuda.get_rng_state())


def test_fields_and_types_that_change_later_are_told() -> None:
    x = np.arange(4)
    plain = [{"x": x}, {"x": x}]
    for other in ([{"x": x}, {"x": x, "y": x}], [{"x": x}, {"x": x.astype(np.int32)}], [{"x": x}, {"x": x.astype(np.float64)}]):
        for result in (feedline.compare(plain, other, seconds=0), feedline.compare(other, plain, seconds=0)):
            assert result.equal is False
            assert result.difference is not None
    assert feedline.compare([["a\0"]], [["a"]], seconds=0).equal is False
