"""Arrays over slots: whoever keeps one keeps its slot, on any thread and in any order."""

from __future__ import annotations

import contextlib
import gc
import queue
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import descriptors, ids, numbers, resident, script, threads, wait_until

import feedline


def loader(framework: str, **options: Any) -> feedline.Loader:
    return feedline.Loader(numbers(), 10, framework=framework, **options)


def test_arrays_share_the_memory_of_the_slot_and_keep_it(framework: str) -> None:
    one = loader(framework, prefetch=6)
    kept = []
    for _ in range(3):
        for step, batch in enumerate(one):
            if step == 2:
                kept.append((batch["x"], np.asarray(batch["x"]).copy()))
    one.close()
    del batch, one
    gc.collect()
    for array, copied in kept:
        assert (np.asarray(array) == copied).all()
        assert copied[0, 0] == 20_000


def test_two_arrays_of_one_field_are_the_same_memory(framework: str) -> None:
    batch = next(iter(loader(framework)))
    pointers = {np.asarray(batch["x"]).ctypes.data for _ in range(3)}
    assert len(pointers) == 1


def test_a_loop_that_holds_every_slot_gets_its_error_within_a_second(framework: str) -> None:
    one, kept = loader(framework, prefetch=3), []
    start = time.monotonic()
    with pytest.raises(feedline.SlotsHeldError, match="copy=True"):
        for _ in range(2):
            for batch in one:
                kept.append(batch["x"])
                start = time.monotonic()
    # The limit is 1 s; the rest is for a busy machine.
    assert len(kept) == 3 and 0.9 < time.monotonic() - start < 3
    kept.clear()
    del batch
    gc.collect()
    assert ids(one.epoch(5)) == list(range(100)), "the loader goes on once they are dropped"


def test_copies_do_not_hold_slots(framework: str) -> None:
    one = loader(framework, prefetch=2, copy=True)
    kept = [(batch.step, batch["x"], batch.ids) for batch in one]
    for step, array, of in kept:
        assert float(array[0, 0]) == 10_000 * step and of[0] == 10 * step
    if framework == "numpy":
        kept[0][1][:] = 7  # memory of one's own


def test_arrays_that_another_thread_frees(framework: str) -> None:
    one, handed = loader(framework, prefetch=3), queue.SimpleQueue()
    seen = []

    def consume() -> None:
        while (array := handed.get()) is not None:
            seen.extend(np.asarray(array)[:, 0].tolist())
            del array

    thread = threading.Thread(target=consume)
    thread.start()
    for _ in range(20):
        for batch in one:
            handed.put(batch["x"])
            del batch
    handed.put(None)
    thread.join()
    assert seen == [1000 * row for row in range(100)] * 20


def test_arrays_in_cycles(framework: str) -> None:
    one = loader(framework, prefetch=3)

    class Node:
        array: Any
        this: Any

    for _ in range(3):
        for batch in one:
            node = Node()
            node.array, node.this = batch["x"], node
            del batch
            alive = weakref.ref(node)
            del node
            gc.collect()
            assert alive() is None
    one.close()


def test_a_loader_in_a_cycle_ends_its_threads() -> None:
    before = threads()

    def names() -> set[str]:
        with contextlib.suppress(FileNotFoundError):  # a thread that ends meanwhile
            return {Path(task, "comm").read_text()[:11] for task in Path("/proc/self/task").iterdir()}
        return {"fl-transfer"}

    class Trainer:
        loader: Any
        this: Any

    trainer = Trainer()
    trainer.loader, trainer.this = loader("numpy"), trainer
    kept = next(iter(trainer.loader))["x"]
    assert "fl-transfer" in names()
    del trainer
    gc.collect()
    wait_until(lambda: not any(name.startswith(("fl-decode", "fl-transfer")) for name in names()))
    assert kept[0, 0] == 0
    del kept
    wait_until(lambda: threads() <= before)


def test_a_loader_that_its_own_worker_collects_does_not_wait_for_itself() -> None:
    before, dropped = threads(), threading.Event()

    class Collects:
        def __len__(self) -> int:
            return 1000

        def __getitem__(self, index: int) -> dict[str, Any]:
            if index == 3:
                dropped.wait(30)
                gc.collect()
            return {"id": index}

    gc.disable()
    try:
        one = feedline.Loader(Collects(), 1, framework="numpy", workers=1, parallel="threads", drop_timeout=60)
        cycle = [iter(one)]
        cycle.append(cycle)
        next(cycle[0])
        del one, cycle
        dropped.set()  # only the worker looks for cycles
        wait_until(lambda: threads() <= before)
    finally:
        gc.enable()


def test_a_loader_that_is_dropped_while_arrays_live(framework: str) -> None:
    kept = []
    for _ in range(10):
        batches = iter(loader(framework))
        kept.append(next(batches)["x"])
        del batches
    gc.collect()
    assert all(float(array[1, 2]) == 1002 for array in kept)


def test_a_consumer_that_refuses_a_tensor_leaks_nothing() -> None:
    one = loader("numpy", prefetch=2)
    for _ in range(10):
        for batch in one:
            field = batch._inner.field("x")
            for max_version in (None, (1, 0)):
                field.__dlpack__(max_version=max_version)  # a capsule that nobody takes
            with pytest.raises(BufferError):
                field.__dlpack__(copy=True)
            with pytest.raises(BufferError):
                field.__dlpack__(dl_device=(2, 0))
            with pytest.raises(feedline.ConfigError):
                field.__dlpack__(stream=7)


def test_gradients_are_right_although_the_batch_is_gone() -> None:
    torch = pytest.importorskip("torch", reason="not run: torch is not installed")
    one = loader("torch", prefetch=4)
    weights = torch.ones(5, requires_grad=True)
    batches = iter(one)
    held = next(batches)["x"]
    expected = held.clone().sum(0)
    loss = (held @ weights).sum()
    del held
    # Other batches pass through the slots that are free: the graph keeps its own.
    for batch in batches:
        del batch
    for batch in one.epoch(1):
        del batch
    loss.backward()
    assert torch.equal(weights.grad, expected)


def test_numpy_cannot_write_into_a_slot() -> None:
    array = next(iter(loader("numpy")))["x"]
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_100_epochs_leak_nothing(framework: str) -> None:
    one = loader(framework, prefetch=3)

    def epochs(count: int) -> None:
        for _ in range(count):
            for batch in one:
                np.asarray(batch["x"])
        gc.collect()

    epochs(30)
    before = (resident(), descriptors(), threads())
    epochs(100)
    after = (resident(), descriptors(), threads())
    assert after[0] - before[0] < 4 << 20, "resident memory"
    assert after[1:] == before[1:], "descriptors, threads"


def test_100_loaders_leak_nothing() -> None:
    def loaders(count: int) -> None:
        for _ in range(count):
            with loader("numpy") as one:
                next(iter(one))
        gc.collect()

    loaders(20)
    before = (resident(), descriptors(), threads())
    loaders(100)
    assert resident() - before[0] < 8 << 20, "resident memory"
    wait_until(lambda: (descriptors(), threads()) == before[1:])


@pytest.mark.parametrize("end", ["", "sys.exit(0)", "import os; os.kill(os.getpid(), 2); time.sleep(30)", "raise ValueError"])
@pytest.mark.parametrize("data", ["arrays", "Own()"])
def test_the_interpreter_exits_with_a_loader_open(data: str, end: str) -> None:
    code = f"""
import sys, threading, time
import feedline, numpy as np

class Own:
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        time.sleep(0.01)
        return {{"x": np.full(3, index)}}

arrays = {{"x": np.arange(3000).reshape(1000, 3)}}
loader = feedline.Loader({data}, 8, framework="numpy", drop_timeout=1)
batches = iter(loader)
kept = next(batches)["x"]
cycle = [kept, loader]
cycle.append(cycle)

def forever():
    try:
        for batch in feedline.Loader({data}, 8):
            pass
    except feedline.Error:
        pass  # closed, or a sample that is not read any more

threading.Thread(target=forever, daemon=True).start()
print(next(batches)["x"][0, 0], flush=True)
{end}
"""
    start = time.monotonic()
    done = script(code)
    assert done.stdout.split()[0] in ("8", "24")
    last = done.stderr.strip().splitlines()[-1:]
    wanted = {"": [], "sys.exit(0)": [], "raise ValueError": ["ValueError"]}
    assert last == wanted.get(end, ["KeyboardInterrupt"]), done.stderr
    assert done.returncode in (0, 1, -2) and time.monotonic() - start < 30


def test_the_interpreter_waits_for_a_sample_that_is_read_when_it_exits() -> None:
    """CPython before 3.14 would kill the worker, and the process with it."""
    code = """
import threading, time
import feedline, numpy as np

reads = threading.Event()

class Own:
    def __len__(self):
        return 100
    def __getitem__(self, index):
        if index > 0:
            reads.set()
            for _ in range(300):
                time.sleep(0.003)
        return {"x": index}

loader = feedline.Loader(Own(), 1, framework="numpy", drop_timeout=0.1)
print(next(iter(loader))["x"])
reads.wait()
"""
    done = script(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[0]\n", "")
