"""The fork server: a new process that imports what the workers need and forks them.

It has one thread, no GPU and no data set, so that a fork of it is safe. It waits for the ends of its workers,
and ends with the process that has the loader.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import json
import os
import signal
import socket
import sys
import time
import traceback
import warnings

#: Seconds for the workers to end by themselves.
_GRACE = 0.2


def main(control: int, data: int, setup: str) -> None:
    """Serves the process at the other end of the socket ``control``. ``data`` is the packed data set."""
    from .. import _workers

    _workers.is_worker = _workers.is_importing = True
    own = os.getpid()
    # Ctrl-C reaches every process of the terminal. The process with the loader ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        with open("/proc/self/comm", "w") as name:
            name.write("feedline-worker")
    connection = socket.socket(fileno=control)
    error, is_unguarded = _imported(json.loads(setup))
    # Here, not in the workers: a collection writes to each object, which would unshare its page.
    gc.collect()
    gc.freeze()
    _workers.is_importing = False
    if os.getpid() != own:
        # A child that a module has forked, and that came back from it.
        os._exit(1)
    _reply(connection, 0, {"error": error, "is_unguarded": is_unguarded})
    workers: set[int] = set()
    while True:
        message, files, _, _ = socket.recv_fds(connection, 1 << 16, 16)
        if not message:
            break
        request = json.loads(message)
        if request["do"] == "start":
            started, failed = 0, None
            try:
                if len(files) < request["files"]:
                    raise OSError(errno.EMFILE, "too many open files")
                started = os.fork()
                if started == 0:
                    _run_worker(connection, data, files)
                workers.add(started)
            except OSError as error:
                failed = error.errno
            for file in files:
                os.close(file)
            _reply(connection, request["number"], {"process": started, "errno": failed})
        else:
            process = request["process"]
            workers.discard(process)
            _reply(connection, request["number"], {"status": _end(process)})
    _end_all(workers)
    # Without what imported libraries do at the end of a process: some print the objects that are left.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(0)


def _reply(connection: socket.socket, number: int, answer: dict[str, object]) -> None:
    try:
        connection.sendall(json.dumps({**answer, "number": number}).encode() + b"\n")
    except OSError:
        pass  # The process is gone: the next receive says so.


def _imported(setup: dict[str, object]) -> tuple[str | None, bool]:
    """Imports the main script, if the data set's class is from it, and other modules. Returns the error, if
    any, and whether it is that the script makes a loader when it is imported."""
    sys.argv = list(setup["argv"])  # type: ignore[call-overload]
    warnings.filterwarnings("ignore", message=".*multi-threaded.*", category=DeprecationWarning)
    try:
        from multiprocessing import spawn

        if setup["main_name"]:
            spawn._fixup_main_from_name(setup["main_name"])  # type: ignore[attr-defined]
        elif setup["main_path"]:
            spawn._fixup_main_from_path(setup["main_path"])  # type: ignore[attr-defined]
    except BaseException as error:  # noqa: BLE001
        from .faults import trace_of
        from .start import NoGuard

        return trace_of(error), isinstance(error, NoGuard)
    for module in list(setup["modules"]):  # type: ignore[call-overload]
        # A worker that needs the module reports the error.
        with contextlib.suppress(BaseException):
            importlib.import_module(module)
    return None, False


def _run_worker(connection: socket.socket, data: int, files: list[int]) -> None:
    code = 1
    try:
        connection.close()
        from . import worker

        worker.main(data, files)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        os._exit(code)


def _end(process: int) -> int | None:
    """Kills a worker if it still runs, and returns its exit status."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        # A worker whose sockets are closed is about to end.
        until = time.monotonic() + _GRACE
        while time.monotonic() < until:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        os.kill(process, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return None


def _end_all(workers: set[int]) -> None:
    until = time.monotonic() + _GRACE
    left = set(workers)
    while left and time.monotonic() < until:
        left -= {process for process in left if _has_ended(process)}
        if left:
            time.sleep(0.002)
    for process in left:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def _has_ended(process: int) -> bool:
    try:
        return os.waitpid(process, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True
