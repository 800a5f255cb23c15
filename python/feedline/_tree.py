"""Batches of any structure: what `collate_fn` returned, as the bytes of its arrays and a pickle of all else.

Both are fields of a batch, in pieces of one size for each row. The arrays go the way of every batch; the pickle
stays on the host. Unpickling gives the same objects, with arrays of the loader's framework.

Needs NumPy only, so that a worker process can import it.
"""

from __future__ import annotations

import io
import math
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ._columns import Longer, Packed, room_for
from ._values import DTYPES, Array, numpy_dtype

#: The fields of such a batch.
ARRAYS, PICKLE = "arrays", "pickle"

#: Arrays begin at multiples of this.
_ALIGN = 64

#: Where an array is: its first byte, its type and its shape.
Place = tuple[int, str, tuple[int, ...]]

#: Types without arrays in them, which come often.
_PLAIN = frozenset({str, int, float, bool, bytes, type(None), dict, list, tuple})


class Tree:
    """A result of `collate_fn`, taken apart."""

    def __init__(self, value: Any) -> None:
        file = io.BytesIO()
        pickler = _Pickler(file)
        try:
            pickler.dump(value)
        except Exception as error:
            # As pickle has many: of a lambda, a lock, a generator.
            raise ValueError(f"collate_fn returned {type(value).__name__}, which cannot be pickled: {error}") from error
        #: What each field of the batch is made of.
        self.parts: list[list[Any]] = [pickler.parts, [file.getvalue()]]
        self.sizes = [pickler.size, file.tell()]
        #: The arrays, by number: the function may keep their memory.
        self.arrays: Mapping[str, Any] = {str(at): value for at, (value, _) in enumerate(pickler.found.values())}

    def rows(self, count: int) -> list[Tree]:
        """The rows of a batch of ``count`` samples: this tree is all of them."""
        return [self] * count


class TreeColumns:
    """The fields of a tree, as :class:`Columns` are those of samples. Each row has a piece of one size, so that the
    room for a row is that of a batch, divided by its rows."""

    is_tuple, row_bytes = False, 0
    places: Sequence[Any] = ()
    dtypes = (np.dtype(np.uint8), np.dtype(np.uint8))
    growing = (ARRAYS, PICKLE)

    def __init__(self, one: Tree, two: Tree) -> None:
        # The bytes of a sample. Those of every batch may be many: slots that lack room for them are made larger.
        own = [max(of_two - of_one, 0) for of_one, of_two in zip(one.sizes, two.sizes, strict=True)]
        self.fields = [(name, "u8", list[int](), room_for(2 * size)) for name, size in zip(self.growing, own, strict=True)]

    def rows(self, rows: Sequence[Tree], _: object = None) -> list[Packed]:
        """The bytes of each field, and the lengths of the rows."""
        if not rows:
            return [(b"", []) for _ in self.growing]
        pieces = zip(rows[0].parts, rows[0].sizes, strict=True)
        return [(b"".join(parts), _pieces(size, len(rows))) for parts, size in pieces]

    def write(self, rows: Sequence[Tree], out: Sequence[Any], _: object = None) -> None:
        """Writes the fields into their arrays. Raises Longer if there is no room."""
        for place, (items, lengths, room) in enumerate(out):
            if not rows:
                return
            parts, size = rows[0].parts[place], rows[0].sizes[place]
            lengths[...] = _pieces(size, len(rows))
            if lengths.max() > room:
                longer = Longer(0, int(lengths.max()))
                longer.place = place
                raise longer
            at = 0
            for part in parts:
                items[at : at + len(part)] = np.frombuffer(part, np.uint8)
                at += len(part)


def _pieces(size: int, count: int) -> list[int]:
    """The lengths of ``count`` pieces."""
    piece = max(-(-size // count), 1)
    full, rest = divmod(size, piece)
    return ([piece] * full + [rest] + [0] * count)[:count]


class _Pickler(pickle.Pickler):
    """Pickles all but arrays, which it collects."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        #: The arrays and where they are, by the ids of their objects.
        self.found: dict[int, tuple[Any, Place]] = {}
        #: The bytes of each, and what is between them.
        self.parts: list[Any] = []
        self.size = 0

    def persistent_id(self, value: Any) -> Place | None:
        if type(value) in _PLAIN:
            return None
        known = self.found.get(id(value))
        if known is not None:
            return known[1]
        found = _bytes_of(value)
        if found is None:
            return None
        dtype, array = found
        place = (self.size, dtype, tuple(value.shape))
        self.found[id(value)] = value, place
        # At least one byte, so that each array has a place of its own.
        between = -array.nbytes % _ALIGN if array.nbytes else _ALIGN
        self.parts += [array, bytes(between)]
        self.size += array.nbytes + between
        return place

    def reducer_override(self, value: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(value, torch.Tensor) or type(value) is torch.Tensor:
            return NotImplemented
        if value.layout is torch.strided:
            return _subclass, (type(value), value.detach().as_subclass(torch.Tensor), vars(value))
        return NotImplemented


def _subclass(kind: Any, tensor: Any, attributes: dict[str, Any]) -> Any:
    made = tensor.as_subclass(kind)
    vars(made).update(attributes)
    return made


def _bytes_of(value: Any) -> tuple[str, Array] | None:
    """The type of an array of a batch, and its bytes; ``None`` for all else, such as an array of objects."""
    if type(value) in (np.ndarray, np.memmap):
        dtype = DTYPES.get(value.dtype.name)
        if dtype is None:
            return None
        native = np.asarray(value).astype(value.dtype.newbyteorder("="), copy=False)
        return dtype, np.ascontiguousarray(native).reshape(-1).view(np.uint8)
    torch = sys.modules.get("torch")
    if torch is None or type(value) is not torch.Tensor or value.layout is not torch.strided or value.is_nested:
        return None
    dtype = DTYPES.get(str(value.dtype).removeprefix("torch."))
    if dtype is None or value.device.type != "cpu":
        return None
    flat = value.detach().resolve_neg().contiguous().as_strided((value.numel(),), (1,))
    return dtype, flat.view(torch.uint8).numpy()


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, array: Callable[[Place], Any]) -> None:
        super().__init__(file)
        self._array, self._made = array, dict[Place, Any]()

    def persistent_load(self, place: Place) -> Any:
        if place not in self._made:
            self._made[place] = self._array(place)
        return self._made[place]


def in_memory(arrays: bytes, pickled: bytes) -> Any:
    """The result of `collate_fn` for one sample, with arrays of NumPy."""

    def array(place: Place) -> Any:
        at, name, shape = place
        dtype = numpy_dtype(name)
        return np.frombuffer(arrays, dtype, math.prod(shape), at).reshape(shape)

    return opened(pickled, array)


def opened(pickled: bytes, array: Callable[[Place], Any]) -> Any:
    """The result of `collate_fn`, with the arrays that ``array`` makes."""
    return _Unpickler(io.BytesIO(pickled), array).load()
