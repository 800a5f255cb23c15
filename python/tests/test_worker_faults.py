"""What happens to worker processes: no sample is lost or doubled, nothing hangs, and nothing is left."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import own_sets
import pytest
from conftest import PACKAGE
from test_processes import rows, workers

import feedline
from feedline._workers.choice import has_lock

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="not run: worker processes need Linux"),
    pytest.mark.skipif(not has_lock(), reason="not run: a free-threaded build reads by threads"),
]

TESTS = Path(__file__).parent


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    yield
    assert workers() == []


def wanted(samples: int = 100) -> list[tuple[Any, ...]]:
    with feedline.Loader(own_sets.Numbers(samples), 8, shuffle=5, framework="numpy", workers=0) as loader:
        return rows(loader)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("SIGKILL", "killed by SIGKILL"),
        ("SIGSEGV", "killed by SIGSEGV"),
        ("SIGTERM", "killed by SIGTERM"),
        ("exit", "ended by itself with status 7"),
        ("exit 0", "ended by itself with status 0"),
        ("SIGSTOP", "stopped by a signal"),
    ],
)
@pytest.mark.parametrize("count", [1, 2])
def test_a_worker_that_dies_is_one_warning_and_no_lost_sample(
    fault: str, told: str, count: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = own_sets.Faulty(100, str(tmp_path), fault)
    with feedline.Loader(data, 8, shuffle=5, framework="numpy", workers=count) as loader:
        assert rows(loader) == wanted()
        assert (tmp_path / "fault").exists()
        assert len(workers()) == count + 1
        assert [told in one for one in warnings(caplog)] == [True]
        assert rows(loader.epoch(0)) == wanted()


def test_a_sample_that_kills_three_workers_is_an_error_of_that_sample(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = own_sets.Faulty(100, str(tmp_path), "SIGKILL", always=True)
    with feedline.Loader(data, 8, framework="numpy", workers=2) as loader:
        with pytest.raises(feedline.SampleError, match="3 worker processes died") as raised:
            rows(loader)
        assert (raised.value.sample, raised.value.batch) == (33, 4)
        assert len(warnings(caplog)) == 3
    with feedline.Loader(data, 8, shuffle=5, framework="numpy", workers=2, bad_samples=1) as loader:
        got, all_rows = rows(loader), wanted()
        assert len(got) == 100 and len(set(all_rows) - set(got)) == 1


def test_workers_killed_from_outside_all_the_time() -> None:
    chance = np.random.default_rng(3)
    with feedline.Loader(own_sets.Numbers(2000), 8, shuffle=5, framework="numpy", workers=2) as loader:
        for epoch in range(3):
            seen = []
            for number, batch in enumerate(loader.epoch(epoch)):
                seen += batch["id"].tolist()
                del batch
                if number % 40 == 20:
                    os.kill(int(chance.choice(workers())), signal.SIGKILL)
            assert sorted(seen) == list(range(2000))


def test_an_exception_has_the_trace_of_the_worker(tmp_path: Path) -> None:
    for fault, kind in (("raise", KeyError), ("unpicklable error", RuntimeError), ("sys.exit", SystemExit)):
        data = own_sets.Faulty(100, str(tmp_path), fault, always=True)
        with feedline.Loader(data, 5, framework="numpy", workers=2) as loader:
            with pytest.raises(feedline.SampleError) as raised:
                rows(loader)
            error = raised.value
            assert (error.sample, error.batch, error.stage) == (33, 6, "decode")
            cause = error.__cause__
            assert type(cause) is kind
            assert cause.__cause__ is not None and "__getitem__" in str(cause.__cause__)
            assert f"file {own_sets.__file__}, line " in str(error) and "\n" not in str(error)


def test_a_sample_of_another_shape_is_named(tmp_path: Path) -> None:
    data = own_sets.Faulty(100, str(tmp_path), "shape", always=True)
    with feedline.Loader(data, 5, framework="numpy", workers=2) as loader:
        with pytest.raises(feedline.SampleError, match=r"shape \(3, 2\), and sample 0 has \(2, 3\)") as raised:
            rows(loader)
        assert raised.value.sample == 33
    with feedline.Loader(data, 5, framework="numpy", workers=2, bad_samples=1) as loader:
        assert len(rows(loader)) == 100


def test_a_sample_that_takes_long_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = own_sets.Faulty(100, str(tmp_path), "sleep")
    with feedline.Loader(data, 8, shuffle=5, framework="numpy", workers=2) as loader:
        assert rows(loader) == wanted() and warnings(caplog) == []


@pytest.mark.parametrize("kind", [own_sets.Slow, own_sets.Busy])
def test_close_does_not_wait_for_a_sample(kind: Any, tmp_path: Path) -> None:
    loader = feedline.Loader(kind(100, str(tmp_path)), 2, framework="numpy", workers=2)
    seen: list[BaseException] = []

    def train() -> None:
        try:
            rows(loader)
        except feedline.StoppedError as error:
            seen.append(error)

    training = threading.Thread(target=train)
    training.start()
    wait_until_spinning(tmp_path)
    start = time.monotonic()
    loader.close()
    assert time.monotonic() - start < 4 and workers() == []
    training.join(timeout=60)
    assert not training.is_alive() and len(seen) == 1


@pytest.mark.parametrize(
    ("held", "place"),
    [
        (lambda: None, r"data\.held is a lambda"),
        ([1, {"f": open}, open(__file__)], r"data\.held\[2\] is _io\.TextIOWrapper"),  # noqa: SIM115
        ({"model": {"lock": __import__("threading").Lock()}}, r"data\.held\['model'\]\['lock'\] is _thread\.lock"),
    ],
)
def test_a_set_that_cannot_be_sent_is_named_before_anything_starts(
    held: Any, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    data = own_sets.Holds(held)
    with pytest.raises(feedline.ConfigError, match=place) as raised:
        feedline.Loader(data, 5, workers=2, parallel="processes")
    assert "\n" not in str(raised.value) and workers() == []
    with feedline.Loader(data, 5, framework="numpy", workers=2) as loader:
        assert len(rows(loader)) == 20 and workers() == [] and "threads" in repr(loader)
    (warning,) = warnings(caplog)
    assert "threads" in warning


def test_a_set_that_cannot_be_loaded_is_an_error_of_the_loader() -> None:
    with pytest.raises(feedline.ConfigError, match="cannot load the data: OSError: the disk is not here") as raised:
        feedline.Loader(own_sets.NotLoaded(), 5, workers=2)
    assert isinstance(raised.value.__cause__, OSError)


def test_a_gpu_is_refused_with_the_reason() -> None:
    pytest.importorskip("torch", reason="not run: torch is not installed")
    with feedline.Loader(own_sets.Gpu(), 1, framework="numpy", workers=1) as loader:
        with pytest.raises(feedline.SampleError, match="a worker process has no GPU"):
            rows(loader)


def run(
    tmp_path: Path, code: str, name: str = "main.py", is_module: bool = False, **options: Any
) -> subprocess.Popen[str]:
    path = tmp_path / name
    path.write_text(code)
    command = [str(path)]
    if is_module:
        # The file `__main__` of a package is run by the package's name.
        run_as = tmp_path if name == "__main__.py" else path
        command = ["-m", run_as.stem]
        options["cwd"] = run_as.parent
    environment = {**os.environ, "PYTHONPATH": f"{PACKAGE}{os.pathsep}{TESTS}", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **options,
    )


MAIN = """
import os, time, feedline, own_sets
class Own(own_sets.Numbers):
    def __getitem__(self, index):
        if {busy} and index >= 60:  # far behind the first batch, which must not wait in the same process
            self.first_time("spinning")
            while True:
                pass
        return super().__getitem__(index)
def main():
    loader = feedline.Loader(Own(100, os.path.dirname(__file__)), 4, framework="numpy", workers=2)
    batches = iter(loader)
    next(batches)
    print("ready", flush=True)
    {then}
"""
GUARD = 'if __name__ == "__main__":\n    main()\n'


def children_of(process: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").iterdir():
        # A thread may end meanwhile.
        with contextlib.suppress(FileNotFoundError):
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *children_of(child)]
    return found


@pytest.mark.parametrize("busy", [False, True])
def test_a_killed_parent_leaves_no_worker(busy: bool, tmp_path: Path) -> None:
    then = "[None for batch in batches]; time.sleep(60)"
    parent = run(tmp_path, MAIN.format(busy=busy, then=then) + GUARD)
    assert parent.stdout is not None and parent.stdout.readline() == "ready\n"
    if busy:
        wait_until_spinning(tmp_path)
    children = children_of(parent.pid)
    assert len(children) == 3
    parent.kill()
    parent.wait()
    until = time.monotonic() + 10
    start = time.monotonic()
    while any(is_alive(child) for child in children) and time.monotonic() < until:
        time.sleep(0.01)
    # 6 ms on an idle machine.
    assert not any(is_alive(child) for child in children), time.monotonic() - start
    parent.communicate()


def wait_until_spinning(folder: Path) -> None:
    until = time.monotonic() + 60
    while not (folder / "spinning").exists():
        assert time.monotonic() < until
        time.sleep(0.01)


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in "ZX"


#: Its loader is made outside of the guard that it has.
MISPLACED = 'if __name__ == "__main__":\n    pass\nmain()\n'


@pytest.mark.parametrize("is_module", [False, True], ids=["script", "module"])
def test_a_script_whose_own_class_is_read_needs_a_guard(tmp_path: Path, is_module: bool) -> None:
    code = MAIN.format(busy=False, then="print(sum(len(batch['id']) for batch in batches)); loader.close()")
    done = run(tmp_path, code + GUARD, is_module=is_module)
    out, err = done.communicate(timeout=120)
    assert (done.returncode, out, err) == (0, "ready\n96\n", "")
    for end in ("main()\n", MISPLACED):
        done = run(tmp_path, code + end, is_module=is_module)
        out, err = done.communicate(timeout=120)
        assert done.returncode == 0 and out == "ready\n96\n", err
        assert err.count('if __name__ == "__main__": threads') == 1 and "Traceback" not in err
        assert f"worker processes import {tmp_path / 'main.py'}, which" in err
        of_processes = code.replace("workers=2", 'workers=2, parallel="processes"')
        done = run(tmp_path, of_processes + end, is_module=is_module)
        out, err = done.communicate(timeout=120)
        assert done.returncode == 1 and out == "" and err.count("Traceback") == 1, err
        assert err.endswith('put what it runs under if __name__ == "__main__"\n')


def test_a_class_of_a_main_file_of_a_package_is_read_by_threads(tmp_path: Path) -> None:
    code = MAIN.format(busy=False, then="print(sum(len(batch['id']) for batch in batches)); loader.close()")
    done = run(tmp_path, code + GUARD, "__main__.py", is_module=True)
    out, err = done.communicate(timeout=120)
    assert done.returncode == 0 and out == "ready\n96\n", err
    assert "do not import a __main__.py: move its class to another module: threads" in err


def test_a_script_that_imports_its_set_needs_no_guard(tmp_path: Path) -> None:
    code = (
        "import feedline, own_sets\n"
        "with feedline.Loader(own_sets.Numbers(), 4, framework='numpy', workers=2) as loader:\n"
        "    print(sum(len(batch['id']) for batch in loader))\n"
    )
    done = run(tmp_path, code)
    assert done.communicate(timeout=120) == ("100\n", "") and done.returncode == 0


def test_ctrl_c_is_one_trace(tmp_path: Path) -> None:
    code = MAIN.format(busy=True, then="[None for batch in batches]") + GUARD
    parent = run(tmp_path, code, start_new_session=True)
    assert parent.stdout is not None and parent.stdout.readline() == "ready\n"
    children = children_of(parent.pid)
    wait_until_spinning(tmp_path)
    os.killpg(parent.pid, signal.SIGINT)
    _, err = parent.communicate(timeout=60)
    assert err.count("Traceback") == 1 and "KeyboardInterrupt" in err
    assert not any(is_alive(child) for child in children)


def test_an_exit_without_close_leaves_nothing(tmp_path: Path) -> None:
    for then in ("return", "raise SystemExit(3)", "os._exit(4)"):
        parent = run(tmp_path, MAIN.format(busy=True, then=then) + GUARD)
        assert parent.stdout is not None and parent.stdout.readline() == "ready\n"
        _, err = parent.communicate(timeout=60)
        assert parent.returncode == {"return": 0}.get(then, int(then[-2]) if then != "return" else 0), err
        assert err == ""


def test_a_killed_fork_server_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    with feedline.Loader(own_sets.Numbers(2000), 8, shuffle=5, framework="numpy", workers=2) as loader:
        all_rows = rows(loader.epoch(0))
        batches = loader.epoch(0)
        first = rows(next(batches) for _ in range(5))
        # The server is the one process that has children.
        (server,) = [one for one in workers() if children_of(one)]
        for process in [server, *children_of(server)]:
            os.kill(process, signal.SIGKILL)
        assert first + rows(batches) == all_rows


def test_a_forked_child_does_not_keep_the_workers(tmp_path: Path) -> None:
    then = "child = os.fork()\n    time.sleep(60)"
    parent = run(tmp_path, MAIN.format(busy=False, then=then) + GUARD)
    assert parent.stdout is not None and parent.stdout.readline() == "ready\n"
    until = time.monotonic() + 20
    while len(children_of(parent.pid)) < 4 and time.monotonic() < until:
        time.sleep(0.01)
    children = children_of(parent.pid)
    forked = [one for one in children if (Path(f"/proc/{one}/comm").read_text().strip()) != "feedline-worker"]
    assert len(children) == 4 and len(forked) == 1
    time.sleep(0.2)
    parent.kill()
    parent.wait()
    own = [one for one in children if one not in forked]
    until = time.monotonic() + 10
    while any(is_alive(one) for one in own) and time.monotonic() < until:
        time.sleep(0.01)
    left = [one for one in own if is_alive(one)]
    os.kill(forked[0], signal.SIGKILL)
    parent.communicate()
    assert left == []


def test_a_worker_whose_loader_is_gone_ends_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    """An answer that nobody has read makes the end of the socket a reset."""
    import socket

    from feedline._workers.worker import Lane

    for is_reset in (False, True):
        own, its = socket.socketpair()
        child = os.fork()
        if child == 0:
            try:
                own.close()
                if is_reset:
                    its.sendall(b"an answer")
                Lane(its.detach(), os.memfd_create("test")).receive()
            finally:
                os._exit(1)
        its.close()
        if is_reset:
            own.recv(1, socket.MSG_PEEK)
        own.close()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert capfd.readouterr() == ("", "")
