"""The fields of a batch that are made with what the host keeps: texts, as lists of `str`, and pictures of their own
sizes, as lists of arrays."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, Union

import numpy as np

from . import _parts, _room
from ._data import Data
from ._errors import ConfigError, DataError
from ._source import Source

if TYPE_CHECKING:
    from ._columns import Columns

#: Ends the name of the field with the lengths of texts in a list.
_LENGTHS = ".lengths"

_NO_TEXT = 'field "{}" has bytes that are no text: {}: leave it out of text'


class HostForm(NamedTuple):
    """Makes the value of a field of a batch from what the host keeps, and that of a sample."""

    make: Any
    #: From the sample and the name of the field.
    of_sample: Callable[[Mapping[str, Any], str], Any]
    #: The ends of the names of the fields that the host keeps.
    keeps: tuple[str, ...] = ("",)

    def __call__(self, framework: Any, inner: Any, name: str) -> Any:
        return self.make(framework, inner, name)


def kept(forms: Mapping[str, HostForm]) -> list[str]:
    """The fields that the host keeps for these forms."""
    return [name + end for name, form in forms.items() for end in form.keeps]


def host_forms(
    data: Data | Source, text: Union[str, Sequence[str], None], padded: Collection[str], has_device_map: bool
) -> dict[str, HostForm]:
    """The forms of the fields that are texts by their samples, or that ``text`` names, and of pictures of their own
    sizes."""
    fields = {field.name: field for field in data.fields}
    forms = text_forms(data, _parts.names("text", text))
    for name in forms:
        if name in padded or has_device_map:
            why = "pad names it, too" if name in padded else "device_map gets tensors"
            raise ConfigError(f'text names "{name}", and {why}: leave one of them out')
    for name, form in known_forms(data).items():
        is_text = form in (TEXTS, LISTS, JSON_LISTS)
        if not is_text and (name in padded or has_device_map):
            raise ConfigError(f"field \"{name}\" has own_sizes, and pad and device_map are for arrays: leave them out")
        varies = name in fields and fields[name].max_length is not None
        if varies and name not in padded and not (is_text and has_device_map):
            forms.setdefault(name, form)
    return forms


def text_forms(data: Data | Source, names: Sequence[str]) -> dict[str, HostForm]:
    """The forms of fields of UTF-8 that are to be texts."""
    fields = {field.name: field for field in data.fields}
    forms = known_forms(data)
    for name in names:
        field = fields.get(name)
        if field is None:
            raise ConfigError(f'text names "{name}", and the fields are {list(fields)}')
        if field.max_length is None or field.dtype != "u8" or field.shape:
            raise ConfigError(f'text names "{name}", which has {field.dtype} {list(field.shape)}: it is for UTF-8')
    return {name: forms.get(name, LISTS if name + _LENGTHS in fields else TEXTS) for name in names}


def known_forms(data: Data | Source) -> dict[str, HostForm]:
    """The forms that are known without options of a loader: by samples of Python, or by how files were opened."""
    if isinstance(data, Source):
        return _by_type(data._opens.columns) if data._of is None else {}
    if data._nest is not None:
        return {}
    if data._reader is not None:
        return _by_type(data._reader.columns) | dict(data._host_forms)
    made_of = list(_room.parts(data))
    every = [(known_forms(part), {field.name for field in part.fields}) for part in made_of]
    names = {name for forms, _ in every for name in forms}
    # A field that only some parts have as texts is one of bytes.
    same = {name: {forms.get(name) for forms, fields in every if name in fields} for name in names}
    return {name: form for name, forms in same.items() if len(forms) == 1 for form in forms if form} | dict(data._host_forms)


def _by_type(columns: Columns) -> dict[str, HostForm]:
    return dict.fromkeys(columns.texts, TEXTS) | dict.fromkeys(columns.text_lists, JSON_LISTS)


def _texts(_: Any, inner: Any, name: str) -> list[str]:
    try:
        return [row.decode() for row in inner.host_rows(name)]
    except UnicodeDecodeError as error:
        raise DataError(_NO_TEXT.format(name, error)) from None


def _json_lists(_: Any, inner: Any, name: str) -> list[list[str]]:
    return [json.loads(row) for row in inner.host_rows(name)]


def _lists(_: Any, inner: Any, name: str) -> list[list[str]]:
    """Lists of texts of Arrow or Parquet."""
    lengths = (np.frombuffer(row, np.int64).tolist() for row in inner.host_rows(name + _LENGTHS))
    try:
        return [_cut(row, of_row) for row, of_row in zip(inner.host_rows(name), lengths, strict=True)]
    except UnicodeDecodeError as error:
        raise DataError(_NO_TEXT.format(name, error)) from None


def _cut(row: bytes, lengths: list[int]) -> list[str]:
    return [row[end - length : end].decode() for end, length in zip(accumulate(lengths), lengths, strict=True)]


def _bytes(sample: Mapping[str, Any], name: str) -> bytes:
    return bytes(np.asarray(sample[name]))


#: The form of texts.
TEXTS = HostForm(_texts, lambda sample, name: _bytes(sample, name).decode())
#: The forms of lists of texts of Arrow or Parquet, and of those of Python.
LISTS = HostForm(_lists, lambda sample, name: _cut(_bytes(sample, name), sample[name + _LENGTHS].tolist()), ("", _LENGTHS))
JSON_LISTS = HostForm(_json_lists, lambda sample, name: json.loads(_bytes(sample, name)))
