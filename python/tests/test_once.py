"""Sources that are read once: queues, brokers, generators."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import ids, script
from test_exit import run

import feedline


@pytest.fixture(autouse=True)
def deadline() -> Iterator[None]:
    """Ends a wait for a message that does not come."""

    def end(*_: Any) -> None:
        raise TimeoutError("a test waits")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def filled(count: int, first: int = 0) -> Any:
    """A queue of messages, which ends with ``None``."""
    messages: Any = queue.Queue()
    for number in [*range(first, first + count), None]:
        messages.put(number if number is None else {"id": number})
    return messages


def read_by(take: Callable[[], Any]) -> Callable[[], Iterator[Any]]:
    """A function that takes from a queue in a way that nobody recognises."""
    return lambda: iter(take, None)


def recognised(messages: Any) -> Callable[[], Iterator[Any]]:
    return lambda: iter(messages.get, None)


def loader(*shards: Any, batch_size: int = 4, **options: Any) -> feedline.Loader:
    return feedline.Loader(feedline.Source(*shards, once=True), batch_size, framework="numpy", **options)


class Topic:
    """A partition of a broker: what was taken is gone, unless one seeks."""

    def __init__(self, count: int) -> None:
        self.count, self.at, self.sought = count, 0, -1

    def __iter__(self) -> Iterator[Any]:
        while self.at < self.count:
            self.at += 1
            yield {"id": self.at - 1}

    def skip(self, count: int) -> Topic:
        self.at = self.sought = count
        return self


class Counted(Iterator[Any]):
    def __init__(self, count: int) -> None:
        self.left = iter(range(count))

    def __next__(self) -> Any:
        return {"id": next(self.left)}


@pytest.mark.parametrize(
    "shard",
    [
        lambda: read_by(filled(10).get),
        lambda: recognised(filled(10)),
        lambda: iter(filled(10).get, None),
        lambda: ({"id": number} for number in range(10)),
        lambda: Counted(10),
        lambda: Topic(10),
        lambda: [{"id": number} for number in range(10)],
    ],
    ids=["unrecognised", "a queue", "of iter()", "a generator", "an iterator", "a topic", "a list"],
)
@pytest.mark.parametrize("workers", [None, 3])
def test_every_message_is_delivered_and_the_loop_ends(shard: Any, workers: int | None) -> None:
    one = loader(shard(), workers=workers)
    assert [batch["id"].tolist() for batch in one] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    one.close()


def test_nothing_is_read_beyond_the_pass_and_a_second_one_is_refused() -> None:
    messages, begun = filled(10), []

    def shard() -> Iterator[Any]:
        begun.append(len(begun))
        return iter(messages.get, None)

    one = loader(shard)
    assert ids(one) == list(range(10)) and begun == [0]
    for number in (10, 11, None):
        messages.put(number)
    for second in (lambda: iter(one), lambda: one.epoch(0), lambda: one.epoch(7), lambda: one.set_epoch(1) or iter(one)):
        with pytest.raises(feedline.ConfigError, match="once=True.*one pass") as raised:
            second()
        assert "\n" not in str(raised.value)
    with pytest.raises(feedline.ConfigError, match="once=True.*one pass"):
        iter(feedline.Loader(one.data, 4, framework="numpy"))
    assert begun == [0] and messages.qsize() == 3


def test_a_pass_that_was_left_goes_on_with_its_iterator_only() -> None:
    one = loader({"id": number} for number in range(100))
    batches = iter(one)
    for batch in batches:
        assert batch["id"].tolist() == [0, 1, 2, 3]
        break
    for second in (lambda: iter(one), lambda: one.epoch(1), lambda: one.load_state_dict(one.state_dict())):
        with pytest.raises(feedline.ConfigError, match="once"):
            second()
    assert ids(batches) == list(range(4, 100))


def test_a_state_tells_what_was_delivered_and_what_was_taken() -> None:
    shards = [({"id": number} for number in range(first, first + 50)) for first in (0, 100, 200)]
    one = loader(*shards, batch_size=8, prefetch=2)
    assert one.state_dict()["delivered"] == [0, 0, 0]
    batches = iter(one)
    for step in range(1, 18):
        next(batches)
        state = one.state_dict()
        assert state["delivered"] == [max(0, min(50, 8 * step - before)) for before in (0, 50, 100)]
        ahead = [taken - told for taken, told in zip(state["taken"], state["delivered"], strict=True)]
        # As the documentation says: two slots on the device, three before it, and the sample that is read next.
        assert min(ahead) >= 0 and sum(ahead) <= (2 * 2 + 1) * 8 + feedline._shards.AHEAD + 1
    assert ids(batches) == list(range(236, 250))
    assert one.state_dict()["delivered"] == one.state_dict()["taken"] == [50, 50, 50]


def test_a_run_is_resumed_in_a_shard_that_can_seek_and_in_no_other() -> None:
    one = loader(Topic(100), Topic(7))
    batches = iter(one)
    for _ in range(5):
        next(batches)
    state = one.state_dict()
    assert state["delivered"] == [20, 0]
    for shards in ([({"id": number} for number in range(100)), Topic(7)], [Topic(100), read_by(filled(7).get)]):
        other = loader(*shards)
        with pytest.raises(feedline.ConfigError, match=r"shard [01] .*once=True.*skip\(n\)"):
            other.load_state_dict(state)
        # The pass has not begun.
        assert len(ids(other)) == 107
    topic = Topic(100)
    again = loader(topic, Topic(7))
    again.load_state_dict(state)
    assert again.state_dict()["delivered"] == [20, 0]
    assert ids(again) == [*range(20, 100), *range(7)] and topic.sought == 20
    assert again.state_dict()["delivered"] == again.state_dict()["taken"] == [100, 7]


def test_a_state_of_other_data_leaves_the_pass_as_it_was() -> None:
    other = loader(lambda: iter([{"number": 1}, {"number": 2}]), batch_size=1)
    next(iter(other))
    one = loader(Topic(10))
    with pytest.raises(feedline.StateError):
        one.load_state_dict(other.state_dict())
    assert one.state_dict()["delivered"] == [0] and ids(one) == list(range(10))


def test_a_state_of_the_beginning_and_one_of_the_end_are_loaded() -> None:
    one = loader(iter(filled(10).get, None))
    one.load_state_dict(one.state_dict())
    assert ids(one) == list(range(10))
    one = loader(Topic(10))
    assert ids(one) == list(range(10))
    again = loader(Topic(10))
    again.load_state_dict(one.state_dict())
    assert ids(again) == []
    with pytest.raises(feedline.ConfigError, match="one pass"):
        iter(again)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_each_rank_opens_its_own_shards_and_no_message_is_lost(world: int) -> None:
    queues = [filled(each, 100 * number) for number, each in enumerate((9, 0, 3, 12, 5))]
    seen: list[int] = []
    for rank in range(world):
        opened: list[int] = []

        def shard(number: int, opened: list[int] = opened) -> Any:
            def of_a_queue() -> Iterator[Any]:
                opened.append(number)
                return iter(queues[number].get, None)

            return of_a_queue

        seen += ids(loader(*map(shard, range(5)), world=(rank, world)))
        assert opened == list(range(rank, 5, world))
    assert sorted(seen) == [*range(9), *range(200, 203), *range(300, 312), *range(400, 405)]


def test_a_rank_without_a_message_is_an_error_that_says_so() -> None:
    with pytest.raises(feedline.ConfigError, match="rank 1 of 2.*no samples"):
        loader(read_by(filled(3).get), read_by(filled(0).get), world=(1, 2))


def test_a_shuffle_buffer_shuffles_all_of_them() -> None:
    one = loader(({"id": number} for number in range(200)), shuffle_buffer=4096, shuffle=7)
    seen = ids(one)
    assert sorted(seen) == list(range(200)) and seen != sorted(seen)
    # The order belongs to the source: a run that seeks goes on with it.
    topics = [loader(Topic(200), shuffle_buffer=4096, seed=7) for _ in range(3)]
    whole, batches = ids(topics[0]), iter(topics[1])
    first = ids(next(batches) for _ in range(30))
    assert sum(topics[1].state_dict()["delivered"]) == 120
    topics[2].load_state_dict(topics[1].state_dict())
    assert first + ids(topics[2]) == whole == seen


def test_samples_that_were_read_for_the_type_of_a_field_are_delivered() -> None:
    def shard() -> Iterator[Any]:
        sample: dict[str, Any] = {}
        for number in range(9):
            sample |= {"id": number, "tags": [number] * (number > 2)}
            yield sample

    one = feedline.Source(shard, max_length={"tags": 1}, once=True)
    assert ids(feedline.Loader(one, 4, framework="numpy")) == list(range(9))


def test_one_array_that_is_filled_for_every_sample_is_copied_in_time() -> None:
    def shard() -> Iterator[Any]:
        row = np.zeros(3, np.int64)
        for number in range(50):
            row[:] = number
            yield {"id": row}

    rows = [row.tolist() for batch in loader(shard) for row in batch["id"]]
    assert rows == [[number] * 3 for number in range(50)]


def test_windows_are_packed_of_documents_that_come_once() -> None:
    documents = ([number] * (number % 7) for number in range(1, 100))
    source = feedline.Source(({"ids": ids} for ids in documents), max_length={"ids": 100}, once=True)
    windows = source.packed("ids", 8, within=10)
    one = feedline.Loader(windows, 1, framework="numpy")
    values = [int(value) for batch in one for value in batch["ids"].ravel() if value]
    assert sorted(values) == [number for number in range(1, 100) for _ in range(number % 7)]
    with pytest.raises(feedline.ConfigError, match="one pass"):
        iter(one)


def test_an_exception_keeps_its_line_and_the_batches_before_it() -> None:
    def shard() -> Iterator[Any]:
        yield from ({"id": number} for number in range(9))
        raise OSError("the broker is gone")

    seen = []
    with pytest.raises(feedline.Error, match=r"the broker is gone \(file .*test_once.py") as raised:
        for batch in loader(shard):
            seen += batch["id"].tolist()
    assert seen == list(range(8)) and isinstance(raised.value.__cause__, OSError)


def test_a_generator_is_closed_where_the_loop_leaves_it() -> None:
    closed = threading.Event()

    def shard() -> Iterator[Any]:
        try:
            number = 0
            while True:
                yield {"id": number}
                number += 1
        finally:
            closed.set()

    one = loader(shard)
    next(iter(one))
    one.close()
    assert closed.wait(20)


def test_a_message_that_comes_late_is_no_error() -> None:
    messages: Any = queue.Queue()
    messages.put({"id": 0})
    # It comes after the time for slots that are held is over.
    later = threading.Timer(0.3, lambda: [messages.put(one) for one in ({"id": 1}, None)])
    later.start()
    assert ids(loader(read_by(messages.get), batch_size=1, held_timeout=0.05, prefetch=2)) == [0, 1]


def double(batch: dict[str, Any]) -> None:
    batch["id"] *= 2


def test_processes_leave_the_queue_to_this_one() -> None:
    one = loader(read_by(filled(50).get), workers=2, parallel="processes", map_batch=double)
    assert ids(one) == list(range(0, 100, 2)) and "2 processes" in repr(one)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"shuffle": 7}, "shuffle orders the shards"),
        ({"sampler": feedline.Sampler.shuffled()}, "sampler orders the shards"),
        ({"split_shards": True}, "split_shards"),
        ({"epochs": 2}, "epochs is 2"),
    ],
)
def test_options_of_several_passes_are_refused(options: dict[str, Any], told: str) -> None:
    messages = filled(5)
    with pytest.raises(feedline.ConfigError, match=f"{told}.*once=True"):
        loader(read_by(messages.get), read_by(messages.get), **options)
    assert messages.qsize() == 6


def test_what_can_be_read_once_is_told_how() -> None:
    for shard in (iter([1]), (number for number in range(3)), recognised(filled(3))):
        with pytest.raises(feedline.ConfigError, match="once=True") as raised:
            feedline.Source(shard)
        assert "\n" not in str(raised.value)
    with pytest.raises(feedline.ConfigError, match="once is 1"):
        feedline.Source([1], once=1)


def test_a_source_says_what_it_is_without_taking_a_message() -> None:
    messages = filled(3)
    source = feedline.Source(read_by(messages.get), once=True)
    assert repr(source) == "Source(1 shard, read once)" and messages.qsize() == 4
    assert [field.name for field in source.fields] == ["id"]
    assert ids(feedline.Loader(source, 2, framework="numpy")) == [0, 1, 2]


WAITS = """
import queue, sys, threading, time
import feedline

messages, waits = queue.Queue(), threading.Event()

def take():
    if messages.empty():
        waits.set()
    return messages.get()

for number in range(6):
    messages.put({"id": number})
source = feedline.Source(lambda: iter(take, None), once=True)
# Longer than the test lasts, if the end waited for a message.
loader = feedline.Loader(source, 4, framework="numpy", drop_timeout=600)
batches = iter(loader)
assert next(batches)["id"].tolist() == [0, 1, 2, 3]
waits.wait()
print("waits", flush=True)
"""


@pytest.mark.parametrize(
    "end",
    [
        "",
        "loader.close()",
        "del batches, loader",
        "del batches, loader; messages.put(None)",
        """loader.close()
for number in range(100):
    messages.put({"id": number})
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join()
assert messages.qsize() == 99""",
        "sys.exit(0)",
    ],
    ids=["exit", "close", "del", "del, then a message", "close, then messages", "sys.exit"],
)
def test_a_wait_for_a_message_does_not_hold_up_the_end(end: str) -> None:
    done = script(WAITS + end)
    assert (done.returncode, done.stdout, done.stderr) == (0, "waits\n", "")


@pytest.mark.parametrize("of", ["next(batches)", "feedline.Source(lambda: iter(take, None), once=True).fields"])
def test_ctrl_c_ends_the_wait_for_a_message(of: str) -> None:
    started = run(WAITS + of)
    assert started.stdout is not None
    assert started.stdout.readline() == "waits\n", started.communicate()
    started.send_signal(signal.SIGINT)
    _, errors = started.communicate(timeout=60)
    assert started.returncode == -signal.SIGINT and errors.rstrip().endswith("KeyboardInterrupt"), errors
    assert "panicked" not in errors and "Fatal" not in errors, errors
