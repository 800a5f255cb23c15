"""`map_batch` in threads and in worker processes: the same batches, and no batch is lost."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import own_hooks
import own_sets
import pytest
from test_processes import WAYS, rows, workers

import feedline
from feedline._workers.choice import has_lock

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="not run: worker processes need Linux"),
    pytest.mark.skipif(not has_lock(), reason="not run: a free-threaded build reads by threads"),
]

#: Two fields that are samples in memory, which feedline reads itself.
ARRAYS = {"id": np.arange(100), "x": np.arange(600, dtype=np.float32).reshape(100, 2, 3)}


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    """No process of a test outlives it."""
    yield
    assert workers() == []


def loader(hook: Any, data: Any = None, **options: Any) -> feedline.Loader:
    own = own_sets.Numbers(100) if data is None else data
    return feedline.Loader(own, 10, framework="numpy", shuffle=3, map_batch=hook, **options)


@pytest.mark.parametrize("hook", [own_hooks.double, own_hooks.noisy])
def test_batches_are_the_same_whoever_calls_it(hook: Any) -> None:
    seen = []
    for way in WAYS:
        with loader(hook, **way) as batches:
            assert batches._reads.maps == (batches._reads.processes > 0)
            seen.append([rows(batches.epoch(epoch)) for epoch in (0, 1)])
    assert seen[0][0] != seen[0][1] and all(one == seen[0] for one in seen[1:])
    plain = {own: x for own, x in rows(loader(None, workers=0))}
    assert all(plain[own] != x for own, x in seen[0][0] if own != np.int64(0).tobytes())


def test_data_that_feedline_reads_itself() -> None:
    seen = []
    for way in [{}, {"workers": 3}, {"workers": 2, "parallel": "processes"}]:
        with loader(own_hooks.noisy, ARRAYS, **way) as batches:
            assert batches._reads.maps == ("parallel" in way)
            assert ("map_batch by 2 processes" in repr(batches)) == ("parallel" in way)
            seen.append(rows(batches))
    assert seen[0] == seen[1] == seen[2]


def test_a_source() -> None:
    source = feedline.Source([{"id": n, "x": np.ones(3, np.float32)} for n in range(25)])
    seen = []
    for way in [{}, {"workers": 2, "parallel": "processes"}]:
        with feedline.Loader(source, 10, framework="numpy", map_batch=own_hooks.noisy, **way) as batches:
            seen.append(rows(batches))
    assert len(seen[0]) == 25 and seen[0] == seen[1]


def test_fields_that_share_a_column() -> None:
    data = feedline.Data([{f"f{n}": float(k * n) for n in range(20)} for k in range(30)])
    seen = []
    for way in [{"workers": 0}, {"workers": 2}]:
        with feedline.Loader(data, 10, framework="numpy", map_batch=one_field, **way) as batches:
            seen.append(rows(batches))
    assert seen[0] == seen[1]


def one_field(batch: dict[str, Any]) -> None:
    batch["f3"] += 1


def test_a_resumed_run_draws_the_same() -> None:
    with loader(own_hooks.noisy, workers=2) as batches:
        whole, states = [], []
        for batch in batches:
            whole.append(rows([batch]))
            del batch
            states.append(batches.state_dict())
    for step in (1, 4, 9):
        for way in ({"workers": 0}, {"workers": 3}):
            with loader(own_hooks.noisy, **way) as batches:
                batches.load_state_dict(states[step - 1])
                assert [rows([batch]) for batch in batches] == whole[step:]


@pytest.mark.parametrize("does", ["kill", "exit", "stop"])
def test_a_worker_that_dies_of_it_is_one_warning_and_no_lost_batch(
    does: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with loader(own_hooks.Once(str(tmp_path), does), workers=2) as batches:
        found = dict(rows(batches))
        assert batches._reads.deaths == 1
    assert len(found) == 100
    for own in range(100):
        x = np.full((2, 3), own * 1.5 + 1, np.float32)
        assert found[np.int64(own).tobytes()] == x.tobytes(), "the function was called on what it had changed"
    (warning,) = [one for one in caplog.records if "worker process" in one.message]
    assert "while it ran map_batch: a new one takes its place" in warning.message


def test_a_batch_that_kills_three_workers_is_an_error(tmp_path: Path) -> None:
    with loader(own_hooks.Once(str(tmp_path), "kill", 3), workers=2) as batches:
        with pytest.raises(feedline.Error, match="3 worker processes died while they ran it"):
            rows(batches)


def test_an_exception_has_the_trace_of_the_worker(tmp_path: Path) -> None:
    with loader(own_hooks.Once(str(tmp_path), "raise"), workers=2) as batches:
        with pytest.raises(feedline.Error, match=r"map_batch failed: LookupError: of the function .*own_hooks.py") as error:
            rows(batches)
    cause: Any = error.value.__cause__
    assert isinstance(cause, LookupError) and "raise LookupError" in str(cause.__cause__)
    with loader(own_hooks.Shapes(), workers=2) as batches:
        with pytest.raises(feedline.Error, match=r'the hook made "x" \(10, 1, 3\), and the batch has \(10, 2, 3\)'):
            rows(batches)


def test_a_function_that_cannot_be_sent_is_called_by_threads(caplog: pytest.LogCaptureFixture) -> None:
    with loader(lambda batch: None, workers=2) as batches:
        assert batches._reads.processes == 2 and not batches._reads.maps
        assert len(rows(batches)) == 100
    (warning,) = [one.message for one in caplog.records if one.levelno == logging.WARNING]
    assert warning.startswith("map_batch is a lambda, which cannot be sent") and warning.endswith(
        "threads of this process run map_batch"
    )
    with pytest.raises(feedline.ConfigError, match="map_batch is a lambda, which cannot be sent"):
        loader(lambda batch: None, workers=2, parallel="processes")
    caplog.clear()
    with loader(lambda batch: None, ARRAYS, workers=2) as batches:
        assert batches._reads.processes == 0
    assert not caplog.records


def test_a_long_function_that_holds_the_lock_is_called_by_processes() -> None:
    for hook, processes in [(own_hooks.slow, 2), (own_hooks.double, 0), (own_hooks.sleeps, 0)]:
        with loader(hook, ARRAYS, workers=2) as batches:
            assert batches._reads.processes == processes, repr(batches)
            assert len(rows(batches)) == 100


def test_its_generators_are_seeded_and_those_of_this_process_are_left_alone() -> None:
    np.random.seed(1)
    wanted = np.random.RandomState(1).rand(3)
    with loader(own_hooks.noisy, workers=0) as batches:
        rows(batches)
    assert (np.random.rand(3) == wanted).all()


def test_it_runs_elsewhere() -> None:
    with loader(process, workers=2) as batches:
        found = {int(x.flat[0]) for batch in batches for x in [np.asarray(batch["x"])]}
    assert os.getpid() not in found and 1 <= len(found) <= 2


def process(batch: dict[str, Any]) -> dict[str, Any]:
    # A process id is at most 2^22, which float32 has exactly.
    return {**batch, "x": np.full_like(batch["x"], os.getpid())}
