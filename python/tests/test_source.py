"""Sources: iterables that are read in sequence, in shards."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conftest import hub_datasets, ids, script

import feedline


class Numbers:
    """A shard of numbers; counts what is read of it."""

    def __init__(self, start: int, count: int) -> None:
        self.start, self.count, self.read = start, count, 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for number in range(self.start, self.start + self.count):
            self.read += 1
            yield {"id": number, "x": np.full(3, number, np.float32), "text": "x" * (number % 4)}


def source(shards: int = 6, each: int = 17) -> feedline.Source:
    made = [Numbers(1000 * shard, each + shard) for shard in range(shards)]
    return feedline.Source(*made, max_length={"text": 8})


def every(shards: int = 6, each: int = 17) -> list[int]:
    return [1000 * shard + number for shard in range(shards) for number in range(each + shard)]


def loader(batch_size: int = 8, **options: Any) -> feedline.Loader:
    return feedline.Loader(source(), batch_size, framework="numpy", **options)


def test_samples_arrive_in_order_with_all_fields() -> None:
    seen = []
    for batch in loader(workers=3):
        assert (batch["x"] == batch["id"][:, None]).all() and batch["x"].dtype == np.float32
        assert [len(text) for text in batch["text"]] == [one % 4 for one in batch["id"]]
        seen += batch["id"].tolist()
        del batch
    assert seen == every()


def test_what_a_source_is_made_of() -> None:
    def three() -> Iterator[int]:
        return iter(range(3))

    class Stream:
        def __iter__(self) -> Iterator[tuple[int, float]]:
            return iter([(number, number / 2) for number in range(10)])

    assert [batch["0"].tolist() for batch in feedline.Loader(feedline.Source(three, three), 4)] == [
        [0, 1, 2, 0],
        [1, 2],
    ]
    # As it is: there is nothing to index, so it is a source.
    pairs = list(feedline.Loader(Stream(), 5, framework="numpy"))
    assert [x.tolist() for x, _ in pairs] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert pairs[0][1].tolist() == [0, 0.5, 1, 1.5, 2]
    one = feedline.Source(Stream())
    assert one.shards == 1 and [field.dtype for field in one.fields] == ["i64", "f64"]
    assert repr(one) == "Source(1 shard: 0, 1)"


def test_its_length_is_not_known() -> None:
    one = loader()
    for thing in (one, one.epoch(0)):
        with pytest.raises(TypeError, match="length"):
            len(thing)
    assert sum(batch.rows for batch in one) == len(every())


@pytest.mark.parametrize("options", [{}, {"shuffle": 3}, {"shuffle": 3, "shuffle_buffer": 4000}])
def test_a_state_at_every_step_continues_exactly(options: dict[str, Any]) -> None:
    whole = [batch["id"].tolist() for batch in loader(**options)]
    assert Counter(itertools.chain(*whole)) == Counter(every())
    second = ids(loader(**options).epoch(1))
    one, hashes = loader(**options), []
    states = [one.state_dict()]
    for batch in one:
        states.append(one.state_dict())
        hashes.append(one.order_hash)
        del batch
    assert [state["step"] for state in states] == list(range(len(whole) + 1))
    for step, state in enumerate(states):
        again = loader(workers=1 + step % 3, **options)
        again.load_state_dict(state)
        rest = [(batch.step, batch["id"].tolist()) for batch in again]
        if step < len(whole):
            assert rest == list(enumerate(whole))[step:]
            assert again.order_hash == hashes[-1]
            assert ids(again) == second
        else:
            # Nothing is left of the epoch: `for batch in loader` is the next one, as for data of a length.
            assert [one for _, row in rest for one in row] == second
    empty = loader(**options)
    empty.load_state_dict(states[-1])
    assert ids(empty.epoch(0)) == [] and ids(empty.epoch(1)) == second


def test_shuffled_epochs_differ_and_have_every_sample() -> None:
    one = loader(shuffle=3, shuffle_buffer=4000)
    epochs = [ids(one) for _ in range(3)]
    assert all(sorted(epoch) == sorted(every()) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] and epochs[0] != every()


@pytest.mark.parametrize("split", [False, True])
def test_ranks_share_the_samples(split: bool) -> None:
    parts = [ids(loader(world=(rank, 3), split_shards=split, shuffle=5)) for rank in range(3)]
    assert sorted(itertools.chain(*parts)) == sorted(every())
    if split:
        assert max(map(len, parts)) - min(map(len, parts)) <= 6
    state = loader(world=(1, 3), split_shards=split, shuffle=5).state_dict()
    again = loader(world=(1, 3), split_shards=split, shuffle=5)
    again.load_state_dict(state)
    assert ids(again) == parts[1]
    one = loader(world=(1, 3), split_shards=split, shuffle=5)
    next(iter(one))
    with pytest.raises(feedline.StateError):
        loader(world=(1, 2), split_shards=split, shuffle=5).load_state_dict(one.state_dict())


def test_more_ranks_than_shards_is_an_error_that_names_the_way_out() -> None:
    with pytest.raises(feedline.ConfigError, match="split_shards"):
        feedline.Loader(source(2), 4, world=(0, 3))


def test_skip_and_set_epoch_of_a_shard_are_used() -> None:
    epochs, skipped = [], []

    class Seeks(Numbers):
        def set_epoch(self, epoch: int) -> None:
            epochs.append(epoch)

        def skip(self, count: int) -> Numbers:
            skipped.append(count)
            return Numbers(self.start + count, self.count - count)

    def made() -> feedline.Loader:
        return feedline.Loader(feedline.Source(shard, max_length={"text": 8}), 10, framework="numpy")

    shard = Seeks(0, 1000)
    one = made()
    batches = iter(one.epoch(3))
    for _ in range(50):
        next(batches)
    state = one.state_dict()
    one.close()
    assert epochs == [3]
    shard = Seeks(0, 1000)
    again = made()
    again.load_state_dict(state)
    assert ids(again) == list(range(500, 1000)) and skipped == [500]


def test_what_cannot_be_resumed_is_one_error() -> None:
    with pytest.raises(feedline.ConfigError, match=r"generator.*read once.*cannot be resumed") as raised:
        feedline.Source({"x": number} for number in range(3))
    assert "\n" not in str(raised.value)
    with pytest.raises(feedline.ConfigError, match="read once"):
        feedline.Loader(iter([1]), 2)
    # A shard that has become shorter.
    one = feedline.Loader(feedline.Source(Numbers(0, 50), max_length={"text": 8}), 10, framework="numpy")
    batches = iter(one)
    for _ in range(4):
        next(batches)
    again = feedline.Loader(feedline.Source(Numbers(0, 30), max_length={"text": 8}), 10, framework="numpy")
    again.load_state_dict(one.state_dict())
    with pytest.raises(feedline.Error, match="30 samples.*after 40.*the same samples") as failed:
        ids(again)
    assert isinstance(failed.value.__cause__, ValueError)


def test_an_exception_of_a_shard_keeps_its_line_after_the_batches_before_it() -> None:
    class Bad:
        def __iter__(self) -> Iterator[Any]:
            yield from ({"id": number} for number in range(25))
            raise OSError("the socket is closed")  # this line

    seen = []
    with pytest.raises(feedline.Error, match=r"the socket is closed \(file .*test_source.py") as raised:
        for batch in feedline.Loader(Bad(), 10, framework="numpy"):
            seen += batch["id"].tolist()
    assert seen == list(range(20)) and isinstance(raised.value.__cause__, OSError)


def test_a_sample_that_differs_from_the_first_is_an_error() -> None:
    with pytest.raises(feedline.Error, match=r"shape \(4,\), and sample 0 has \(3,\)"):
        list(feedline.Loader(feedline.Source(lambda: iter([np.zeros(3), np.zeros(4)])), 1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: feedline.Source(), "needs a shard"),
        (lambda: feedline.Source(3), "int"),
        (lambda: feedline.Source([]), "no samples"),
        (lambda: feedline.Loader(source(1), 4, shuffle=7), "shuffle_buffer"),
        (lambda: feedline.Loader(source(), 4, last_batch="pad"), "pad"),
        (lambda: feedline.Loader({"x": np.zeros(3)}, 1, shuffle_buffer=100), "shuffle_buffer"),
        (lambda: feedline.Loader({"x": np.zeros(3)}, 1, split_shards=True), "split_shards"),
        (lambda: feedline.Loader(source(), 4, skip={0: range(1)}), "skip is for data with a length"),
        (lambda: feedline.Loader(source(), 4, transfer_mode="resident"), "transfer_mode='resident'"),
        (lambda: feedline.Loader(source(), 4, transfer_mode="fast"), "transfer_mode"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, message: str) -> None:
    with pytest.raises(feedline.ConfigError, match=message):
        make()


def test_the_loader_closes_the_iterator_it_left() -> None:
    closed = threading.Event()

    def endless() -> Iterator[dict[str, int]]:
        try:
            for number in itertools.count():
                yield {"id": number}
        finally:
            closed.set()

    one = feedline.Loader(feedline.Source(endless), 4, framework="numpy")
    closed.clear()
    next(iter(one))
    one.close()
    assert closed.wait(10)


def test_iterable_data_sets_of_torch_and_hugging_face() -> None:
    torch = pytest.importorskip("torch", reason="not run: torch is not installed")

    class Counting(torch.utils.data.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            return iter(torch.arange(20).float().view(10, 2))

    rows = [batch["0"] for batch in feedline.Loader(Counting(), 4, framework="torch")]
    assert torch.equal(torch.cat(rows), torch.arange(20).float().view(10, 2))
    datasets = hub_datasets()
    stream = datasets.Dataset.from_dict({"id": list(range(40))}).to_iterable_dataset(num_shards=4)
    shards = [stream.shard(4, number) for number in range(4)]

    def made() -> feedline.Loader:
        return feedline.Loader(feedline.Source(*shards), 6, shuffle=1, framework="numpy")

    whole = ids(made())
    assert sorted(whole) == list(range(40))
    one = made()
    batches = iter(one)
    first = ids([next(batches), next(batches)])
    again = made()
    again.load_state_dict(one.state_dict())
    assert first + ids(again) == whole


EXIT = """
import feedline, itertools
def endless():
    return ({"id": number} for number in itertools.count())
loader = feedline.Loader(feedline.Source(endless), 4, framework="numpy")
batches = iter(loader)
print(next(batches)["id"].tolist())
"""


def test_the_interpreter_exits_with_an_endless_source_open() -> None:
    for _ in range(3):
        done = script(EXIT)
        assert (done.returncode, done.stdout, done.stderr) == (0, "[0, 1, 2, 3]\n", "")


class Queue:
    """A queue that somebody else has written."""

    def put(self, one: Any) -> None:
        raise AssertionError(one)

    def empty(self) -> bool:
        return False

    def get(self) -> Any:
        raise AssertionError("a message is lost")


waiting = Queue()


def of_a_global() -> Iterator[Any]:
    while (one := waiting.get()) is not None:
        yield {"id": one}


def of_an_argument(given: Any, _: int = 0) -> Iterator[Any]:
    return iter(given.get, None)


def of_a_default(given: Any = waiting) -> Iterator[Any]:
    return (one for one in iter(lambda: given.get(), None))


class Messages:
    def __init__(self, given: Any) -> None:
        self.given = given

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self.given.get()

    def all(self) -> Iterator[Any]:
        return iter(self)


def streams() -> list[Any]:
    import functools
    import multiprocessing
    import queue
    import socket

    within, pipe = queue.SimpleQueue(), multiprocessing.Pipe()[0]  # type: ignore[var-annotated]
    return [
        of_a_global,
        functools.partial(of_an_argument, queue.Queue()),
        functools.partial(of_an_argument, given=waiting),
        of_a_default,
        lambda: iter(within.get, None),
        lambda: (pipe.recv() for _ in itertools.count()),
        lambda: iter(multiprocessing.Queue().get, None) if False else iter(waiting.get, None),
        Messages(waiting),
        socket.socketpair()[0].makefile("rb"),
    ]


@pytest.mark.parametrize("number", range(9))
def test_a_stream_that_is_read_once_is_refused_before_a_message_is_lost(number: int) -> None:
    with pytest.raises(feedline.ConfigError, match="once"):
        feedline.Source(streams()[number])


def test_a_shard_that_uses_a_queue_of_its_own_is_read() -> None:
    import queue

    class Prefetched:
        def __iter__(self) -> Iterator[Any]:
            self.queue: Any = queue.Queue()
            for number in range(20):
                self.queue.put(number)
            while not self.queue.empty():
                yield {"id": self.queue.get()}

    def within() -> Iterator[Any]:
        mine: Any = queue.Queue()
        for number in range(20):
            mine.put(number)
        return ({"id": mine.get()} for _ in range(20))

    named = {"get": {"put": 7}}

    def by_name() -> Iterator[Any]:
        return ({"id": number + named.get("put", {"put": 0})["put"]} for number in range(20))

    for shard in (Prefetched(), within, by_name):
        one = feedline.Loader(feedline.Source(shard), 4, framework="numpy")
        assert [ids(one.epoch(epoch)) for epoch in range(2)] == [list(range(20))] * 2


def test_a_shard_whose_second_epoch_is_empty_is_an_error() -> None:
    left = iter(range(30))
    rows = ({"id": number} for number in range(30))
    for shard, told in ((lambda: map(lambda number: {"id": number}, left), "had some before"),  # noqa: C417
                        (lambda: rows, "the same generator each time")):  # fmt: skip
        with pytest.raises(feedline.Error, match=told):
            one = feedline.Loader(feedline.Source(shard), 4, framework="numpy")
            for epoch in range(2):
                ids(one.epoch(epoch))
