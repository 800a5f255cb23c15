#!/usr/bin/env python3
"""Makes the golden files of the tests: what readers that are not ours say of every file in a data folder.

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install numpy safetensors pandas tfrecord protobuf crc32c pyarrow
    /tmp/golden/bin/python datasets/tests/golden/make.py ../shared/data datasets/tests/golden

Not run by the tests. Each entry: format, samples, fields (name, dtype, shape; null for a dimension that varies),
and the SHA-256 of the first and the last sample: the bytes of its fields in order, little-endian, C order.
"""

import decimal, gzip, hashlib, json, pathlib, struct, sys, tarfile

import crc32c
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
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
    return of_arrays(
        "safetensors", {n: tensors[n] for n in sorted(header, key=lambda n: header[n]["data_offsets"])}
    )


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
    """Tables by pandas; an empty cell is missing, and nothing else is.

    `null` is the first one that is not in a column of text; the other values are those of a table that is
    filled.
    """
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
    result = entry("csv", len(table), fields, lambda i: b"".join(column[i] for column in columns))
    typed = [at for at, column in enumerate(table.columns) if table[column].dtype.kind in "iufb"]
    for row in range(len(table)):
        for at in typed:
            if pd.isna(table.iloc[row, at]):
                return result | {"null": [row, fields[at]["name"]]}
    return result


# Arrow's types by name: their code in NumPy.
CODES = {
    "bool": "?",
    "int8": "i1",
    "int16": "i2",
    "int32": "i4",
    "int64": "i8",
    "uint8": "u1",
    "uint16": "u2",
    "uint32": "u4",
    "uint64": "u8",
    "date32[day]": "i4",
    "halffloat": "f2",
    "float": "f4",
    "double": "f8",
}


def arrow_kind(kind):
    """Code in NumPy (none for bytes and text), its name here, the shape, and whether it is a list of texts."""
    if pa.types.is_dictionary(kind):
        return arrow_kind(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        code, name, shape, _ = arrow_kind(kind.value_type)
        return (code, name, [None], True) if shape == [None] else (code, name, [None, *shape], False)
    if pa.types.is_fixed_size_list(kind):
        code, name, shape, _ = arrow_kind(kind.value_type)
        return code, name, [kind.list_size, *shape], False
    if pa.types.is_fixed_size_binary(kind):
        return None, "bytes", [kind.byte_width], False
    if str(kind) in ("binary", "binary_view", "string", "string_view", "large_string"):
        return None, "text" if "string" in str(kind) else "bytes", [None], False
    code = "f8" if pa.types.is_decimal(kind) else "i8" if pa.types.is_timestamp(kind) else CODES[str(kind)]
    return code, dtype_name(np.dtype(code)), [], False


def cell_bytes(value, code, width):
    """A value, and whether there is a null in it; `width` is that of a value whose size is fixed."""
    if isinstance(value, list):
        parts = [cell_bytes(one, code, width) for one in value]
        return b"".join(part for part, _ in parts), any(null for _, null in parts)
    if value is None:
        blank = (
            np.full(width // np.dtype(code).itemsize, np.nan, code).tobytes()
            if code in ("f2", "f4", "f8")
            else bytes(width)
        )
        return blank, True
    if code is None:
        return value.encode() if isinstance(value, str) else value, False
    return np.array(value, code).tobytes(), False


def table(path):
    """Tables by pyarrow; with the first null, and nulls as NaN, zeros or nothing."""
    if path.suffix == ".parquet":
        form, content = "parquet", pq.ParquetFile(path).read()
    else:
        start = path.read_bytes()[:6]
        form, content = (
            "arrow",
            (pa.ipc.open_file if start == b"ARROW1" else pa.ipc.open_stream)(path).read_all(),
        )
    names, columns, fields, first_null = [], [], [], []

    def add(name, column):
        if pa.types.is_struct(column.type):
            for index in range(column.type.num_fields):
                child = pa.compute.struct_field(column, [index])
                add(f"{name}.{column.type.field(index).name}", child)
            return
        code, dtype, shape, lengths = arrow_kind(column.type)
        if pa.types.is_timestamp(column.type) or pa.types.is_date32(column.type):
            column = column.cast("int64" if pa.types.is_timestamp(column.type) else "int32")
        values = column.to_pylist()
        fixed = None not in shape
        size = int(np.prod(shape, dtype=int)) if fixed else 0
        item = 1 if code is None else np.dtype(code).itemsize
        whole = size * item
        cells = []
        for row, value in enumerate(values):
            # A null in a list counts as one null item; a null row counts all its items.
            width = whole if value is None else item if isinstance(value, list) else whole
            part, null = cell_bytes(value, code, 0 if lengths else width)
            if null:
                first_null.append((row, len(fields), name))
            cells.append(part)
        fields.append(field(name, dtype, shape))
        columns.append(cells)
        if lengths:
            texts = [value or [] for value in values]
            counts = [
                [len(part or b"") if not isinstance(part, str) else len(part.encode()) for part in t]
                for t in texts
            ]
            fields.append(field(name + ".lengths", "i64", [None]))
            columns.append([np.array(count, "<i8").tobytes() for count in counts])

    for index, name in enumerate(content.schema.names):
        column = content.column(index)
        add(name, column.combine_chunks() if column.num_chunks != 1 else column.chunk(0))
    sample = lambda i: b"".join(column[i] for column in columns)
    result = entry(form, content.num_rows, fields, sample)
    if path.is_relative_to(OUT):
        result["all"] = hashlib.sha256(b"".join(map(sample, range(content.num_rows)))).hexdigest()
    if first_null:
        row, _, name = min(first_null)
        result["null"] = [row, name]
    return result


def arrow(path):
    # The expected contents, as text.
    return text_gz(path) if path.suffix == ".gz" else table(path)


def text_gz(path):
    lines = gzip.decompress(path.read_bytes()).removesuffix(b"\n").split(b"\n")
    return entry("text", len(lines), [field("text", "text", [None])], lambda i: lines[i])


# Refused files, each with a part of its error.
REFUSED = {
    "npy/npyz__pickle.npy": "Python objects are not read",
    "npy/numpy__py3-objarr.npy": "Python objects are not read",
    "npy/numpy__py3-objarr.npz": "Python objects are not read",
    "npy/npyz__structured.npy": "structured type",
    "arrow/1.0.0-littleendian__generated_null.arrow_file": 'column "f0" holds nulls only, from row 0 on',
    "arrow/1.0.0-littleendian__generated_null.stream": 'column "f0" holds nulls only, from row 0 on',
    "parquet/parquet-testing__ARROW-RS-GH-6229-LEVELS.parquet": "row group 0 is damaged",
    "parquet/parquet-testing__PARQUET-1481.parquet": "metadata at the end of the file is damaged",
    "parquet/parquet-testing__nested_lists.snappy.parquet": 'column "a" is of type List(',
    "cifar10-python-tiny/batches.meta": "Python pickle",
    "cifar10-python-tiny/data_batch_1": "Python pickle",
    "cifar10-python-tiny/test_batch": "Python pickle",
}


def main():
    refused = {path: {"refused": why} for path, why in REFUSED.items()}
    golden = {path: why for path, why in refused.items() if not path.startswith(("arrow/", "parquet/"))}
    readers = {
        "npy": npy,
        "safetensors": safetensors,
        "webdataset": webdataset,
        "cifar10": cifar10,
        "text": text,
    }
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
    tiny()
    made()
    bombs()
    checksums()
    page()
    by_feature = {"tfrecord": tfrecord, "mds": mds, "csv": csv, "arrow": arrow, "parquet": table}
    for name, read in by_feature.items():
        paths = [path for path in (ROOT / name).rglob("*") if path.is_file() or name == "mds"]
        # Without the feature these are text.
        paths += [path for path in ROOT.glob("*.tsv") if name == "csv"]
        names = {path.relative_to(ROOT).as_posix(): path for path in paths}
        write(name, {name: refused.get(name) or read(path) for name, path in names.items()})


def made():
    """Tables of every type that is read, as Arrow and Parquet files, and what they hold."""
    count = 90
    rows = range(count)
    texts = [f"row {row}" * (row % 4) for row in rows]
    columns = {
        "f16": pa.array(np.arange(count, dtype="f2")),
        "time": pa.array([row * 1000 for row in rows], pa.timestamp("us")),
        "date": pa.array(rows, pa.int32()).cast(pa.date32()),
        "price": pa.array([decimal.Decimal(row - 7) / 100 for row in rows], pa.decimal128(9, 2)),
        "large": pa.array(texts, pa.large_string()),
        "view": pa.array([text * 3 for text in texts], pa.string_view()),
        "blob": pa.array([text.encode() for text in texts], pa.binary_view()),
        "three": pa.array([bytes([row % 256, 1, 2]) for row in rows], pa.binary(3)),
        "pair": pa.array([[row, row + 1] for row in rows], pa.list_(pa.float32(), 2)),
        "flags": pa.array([[row % 2 == 0] * (row % 3) for row in rows], pa.list_(pa.bool_())),
        "points": pa.array([[[row, 1]] * (row % 3) for row in rows], pa.list_(pa.list_(pa.int16(), 2))),
        "words": pa.array([texts[row].split() for row in rows], pa.large_list(pa.string())),
        "class": pa.array([f"class {row % 5}" for row in rows]).dictionary_encode(),
        "at": pa.array([{"x": row, "in": {"y": row / 2, "on": row % 2 == 1}} for row in rows]),
    }
    all_of = pa.table(columns)
    plain = all_of.drop_columns(["view", "blob"])
    folder = OUT / "tables"
    folder.mkdir(exist_ok=True)
    for name, codec in [("plain", None), ("lz4", "lz4"), ("zstd", "zstd")]:
        options = pa.ipc.IpcWriteOptions(compression=codec)
        with pa.ipc.new_file(str(folder / f"{name}.arrow"), all_of.schema, options=options) as file:
            file.write_table(all_of, max_chunksize=40)
        with pa.ipc.new_stream(str(folder / f"{name}.stream"), all_of.schema, options=options) as file:
            file.write_table(all_of, max_chunksize=40)
    for codec in ["none", "snappy", "gzip", "zstd", "lz4"]:
        version = "2.0" if codec in ("zstd", "gzip") else "1.0"
        path = folder / f"{codec}.parquet"
        pq.write_table(plain, path, row_group_size=40, compression=codec, data_page_version=version)
    # Delta encodings, and values split into streams of bytes.
    encodings = {
        "large": "DELTA_BYTE_ARRAY",
        "pair.list.element": "BYTE_STREAM_SPLIT",
        "date": "DELTA_BINARY_PACKED",
    }
    pq.write_table(plain, folder / "delta.parquet", use_dictionary=False, column_encoding=encodings)
    names = sorted(path.name for path in folder.iterdir())
    write("tables", {name: table(folder / name) for name in names})


def checksums():
    """Parquet files whose pages have checksums."""
    folder = OUT / "checksums"
    folder.mkdir(exist_ok=True)
    numbers, words = np.arange(300), pa.array([f"word {row % 7}" for row in range(300)])
    rows = pa.table({"plain": numbers, "words": words, "packed": numbers * 0.5})
    codecs = {"plain": "none", "words": "snappy", "packed": "zstd"}
    options = {"compression": codecs, "use_dictionary": ["words"], "write_statistics": False}
    for version in ["1.0", "2.0"]:
        path = folder / f"{version[0]}.parquet"
        pq.write_table(rows, path, data_page_version=version, write_page_checksum=True, **options)


def bombs():
    """Small Parquet files that become large: they are refused."""
    folder = OUT / "bombs"
    folder.mkdir(exist_ok=True)
    zeros = pa.array(np.zeros(1 << 22, "i8"))
    many = pa.table({"x": pa.chunked_array([zeros] * 8)})
    options = {"row_group_size": many.num_rows, "write_statistics": False}
    # Runs of keys of one value; pages of zeros, by two codecs.
    pq.write_table(many, folder / "runs.parquet", compression="none", **options)
    some = many.slice(0, 10 << 20)
    pq.write_table(some, folder / "zstd.parquet", compression="zstd", use_dictionary=False, **options)
    pq.write_table(some, folder / "gzip.parquet", compression="gzip", use_dictionary=False, **options)
    # The same in one page, which is inflated before any value is read.
    page = {
        "compression": "zstd",
        "use_dictionary": False,
        "data_page_size": 1 << 30,
        "max_rows_per_page": 1 << 30,
    }
    pq.write_table(some, folder / "page.parquet", **page, **options)
    # Repeated values of a quarter of a mebibyte.
    same = pa.table({"x": pa.array([bytes(1 << 18)] * 600)})
    encoding = {"use_dictionary": False, "column_encoding": {"x": "DELTA_BYTE_ARRAY"}}
    pq.write_table(
        same, folder / "delta.parquet", compression="zstd", data_page_size=1 << 30, **encoding, **options
    )


def tiny():
    """The file of an example in the documentation."""
    schema = pa.schema([pa.field("label", pa.int32(), False)])
    with pa.ipc.new_file(str(OUT / "tiny.arrow"), schema) as file:
        file.write(pa.record_batch([pa.array([7, 8, 9], pa.int32())], schema=schema))


def page():
    """Tables of docs/data.md, in the formats that take a library to write."""
    folder = OUT / "page"
    folder.mkdir(exist_ok=True)
    flowers = pa.table({"length": [1.5, 3.0, 5.25], "width": [2.5, 4.0, 6.0], "kind": [0, 1, 2]})
    pq.write_table(flowers, folder / "flowers.parquet", row_group_size=1)
    with pa.ipc.new_file(str(folder / "flowers.arrow"), flowers.schema) as file:
        file.write_table(flowers)
    files = ["train/bee/1.bmp", "train/bee/2.bmp", "val/cat/1.bmp"]
    pq.write_table(pa.table({"file": files, "species": ["bee", "an ant", "bee"]}), folder / "pictures.parquet")


def write(name, golden):
    lines = [f"{json.dumps(path)}: {json.dumps(golden[path])}" for path in sorted(golden)]
    (OUT / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


main()
