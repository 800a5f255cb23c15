"""State: exact at every step, with other workers, batch sizes and ranks. The first ten tests are bugs that
other loaders have had, each with the issue that reports it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import PACKAGE, ids, numbers

import feedline


def loader(batch_size: int = 10, shuffle: int | None = 7, **options: Any) -> feedline.Loader:
    return feedline.Loader(numbers(), batch_size, shuffle=shuffle, framework="numpy", **options)


def whole(epoch: int = 0, shuffle: int | None = 7) -> list[int]:
    """The order of an epoch without an interruption."""
    with loader(shuffle=shuffle) as one:
        return ids(one.epoch(epoch))


def resumed(state: dict[str, Any], **options: Any) -> feedline.Loader:
    one = loader(**options)
    one.load_state_dict(json.loads(json.dumps(state)))
    return one


def test_the_epoch_after_a_state_saved_behind_the_last_batch_is_full() -> None:
    """pytorch/data 1437."""
    one = loader()
    ids(one)
    again = resumed(one.state_dict())
    assert ids(again) == whole(1)
    assert ids(resumed(one.state_dict()).epoch(0)) == []


def test_two_resumes_within_one_epoch() -> None:
    """KempnerForge 57, huggingface/datasets 8308: the state froze after a load."""
    one, seen = loader(), []
    for _ in range(4):
        batches = iter(one)
        seen += ids([next(batches), next(batches)])
        one = resumed(one.state_dict())
    assert seen + ids(one) == whole()


@pytest.mark.parametrize("shuffle", [7, None])
def test_epochs_after_a_resume_in_the_middle_are_full(shuffle: int | None) -> None:
    """huggingface/datasets 7447, torchtitan 1357."""
    one = loader(shuffle=shuffle)
    next(iter(one))
    again = resumed(one.state_dict(), shuffle=shuffle)
    assert ids(again) == whole(shuffle=shuffle)[10:]
    assert ids(again) == whole(1, shuffle) and ids(again) == whole(2, shuffle)


def test_batches_that_were_only_read_ahead_are_not_in_the_state() -> None:
    """pytorch/data 1520."""
    one = loader(batch_size=5, prefetch=8)
    batches = iter(one)
    first = ids([next(batches)])
    for _ in range(50):  # the workers are ahead by now, or will be: the state is the same
        assert one.state_dict()["samples"] == 5
    assert first + ids(resumed(one.state_dict(), batch_size=5)) == whole()


def test_states_before_the_first_batch_and_just_after_a_load() -> None:
    """pytorch/data 1251 and 1260."""
    assert ids(resumed(loader().state_dict())) == whole()
    one = loader()
    next(iter(one))
    state = one.state_dict()
    again = resumed(state)
    assert again.state_dict() == state
    assert ids(resumed(again.state_dict())) == whole()[10:]


def test_ranks_keep_their_order_without_duplicates() -> None:
    """accelerate 3938, 4195, 4204."""
    before: list[list[int]] = []
    states = []
    for rank in range(2):
        one = loader(batch_size=5, world=(rank, 2))
        batches = iter(one)
        before.append(ids([next(batches), next(batches)]))
        states.append(one.state_dict())
    assert states[0] == states[1] | {"cursor": states[0]["cursor"]}
    after = [ids(resumed(states[0], batch_size=5, world=(rank, 2))) for rank in range(2)]
    everything = before[0] + before[1] + after[0] + after[1]
    assert sorted(everything) == list(range(100))
    steps = [ids(loader(batch_size=5, world=(rank, 2))) for rank in range(2)]
    assert [before[rank] + after[rank] for rank in range(2)] == steps


def test_a_load_after_iter_moves_the_open_iterator() -> None:
    """Lightning 20550, 21765."""
    source = loader()
    next(iter(source))
    one = loader()
    batches = iter(one)
    one.load_state_dict(source.state_dict())
    assert ids(batches) == whole()[10:]
    one = loader()
    batches = iter(one)
    next(batches)
    next(batches)
    one.load_state_dict(source.state_dict())
    assert ids(batches) == whole()[10:] and ids(one) == whole(1)


def test_shuffle_and_seed_say_one_thing_each() -> None:
    def order(**options: Any) -> list[int]:
        return ids(feedline.Loader(numbers(), 10, framework="numpy", **options))

    assert order(shuffle=True, seed=7) == order(shuffle=7) == order(shuffle=7, seed=7) == whole(shuffle=7)
    assert order(shuffle=True) == order(shuffle=True, seed=0) == order(shuffle=0)
    assert order(seed=7) == sorted(order(shuffle=7)) != order(shuffle=7)
    assert order(shuffle=True, seed=7) == order(sampler=feedline.Sampler.shuffled(), seed=7)


def test_a_new_loader_without_a_seed_has_the_same_order() -> None:
    """pytorch/data 1440 and 1513."""
    orders = [ids(feedline.Loader(numbers(), 10, shuffle=True, framework="numpy")) for _ in range(2)]
    assert orders[0] == orders[1] != sorted(orders[0])
    one = loader()
    assert ids(one) == whole()
    one.load_state_dict(loader().state_dict())  # exhausted, then set back
    assert ids(one) == whole()


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 5)])
def test_another_number_of_ranks(before: int, after: int) -> None:
    """maxtext 1760."""
    seen, state = [], {}
    for rank in range(before):
        one = loader(batch_size=10 // before, world=(rank, before))
        batches = iter(one)
        seen += ids([next(batches), next(batches), next(batches)])
        state = one.state_dict()
    for rank in range(after):
        seen += ids(resumed(state, batch_size=10 // after, world=(rank, after)))
    assert sorted(seen) == list(range(100))


def test_the_step_is_readable() -> None:
    """pytorch/data 1503: enumerate begins at 0 after a resume."""
    one = loader()
    batches = iter(one)
    for step in range(3):
        assert next(batches).step == step
    state = one.state_dict()
    assert (state["epoch"], state["step"], state["samples"]) == (0, 3, 30)
    again = resumed(state)
    assert again.next_epoch == 0
    rest = iter(again)
    assert len(rest) == 7 and next(rest).step == 3 and len(again) == 10


def test_200_random_steps_resume_with_other_workers_and_batch_sizes() -> None:
    chance = random.Random(5)
    orders = [whole(epoch) for epoch in range(3)]
    complete = loader()
    for _ in range(3):
        ids(complete)
    for _ in range(200):
        epoch, steps = chance.randrange(2), chance.randrange(11)
        one = loader(workers=chance.choice([1, 2, 4]))
        for earlier in range(epoch):
            ids(one.epoch(earlier))
        batches = one.epoch(epoch)
        seen = ids(next(batches) for _ in range(steps))
        state = one.state_dict()
        one.close()
        again = resumed(state, workers=chance.choice([1, 3]), batch_size=chance.choice([1, 5, 10, 50, 100]))
        rest = ids(again.epoch(epoch))
        assert seen + rest == orders[epoch], (epoch, steps)
        for later in range(epoch + 1, 3):
            assert ids(again.epoch(later)) == orders[later]
        assert again.order_hash == complete.order_hash
        again.close()


TRAIN = """
import json, os, sys
import feedline, numpy as np
from pathlib import Path

folder, batch, workers = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
ids = np.arange(100)
loader = feedline.Loader({"id": ids}, batch, shuffle=7, workers=workers, framework="numpy")
saved = folder / "state.json"
if saved.exists():
    loader.load_state_dict(json.loads(saved.read_text()))
for epoch in range(loader.next_epoch, 3):
    for one in loader.epoch(epoch):
        state = {**loader.state_dict(), "seen": one["id"].tolist()}
        # Writes both in one file: a run that dies between two writes would count a batch twice.
        name = folder / f"{epoch}-{state['samples']:04}.json"
        name.with_suffix(".part").write_text(json.dumps(state))
        os.replace(name.with_suffix(".part"), name)
        saved.with_suffix(".part").write_text(json.dumps(state))
        os.replace(saved.with_suffix(".part"), saved)
        print(state["samples"], flush=True)
print("over", flush=True)
"""


def test_a_run_that_is_killed_at_random_steps_delivers_each_sample_once() -> None:
    chance = random.Random(6)
    with tempfile.TemporaryDirectory() as folder:
        kills, is_over = 0, False
        while not is_over:
            batch, workers = chance.choice([1, 2, 5]), chance.choice(["1", "3"])
            run = subprocess.Popen(
                [sys.executable, "-c", TRAIN, folder, str(batch), workers],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": str(PACKAGE)},
            )
            assert run.stdout is not None
            lines = chance.randrange(4, 60)
            for number, line in enumerate(run.stdout):
                is_over = line == "over\n"
                if not is_over and number == lines:
                    run.send_signal(signal.SIGKILL)
                    kills += 1
                    break
            run.communicate()
        assert kills >= 3
        for epoch in range(3):
            steps = sorted(Path(folder).glob(f"{epoch}-*.json"))
            seen = [one for step in steps for one in json.loads(step.read_text())["seen"]]
            assert sorted(seen) == list(range(100)), f"epoch {epoch}"
            assert seen == whole(epoch)


def test_a_state_of_other_data_is_refused() -> None:
    one = loader()
    next(iter(one))
    other = feedline.Loader(numbers(101), 10, shuffle=7, framework="numpy")
    with pytest.raises(feedline.StateError, match="data"):
        other.load_state_dict(one.state_dict())
    with pytest.raises(feedline.StateError, match="seed"):
        loader(shuffle=8).load_state_dict(one.state_dict())
    for damaged in ({}, {"feedline": 2}, {"feedline": 1}, one.state_dict() | {"cursor": "00"}):
        with pytest.raises(feedline.StateError):
            loader().load_state_dict(damaged)
    with pytest.raises(feedline.StateError, match="checksum"):
        cursor = one.state_dict()["cursor"]
        flipped = f"{cursor[:90]}{int(cursor[90], 16) ^ 1:x}{cursor[91:]}"
        loader().load_state_dict(one.state_dict() | {"cursor": flipped})


def test_a_state_survives_torch_save(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="not run: torch is not installed")
    one = loader()
    next(iter(one))
    torch.save({"data": one.state_dict()}, tmp_path / "run.pt")
    # The default of torch.load refuses all but plain values.
    state = torch.load(tmp_path / "run.pt", weights_only=True)["data"]
    assert ids(resumed(state)) == whole()[10:]


def test_a_break_and_a_state_taken_in_the_loop() -> None:
    one, state, seen = loader(), {}, []
    for batch in one:
        seen += np.asarray(batch["id"]).tolist()
        state = one.state_dict()  # while the batch is held
        if len(seen) == 40:
            break
    assert seen + ids(resumed(state)) == whole()
    assert ids(one) == whole(1), "after a break the next loop is the next epoch"
