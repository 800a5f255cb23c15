"""The fields of texts of a loader: a batch has them as lists of `str`, which stay on the host."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from . import _parts, _room
from ._data import Data
from ._errors import ConfigError, DataError
from ._source import Source

if TYPE_CHECKING:
    from ._columns import Columns

#: Ends the name of the field with the lengths of texts in a list.
_LENGTHS = ".lengths"

#: Makes the value of a field of a batch.
Form = Callable[..., Any]


def kept(forms: Mapping[str, Form]) -> list[str]:
    """The fields that the host keeps for these forms."""
    return [*forms, *(name + _LENGTHS for name, form in forms.items() if form is _lists)]


def forms_of_texts(
    data: Data | Source, text: Union[str, Sequence[str], None], padded: Collection[str], has_device_map: bool
) -> dict[str, Form]:
    """The forms of the fields that are texts by their samples, or that ``text`` names."""
    fields = {field.name: field for field in data.fields}
    forms: dict[str, Form] = {}
    for name in _parts.names("text", text):
        field = fields.get(name)
        if field is None:
            raise ConfigError(f'text names "{name}", and the fields are {list(fields)}')
        if field.max_length is None or field.dtype != "u8" or field.shape:
            raise ConfigError(f'text names "{name}", which has {field.dtype} {list(field.shape)}: it is for UTF-8')
        if name in padded or has_device_map:
            why = "pad names it, too" if name in padded else "device_map gets tensors"
            raise ConfigError(f'text names "{name}", and {why}: leave one of them out')
        forms[name] = _lists if name + _LENGTHS in fields else _texts
    if has_device_map:
        return forms
    forms |= _known(data)
    return {name: form for name, form in forms.items() if name in fields and name not in padded}


def _known(data: Data | Source) -> dict[str, Form]:
    """The fields that are known to be texts: by samples of Python, or named when files were opened."""
    if isinstance(data, Source):
        return _by_type(data._opens.columns) if data._of is None else {}
    if data._nest is not None:
        return {}
    if data._reader is not None:
        return _by_type(data._reader.columns)
    found = dict.fromkeys(data._texts, _texts)
    for part in _room.parts(data):
        found |= _known(part)
    return found


def _by_type(columns: Columns) -> dict[str, Form]:
    return dict.fromkeys(columns.texts, _texts) | dict.fromkeys(columns.text_lists, _json_lists)


def _texts(_: Any, inner: Any, name: str) -> list[str]:
    try:
        return [row.decode() for row in inner.host_rows(name)]
    except UnicodeDecodeError as error:
        raise _not_utf8(name, error) from None


def _json_lists(_: Any, inner: Any, name: str) -> list[list[str]]:
    return [json.loads(row) for row in inner.host_rows(name)]


def _lists(_: Any, inner: Any, name: str) -> list[list[str]]:
    """Lists of texts of Arrow or Parquet."""
    try:
        return [
            [row[end - length : end].decode() for end, length in zip(accumulate(lengths), lengths, strict=True)]
            for row, lengths in zip(inner.host_rows(name), _lengths(inner, name), strict=True)
        ]
    except UnicodeDecodeError as error:
        raise _not_utf8(name, error) from None


def _lengths(inner: Any, name: str) -> list[list[int]]:
    return [np.frombuffer(row, np.int64).tolist() for row in inner.host_rows(name + _LENGTHS)]


def _not_utf8(name: str, error: UnicodeDecodeError) -> DataError:
    return DataError(f'field "{name}" has bytes that are no text: {error}: leave it out of text')
