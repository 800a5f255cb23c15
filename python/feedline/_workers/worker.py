"""A worker process: reads samples and writes their rows into blocks of shared memory.

It has two lanes, each with a socket for requests and a block for rows, so that the next request is ready
while it works. A request names samples, the epoch and a key of random numbers for each: a worker keeps
nothing from one to the next. `src/processes/lane.rs` is the other end.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._columns import AreRight, Longer, Misfit, Shared
from . import faults, packing
from .seeds import Watch

#: Kind, data set, samples, whether to seed; request number, epoch, bytes of the block.
REQUEST = struct.Struct("<IIIIQQQ")
HELLO, READ, MAP = 0, 1, 2
#: Status, samples that were read, whether they used random generators, microseconds; request number.
ANSWER = struct.Struct("<IIIIQ")
DONE, FAILED, UNUSABLE, LONGER = 0, 1, 2, 3
#: Of a sample that is longer than there is room for: the place of the field among the columns, and the items.
_NEEDS = struct.Struct("<QQ")
_LENGTH = struct.Struct("<I")
#: Rows of fields begin at multiples of this, after a header of this many bytes.
_ALIGN = 64
_BEGUN = struct.Struct("<Q")
#: Max bytes of samples before they are copied into the block: they should still be in a cache.
_AT_ONCE = 1 << 20
#: Bytes of a sample from which on its copy takes as long as a call.
_LONG = 16 << 10

#: Reads the samples of some indices; returns those before the first that fails, and its exception.
Read = Callable[[Sequence[int]], "tuple[list[Any], BaseException | None]"]


class Lane:
    """A socket for requests, and the block into which their rows are written."""

    def __init__(self, connection: int, block: int) -> None:
        self._socket, self._block = socket.socket(fileno=connection), block
        self._memory: mmap.mmap | None = None
        #: The number of the request that is being served.
        self._request = 0
        self._rows: dict[tuple[int, int, tuple[int, ...]], Rows] = {}

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> memoryview:
        """The next request."""
        message = self._received(1 << 18)
        if len(message) < 4:
            message += self._rest(4 - len(message))
        (length,) = _LENGTH.unpack_from(message)
        if len(message) < 4 + length:
            message += self._rest(4 + length - len(message))
        return memoryview(message)[4:]

    def _rest(self, count: int) -> bytes:
        rest = bytearray()
        while len(rest) < count:
            rest += self._received(count - len(rest))
        return bytes(rest)

    def _received(self, count: int) -> bytes:
        """Receives some bytes; ends the process once the loader is gone (a reset, if it left an answer
        unread)."""
        with contextlib.suppress(OSError):
            part = self._socket.recv(count)
            if part:
                return part
        os._exit(0)

    def answer(
        self, status: int, read: int, is_random: bool = False, ns: int = 0, payload: bytes = b""
    ) -> None:
        took = min(ns // 1000 + 1, 0xFFFFFFFF)
        numbers = ANSWER.pack(status, read, is_random, took, self._request)
        if self._memory is not None:
            # Served: if this process dies from here on, it was not of this request.
            _BEGUN.pack_into(self._memory, 0, 0)
        head = _LENGTH.pack(ANSWER.size + len(payload)) + numbers
        try:
            self._socket.sendall(head + payload)
        except OSError:
            # The loader is gone.
            os._exit(0)

    def takes(self, request: int) -> None:
        """The number of the request that the next answer is for."""
        self._request = request

    def begin(self, size: int) -> None:
        """Marks the request as begun, so that the loader knows it if this process dies."""
        if self._memory is None or len(self._memory) < size:
            self._rows.clear()
            self._memory = mmap.mmap(self._block, size)
        _BEGUN.pack_into(self._memory, 0, self._request)

    def rows(self, number: int, columns: Any, count: int, room: tuple[int, ...] = ()) -> Rows:
        """The rows of the block that a data set's samples are written into, with the room for a sample in each field
        of varying length."""
        found = self._rows.get((number, count, room))
        if found is None:
            if len(self._rows) > 16:
                self._rows.clear()
            found = self._rows[number, count, room] = Rows(columns, count, room, self._memory)
        return found


class Rows:
    """Rows of a block: `src/processes/block.rs` has the same order."""

    def __init__(self, columns: Any, count: int, room: Sequence[int], memory: Any) -> None:
        self._columns, self._at = columns, _ALIGN
        self._out: list[Any] = []
        rooms = iter(room)
        for (_, _, shape, limit), dtype in zip(columns.fields, columns.dtypes, strict=True):
            if limit is None:
                self._out.append(self._array(memory, dtype, (count, *shape)))
            else:
                most, lengths = next(rooms), self._array(memory, np.dtype(np.uint64), (count,))
                self._out.append((self._array(memory, dtype, (count * most, *shape)), lengths, most))
        is_ragged = any(isinstance(one, tuple) for one in self._out)
        row = max(self._at // max(count, 1), 1)
        #: Samples that are written in one call: ragged rows follow each other.
        self.at_once = count if is_ragged else max(_AT_ONCE // row, 1)
        self.are_long = not is_ragged and row >= _LONG

    def _array(self, memory: Any, dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        made: np.ndarray[Any, Any] = np.ndarray(shape, dtype, memory, self._at)
        self._at += made.nbytes + -made.nbytes % _ALIGN
        return made

    @property
    def arrays(self) -> list[Any]:
        """The arrays of the rows, of fields of one size."""
        return self._out

    def write(self, samples: list[Any], first: int, are_right: AreRight | None = None) -> tuple[int, BaseException | None]:
        """Writes samples as the rows from ``first`` on; returns their number, and the error that ended it.

        Raises Shared if some share memory and are not right. Without ``are_right`` they are known to be apart.
        """
        end_if_forked()
        error = None
        while samples:
            try:
                self._columns.write(samples, self._part(first, len(samples)), are_right)
                break
            except Misfit as misfit:
                samples, error, are_right = samples[: misfit.position], misfit, None
        return len(samples), error

    def _part(self, first: int, count: int) -> list[Any]:
        rows = slice(first, first + count)
        return [(one[0], one[1][rows], one[2]) if isinstance(one, tuple) else one[rows] for one in self._out]


class Worker:
    """Answers requests until the other end of a socket is closed."""

    def __init__(self, data: int, lanes: list[Lane]) -> None:
        self._lanes = lanes
        self._readers: list[Any] = []
        self._unusable: bytes | None = None
        try:
            self._readers = packing.unpacked(data)
        except BaseException as error:  # noqa: BLE001
            self._unusable = faults.packed(error)
        end_if_forked()
        _limit_threads()
        self._watches = [Watch(reader.parts) for reader, _ in self._readers]
        # Imported modules were frozen before the fork, so their pages stay shared; this freezes the data set
        # too.
        gc.freeze()

    def run(self) -> None:
        poll = select.poll()
        lanes = {lane.fileno(): lane for lane in self._lanes}
        for number in lanes:
            poll.register(number, select.POLLIN)
        while True:
            asked = [(lanes[number], lanes[number].receive()) for number, _ in poll.poll()]
            # A batch that is wanted first is read first.
            for lane, request in sorted(asked, key=lambda one: int(REQUEST.unpack_from(one[1])[4])):
                self._serve(lane, request)

    def _serve(self, lane: Lane, request: memoryview) -> None:
        kind, number, count, is_seeded, own, epoch, size = REQUEST.unpack_from(request)
        lane.takes(own)
        if self._unusable is not None:
            lane.answer(UNUSABLE, 0, payload=self._unusable)
            return
        if kind == HELLO:
            lane.answer(DONE, 0)
            return
        numbers = request[REQUEST.size :].cast("Q").tolist()
        ids, keys = ([], numbers) if kind == MAP else (numbers[:count], numbers[count : 2 * count])
        room = () if kind == MAP else tuple(numbers[2 * count :])
        (reader, varies), watch = self._readers[number], self._watches[number]

        def read(which: Sequence[int]) -> tuple[list[Any], BaseException | None]:
            draws = [(epoch, keys[index]) for index in which] if varies else None
            found: tuple[list[Any], BaseException | None]
            found = reader.samples([ids[index] for index in which], draws)
            return found

        start = time.perf_counter_ns()
        try:
            lane.begin(size)
            seeds = watch if is_seeded else None
            if kind == MAP:
                done, error = _mapped(lane.rows(number, reader, count), reader, keys, watch)
            elif reader.is_whole:
                draws = [(epoch, key) for key in keys] if varies else None
                rows = lane.rows(number, reader.columns, count, room)
                done, error = _filled_whole(rows, reader, (ids, draws, keys), seeds)
            else:
                done, error = _filled(lane.rows(number, reader.columns, count, room), reader, read, keys, seeds)
        except BaseException as raised:  # noqa: BLE001
            # An error of this program, not of a sample: or no memory for the block.
            done, error = 0, raised
        end_if_forked()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        is_random = bool(is_seeded and watch.is_random)
        ns = time.perf_counter_ns() - start
        if error is None:
            lane.answer(DONE, done, is_random, ns)
        elif isinstance(error, Longer):
            lane.answer(LONGER, done, is_random, ns, _NEEDS.pack(error.place, error.items))
        else:
            lane.answer(FAILED, done, is_random, ns, faults.packed(error))


def _filled(
    rows: Rows, reader: Any, read: Read, keys: list[int], watch: Watch | None
) -> tuple[int, BaseException | None]:
    """Reads samples into rows; returns their number, and the error that ended the read. Seeds the generators
    that the data set uses."""
    if watch is None:
        return _fill(rows, reader, read, len(keys))
    while True:
        before = watch.states()
        found = _fill(rows, reader, watch.seeding(read, keys), len(keys))
        # Once for each generator at most.
        if not watch.has_found(before):
            return found


def _filled_whole(
    rows: Rows, reader: Any, asked: tuple[Any, Any, list[int]], watch: Watch | None
) -> tuple[int, BaseException | None]:
    """As :func:`_filled`, with the rows that a function makes from all samples."""
    while True:
        before = None if watch is None else watch.states()

        def by(read: Read, keys: Sequence[int]) -> tuple[list[Any], BaseException | None]:
            return (read if watch is None else watch.seeding(read, keys))(range(len(keys)))

        samples, error = reader.read_whole(*asked, by)
        if watch is None or before is None or not watch.has_found(before):
            break
    written, misfit = rows.write(samples, 0)
    return written, misfit or error


def _mapped(rows: Rows, hook: Any, keys: list[int], watch: Watch) -> tuple[int, BaseException | None]:
    """Calls a function of a batch on the rows that the loader has written, and writes its result."""

    def read(_: Sequence[int]) -> tuple[list[Any], BaseException | None]:
        found: tuple[list[Any], BaseException | None] = hook.attempt(rows.arrays)
        return found

    while True:
        before = watch.states()
        found, error = watch.seeding(read, keys)([0])
        if not watch.has_found(before):
            break
    end_if_forked()
    for arrays in found:
        for column, array in zip(rows.arrays, arrays, strict=True):
            column[...] = array
    return len(found), error


def _fill(rows: Rows, reader: Any, read: Read, count: int) -> tuple[int, BaseException | None]:
    done = 0
    while done < count:
        part = range(done, min(done + (1 if reader.is_one_by_one else rows.at_once), count))
        samples, error = read(part)
        while len(samples) < len(part) and error is None:
            # A call may return early to let other threads run.
            found, error = read(part[len(samples) :])
            samples += found
        # All count: no other thread fills their memory while those that share some are read again.
        reader.counted += len(samples)

        def are_right(shared: set[int], _: object, samples: list[Any] = samples, first: int = done) -> bool:
            return bool(reader.are_right(samples, lambda which: read([first + at for at in which]), shared))

        try:
            written, misfit = rows.write(samples, done, None if reader.copies or len(part) == 1 else are_right)
        except Shared:
            # Again: a long row is written before the next sample is read, rather than copied twice.
            reader.is_one_by_one, reader.copies = rows.are_long, not rows.are_long
            continue
        done += written
        if misfit is not None or error is not None:
            return done, misfit or error
    return done, None


#: The number of this process.
_process = 0


def end_if_forked() -> None:
    """Ends a child that a sample has forked, and that came back from it: it must not write rows or answer."""
    if os.getpid() != _process:
        faults.end_forked()


def _limit_threads() -> None:
    """Limits the libraries that read no environment variable to one thread."""
    torch, cv2 = sys.modules.get("torch"), sys.modules.get("cv2")
    if torch is not None:
        torch.set_num_threads(1)
        faults.refuse_gpu(torch)
    if cv2 is not None:
        cv2.setNumThreads(0)


def end_with(lanes: list[Lane]) -> None:
    """Ends this process once the loader has closed its end of a socket or was killed, even within a
    sample."""
    poll = select.poll()
    for lane in lanes:
        poll.register(lane.fileno(), select.POLLRDHUP)
    while not poll.poll():
        pass
    os._exit(0)


def main(data: int, files: list[int]) -> None:
    """Runs a worker over the sockets and blocks in ``files``."""
    global _process
    _process = os.getpid()
    lanes = [Lane(*files[at : at + 2]) for at in range(0, len(files), 2)]
    threading.Thread(target=end_with, args=(lanes,), daemon=True, name="feedline-end").start()
    Worker(data, lanes).run()
