"""Starts the fork server, and workers through it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from .. import _workers
from .._errors import ConfigError, Error
from .packing import Packed

_log = logging.getLogger("feedline")

#: One thread per library in each of several processes, and no GPU.
_ENVIRONMENT = {
    **dict.fromkeys(
        (
            "OMP_NUM_THREADS",
            "OPENBLAS_NUM_THREADS",
            "MKL_NUM_THREADS",
            "BLIS_NUM_THREADS",
            "NUMEXPR_NUM_THREADS",
            "VECLIB_MAXIMUM_THREADS",
        ),
        "1",
    ),
    "CUDA_VISIBLE_DEVICES": "",
}

#: This process's ends of the sockets to servers and workers. A forked child closes its copies, because a
#: worker notices the end of this process only when all copies are closed.
_own: set[int] = set()


class NoGuard(ConfigError):
    """A main script makes a loader while a worker process imports it. From :class:`Server`, its text is the
    script's path."""


class _Stopped(EOFError):
    """The fork server was stopped by a signal, and killed."""


class Server:
    """A fork server for a list of readers."""

    def __init__(self, readers: list[Any], check_main: Callable[[str | None, str | None], None]) -> None:
        packed = Packed(readers)
        self._block: int | None = packed.block
        name = path = None
        try:
            if "__main__" in packed.modules:
                name, path = _main()
                check_main(name, path)
        except BaseException:
            os.close(packed.block)
            raise
        modules = sorted(packed.modules - {"__main__", "__mp_main__", "builtins"})
        self._path = path or name
        setup = {"argv": sys.argv, "main_name": name, "main_path": path, "modules": modules}
        self._setup = json.dumps(setup)
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        #: What was received of the next answers.
        self._received = b""
        #: The number of the last request. The answer to an earlier one, whose wait was interrupted, is left out.
        self._requests = 0
        try:
            self._start()
        except BaseException:
            self.end()
            raise

    def _start(self) -> None:
        assert self._block is not None
        own, its = socket.socketpair()
        self._control, self._received = own, b""
        _own.add(own.fileno())
        with its:
            code = (
                f"import sys; sys.path[:] = {sys.path!r}\n"
                "from feedline._workers.server import main\n"
                f"main({its.fileno()}, {self._block}, {self._setup!r})"
            )
            flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
            self._process = subprocess.Popen(
                [_executable(), *flags, "-c", code],
                pass_fds=(its.fileno(), self._block),
                env={**os.environ, **_ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                # Ctrl-C is for the process with the loader, which ends the server.
                start_new_session=True,
            )
        self._wait()

    def _wait(self) -> None:
        """Waits until the server has imported what it needs."""
        try:
            answer = self._answer(0)
        except (OSError, EOFError) as error:
            process = self._process
            self._close()
            told = str(error) if isinstance(error, _Stopped) else _told(process.returncode if process else None)
            raise Error(f"the fork server of the worker processes {told} while it imported modules") from None
        why = answer["error"]
        if answer["is_unguarded"]:
            raise NoGuard(self._path)
        if why is not None:
            raise ConfigError(f"a worker process cannot import the main script:\n{why}")

    def start_worker(self, files: list[int], own: list[int]) -> int:
        """Starts a worker over sockets and blocks; ``own`` are this process's ends. Returns its process id."""
        with self._lock:
            _own.update(own)
            answer = self._ask({"do": "start", "files": len(files)}, files)
            if answer["errno"] is not None:
                raise OSError(answer["errno"], os.strerror(answer["errno"]))
            process: int = answer["process"]
            return process

    def end_of(self, process: int, own: list[int]) -> str:
        """Ends a worker; says how it ended."""
        with self._lock:
            _own.difference_update(own)
            status = self._ask({"do": "end", "process": process}, [])["status"]
            return _told(status)

    def forget(self, own: list[int]) -> None:
        """Sockets that are about to be closed."""
        _own.difference_update(own)

    def lost(self, process: int, told: str, does: list[str]) -> None:
        """Warns of a worker that died."""
        while_it = f" while it {does[0]}" if does else ""
        _log.warning("worker process %d %s%s: a new one takes its place", process, told, while_it)

    def _ask(self, request: dict[str, Any], files: list[int]) -> dict[str, Any]:
        try:
            return self._sent(request, files)
        except (OSError, EOFError):
            # The server was killed; its workers have ended or will soon.
            self._restart()
            if request["do"] == "end":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(request["process"], signal.SIGKILL)
                return {"status": None}
            try:
                return self._sent(request, files)
            except (OSError, EOFError) as error:
                told = "the fork server of the worker processes was started again, and has ended again"
                raise Error(told) from error

    def _sent(self, request: dict[str, Any], files: list[int]) -> dict[str, Any]:
        if self._control is None:
            raise EOFError
        self._requests += 1
        message = json.dumps({**request, "number": self._requests}).encode()
        socket.send_fds(self._control, [message], files)
        return self._answer(self._requests)

    def _restart(self) -> None:
        self._close()
        self._start()

    def _answer(self, number: int) -> dict[str, Any]:
        """The answer to a request; 0 is that the server is ready."""
        while True:
            answer: dict[str, Any] = json.loads(self._line())
            if answer["number"] == number:
                return answer

    def _line(self) -> bytes:
        """The next line of the server. Looks at the server every second, because the socket does not show that it
        was stopped."""
        assert self._control is not None and self._process is not None
        poll, stopped = select.poll(), 0
        poll.register(self._control, select.POLLIN)
        while b"\n" not in self._received:
            if poll.poll(1000):
                part = self._control.recv(1 << 16)
                if not part:
                    raise EOFError
                self._received += part
            else:
                # Ctrl-Z stops this process too, so one look after it may see a server that is still stopped.
                stopped = stopped + 1 if _is_stopped(self._process.pid) else 0
                if stopped == 2:
                    self._process.kill()
                    raise _Stopped("was stopped by a signal for 2 s, and killed")
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _close(self) -> None:
        if self._control is not None:
            _own.discard(self._control.fileno())
            self._control.close()
            self._control = None
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def end(self) -> None:
        """Ends the server and its workers, whose sockets are closed; none is left when this returns."""
        with self._lock:
            self._close()
            if self._block is not None:
                os.close(self._block)
                self._block = None


def _main() -> tuple[str | None, str | None]:
    """The module of ``python -m``, if that was used, and the path of the main script."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    path = getattr(main, "__file__", None)
    return None if spec is None else spec.name, os.path.abspath(path) if path else None


def _is_stopped(process: int) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{process}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "T"
    return False


def _executable() -> str:
    from multiprocessing import spawn

    executable = spawn.get_executable()
    return os.fsdecode(executable)


def _told(status: int | None) -> str:
    """How a process ended, as the end of a sentence."""
    if status is None:
        return "was killed"
    if status >= 0:
        return f"ended by itself with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    likely = {
        "SIGKILL": " (perhaps for want of memory)",
        "SIGBUS": " (perhaps for want of memory)",
        "SIGSEGV": " (a fault in compiled code)",
    }
    return f"was killed by {name}{likely.get(name, '')}"


def _forget_in_child() -> None:
    if not _own or _workers.is_worker:
        return
    # Replaced, not closed, so that the numbers stay taken: the child must not close another file of the same
    # number.
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in _own:
        with contextlib.suppress(OSError):
            os.dup2(nothing, number, inheritable=False)
    os.close(nothing)
    _own.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
