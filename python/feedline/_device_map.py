"""A function of torch tensors that makes each batch ahead of the step, on a stream of its own."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _feedline
from ._batch import Batch, Copied, Info
from ._errors import ConfigError, Error, describe, shown

if TYPE_CHECKING:
    from ._frameworks import Framework


class Mapped(Copied):
    """A batch made by a device map: its tensors have their own memory."""

    __slots__ = ()

    def __init__(self, fields: Mapping[str, Any], framework: Framework, info: Info) -> None:
        self._forms = self._arrays = dict(fields)
        self._framework, self._inner = framework, info  # type: ignore[assignment]


class Position(NamedTuple):
    """The position of the loader between two batches."""

    cursor: tuple[bytes, int, int, int | None]
    bad_samples: str | None
    order_hash: int

    @classmethod
    def of(cls, inner: _feedline.Loader) -> Position:
        return cls(inner.cursor(), inner.bad_samples(), inner.order_hash())


class DeviceMap:
    """Calls ``function`` one batch ahead of the loop, on the thread of the loop.

    Before a batch is handed over, the next one is mapped if it has arrived, so that its kernels run beside
    the step. It counts only once it is handed over itself, and is dropped if the epoch is left.
    """

    def __init__(
        self,
        function: Callable[[dict[str, Any]], Any],
        inner: _feedline.Loader,
        forms: Mapping[str, Callable[..., Any]],
        framework: Framework,
        *,
        seed: int,
        gpu: int | None,
    ) -> None:
        self._function, self._inner, self._forms, self._framework = function, inner, forms, framework
        self._seed, self._lane = seed, _Lane(gpu) if gpu is not None else None
        #: The next result: a mapped batch and the event of its work, or an exception.
        self._ahead: tuple[Mapped, Any] | BaseException | None = None
        #: The batch that is being mapped, kept after an interrupt, and the position before it.
        self._taken: tuple[_feedline.Batch, Position] | None = None
        #: The position of the loop, if the loader is ahead of it.
        self.position: Position | None = None
        self._is_failed = False

    def clear(self) -> None:
        """Drops the batch that was mapped ahead, since another epoch begins."""
        self._ahead = self._taken = self.position = None
        self._is_failed = False

    def next(self) -> Mapped | None:
        """The next batch; ``None`` at the end of the epoch, and after an exception."""
        if self._is_failed:
            return None
        if self._lane is not None:
            self._lane.refuse_capture()
        if self._ahead is None:
            self._take(self._inner.next)
        ahead, position = self._ahead, self.position
        self._ahead = self.position = None
        if ahead is None:
            return None
        if isinstance(ahead, BaseException):
            # The position stays before the failed batch.
            self.position, self._is_failed = position, True
            try:
                raise ahead
            finally:
                # Its traceback refers to this frame, and to tensors of the slot.
                del ahead
        try:
            self._take(self._next_ready)
        except BaseException:
            # After an interrupt, both batches come later.
            self._ahead, self.position = ahead, position
            raise
        batch, event = ahead
        if self._lane is not None:
            self._lane.hand_over(event)
        return batch

    def _next_ready(self) -> _feedline.Batch | None:
        try:
            return self._inner.next_ready()
        except Exception as error:  # noqa: BLE001
            # An error of a later batch is raised in its turn.
            self._ahead = error
            return None

    def _take(self, next_batch: Callable[[], _feedline.Batch | None]) -> None:
        """Takes a batch of the loader and maps it. An exception of the function is kept until the batch is
        due; an interrupt is raised at once, and the batch is mapped again."""
        if self._taken is None:
            position = Position.of(self._inner)
            taken = next_batch()
            if taken is None:
                self.position = None if self._ahead is None else position
                return
            self._taken = taken, position
        taken, self.position = self._taken
        info = Info(taken)
        start = time.perf_counter_ns()
        try:
            with contextlib.nullcontext() if self._lane is None else self._lane.work() as event:
                fields = self._call(taken, info)
            self._ahead = Mapped(fields, self._framework, info), event
        except Exception as error:  # noqa: BLE001
            self._ahead = _failed(error, info)
        finally:
            self._inner.add_device_map_time(time.perf_counter_ns() - start)
        self._taken = None

    def _call(self, taken: _feedline.Batch, info: Info) -> dict[str, Any]:
        import torch

        fields = dict(Batch(taken, self._forms, self._framework))
        slot = {_address(part) for value in fields.values() for part in _parts(value)}
        with torch.no_grad(), _seeded(self._key(info), self._lane):
            result = self._function(fields)
            # A field that is passed on would free its slot before the loop's stream has read it.
            made = {name: _copied(value, slot) for name, value in _checked(fields, result).items()}
        del fields, result
        if taken.is_in_use():
            # A reference cycle may hold them.
            gc.collect()
            if taken.is_in_use():
                raise _Refused(
                    "device_map has kept a tensor of the batch that it was given, whose memory is used for "
                    "other batches: keep a clone() of it"
                )
        return made

    def _key(self, info: Info) -> int:
        """The seed of a batch: by the seed of the loader, the position of the batch, and the rank."""
        of = (self._seed, info.epoch, info.step, self._inner.world[0])
        text = b"device_map" + b"".join(number.to_bytes(8, "little") for number in of)
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


class _Lane:
    """The stream of a device map, and its order with the streams of the loop."""

    def __init__(self, gpu: int) -> None:
        torch: Any = importlib.import_module("torch")
        torch.cuda.init()
        self._torch, self._device = torch, torch.device("cuda", gpu)
        # High priority, as the loader's streams.
        self._stream = torch.cuda.Stream(self._device, priority=-1)
        self.generator = torch.cuda.default_generators[gpu]
        #: The streams that batches were handed to.
        self._readers: list[Any] = []

    def refuse_capture(self) -> None:
        """Refuses a graph that is being captured: a replay would not map another batch."""
        if self._torch.cuda.is_current_stream_capturing():
            raise ConfigError(
                "a batch with a device_map cannot be taken while a CUDA graph is captured: take it before, "
                "and copy it to tensors of the graph"
            )

    def hand_over(self, event: Any) -> None:
        """Makes the current stream wait for the work up to ``event``."""
        self._reader().wait_event(event)

    @contextlib.contextmanager
    def work(self) -> Iterator[Any]:
        """Runs work on the lane's stream; returns the event that is recorded at its end.

        The work runs after the work that the loop has queued so far. So it sees the loop's tensors, and
        memory that the loop has freed is reused only after its last use.
        """
        event = self._torch.cuda.Event()
        self._reader()
        for reader in self._readers:
            self._stream.wait_stream(reader)
        with self._torch.cuda.stream(self._stream):
            yield event
            event.record(self._stream)

    def _reader(self) -> Any:
        reader = self._torch.cuda.current_stream(self._device)
        if reader not in self._readers:
            self._readers.append(reader)
        return reader


@contextlib.contextmanager
def _seeded(key: int, lane: _Lane | None) -> Iterator[None]:
    """Seeds torch's generators, and restores them, so that the loop draws the same numbers with and without a
    device map. Not NumPy's: that would take longer than the rest of the call."""
    torch: Any = importlib.import_module("torch")
    generators = [torch.default_generator, *([] if lane is None else [lane.generator])]
    states = [generator.get_state() for generator in generators]
    try:
        for generator in generators:
            generator.manual_seed(key & 0x7FFFFFFFFFFFFFFF)
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


class _Refused(Exception):
    """The error for something that a device map must not do."""


def _checked(fields: dict[str, Any], result: Any) -> Mapping[str, Any]:
    """The fields that the function returned, or left in its dict if it returned nothing."""
    import torch

    fields = fields if result is None else result
    if not isinstance(fields, Mapping):
        raise _Refused(f"device_map returned {type(fields).__name__}: return a dict of tensors, or nothing")
    for name, value in fields.items():
        if not isinstance(name, str) or not all(isinstance(part, torch.Tensor) for part in _parts(value)):
            raise _Refused(
                f"device_map returned {type(value).__name__} for {shown(name)}: return a dict of tensors by name"
            )
    return fields


def _parts(value: Any) -> tuple[Any, ...]:
    """The tensors of a field."""
    return value if isinstance(value, tuple) else (value,)


def _address(tensor: Any) -> int | None:
    """The address of a tensor's memory; ``None`` if it has none."""
    try:
        return int(tensor.untyped_storage().data_ptr()) or None
    except (NotImplementedError, RuntimeError):
        return None


def _copied(value: Any, slot: set[int | None]) -> Any:
    """A field with copies of the tensors that are memory of the slot."""
    parts = [part.clone() if (_address(part) or 0) in slot else part for part in _parts(value)]
    if not isinstance(value, tuple):
        return parts[0]
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)


def _failed(error: Exception, info: Info) -> Error:
    """The error of a batch."""
    is_own = isinstance(error, _Refused)
    what = str(error) if is_own else f"device_map failed: {describe(error, error.__traceback__)}"
    made = Error(f"{what} (stage device map, batch {info.step})")
    made.stage, made.batch = "device map", info.step
    made.__cause__ = None if is_own else error
    return made
