"""Converts values of Python for batches: arrays, samples, results of hooks, padding and fills.

A value is kept exactly, or refused by an error that names its field, both types and what to write. Needs NumPy
only, so that a worker process can import it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._errors import ConfigError, shown

Array = np.ndarray[Any, Any]

#: NumPy's names for the types of batches.
DTYPES = {
    "uint8": "u8",
    "int8": "i8",
    "uint16": "u16",
    "int16": "i16",
    "uint32": "u32",
    "int32": "i32",
    "int64": "i64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "bool": "bool",
}

_NAMES = {short: name for name, short in DTYPES.items()}

#: From here on, `float64` does not hold every whole number.
_WHOLE = 2**53


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """NumPy's type for a type of batches."""
    if dtype != "bf16":
        return np.dtype(_NAMES[dtype])
    ml_dtypes = _ml_dtypes()
    if ml_dtypes is None:
        raise ConfigError('NumPy has no bfloat16: install ml_dtypes, or use framework="torch"')
    found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return found


def dtype_of(name: str, array: Array) -> str:
    """The type of ``array`` in batches.

    Raises ValueError for one that batches do not have.
    """
    dtype = DTYPES.get(array.dtype.name)
    if dtype is None:
        instead = {"uint64": "np.int64", "longdouble": "np.float64", "float128": "np.float64"}
        to = instead.get(array.dtype.name, "one of " + ", ".join(DTYPES))
        raise ValueError(
            f'field "{name}" has elements of type {array.dtype}, which batches do not have: convert it to {to}'
        )
    return dtype


def as_array(name: str, value: Any) -> Array:
    """The value of a field as a plain array in the byte order of the machine; bytes and text are ``uint8``.

    Raises ValueError for values that are not arrays of numbers.
    """
    array: Array = value if type(value) is np.ndarray else _converted(name, value)
    dtype = array.dtype
    if dtype.kind not in "biuf" and dtype.name not in DTYPES:
        raise ValueError(f'field "{name}" {_refusal(array)}')
    return array if dtype.isnative else array.astype(dtype.newbyteorder("="))


def _converted(name: str, value: Any) -> Array:
    if isinstance(value, str):
        try:
            return np.frombuffer(value.encode(), np.uint8)
        except UnicodeEncodeError as error:
            raise ValueError(
                f'field "{name}" is a text with {value[error.start]!r} at character {error.start}, half of a '
                'surrogate pair, which UTF-8 does not have: give text.encode("utf-8", "replace").decode()'
            ) from None
    if isinstance(value, (bytes, bytearray)):
        return np.frombuffer(value, np.uint8)
    _check_whole(name, value)
    if _is_masked(value):
        raise ValueError(
            f'field "{name}" is a masked array, whose mask would be lost: give x.filled(...), and '
            "np.ma.getmaskarray(x) as a field of its own"
        )
    try:
        if str(getattr(value, "dtype", "")) == "torch.bfloat16":
            return _bits(value)
        array: Array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise ValueError(f'field "{name}" is {type(value).__name__}, not one array: {error}') from error
    if isinstance(value, (list, tuple)) and array.dtype.kind == "f" and _has_lost(value, array):
        raise ValueError(
            f'field "{name}" has whole numbers beyond 2^53 beside others, which float64 rounds: give an array '
            "of one type"
        )
    return array


def json_of(texts: Sequence[str]) -> Array:
    """The UTF-8 of the JSON of a list of texts."""
    return np.frombuffer(json.dumps(list(texts)).encode(), np.uint8)


def _check_whole(name: str, value: Any) -> None:
    """Refuses a column of a table that NumPy would change: missing values become NaN, and several types one."""
    nulls = getattr(value, "null_count", 0)
    has_nulls = bool(nulls() if callable(nulls) else nulls)
    if not has_nulls and getattr(getattr(value, "dtype", None), "kind", "") in ("i", "u", "b"):
        has_nulls = hasattr(value, "isna") and bool(value.isna().any())
    if has_nulls:
        raise ValueError(f'field "{name}" has missing values, which an array does not have: fill them before')
    types = getattr(value, "dtypes", ()) if hasattr(value, "columns") else ()
    if len({str(dtype) for dtype in types}) > 1:
        raise ValueError(f'field "{name}" is a table with columns of several types: give each column as a field')


def _is_masked(value: Any) -> bool:
    # Without the module there are none, and NumPy imports it when it is first used.
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
    return masked is not None and _has(value, masked)


def _has(value: Any, masked: type) -> bool:
    if isinstance(value, (list, tuple)):
        kinds = set(map(type, value))
        return any(issubclass(kind, (list, tuple, masked)) for kind in kinds) and any(_has(one, masked) for one in value)
    return isinstance(value, masked)


def _has_lost(value: Sequence[Any], array: Array) -> bool:
    """Whether NumPy has rounded a whole number in a list, to have one type for all of its elements."""
    large = np.abs(array) >= _WHOLE
    if not large.any():
        return False
    elements = np.asarray(value, object)[large]
    rounded = zip(elements, array[large], strict=True)
    return any(isinstance(own, (int, np.integer)) and int(own) != int(now) for own, now in rounded)


def _refusal(array: Array) -> str:
    """Text about an unsupported kind of array, and its replacement."""
    kind = array.dtype.kind
    if array.dtype.names is not None:
        first = array.dtype.names[0]
        return f'is a structured array ({array.dtype}): give each of its fields as one, as x["{first}"]'
    if kind in "Mm":
        return f'is {array.dtype}: give whole numbers, as x.astype("{array.dtype}").astype("int64")'
    if kind == "c":
        return f"is {array.dtype}: give its parts, as np.stack([x.real, x.imag], -1)"
    if kind in "UST":
        return (
            f"is an array of texts ({array.dtype}), which a batch does not have: give str, a list of str, or "
            "numbers, as np.unique(x, return_inverse=True)[1]"
        )
    if kind == "O":
        return _refusal_of_objects(array)
    return f"has elements of type {array.dtype}, which batches do not have: convert it"


def _refusal_of_objects(array: Array) -> str:
    """Text about an array of objects, by the first that is no number."""
    if array.size == 0:
        return 'has no elements, and a type for objects: convert it, as x.astype("float32")'
    odd = next((one for one in array.flat if not isinstance(one, (int, float, np.number, np.bool_))), None)
    is_or_has = "is" if array.ndim == 0 else "has"
    if odd is None and not any(one is None for one in array.flat):
        if any(isinstance(one, int) and not -(2**63) <= one < 2**63 for one in array.flat):
            return f"{is_or_has} a whole number beyond int64: give float64"
        return 'is an array of objects, which are numbers: convert it, as x.astype("float64")'
    if odd is None:
        return f"{is_or_has} None: give a number for a missing value, such as float('nan')"
    if isinstance(odd, str):
        return (
            "is an array or a list of texts and others, which a batch does not have: give str, a list of str, or numbers, "
            "as np.unique(x.astype(str), return_inverse=True)[1]"
        )
    return f"{is_or_has} {type(odd).__name__}, which is not an array, a number or a text: convert it"


def _bits(tensor: Any) -> Array:
    """A tensor of torch's bfloat16, which NumPy does not have."""
    import torch

    ml_dtypes = _ml_dtypes()
    if ml_dtypes is None:
        raise ValueError("NumPy has no bfloat16: install ml_dtypes, or convert the tensor to float32")
    bits: Array = tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return bits


def _ml_dtypes() -> Any:
    try:
        import ml_dtypes
    except ImportError:
        return None
    return ml_dtypes


def exact(name: str, array: Array, dtype: np.dtype[Any], whose: str) -> Array:
    """The array as ``dtype``, the type of ``whose``.

    Raises ValueError for a value that would change.
    """
    if array.dtype == dtype:
        return array
    changed = _changed(array, dtype)
    if changed.any():
        value = array[changed].flat[0]
        raise ValueError(
            f'field "{name}" has {value!s} ({array.dtype}), which {dtype} does not hold exactly: {dtype} is '
            f"the type of {whose}; convert it there, or here"
        )
    return _cast(array, dtype)


def _changed(array: Array, dtype: np.dtype[Any]) -> Array:
    """A mask of the elements whose value would change as ``dtype``."""
    if _is_float(array.dtype) and array.dtype.kind != "f":
        array = array.astype(np.float32)
    if dtype.kind == "b":
        return np.asarray((array != 0) & (array != 1))
    if array.dtype.kind == "b":
        return np.zeros(array.shape, bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        low, high = int(info.min), int(info.max)
        if array.dtype.kind in "iu":
            own = np.iinfo(array.dtype)
            outside = np.zeros(array.shape, bool)
            if own.min < low:
                outside |= array < low
            if own.max > high:
                outside |= array > high
            return outside
        wide = array.astype(np.float64) if array.dtype.itemsize < 8 else array
        # Both bounds are powers of two or 0, so exact as floats.
        return np.asarray(~((wide >= float(low)) & (wide < float(high + 1)) & (wide == np.trunc(wide))))
    back = _cast(array, dtype)
    if dtype.kind != "f":
        back = back.astype(np.float32)
    if array.dtype.kind == "f":
        return np.asarray((back.astype(array.dtype) != array) & ~np.isnan(array))
    # Whole numbers: a comparison with floats would round them.
    info = np.iinfo(array.dtype)
    back = back.astype(np.float64)
    fits = (back >= float(int(info.min))) & (back < float(int(info.max) + 1))
    return np.asarray(~fits | (np.where(fits, back, 0.0).astype(array.dtype) != array))


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype.name == "bfloat16"


def _cast(array: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def one(name: str, value: Any, dtype: np.dtype[Any], what: str) -> bytes:
    """The bytes of one element for ``what``, such as padding; a fraction is rounded to the nearest.

    Raises ConfigError for a value that ``dtype`` does not have.
    """
    try:
        array = as_array(name, value)
    except ValueError as error:
        raise ConfigError(f"{what}: {error}") from None
    if array.ndim > 0:
        raise ConfigError(f'{what} of "{name}" is {shown(value)}: give one number')
    is_rounded = _is_float(array.dtype) and _is_rounded(float(array), dtype)
    if _changed(array, dtype).any() and not is_rounded:
        raise ConfigError(
            f'{what} of "{name}" is {shown(value)}, and the field is {dtype}, which does not have it: give another '
            "value, or make the field another type"
        )
    return _cast(array, dtype).tobytes()


def _is_rounded(number: float, dtype: np.dtype[Any]) -> bool:
    """Whether ``dtype`` has a number near to a fraction, or to one too large to be counted."""
    is_near = _is_float(dtype) and bool(np.isfinite(_cast(_cast(np.array(number), dtype), np.dtype(float))))
    return is_near and (abs(number) >= _WHOLE or not number.is_integer())


def fill(column: str, value: Any) -> int | float | str:
    """The replacement for a column's missing values, as a plain value of Python.
    """
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (int, np.integer, np.bool_)):
        if not -(2**64) < int(value) < 2**64:
            raise ConfigError(f'fill of "{column}" by {value}: no type of batches holds it')
        return int(value)
    try:
        array = as_array(column, value)
    except ValueError as error:
        raise ConfigError(f"fill: {error}") from None
    if array.ndim > 0:
        raise ConfigError(f'fill of "{column}" is {shown(value)}: give one number, or a text')
    return int(array) if array.dtype.kind in "iub" else float(array)


def categories(column: str, values: Sequence[Any]) -> list[str | int | bool]:
    """The stated values of a category, as plain values of Python.

    Raises ConfigError for values that have no categories.
    """
    if isinstance(values, (str, bytes)):
        raise ConfigError(f'the category "{column}" has the values {shown(values)}: give a list of them')
    return [_category(column, value) for value in values]


def _category(column: str, value: Any) -> str | int | bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, str):
        return str(value)
    why = f'the list of category "{column}" has {shown(value)}, which is neither a text, nor a whole number or a bool'
    raise ConfigError(f"{why}: write it as the column has it")


def fields_of(sample: Any) -> dict[str, Any]:
    """The fields of a sample: those of a dict, or the places of a tuple; else the one field ``0``."""
    if isinstance(sample, Mapping):
        return dict(sample)
    if isinstance(sample, (tuple, list)):
        return {str(place): value for place, value in enumerate(sample)}
    if type(sample).__module__.partition(".")[0] in ("pandas", "polars"):
        raise ConfigError(
            f"a sample is a {type(sample).__name__}, whose columns would lose their names and types: give a dict of "
            "its values, as dict(row) of a pandas Series or df.row(i, named=True) of polars"
        )
    return {"0": sample}
