"""Displays data, loaders and batches in a notebook: their fields, and pictures."""

from __future__ import annotations

import base64
import html
import struct
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

#: Samples that are shown.
SHOWN = 8
#: Seconds after which no further sample is read.
PATIENCE = 0.5
#: Max pixels per side of a picture.
SIDE = 112


def table(title: str, fields: Sequence[tuple[str, str, str]], samples: Sequence[Any]) -> str:
    """A table with the title, the rows of ``fields`` (name, type and shape), and the values of ``samples``
    (dicts of arrays)."""
    head = "<tr><th>field</th><th>type</th><th>shape</th>"
    head += "".join(f"<th>{number}</th>" for number in range(len(samples))) + "</tr>"
    rows = []
    for name, dtype, shape in fields:
        cells = "".join(f"<td>{_cell(sample.get(name))}</td>" for sample in samples)
        told = "".join(f"<td>{html.escape(one)}</td>" for one in (name, dtype, shape))
        rows.append(f"<tr>{told}{cells}</tr>")
    return f"<div><b>{html.escape(title)}</b><table>{head}{''.join(rows)}</table></div>"


def first_samples(data: Any, names: Sequence[str]) -> list[dict[str, Any]]:
    """The first samples that can be read within a short time."""
    samples: list[dict[str, Any]] = []
    end = time.monotonic() + PATIENCE
    for index in range(min(len(data), SHOWN)):
        if time.monotonic() > end:
            break
        try:
            sample = data[index]
        except Exception as error:  # noqa: BLE001 - a page of a notebook has no use for it, and the loop will raise it
            samples.append(dict.fromkeys(names, error))
            continue
        samples.append(dict(sample) if isinstance(sample, Mapping) else dict(zip(names, sample, strict=False)))
    return samples


def rows_of(batch: Mapping[str, Any], rows: int) -> list[dict[str, Any]]:
    """The first rows of a batch, in host memory."""
    count = min(rows, SHOWN)
    samples: list[dict[str, Any]] = [{} for _ in range(count)]
    for name, value in batch.items():
        if hasattr(value, "rows"):
            parts = value.rows()[:count]
        elif hasattr(value, "lengths"):
            parts = [row[:length] for row, length in zip(value[0][:count], value[1][:count].tolist(), strict=False)]
        elif _length(value) == rows:
            parts = value[:count]
        else:
            # A value of the whole batch, from collate_fn.
            continue
        for sample, part in zip(samples, parts, strict=False):
            sample[name] = _host(part)
    return samples


def _length(value: Any) -> int | None:
    if isinstance(value, (list, tuple)):
        return len(value)
    return value.shape[0] if getattr(value, "ndim", 0) else None


def _host(value: Any) -> Any:
    """An array of any framework as a NumPy array."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()
    return np.asarray(value)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Exception):
        return f"<i>{html.escape(type(value).__name__)}</i>"
    array = np.asarray(value)
    pixels = _pixels(array)
    if pixels is not None:
        source = base64.b64encode(_png(pixels)).decode()
        height, width = pixels.shape[:2]
        side = f"width: {max(1, SIDE * width // max(height, width))}px"
        return f'<img style="{side}; image-rendering: auto" src="data:image/png;base64,{source}">'
    if array.dtype == np.uint8 and array.ndim == 1 and array.size:
        try:
            text = bytes(array[:200]).decode()
        except UnicodeDecodeError as error:
            text = bytes(array[: error.start]).decode() if array.size > 200 and error.start > 190 else ""
        if text.isprintable() and text:
            return html.escape(text[:40] + ("..." if len(text) > 40 else ""))
    flat = array.reshape(-1)
    return html.escape(", ".join(f"{one:g}" if array.dtype.kind == "f" else str(one) for one in flat[:4].tolist())
                       + (", ..." if flat.size > 4 else ""))


def _pixels(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """``[height, width, channels]`` of bytes, if the array is a picture."""
    if array.ndim == 3 and array.shape[0] in (1, 3) and min(array.shape[1:]) >= 8:
        array = array.transpose(1, 2, 0)
    elif array.ndim == 2 and min(array.shape) >= 8:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] not in (1, 3) or min(array.shape[:2]) < 8:
        return None
    if max(array.shape[:2]) > 4 * SIDE:
        step = -(-max(array.shape[:2]) // (2 * SIDE))
        array = array[::step, ::step]
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind != "f" or not np.isfinite(array).all():
        return None
    # Normalized values are stretched to the full range.
    array = array.astype(np.float32)
    low, high = float(array.min()), float(array.max())
    return ((array - low) * (255 / (high - low or 1))).astype(np.uint8)


def _png(pixels: np.ndarray[Any, Any]) -> bytes:
    height, width, channels = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    body = zlib.compress(lines.tobytes(), 6)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
