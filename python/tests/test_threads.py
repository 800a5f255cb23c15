"""One loader in several threads: each batch once and whole epochs, or an error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import feedline

SAMPLES = 100


def made(kind: str) -> feedline.Loader:
    if kind == "source":
        return feedline.Loader(feedline.Source(shard), 8, framework="numpy")
    return feedline.Loader({"id": np.arange(SAMPLES)}, 8, shuffle=3, framework="numpy")


def shard() -> Iterator[dict[str, Any]]:
    return ({"id": number} for number in range(SAMPLES))


def at_once(*work: Callable[[], Any]) -> list[Any]:
    """The results, or the exceptions, of functions that threads begin at one moment."""
    together = threading.Barrier(len(work))
    found: list[Any] = [None] * len(work)

    def run(number: int) -> None:
        together.wait()
        try:
            found[number] = work[number]()
        except Exception as error:  # noqa: BLE001
            found[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    return found


def ids(batches: Any) -> list[int]:
    return [number for batch in batches for number in batch["id"].tolist()]


@pytest.mark.parametrize("kind", ["arrays", "source"])
def test_two_threads_that_iterate_get_whole_epochs_or_an_error(kind: str) -> None:
    for way in range(60):
        loader = made(kind)
        second = (lambda: ids(loader.epoch(1))) if way % 2 else (lambda: ids(loader))
        for one in at_once(lambda: ids(loader), second):
            if isinstance(one, Exception):
                assert isinstance(one, RuntimeError) and "another thread is within epoch" in str(one)
            else:
                # A thread that begins after the other one's end has an epoch of its own.
                assert sorted(one) == list(range(SAMPLES))
        loader.close()


@pytest.mark.parametrize("kind", ["arrays", "source"])
@pytest.mark.parametrize("second", [iter, lambda loader: loader.epoch(1), lambda loader: loader.epoch(0)])
def test_the_second_thread_gets_an_error_and_the_first_one_its_epoch(kind: str, second: Any) -> None:
    loader = made(kind)
    batches = iter(loader)
    first = ids([next(batches)])
    state = loader.state_dict()
    for work in (lambda: second(loader), lambda: loader.load_state_dict(state)):
        (error,) = at_once(work)
        assert isinstance(error, RuntimeError) and "make a loader for each thread" in str(error)
    assert sorted(first + ids(batches)) == list(range(SAMPLES))
    # The epoch is over.
    assert sorted(*at_once(lambda: ids(loader))) == list(range(SAMPLES))


def test_an_epoch_that_a_thread_left_may_be_begun_anew() -> None:
    loader = made("arrays")
    batches = iter(loader)
    next(batches)
    del batches
    assert sorted(*at_once(lambda: ids(loader))) == list(range(SAMPLES))
    kept: list[Any] = []

    def begin() -> None:
        kept.append(loader.epoch(5))
        next(kept[0])

    at_once(begin)
    # Its thread has ended.
    assert sorted(ids(loader)) == list(range(SAMPLES))
    with pytest.raises(RuntimeError, match="another epoch of this loader was begun"):
        next(kept[0])


@pytest.mark.parametrize("kind", ["arrays", "source"])
def test_threads_that_share_an_iterator_get_each_batch_once(kind: str) -> None:
    for _ in range(20):
        loader = made(kind)
        batches = iter(loader)
        found = at_once(*[lambda: ids(batches)] * 3)
        assert sorted(number for one in found for number in one) == list(range(SAMPLES))
        loader.close()


@pytest.mark.parametrize("kind", ["arrays", "source"])
def test_a_state_that_another_thread_takes_is_one_of_the_loop(kind: str) -> None:
    loader, states, over = made(kind), [], threading.Event()

    def take() -> None:
        while not over.is_set():
            states.append(loader.state_dict())
            loader.report()

    taker = threading.Thread(target=take)
    taker.start()
    seen = [ids([batch]) for batch in loader]
    over.set()
    taker.join()
    for state in {state["step"]: state for state in states}.values():
        with made(kind) as again:
            again.load_state_dict(state)
            steps = seen[state["step"] :]
            assert [ids([batch]) for batch in again.epoch(0)] == steps


def test_two_iterators_of_one_thread_are_an_error_of_the_first() -> None:
    loader = made("arrays")
    first, second = iter(loader), loader.epoch(1)
    assert len(ids(second)) == SAMPLES
    with pytest.raises(RuntimeError, match="one at a time"):
        next(first)
