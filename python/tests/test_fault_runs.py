"""Runs with faults at random places: no sample is lost or doubled, nothing hangs, and nothing is left.

`FEEDLINE_FAULT_RUNS`, `FEEDLINE_FAULT_RESUMES`, `FEEDLINE_FAULT_LOADERS` and `FEEDLINE_FAULT_SECONDS` make it
longer: 300, 200, 100, and 10 for the sample that takes long.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fault_set
import numpy as np
import pytest
from conftest import PACKAGE, resident
from test_processes import workers
from test_worker_faults import children_of, is_alive

import feedline
from feedline._workers.choice import has_lock

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="not run: worker processes need Linux"),
    pytest.mark.skipif(not has_lock(), reason="not run: a free-threaded build reads by threads"),
]

TESTS = Path(__file__).parent
RUNS = int(os.environ.get("FEEDLINE_FAULT_RUNS", "16"))
RESUMES = int(os.environ.get("FEEDLINE_FAULT_RESUMES", "10"))
LOADERS = int(os.environ.get("FEEDLINE_FAULT_LOADERS", "6"))
SECONDS = float(os.environ.get("FEEDLINE_FAULT_SECONDS", "0.5"))
#: Seconds after which a run counts as hung.
LIMIT = 120.0
FAULTS = ["kill", "stop", "parent", "raise", "shape", "exit", "slow", "memory"]
SAMPLES = 300

Row = tuple[int, bytes, float]


def rows(batch: Any) -> list[Row]:
    ids, x, noise = (np.asarray(batch[name]) for name in ("id", "x", "noise"))
    return [(int(ids[row]), x[row].tobytes(), float(noise[row])) for row in range(len(ids))]


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Row]]:
    """The rows of two epochs, read by one thread."""
    data = fault_set.Fault(SAMPLES, str(tmp_path_factory.mktemp("wanted")), "none", -1)
    with feedline.Loader(data, 8, shuffle=5, framework="numpy", workers=0, copy=True) as loader:
        return {epoch: [row for batch in loader.epoch(epoch) for row in rows(batch)] for epoch in range(2)}


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Ends the process, with the traces of its threads, if something hangs."""
    import faulthandler

    faulthandler.dump_traceback_later(LIMIT, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def settled(level: int) -> None:
    """Waits until this process has no more than ``level`` descriptors, and no worker."""
    until = time.monotonic() + 10
    while time.monotonic() < until and (descriptors() > level or workers()):
        gc.collect()
        time.sleep(0.01)
    assert workers() == [] and descriptors() <= level


@pytest.mark.parametrize("number", range(RUNS))
def test_a_run_with_a_fault(number: int, tmp_path: Path, wanted: dict[int, list[Row]]) -> None:
    chance = np.random.default_rng(number)
    # Sample 0 says what the fields are, so this process reads it too.
    fault, at = FAULTS[number % len(FAULTS)], int(chance.integers(1, SAMPLES))
    size, count, level = int(chance.integers(1, 20)), int(chance.integers(1, 4)), descriptors()
    with limited():
        if fault == "parent":
            seen = of_a_killed_parent(tmp_path, chance, size, count)
        else:
            seen = with_a_fault(tmp_path, fault, at, chance, size, count)
    assert seen == wanted[0], (fault, at, size, count)
    settled(level)


def loader_of(data: Any, size: int, count: int) -> feedline.Loader:
    return feedline.Loader(data, size, shuffle=5, framework="numpy", workers=count, copy=True, parallel="processes")


def with_a_fault(folder: Path, fault: str, at: int, chance: Any, size: int, count: int) -> list[Row]:
    data = fault_set.Fault(SAMPLES, str(folder), fault, at, SECONDS)
    moment = int(chance.integers(1, SAMPLES // size + 1))
    seen: list[Row] = []
    with loader_of(data, size, count) as loader:
        batches = loader.epoch(0)
        try:
            for step, batch in enumerate(batches):
                seen += rows(batch)
                if step == moment and fault in ("kill", "stop"):
                    kind = signal.SIGKILL if fault == "kill" else signal.SIGSTOP
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(chance.choice(workers())), kind)
        except feedline.SampleError as error:
            assert fault in ("raise", "shape", "memory") and error.sample == at
            state = loader.state_dict()
            assert state["samples"] == len(seen)
        else:
            assert fault not in ("raise", "shape", "memory")
            return seen
    # The run is started again.
    with loader_of(data, int(chance.integers(1, 20)), count) as loader:
        loader.load_state_dict(state)
        for batch in loader:
            seen += rows(batch)
    return seen


@pytest.mark.parametrize("number", range(RUNS))
def test_kills_at_random_moments_are_right_batches_or_an_error(
    number: int, tmp_path: Path, wanted: dict[int, list[Row]]
) -> None:
    chance, level, over = np.random.default_rng(3000 + number), descriptors(), threading.Event()
    signals = [signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGSTOP]

    def kill() -> None:
        for _ in range(int(chance.integers(1, 8))):
            over.wait(float(chance.exponential(0.1)))
            processes = children_of(os.getpid())
            if processes and not over.is_set():
                # The first one is the fork server.
                chosen = processes[0] if chance.random() < 0.3 else int(chance.choice(processes))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chosen, signals[int(chance.integers(len(signals)))])

    killer, seen = threading.Thread(target=kill), []
    data = fault_set.Fault(SAMPLES, str(tmp_path), "none", -1)
    with limited():
        killer.start()
        try:
            with loader_of(data, int(chance.integers(1, 20)), int(chance.integers(1, 4))) as loader:
                for batch in loader.epoch(0):
                    seen += rows(batch)
            assert len(seen) == SAMPLES
        except feedline.Error as error:
            assert "worker process" in str(error), error
        finally:
            over.set()
            killer.join()
    assert seen == wanted[0][: len(seen)]
    settled(level)


PARENT = """
import json, sys, fault_set, test_fault_runs
if __name__ == "__main__":
    folder, size, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    loader = test_fault_runs.loader_of(fault_set.Fault(300, folder, "none", -1), size, count)
    for batch in loader.epoch(0):
        ids, x, noise = zip(*test_fault_runs.rows(batch))
        print(json.dumps([ids, [one.hex() for one in x], noise, loader.state_dict()]), flush=True)
        sys.stdin.readline()
"""


def started(folder: Path, code: str, *arguments: object) -> subprocess.Popen[str]:
    path = folder / "parent.py"
    path.write_text(code)
    environment = {**os.environ, "PYTHONPATH": f"{PACKAGE}{os.pathsep}{TESTS}"}
    command = [sys.executable, str(path), *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)


def of_a_killed_parent(folder: Path, chance: Any, size: int, count: int) -> list[Row]:
    parent = started(folder, PARENT, folder, size, count)
    assert parent.stdin is not None and parent.stdout is not None
    seen: list[Row] = []
    state: Any = None
    steps = -(-SAMPLES // size)
    for _ in range(int(chance.integers(1, steps + 1))):
        ids, x, noise, state = json.loads(parent.stdout.readline())
        seen += zip(ids, map(bytes.fromhex, x), noise, strict=True)
        parent.stdin.write("\n")
        parent.stdin.flush()
    children = children_of(parent.pid)
    parent.kill()
    parent.wait()
    assert_gone(children)
    with contextlib.suppress(BrokenPipeError):
        parent.communicate()
    if len(seen) < SAMPLES:
        with loader_of(fault_set.Fault(SAMPLES, str(folder), "none", -1), size, count) as loader:
            loader.load_state_dict(state)
            for batch in loader:
                seen += rows(batch)
    return seen


def assert_gone(children: list[int]) -> None:
    """Within a second: 100 turns of 10 ms, which take longer where the machine is busy."""
    for _ in range(100):
        if not any(map(is_alive, children)):
            return
        time.sleep(0.01)
    assert [child for child in children if is_alive(child)] == []


LOCKED = """
import sys, time, fault_set, test_fault_runs
if __name__ == "__main__":
    data = fault_set.Fault(300, sys.argv[1], "lock", 40)
    batches = iter(test_fault_runs.feedline.Loader(data, 4, workers=2, framework="numpy"))
    next(batches)
    print("ready", flush=True)
    for batch in batches:
        pass
"""


def test_a_killed_parent_leaves_no_worker_that_is_within_c_code(tmp_path: Path) -> None:
    parent = started(tmp_path, LOCKED, tmp_path)
    assert parent.stdout is not None and parent.stdout.readline() == "ready\n"
    until = time.monotonic() + 60
    while not (tmp_path / "fault").exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    children = children_of(parent.pid)
    parent.kill()
    parent.wait()
    assert_gone(children)
    parent.communicate()


@pytest.mark.parametrize("number", range(RESUMES))
def test_a_resume_at_any_place(number: int, tmp_path: Path, wanted: dict[int, list[Row]]) -> None:
    chance = np.random.default_rng(1000 + number)
    data = feedline.Data(fault_set.Fault(SAMPLES, str(tmp_path), "none", -1))
    epoch, seen = int(chance.integers(2)), []
    state: Any = None
    with limited():
        while len(seen) < SAMPLES:
            ways: list[dict[str, Any]] = [
                {"workers": int(chance.integers(1, 4))},
                {"workers": int(chance.integers(0, 4)), "parallel": "threads"},
            ]
            size, way = int(chance.integers(1, 40)), ways[int(chance.integers(2))]
            with feedline.Loader(data, size, shuffle=5, framework="numpy", copy=True, **way) as loader:
                if state is not None:
                    loader.load_state_dict(state)
                batches = loader.epoch(epoch)
                for _ in range(int(chance.integers(1, 2 * SAMPLES // size + 2))):
                    batch = next(batches, None)
                    if batch is None:
                        break
                    seen += rows(batch)
                state = loader.state_dict()
    assert seen == wanted[epoch]


def test_many_loaders_leave_nothing(tmp_path: Path) -> None:
    data = fault_set.Fault(60, str(tmp_path), "none", -1)

    def read() -> None:
        with loader_of(data, 8, 2) as loader:
            assert len(loader) == 8 and next(iter(loader))["x"].shape == (8, 2, 3)

    with limited():
        for _ in range(3):
            read()
    gc.collect()
    level, memory, threads = descriptors(), resident(), threading.active_count()
    for _ in range(LOADERS):
        with limited():
            read()
    settled(level)
    assert threading.active_count() <= threads
    # A loader has 100 KB.
    assert resident() - memory < (16 << 20) + LOADERS * (32 << 10)


def test_a_small_dev_shm_is_enough(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    small = "mount -t tmpfs -o size=1m tmpfs /dev/shm"
    if unshare is None or subprocess.run([unshare, "-m", "sh", "-c", small], capture_output=True).returncode:
        pytest.skip("not run: a mount of its own is not permitted")
    code = (
        "import sys, numpy as np, feedline, fault_set\n"
        "class Large(fault_set.Fault):\n"
        "    def __getitem__(self, index):\n"
        "        return {'id': index, 'x': np.full(200_000, index, np.float32)}\n"
        "if __name__ == '__main__':\n"
        "    data = Large(100, sys.argv[1], 'none', -1)\n"
        "    with feedline.Loader(data, 8, workers=2, framework='numpy', parallel='processes') as loader:\n"
        "        print(sum(float(batch['x'][:, -1].sum()) for batch in loader))\n"
    )
    path = tmp_path / "large.py"
    path.write_text(code)
    environment = {**os.environ, "PYTHONPATH": f"{PACKAGE}{os.pathsep}{TESTS}"}
    command = f"{small} && df /dev/shm >&2 && exec {sys.executable} {path} {tmp_path}"
    done = subprocess.run(
        [unshare, "-m", "sh", "-c", command], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 0 and done.stdout == "4950.0\n" and "1024" in done.stderr, done.stderr
