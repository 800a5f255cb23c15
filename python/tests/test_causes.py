"""The cause of a failure is told, in the same words by threads and processes: by a `feedline.Error`, in time."""

from __future__ import annotations

import faulthandler
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import cause_sets
import pytest
from cause_sets import KINDS
from conftest import PACKAGE
from test_processes import workers

import feedline
from feedline._workers.choice import has_lock

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="not run: worker processes need Linux"),
    pytest.mark.skipif(not has_lock(), reason="not run: a free-threaded build reads by threads"),
]

#: A run that lasts longer hangs.
LIMIT = 120.0


@pytest.fixture(autouse=True)
def nothing_hangs_and_nothing_is_left() -> Iterator[None]:
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    assert workers() == []


THREADS: dict[str, Any] = {"parallel": "threads", "workers": 2}
PROCESSES: dict[str, Any] = {"parallel": "processes", "workers": 2}


def loader(place: str, kind: str) -> feedline.Loader:
    given: dict[str, Any] = {"framework": "numpy", **(PROCESSES if "processes" in place else THREADS)}
    if "map_batch" in place:
        return feedline.Loader(cause_sets.Raises("plain", at=-1), 8, map_batch=cause_sets.Hook(kind), **given)
    if "collate_fn" in place:
        return feedline.Loader(cause_sets.Raises("plain", at=-1), 8, collate_fn=cause_sets.Hook(kind), **given)
    if place == "source":
        return feedline.Loader(feedline.Source(cause_sets.Shard(kind)), 8, framework="numpy")
    return feedline.Loader(cause_sets.Raises(kind), 8, **given)


PLACES = ["threads", "processes", "map_batch, threads", "map_batch, processes", "collate_fn, threads",
          "collate_fn, processes", "source"]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_of_any_kind_is_the_cause_of_an_error(kind: str, place: str) -> None:
    if (kind, place) == ("StopIteration", "source"):
        pytest.skip("not run: Python itself makes it a RuntimeError")
    raised_by = type(KINDS[kind][0]())
    with loader(place, kind) as one:
        with pytest.raises(feedline.Error) as found:
            for batch in one:
                assert 13 not in batch["id"]
        error = found.value
        assert KINDS[kind][1] in str(error) and len(str(error)) < 1500, str(error)[:300]
        assert str(error).isprintable()
        assert error.__cause__ is not None
        # What cannot be sent arrives as its text.
        is_text = type(error.__cause__) is RuntimeError and raised_by.__name__ in str(error.__cause__)
        assert type(error.__cause__) is raised_by or ("processes" in place and is_text)
        if "processes" in place:
            trace = str(error.__cause__.__cause__)
            assert "cause_sets.py" in trace and len(trace) < 2 << 20


def test_what_can_be_sent_arrives_as_it_was_raised() -> None:
    for kind in ("plain", "no text", "__str__ raises", "text of 17 MB", "lone surrogate", "no attributes", "odd class"):
        with loader("processes", kind) as one:
            with pytest.raises(feedline.Error) as found:
                list(one)
            wanted = KINDS[kind][0]()
            assert found.value.__cause__ is not None
            assert (type(found.value.__cause__), found.value.__cause__.args) == (type(wanted), wanted.args)


@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_of_a_set_that_is_loaded_is_the_cause_of_an_error(kind: str) -> None:
    with pytest.raises(feedline.Error, match="worker processes cannot load the data") as found:
        feedline.Loader(cause_sets.Loads(kind), 8, framework="numpy", **PROCESSES)
    assert KINDS[kind][1] in str(found.value) and len(str(found.value)) < 1500
    assert found.value.__cause__ is not None


@pytest.mark.parametrize(
    ("what", "told"),
    [("exit", "ended by itself with status 7"), ("kill", r"was killed by SIGSEGV \(a fault in compiled code\)")],
)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_workers_that_die_while_they_load_the_data_are_an_error(what: str, told: str, count: int) -> None:
    given = "3 worker processes died one after another while they loaded the data: the last one " + told
    with pytest.raises(feedline.Error, match=given):
        feedline.Loader(cause_sets.Loads(what), 8, framework="numpy", workers=count, parallel="processes")


class LoadsLater(cause_sets.Loads):
    """Can be loaded by the first process, and by none after it."""

    def __setstate__(self, state: Any) -> None:
        vars(self).update(state)
        try:
            os.close(os.open(self.what, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            os._exit(7)


def test_workers_that_die_later_while_they_load_the_data_are_an_error(tmp_path: Any) -> None:
    data = LoadsLater(str(tmp_path / "loaded"))
    with feedline.Loader(data, 1, framework="numpy", workers=1, parallel="processes") as one:
        batches = iter(one)
        next(batches)
        os.kill(max(workers()), 9)
        with pytest.raises(feedline.Error, match="died one after another while they loaded the data"):
            for batch in batches:
                del batch


@pytest.mark.parametrize("options", [{}, {"map_batch": cause_sets.doubled}, {"collate_fn": list}])
def test_a_block_that_cannot_grow_is_an_error_that_names_the_limit(options: dict[str, Any]) -> None:
    if options.get("collate_fn"):
        options = {"collate_fn": stacked}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with feedline.Loader(cause_sets.Wide(), 8, framework="numpy", workers=1, parallel="processes") as one:
        assert sum(batch.rows for batch in one) == 64
    with feedline.Loader(cause_sets.Wide(), 8, framework="numpy", **PROCESSES, **options) as one:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
        try:
            with pytest.raises(feedline.Error, match=r"bytes of shared memory .* \(ulimit -f\)"):
                list(one)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


def stacked(samples: list[Any]) -> Any:
    import numpy as np

    return {"x": np.stack([sample["x"] for sample in samples])}


LIMITED = """
import os, resource, sys, cause_sets, feedline
# Here the first sample is read, whose exceptions are the user's own.
data = feedline.Data(cause_sets.Wide())
name, value, parallel = getattr(resource, sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if name == resource.RLIMIT_NOFILE:
    value += max(map(int, os.listdir("/proc/self/fd")))
if name == resource.RLIMIT_AS:
    value += int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(name, (value, resource.getrlimit(name)[1]))
try:
    with feedline.Loader(data, 8, framework="numpy", workers=3, parallel=parallel) as loader:
        print(sum(batch.rows for batch in loader), "rows")
except feedline.Error as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("parallel", ["threads", "processes"])
@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("RLIMIT_NOFILE", range(0, 24, 3), "(ulimit -n)"),
        ("RLIMIT_FSIZE", (10, 1000, 100_000), "(ulimit -f)"),
        ("RLIMIT_AS", (0, 1 << 20, 8 << 20, 64 << 20), "memory"),
    ],
)
def test_a_limit_of_the_system_is_an_error_that_names_it(name: str, values: Any, told: str, parallel: str) -> None:
    for value in values:
        path = {"PYTHONPATH": f"{PACKAGE}{os.pathsep}{os.path.dirname(__file__)}"}
        done = subprocess.run(
            [sys.executable, "-c", LIMITED, name, str(value), parallel],
            capture_output=True, text=True, timeout=LIMIT, env={**os.environ, **path},
        )  # fmt: skip
        assert done.returncode == 0, (value, done.stdout, done.stderr)
        assert done.stdout == "64 rows\n" or told in done.stdout, (value, done.stdout, done.stderr)


@pytest.mark.parametrize("after", [0.0, 0.02, 0.05, 0.1])
def test_a_fork_server_that_is_killed_while_it_starts_is_an_error(after: float) -> None:
    import threading

    is_over = threading.Event()

    def kill() -> None:
        while not is_over.is_set():
            for task in os.listdir("/proc/self/task"):
                with open(f"/proc/self/task/{task}/children") as children:
                    found = children.read().split()
                if found:
                    time.sleep(after)
                    os.kill(int(found[0]), 9)
                    return

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        feedline.Loader(cause_sets.Wide(), 8, framework="numpy", **PROCESSES).close()
    except feedline.Error as error:
        assert "fork server of the worker processes" in str(error), error
    finally:
        is_over.set()
        killer.join()


@pytest.mark.parametrize("how", ["returns", "raises", "is waited for"])
@pytest.mark.parametrize("options", [PROCESSES, {**PROCESSES, "workers": 1}, THREADS, {"workers": 0}])
def test_a_child_that_comes_back_from_a_sample_changes_no_row(how: str, options: dict[str, Any]) -> None:
    for at in (130, 331):
        seen = []
        with feedline.Loader(cause_sets.Forks(800, how, at), 32, framework="numpy", **options) as one:
            for batch in one:
                assert (batch["x"][:, 0] == batch["id"]).all() and (batch["x"][:, 1] == 3 * batch["id"]).all()
                seen += batch["id"].tolist()
        assert seen == list(range(800))


@pytest.mark.parametrize("how", ["returns", "raises", "is waited for"])
@pytest.mark.parametrize("options", [PROCESSES, THREADS])
def test_a_child_that_comes_back_from_a_function_of_a_batch_changes_no_row(how: str, options: dict[str, Any]) -> None:
    data, hook = cause_sets.Forks(800, how, -1), cause_sets.ForksInBatch(how)
    with feedline.Loader(data, 32, framework="numpy", map_batch=hook, **options) as one:
        for batch in one:
            assert (batch["x"][:, 0] == 2 * batch["id"]).all() and (batch["x"][:, 1] == 4 * batch["id"]).all()


def test_a_child_that_comes_back_from_the_loading_of_a_set_changes_no_row() -> None:
    with feedline.Loader(cause_sets.Loads("fork"), 8, framework="numpy", **PROCESSES) as one:
        assert [number for batch in one for number in batch["id"].tolist()] == list(range(40))


def test_endless_recursion_is_an_error_that_says_how_the_processes_ended() -> None:
    with feedline.Loader(cause_sets.Recurses(), 8, framework="numpy", **PROCESSES) as one:
        with pytest.raises(
            feedline.SampleError, match="3 worker processes died while they read it: the last one was killed by SIG"
        ) as found:
            list(one)
        assert found.value.sample == 13


def test_a_loader_within_a_worker_reads_by_threads() -> None:
    with feedline.Loader(cause_sets.Nested("auto"), 2, framework="numpy", **PROCESSES) as one:
        assert [number for batch in one for number in batch["sum"].tolist()] == [780] * 4
    with feedline.Loader(cause_sets.Nested("processes"), 2, framework="numpy", **PROCESSES) as one:
        with pytest.raises(feedline.Error, match="a worker process starts no worker processes of its own"):
            list(one)


NOISY = """
import sys, feedline, cause_sets, noisy
if __name__ == "__main__":
    with feedline.Loader(noisy.Data(), 8, framework="numpy", workers=2, parallel="processes") as loader:
        assert sum(batch.rows for batch in loader) == 40
    noisy.told = True
"""


def test_imported_libraries_print_nothing_at_the_end_of_workers(tmp_path: Any) -> None:
    (tmp_path / "noisy.py").write_text(
        "import atexit, cause_sets\n"
        "told = False\n"
        "atexit.register(lambda: told or print('objects are left', flush=True))\n"
        "class Data(cause_sets.Raises):\n"
        "    def __init__(self):\n"
        "        super().__init__('plain', -1)\n"
    )
    (tmp_path / "main.py").write_text(NOISY)
    path = {"PYTHONPATH": os.pathsep.join([str(PACKAGE), os.path.dirname(__file__), str(tmp_path)])}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "main.py")],
        capture_output=True, text=True, timeout=LIMIT, env={**os.environ, **path},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
