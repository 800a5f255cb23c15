"""The end of the interpreter and of a loader: within the sample that is being read, whatever is pressed."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import PACKAGE, numbers, resident, threads, wait_until

import feedline
from feedline._workers.choice import has_lock

#: The user's code of each kind that a worker runs: a sample, samples in one call, a hook, a source, its skip,
#: a map.
LOADERS = {
    "samples": "Own(), 4096",
    "samples with substitutes": "Own(), 4096, bad_samples=50",
    "samples of a map": "feedline.Data(numbers).map(slow), 4096",
    "a hook": "numbers, 4, map_batch=hook",
    "a source": "feedline.Source(shard), 4096",
    "a thread": "Own(), 4096",
}
HEAD = """
import sys, threading, time
import feedline, numpy as np

numbers = {"x": np.arange(100_000)}

def pause():
    if threading.current_thread() is not threading.main_thread():
        time.sleep(0.1)

class Own:
    def __len__(self):
        return 100_000
    def __getitem__(self, index):
        pause()
        return index

def slow(sample):
    pause()
    return sample

def hook(batch):
    pause()

def shard():
    for index in range(100_000):
        pause()
        yield index

def loop():
    for batch in loader:
        pass
"""


def run(code: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    return subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def program(name: str) -> subprocess.Popen[str]:
    """A loop over batches that take minutes, in an interpreter of its own."""
    loop = "loop()"
    if name == "a thread":
        loop = "threading.Thread(target=loop, daemon=True).start(); time.sleep(100)"
    started = run(
        f"{HEAD}\nloader = feedline.Loader({LOADERS[name]}, framework='numpy')\n"
        f"print('go', flush=True)\n{loop}\n"
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "go\n", started.communicate()
    return started


@pytest.mark.parametrize("presses", [1, 2, 20])
@pytest.mark.parametrize("name", LOADERS)
def test_ctrl_c_ends_the_interpreter_within_a_sample(name: str, presses: int) -> None:
    moments = random.Random(f"{name} {presses}")
    started = program(name)
    time.sleep(moments.uniform(0, 0.5))
    start = time.monotonic()
    for _ in range(presses):
        with contextlib.suppress(ProcessLookupError):
            started.send_signal(signal.SIGINT)
        time.sleep(moments.choice([0, 0.001, 0.02, 0.1]))
    # A sample takes 0.1 s; the rest is for a busy machine.
    _, errors = started.communicate(timeout=60)
    assert time.monotonic() - start < 20
    assert started.returncode == -signal.SIGINT, errors
    assert "Fatal" not in errors and "panicked" not in errors, errors
    # Pressed again while Python prints the first, the last line is another.
    assert "KeyboardInterrupt" in (errors if presses > 1 else errors.rstrip().splitlines()[-1]), errors


def test_ctrl_c_ends_the_wait_for_a_sample_that_never_ends() -> None:
    code = """
import threading
import feedline

reads = threading.Event()

class Hangs:
    def __len__(self):
        return 100
    def __getitem__(self, index):
        if index > 0:
            reads.set()
            threading.Event().wait()
        return index

loader = feedline.Loader(Hangs(), 1, framework="numpy")
next(iter(loader))
reads.wait()
print("go")
"""
    started = run(code)
    assert started.stderr is not None
    assert started.stderr.readline().startswith("feedline: waiting for the sample that is being read")
    start = time.monotonic()
    started.send_signal(signal.SIGINT)
    out, errors = started.communicate(timeout=60)
    assert 1 < time.monotonic() - start < 20
    assert (started.returncode, out, errors) == (-signal.SIGINT, "go\n", "")


def test_close_waits_for_the_sample_that_is_read_and_no_other() -> None:
    reads: list[int] = []

    class Slow:
        def __len__(self) -> int:
            return 10_000

        def __getitem__(self, index: int) -> int:
            if threading.current_thread() is not threading.main_thread():
                reads.append(index)
                time.sleep(0.05)
            return index

    loader = feedline.Loader(Slow(), 1000, framework="numpy", drop_timeout=30)
    batches = iter(loader)
    wait_until(lambda: len(reads) > 0)
    start, before = time.monotonic(), len(reads)
    loader.close()
    assert time.monotonic() - start < 10 and len(reads) - before <= 4
    with pytest.raises(feedline.StoppedError):
        next(batches)


@pytest.mark.parametrize("copy", [False, True])
def test_a_loader_that_is_dropped_ends_without_the_garbage_collector(copy: bool) -> None:
    gc.collect()
    gc.disable()
    try:
        before = threads()
        for _ in range(20):
            loader = feedline.Loader(numbers(), 10, framework="numpy", copy=copy)
            for batch in loader:
                break
            batch = None
            loader.load_state_dict(loader.state_dict())
            for batch in loader.epoch(0):
                break
            batch = None  # noqa: F841
        loader = None
        wait_until(lambda: threads() <= before)
    finally:
        gc.enable()


@pytest.mark.parametrize("call", ["next", "epoch", "load_state_dict", "close"])
def test_a_loader_that_its_own_worker_drives_is_refused(call: str) -> None:
    begun = threading.Event()
    given: list[Any] = []

    class Drives:
        def __len__(self) -> int:
            return 40

        def __getitem__(self, index: int) -> int:
            if index == 10 and begun.wait(30):
                loader, batches = given
                calls = {
                    "next": lambda: next(batches),
                    "epoch": lambda: loader.epoch(3),
                    "load_state_dict": lambda: loader.load_state_dict(loader.state_dict()),
                    "close": loader.close,
                }
                calls[call]()
            return index

    loader = feedline.Loader(Drives(), 4, framework="numpy", workers=1, parallel="threads")
    batches = iter(loader)
    given += [loader, batches]
    begun.set()
    wanted = feedline.StoppedError if call == "close" else feedline.SampleError
    with pytest.raises(wanted) as raised:
        for batch in batches:
            del batch
    if call != "close":
        assert f"{call} was called on fl-decode-0, a worker of this loader" in str(raised.value)
        assert isinstance(raised.value.__cause__, feedline.ConfigError) and raised.value.sample == 10
    given.clear()


def test_errors_that_are_caught_keep_no_memory() -> None:
    class Bad:
        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> Any:
            if index == 50:
                raise ValueError("x" * 1_000_000)
            return np.zeros(10)

    def epoch() -> None:
        loader = feedline.Loader(Bad(), 10, framework="numpy")
        with pytest.raises(feedline.SampleError):
            for batch in loader:
                del batch

    # The allocator's arenas grow for a while on a busy machine. What is kept, 1 MB an epoch, grows in each
    # round.
    grown = []
    for _ in range(5):
        gc.collect()
        before = resident()
        for _ in range(30):
            epoch()
        gc.collect()
        grown.append(resident() - before)
        if grown[-1] < 8 << 20:
            return
    pytest.fail(f"bytes grown by rounds of 30 epochs: {grown}")


def test_ctrl_c_behind_the_end_of_the_loaders_is_not_a_second_trace() -> None:
    code = """
import atexit, os, signal, time

def late():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(30)

# Called after those that are registered later.
atexit.register(late)
import feedline, numpy as np

loader = feedline.Loader({"x": np.arange(100)}, 4, framework="numpy")
for batch in loader:
    os.kill(os.getpid(), signal.SIGINT)
"""
    started = run(code)
    _, errors = started.communicate(timeout=60)
    assert started.returncode == -signal.SIGINT, errors
    assert errors.count("Traceback") == 1 and errors.rstrip().endswith("KeyboardInterrupt"), errors


@pytest.mark.skipif(not has_lock(), reason="not run: a free-threaded build reads by threads")
@pytest.mark.parametrize("end, code", [("pass", 0), ("break", 0), ("sys.exit(3)", 3), ("raise ValueError", 1)])
def test_an_open_loader_of_processes_does_not_delay_the_end(end: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        f"""
import sys
import feedline

class Own:
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return index

if __name__ == "__main__":
    # Threads that do not end would be waited for.
    loader = feedline.Loader(Own(), 8, workers=2, framework="numpy", drop_timeout=600)
    for batch in loader:
        {end}
"""
    )
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    done = subprocess.run([sys.executable, tmp_path / "train.py"], env=environment, capture_output=True, timeout=60)
    assert done.returncode == code, done.stderr
