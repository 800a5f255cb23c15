"""Random generators, global ones and those of a data set: their states, and their seeds.

NumPy and Python build a state number by number, which takes 45 us and 8 us. So the bytes of a generator are
copied in memory, which takes 0.1 us, if a check against the official state confirms the layout.
"""

from __future__ import annotations

import ctypes
import pickle
import random
import struct
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

# NumPy imports it when it is first used: here, so that a sample that does so is not taken for one that draws.
import numpy.random

#: A part of an object in memory: address and bytes.
Place = tuple[int, int]

#: The words of a Mersenne Twister's state, and the index in them.
_WORDS = 625


def _bytes_of(places: Sequence[Place]) -> bytes:
    return b"".join([ctypes.string_at(*place) for place in places])


def _write(places: Sequence[Place], state: bytes) -> None:
    at = 0
    for start, size in places:
        ctypes.memmove(start, state[at : at + size], size)
        at += size


def _is_within(start: int, size: int, whole: object) -> bool:
    return id(whole) <= start and start + size <= id(whole) + type(whole).__basicsize__


def _has_lock() -> bool:
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


class Python:
    """The generator of `random`, or one like it."""

    #: The name in a message.
    name = "random"

    def __init__(self, own: random.Random | None = None, mixed: int = 0) -> None:
        self._own: Any = getattr(random, "_inst", None) if own is None else own
        #: Combined with each key, so that the generators of a data set draw different numbers.
        self._mixed = mixed
        self._places = self._found()

    def _found(self) -> list[Place]:
        """The memory of the state; empty if it is not known."""
        place = id(self._own) + object.__basicsize__, 4 * _WORDS
        if type(self._own) is not random.Random or not _has_lock() or not _is_within(*place, self._own):
            return []
        at, *words = struct.unpack(f"={_WORDS}I", _bytes_of([place]))
        return [place] if (*words, at) == self._own.getstate()[1] else []

    @property
    def identity(self) -> int:
        return id(self._own)

    def state(self) -> Any:
        if self._places:
            return _bytes_of(self._places), self._own.gauss_next
        return self._own.getstate()

    def restore(self, state: Any) -> None:
        if self._places:
            _write(self._places, state[0])
            self._own.gauss_next = state[1]
        else:
            self._own.setstate(state)

    def seed(self, key: int) -> None:
        self._own.seed(key ^ self._mixed)


class NumPy:
    """The generator of `np.random`, or one like it."""

    name = "np.random"

    def __init__(self, own: np.random.RandomState | None = None, mixed: int = 0) -> None:
        self._own: Any = getattr(getattr(np.random, "mtrand", None), "_rand", None) if own is None else own
        self._mixed = mixed
        self._bits: Any = None
        self._places: list[Place] = []
        self._find()

    def _find(self) -> None:
        self._bits = getattr(self._own, "_bit_generator", None)
        self._places = self._found() if isinstance(self._own, np.random.RandomState) and _has_lock() else []

    def _found(self) -> list[Place]:
        if type(self._bits) is not np.random.MT19937 or type(self._own) is not np.random.RandomState:
            return []
        words = int(self._bits.ctypes.state_address), 4 * _WORDS
        offset = _offset_of_gauss()
        normal = id(self._own) + offset, 16
        if offset == 0 or not _is_within(*words, self._bits) or not _is_within(*normal, self._own):
            return []
        official: Any = self._own.get_state()
        _, key, place, has_normal, value = official
        *found, at = struct.unpack(f"={_WORDS}I", _bytes_of([words]))
        has, it = struct.unpack("=ixxxxd", _bytes_of([normal]))
        is_known = found == key.tolist() and at == place and (has, it) == (has_normal, value)
        return [words, normal] if is_known else []

    @property
    def identity(self) -> int:
        return id(self._own)

    def state(self) -> Any:
        if self._bits is not getattr(self._own, "_bit_generator", None):
            # `np.random.set_bit_generator` has set another one.
            self._find()
        if self._places:
            return _bytes_of(self._places)
        return pickle.dumps(self._own.get_state(legacy=False))

    def restore(self, state: Any) -> None:
        if self._places and len(state) == sum(size for _, size in self._places):
            with self._bits.lock:
                _write(self._places, state)
        else:
            self._own.set_state(pickle.loads(state))

    def seed(self, key: int) -> None:
        key ^= self._mixed
        if type(self._bits) is np.random.MT19937:
            # Two words: with one, two of 77,000 samples would have the same seed.
            self._own.seed((key & 0xFFFFFFFF, key >> 32))
        else:
            state = self._own.get_state(legacy=False)
            self._own.set_state({**state, **type(self._bits)(key).state, "has_gauss": 0, "gauss": 0.0})


class Bits:
    """A bit generator of NumPy, which its generators draw from."""

    name = "np.random.Generator"

    def __init__(self, own: np.random.BitGenerator, mixed: int) -> None:
        self._own: Any = own
        self._mixed = mixed
        # Fails for one that cannot be made from a seed.
        self._made(0)

    @property
    def identity(self) -> int:
        return id(self._own)

    def _made(self, key: int) -> Any:
        return type(self._own)(key).state

    def state(self) -> Any:
        return pickle.dumps(self._own.state)

    def restore(self, state: Any) -> None:
        self._own.state = pickle.loads(state)

    def seed(self, key: int) -> None:
        self._own.state = self._made(key ^ self._mixed)


def _offset_of_gauss() -> int:
    """The offset at which a generator of NumPy keeps the second of two normal numbers: a flag, and the
    number. 0 if unknown."""
    number, key = 1.2345678901, np.arange(_WORDS - 1, dtype=np.uint32)
    one = np.random.RandomState(np.random.MT19937(1))
    offsets = []
    for flag in (1, 0):
        one.set_state(("MT19937", key, 3, flag, number))
        memory = _bytes_of([(id(one), type(one).__basicsize__)])
        offsets.append(memory.find(struct.pack("=ixxxxd", flag, number)))
    return offsets[0] if offsets[0] == offsets[1] and offsets[0] > 0 else 0


class Torch:
    """The default generator of torch on the CPU, or one like it."""

    name = "torch"

    def __init__(self, torch: Any, own: Any = None, mixed: int = 0) -> None:
        self._torch, self._own, self._mixed = torch, torch.default_generator if own is None else own, mixed

    @property
    def identity(self) -> int:
        return id(self._own)

    def state(self) -> Any:
        return self._own.get_state().numpy().tobytes()

    def restore(self, state: Any) -> None:
        self._own.set_state(self._torch.frombuffer(bytearray(state), dtype=self._torch.uint8))

    def seed(self, key: int) -> None:
        # `torch.manual_seed` takes 70 us, because it visits every device.
        self._own.manual_seed((key ^ self._mixed) & 0x7FFFFFFFFFFFFFFF)


_all: list[Any] = []


def all_generators() -> list[Any]:
    """The generators of the libraries that are imported; a new one comes last."""
    if not _all:
        _all.extend([Python(), NumPy()])
    if len(_all) == 2:
        torch = sys.modules.get("torch")
        # Missing while torch is being imported.
        if hasattr(torch, "default_generator"):
            _all.append(Torch(torch))
    return list(_all)
