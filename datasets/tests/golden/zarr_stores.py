#!/usr/bin/env python3
"""Makes the Zarr stores of the tests, by the Python package zarr.

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install zarr==3.1.6
    /tmp/golden/bin/python datasets/tests/golden/zarr_stores.py datasets/tests/golden/zarr

Not run by the tests. A value is the number of its element, counted from 0 in row-major order; `on` has the odd ones.
Samples 3 to 5 of `sparse` were never written.
"""

import pathlib, sys

import numcodecs
import numpy as np
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, GzipCodec, ZstdCodec

OUT = pathlib.Path(sys.argv[1])
SAMPLES = 7


def values(dtype, shape):
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def fill(group, arrays):
    for name, (dtype, shape, chunks, options) in arrays.items():
        array = group.create_array(name, shape=(SAMPLES, *shape), chunks=chunks, dtype=dtype, **options)
        wanted = values(dtype, (SAMPLES, *shape))
        if name == "on":
            wanted = values("i4", (SAMPLES, *shape)) % 2 == 1
        if name == "sparse":
            array[:3], array[6:] = wanted[:3], wanted[6:]
        else:
            array[:] = wanted
    group.create_group("left_out").create_array("x", shape=(2,), dtype="i4")
    zarr.consolidate_metadata(group.store)


def plain(compressor):
    return {"compressors": compressor, "filters": None}


fill(
    zarr.open_group(OUT / "two.zarr", mode="w", zarr_format=2),
    {
        "image": ("u1", (5, 4, 3), (3, 2, 3, 3), plain(numcodecs.Zstd())),
        "label": (">i2", (), (SAMPLES,), plain(numcodecs.GZip())),
        "on": ("?", (2,), (2, 2), plain(None)),
        "pair": (">c16", (), (2,), plain(numcodecs.LZ4())),
        "sparse": ("<f2", (3,), (3, 3), plain(numcodecs.Zlib()) | {"fill_value": float("nan")}),
    },
)
big = BytesCodec(endian="big")
fill(
    zarr.open_group(OUT / "three.zarr", mode="w", zarr_format=3),
    {
        "image": ("u1", (5, 4, 3), (3, 2, 3, 3), {"compressors": ZstdCodec()}),
        "label": ("i2", (), (SAMPLES,), {"serializer": big, "compressors": [GzipCodec(), Crc32cCodec()]}),
        "on": ("?", (2,), (2, 2), {"compressors": None}),
        "pair": ("c16", (), (2,), {"serializer": big, "compressors": [Crc32cCodec(), ZstdCodec()]}),
        "sparse": ("f2", (3,), (3, 3), {"fill_value": float("nan")}),
        "wide": ("u8", (2,), (4, 2), {"chunk_key_encoding": {"name": "v2", "separator": "."}}),
    },
)
one = zarr.create_array(
    OUT / "one.zarr", shape=(SAMPLES, 2), chunks=(2, 1), dtype="f4", zarr_format=2, **plain(None),
    chunk_key_encoding={"name": "v2", "separator": "/"},
)
one[:] = values("f4", (SAMPLES, 2))
