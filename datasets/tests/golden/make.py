#!/usr/bin/env python3
"""Makes the golden files of the tests: what readers that are not ours say of every file in a data folder.

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install numpy safetensors pandas tfrecord protobuf crc32c
    /tmp/golden/bin/python datasets/tests/golden/make.py ../shared/data datasets/tests/golden

Not run by the tests. Each entry: format, samples, fields (name, dtype, shape; null for a dimension that varies),
and the SHA-256 of the first and the last sample: the bytes of its fields in order, little-endian, C order.
"""
import gzip, hashlib, json, pathlib, struct, sys, tarfile

import crc32c
import numpy as np
import pandas as pd
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from safetensors.numpy import load_file
from tfrecord import example_pb2

ROOT, OUT = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])

NAMES = {"b1": "bool", "c8": "complex64", "c16": "complex128"}


def dtype_name(dtype):
    code = dtype.kind + str(dtype.itemsize)
    return NAMES.get(code, dtype.kind + str(8 * dtype.itemsize))


def field(name, dtype, shape):
    return {"name": name, "dtype": dtype, "shape": shape}


def of_array(name, array):
    """The field of one sample's array."""
    if array.dtype.kind in "SU":
        assert array.shape == ()
        return field(name, "bytes" if array.dtype.kind == "S" else "text", [None])
    return field(name, dtype_name(array.dtype), list(array.shape))


def to_bytes(array):
    if array.dtype.kind == "S":
        return bytes(array)
    if array.dtype.kind == "U":
        return str(array).encode()
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()


def entry(form, samples, fields, sample):
    """`sample(i)` gives the bytes of sample i."""
    ends = [hashlib.sha256(sample(i)).hexdigest() if samples else None for i in (0, samples - 1)]
    return {"format": form, "samples": samples, "fields": fields, "first": ends[0], "last": ends[1]}


def of_arrays(form, arrays):
    """Arrays of equal first dimension are samples; otherwise all of them are one sample."""
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    lengths = {array.shape[:1] for array in arrays.values()}
    rows = len(lengths) == 1 and lengths != {()}
    if not rows:
        fields = [of_array(name, array) for name, array in arrays.items()]
        return entry(form, 1, fields, lambda _: b"".join(map(to_bytes, arrays.values())))
    samples = lengths.pop()[0]
    fields = [of_array(name, np.empty(array.shape[1:], array.dtype)) for name, array in arrays.items()]
    return entry(form, samples, fields, lambda i: b"".join(to_bytes(a[i, ...]) for a in arrays.values()))


def npy(path):
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            return of_arrays("npz", dict(arrays))
    return of_arrays("npy", {"array": np.load(path, allow_pickle=False)})


def safetensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    header.pop("__metadata__", None)
    tensors = load_file(path)
    return of_arrays("safetensors", {n: tensors[n] for n in sorted(header, key=lambda n: header[n]["data_offsets"])})


def webdataset(path):
    samples, fields, last = [], [], None
    with tarfile.open(path) as archive:
        for member in archive:
            folder, slash, name = member.name.rpartition("/")
            if not member.isfile() or "." not in name:
                continue
            base, extension = name.split(".", 1)
            key = folder + slash + base
            if key != last:
                samples.append({})
                last = key
            samples[-1][extension.lower()] = archive.extractfile(member).read()
            if extension.lower() not in fields:
                fields.append(extension.lower())
    sample = lambda i: b"".join(samples[i].get(name, b"") for name in fields)
    return entry("webdataset", len(samples), [field(name, "bytes", [None]) for name in fields], sample)


def idx(path):
    content = gzip.decompress(path.read_bytes())
    rank = content[3]
    dims = struct.unpack(f">{rank}I", content[4 : 4 + 4 * rank])
    return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(dims)


def cifar10(path):
    records = np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8).reshape(-1, 3073)
    return of_arrays("cifar10", {"label": records[:, 0], "image": records[:, 1:].reshape(-1, 3, 32, 32)})


def folder(path):
    files = sorted(file for file in path.iterdir() if not file.name.startswith("."))
    return entry("folder", len(files), [field("data", "bytes", [None])], lambda i: files[i].read_bytes())


def text(path):
    content = path.read_bytes()
    lines = content.removesuffix(b"\n").split(b"\n")
    return entry("text", len(lines), [field("text", "text", [None])], lambda i: lines[i].removesuffix(b"\r"))


def records(path):
    """The records of a TFRecord file, with their checksums compared."""
    content, at = path.read_bytes(), 0
    masked = lambda part: ((crc32c.crc32c(part) >> 15 | crc32c.crc32c(part) << 17) + 0xA282EAD8) & 0xFFFFFFFF
    while at < len(content):
        length, of_length = struct.unpack_from("<QI", content, at)
        record = content[at + 12 : at + 12 + length]
        (of_record,) = struct.unpack_from("<I", content, at + 12 + length)
        assert (of_length, of_record) == (masked(content[at : at + 8]), masked(record)), path
        yield record
        at += 16 + length


def tfrecord(path):
    def parse(record):
        try:
            return example_pb2.Example.FromString(record)
        except DecodeError:
            return example_pb2.Example()

    parsed = [(record, parse(record)) for record in records(path)]
    # A sequence example has fields that an example does not know.
    known = lambda example: example.features.feature and not UnknownFieldSet(example)
    if not all(known(example) for _, example in parsed):
        return entry("tfrecord", len(parsed), [field("record", "bytes", [None])], lambda i: parsed[i][0])
    fields, columns = [], []
    for name in sorted({name for _, example in parsed for name in example.features.feature}):
        features = [example.features.feature.get(name) for _, example in parsed]
        kinds = {feature.WhichOneof("kind") for feature in features if feature} - {None}
        (kind,) = kinds or {"bytes_list"}
        lists = [list(getattr(feature, kind).value) if feature else None for feature in features]
        counts = {None if values is None else len(values) for values in lists}
        shape = [None] if len(counts) > 1 or None in counts else [n for n in counts if n != 1]
        lists = [values or [] for values in lists]
        if kind == "bytes_list":
            fields.append(field(name, "bytes", [None]))
            columns.append([b"".join(values) for values in lists])
            if shape:
                fields.append(field(name + ".lengths", "i64", shape))
                columns.append([np.array([len(v) for v in values], "<i8").tobytes() for values in lists])
        else:
            code, dtype = {"int64_list": ("<i8", "i64"), "float_list": ("<f4", "f32")}[kind]
            fields.append(field(name, dtype, shape))
            columns.append([np.array(values, code).tobytes() for values in lists])
    return entry("tfrecord", len(parsed), fields, lambda i: b"".join(column[i] for column in columns))


def mds(path):
    """A shard, its index or its folder, all of one shard: columns of a fixed `ndarray` only."""
    folder = path if path.is_dir() else path.parent
    (shard,) = json.loads((folder / "index.json").read_text())["shards"]
    content = (folder / shard["raw_data"]["basename"]).read_bytes()
    (count,) = struct.unpack_from("<I", content)
    assert count == shard["samples"]
    starts = struct.unpack_from(f"<{count + 1}I", content, 4)
    fields = []
    for name, encoding in zip(shard["column_names"], shard["column_encodings"]):
        _, dtype, shape = encoding.split(":")
        fields.append(field(name, dtype_name(np.dtype(dtype)), [int(n) for n in shape.split(",")]))
    return entry("mds", count, fields, lambda i: content[starts[i] : starts[i + 1]])


def csv(path):
    """Tables by pandas; an empty cell is missing, and nothing else is."""
    has_names = path.name != "uci_wine.data"
    table = pd.read_csv(
        path,
        sep="\t" if path.suffix == ".tsv" else ",",
        header=0 if has_names else None,
        keep_default_na=False,
        na_values=[""],
    )
    fields, columns = [], []
    for at, name in enumerate(table.columns):
        column = table[name]
        name = str(name) if has_names else f"c{at}"
        if column.dtype.kind in "iufb":
            fields.append(field(name, dtype_name(column.dtype), []))
            columns.append([np.asarray(value, column.dtype).tobytes() for value in column])
        else:
            fields.append(field(name, "text", [None]))
            columns.append(["" if pd.isna(value) else str(value) for value in column])
            columns[-1] = [value.encode() for value in columns[-1]]
    return entry("csv", len(table), fields, lambda i: b"".join(column[i] for column in columns))


# What is refused, and a part of the line that says why.
REFUSED = {
    "npy/npyz__pickle.npy": "Python objects are not read",
    "npy/numpy__py3-objarr.npy": "Python objects are not read",
    "npy/numpy__py3-objarr.npz": "Python objects are not read",
    "npy/npyz__structured.npy": "structured type",
    "cifar10-python-tiny/batches.meta": "Python pickle",
    "cifar10-python-tiny/data_batch_1": "Python pickle",
    "cifar10-python-tiny/test_batch": "Python pickle",
}


def main():
    golden = {path: {"refused": why} for path, why in REFUSED.items()}
    readers = {"npy": npy, "safetensors": safetensors, "webdataset": webdataset, "cifar10": cifar10, "text": text}
    for name, read in readers.items():
        for path in sorted((ROOT / name).iterdir()):
            key = f"{name}/{path.name}"
            if key not in golden:
                golden[key] = read(path)
    mnist = {path.name: idx(path) for path in (ROOT / "mnist").iterdir()}
    for name, array in mnist.items():
        golden[f"mnist/{name}"] = of_arrays("idx", {"array": array})
    train = {"image": mnist["train-images-idx3-ubyte.gz"], "label": mnist["train-labels-idx1-ubyte.gz"]}
    golden["mnist"] = of_arrays("idx", train)
    for name in ("README.md", "SOURCES.tsv", "images-manifest.tsv"):
        golden[name] = text(ROOT / name)
    for name in ("imagenet-sample", "jpeg-awkward", "png"):
        golden[name] = folder(ROOT / name)
    write("default", golden)
    for name, read in {"tfrecord": tfrecord, "mds": mds, "csv": csv}.items():
        paths = [path for path in (ROOT / name).rglob("*") if path.is_file() or name == "mds"]
        # Without the feature these are text.
        paths += [path for path in ROOT.glob("*.tsv") if name == "csv"]
        write(name, {path.relative_to(ROOT).as_posix(): read(path) for path in paths})


def write(name, golden):
    lines = [f"{json.dumps(path)}: {json.dumps(golden[path])}" for path in sorted(golden)]
    (OUT / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


main()
