"""Measures the readers of files beside other loaders of the same samples.

    python benches/peers.py [--quick] [--rounds 3] [--seconds 2] [--workers 2] [--only parquet,tar,mds,tfrecord,arrow,tokens]

Batches of 256 as torch tensors, shuffled unless a peer reads in sequence only, in samples per second of epochs that
are cut after so many seconds. In turns; prints the versions, and of each way the median and its range. What is not
installed is said. `--quick` shows in a minute or two that every way runs; its figures mean nothing. The peers:

    pip install torch torchvision torchdata webdataset spdl mosaicml-streaming tfrecord litdata datasets grain pyarrow pillow

Tables in memory beside more ways: `tables.py`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import io
import os
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pictures
import torch
from torch.utils.data import DataLoader, Dataset

import feedline

BATCH, COLUMNS, WINDOW = 256, 20, 256
PEERS = ["torch", "torchvision", "torchdata", "webdataset", "spdl", "mosaicml-streaming", "tfrecord", "litdata"]
PEERS += ["datasets", "grain", "pyarrow", "pillow", "numpy"]
Ways = dict[str, Callable[[], Iterable[Any]]]
#: Divides the number of samples.
QUICK = 50


def rate(batches: Iterable[Any], seconds: float, of_one: Callable[[Any], int]) -> float:
    """Samples per second from the first batch on: the start of workers does not count."""
    batches, count = iter(batches), 0
    next(batches)
    start = time.perf_counter()
    for batch in batches:
        count += of_one(batch)
        if time.perf_counter() - start > seconds:
            break
    return count / (time.perf_counter() - start)


def rows(batch: Any) -> int:
    """The samples of a batch of any loader."""
    if isinstance(batch, feedline.Batch):
        return len(batch.ids)
    first = next(iter(batch.values())) if isinstance(batch, dict) else batch[0] if isinstance(batch, (list, tuple)) else batch
    return len(first)


class Picked(Dataset[Any]):
    """Arrays for DataLoader, all rows of a batch in one call."""

    def __init__(self, x: torch.Tensor, label: torch.Tensor) -> None:
        self.x, self.label = x, label

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, at: int) -> Any:
        return self.x[at], self.label[at]

    def __getitems__(self, ids: list[int]) -> Any:
        at = torch.tensor(ids)
        return self.x[at], self.label[at]


def loader(data: Any, workers: int) -> Callable[[], Iterable[Any]]:
    made = feedline.Loader(data, BATCH, shuffle=True, seed=7, framework="torch", workers=workers)
    return lambda: made


def parquet(folder: Path, workers: int, part: int) -> Ways:
    import pyarrow
    import pyarrow.parquet

    chance, count = np.random.default_rng(7), 2_000_000 // part
    columns = {f"x{i}": chance.random(count, dtype=np.float32) for i in range(COLUMNS)}
    columns["label"] = chance.integers(0, 10, count)
    path = folder / "table.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=65536)
    table = pyarrow.parquet.read_table(path)
    x = torch.from_numpy(np.stack([table[f"x{i}"].to_numpy() for i in range(COLUMNS)], axis=1))
    label = torch.from_numpy(table["label"].to_numpy())

    def by_hand() -> Iterable[Any]:
        for at in torch.randperm(count).split(BATCH):
            yield x[at], label[at]

    def whole(rows: Any) -> Any:
        return rows

    stacked = feedline.table(path, stack={"x": [f"x{i}" for i in range(COLUMNS)]})
    ways: Ways = {"feedline.table": loader(stacked, workers), "pyarrow and torch by hand": by_hand}
    ways["DataLoader, __getitems__"] = lambda: DataLoader(Picked(x, label), BATCH, shuffle=True, collate_fn=whole)

    def nodes() -> Iterable[Any]:
        from torch.utils.data import RandomSampler
        from torchdata.nodes import Batcher, Loader, Mapper, SamplerWrapper

        picked = Picked(x, label)
        return Loader(Mapper(Batcher(SamplerWrapper(RandomSampler(picked)), BATCH), picked.__getitems__))

    def hub() -> Iterable[Any]:
        import datasets

        data = datasets.Dataset.from_parquet(str(path), cache_dir=str(folder / "hub")).with_format("torch")
        return DataLoader(data, BATCH, shuffle=True)

    def grains() -> Iterable[Any]:
        import grain

        def sample(at: int) -> Any:
            return x[at].numpy(), label[at].numpy()

        return grain.MapDataset.range(count).shuffle(7).map(sample).batch(BATCH)

    return ways | {"torchdata.nodes": nodes, "datasets": hub, "grain": grains}


def tar(folder: Path, workers: int, part: int) -> Ways:
    from PIL import Image
    from torchvision import transforms

    distinct, path = pictures.jpegs(32), folder / "pictures.tar"
    files = [distinct[at % len(distinct)] for at in range(max(3072 // part, 2 * BATCH))]
    pictures.write_tar(path, files)
    mean, deviation = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    steps: list[Any] = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    changed = transforms.Compose([*steps, transforms.Normalize(mean, deviation)])
    T = feedline.transforms
    ours = feedline.images(path, [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.Normalize(mean, deviation)])

    class Pictures(Dataset[Any]):
        def __len__(self) -> int:
            return len(files)

        def __getitem__(self, at: int) -> Any:
            return changed(Image.open(io.BytesIO(files[at])).convert("RGB")), at % 10

    def webdataset() -> Iterable[Any]:
        import webdataset

        data = webdataset.WebDataset(str(path), shardshuffle=False).shuffle(500).decode("pil").to_tuple("jpg", "cls")
        # One archive for each worker.
        data = data.map_tuple(changed, int).batched(BATCH)
        return webdataset.WebLoader(data, batch_size=None, num_workers=1)

    def threads() -> Iterable[Any]:
        from spdl.pipeline import PipelineBuilder

        pictures = Pictures()
        builder = PipelineBuilder().add_source(iter(torch.randperm(len(files)).tolist()))
        builder = builder.pipe(pictures.__getitem__, concurrency=workers).aggregate(BATCH)
        builder = builder.pipe(lambda rows: (torch.stack([row[0] for row in rows]), len(rows))).add_sink(2)
        pipeline = builder.build(num_threads=workers + 1)
        with pipeline.auto_stop():
            yield from pipeline

    torches = DataLoader(Pictures(), BATCH, shuffle=True, num_workers=workers)
    return {
        "feedline.images": loader(ours, workers),
        "DataLoader, Pillow, torchvision": lambda: torches,
        "webdataset": webdataset,
        "SPDL, Pillow, torchvision": threads,
    }


def samples(count: int) -> Iterable[dict[str, Any]]:
    chance = np.random.default_rng(7)
    for at in range(count):
        yield {"x": chance.integers(0, 256, 784, np.uint8), "y": at % 10}


def mds(folder: Path, workers: int, part: int) -> Ways:
    from streaming import MDSWriter, StreamingDataset

    with MDSWriter(out=str(folder / "mds"), columns={"x": "ndarray:uint8:784", "y": "int"}) as out:
        for sample in samples(60_000 // part):
            out.write(sample)

    def streamed() -> Iterable[Any]:
        data = StreamingDataset(local=str(folder / "mds"), shuffle=True, batch_size=BATCH)
        return DataLoader(data, BATCH, num_workers=workers)

    return {"feedline.open": loader(feedline.open(folder / "mds"), workers), "streaming": streamed}


def tfrecord(folder: Path, workers: int, part: int) -> Ways:
    import tfrecord as records
    from tfrecord.torch.dataset import TFRecordDataset

    path = str(folder / "train.tfrecord")
    writer = records.TFRecordWriter(path)
    for sample in samples(60_000 // part):
        writer.write({"x": (sample["x"].tobytes(), "byte"), "y": (sample["y"], "int")})
    writer.close()

    def read() -> Iterable[Any]:
        data = TFRecordDataset(path, None, {"x": "byte", "y": "int"}, shuffle_queue_size=1024)
        return DataLoader(data, BATCH, num_workers=0)

    return {"feedline.open": loader(feedline.open(path), workers), "tfrecord": read}


def arrow(folder: Path, workers: int, part: int) -> Ways:
    import pyarrow

    rows = list(samples(60_000 // part))
    flat = pyarrow.array(np.concatenate([row["x"] for row in rows]))
    table = pyarrow.table(
        {"x": pyarrow.FixedSizeListArray.from_arrays(flat, 784), "y": pyarrow.array([row["y"] for row in rows])}
    )
    path = folder / "train.arrow"
    with pyarrow.ipc.new_file(path, table.schema) as out:
        out.write_table(table, 1024)

    def lit() -> Iterable[Any]:
        import litdata

        if not (folder / "lit").exists():
            litdata.optimize(rows.__getitem__, list(range(len(rows))), str(folder / "lit"), chunk_bytes="16MB", num_workers=1)
        return litdata.StreamingDataLoader(
            litdata.StreamingDataset(str(folder / "lit"), shuffle=True), batch_size=BATCH, num_workers=workers
        )

    def hub() -> Iterable[Any]:
        import datasets

        data = datasets.Dataset(datasets.table.InMemoryTable(table)).with_format("torch")
        return DataLoader(data, BATCH, shuffle=True)

    return {"feedline.open": loader(feedline.open(path), workers), "datasets": hub, "litdata (its own files)": lit}


class Windows(Dataset[Any]):
    """Windows of token ids and the ids after them, as nanoGPT cuts them from a file of bare ids."""

    def __init__(self, path: Path) -> None:
        self.ids = np.memmap(path, np.uint16, "r")

    def __len__(self) -> int:
        return (len(self.ids) - 1) // WINDOW

    def __getitem__(self, at: int) -> Any:
        window = torch.from_numpy(self.ids[at * WINDOW : at * WINDOW + WINDOW + 1].astype(np.int64))
        return window[:-1], window[1:]


class Stacked(Windows):
    """All windows of a batch in one call."""

    def __getitems__(self, ids: list[int]) -> Any:
        rows = np.stack([self.ids[at * WINDOW : at * WINDOW + WINDOW + 1] for at in ids]).astype(np.int64)
        return torch.from_numpy(rows[:, :-1]), torch.from_numpy(rows[:, 1:])


def tokens(folder: Path, workers: int, part: int) -> Ways:
    path, count = folder / "train.bin", (64 << 20) // part
    ids = np.random.default_rng(7).integers(0, 50_000, count, dtype=np.uint16)
    ids.tofile(path)
    # The same as a pair, as Megatron writes it: documents of 2,000 ids.
    ids.tofile(folder / "pair.bin")
    ends = np.append(np.arange(2000, count, 2000), count)
    lengths = np.diff(ends, prepend=0).astype(np.int32)
    starts = 2 * (ends - lengths).astype(np.int64)
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1)
    documents = np.arange(len(lengths) + 1, dtype=np.int64)
    (folder / "pair.idx").write_bytes(head + lengths.tobytes() + starts.tobytes() + documents.tobytes())
    windows, stacked = Windows(path), Stacked(path)

    def nano_gpt() -> Iterable[Any]:
        """`get_batch` of nanoGPT's `train.py`: windows that begin anywhere."""
        while True:
            data = np.memmap(path, np.uint16, "r")
            starts = torch.randint(len(data) - WINDOW, (BATCH,)).tolist()
            x = torch.stack([torch.from_numpy(data[i : i + WINDOW].astype(np.int64)) for i in starts])
            y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + WINDOW].astype(np.int64)) for i in starts])
            yield x, y

    packed = feedline.open(folder / "pair.bin").packed("ids", WINDOW, order="in order")
    return {
        "feedline.tokens": loader(feedline.tokens(path, WINDOW, dtype="uint16"), workers),
        "feedline, .bin and .idx, packed": loader(packed, workers),
        "feedline, own __getitem__": loader(windows, workers),
        "DataLoader, the same set": lambda: DataLoader(windows, BATCH, shuffle=True),
        f"DataLoader, {workers} workers": lambda: DataLoader(windows, BATCH, shuffle=True, num_workers=workers),
        "DataLoader, __getitems__": lambda: DataLoader(stacked, BATCH, shuffle=True, collate_fn=lambda rows: rows),
        "nanoGPT's loop": nano_gpt,
    }


SETS = {"parquet": parquet, "tar": tar, "mds": mds, "tfrecord": tfrecord, "arrow": arrow, "tokens": tokens}


def version(name: str) -> str:
    try:
        return f"{name} {importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{name} is not installed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default=",".join(SETS))
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 0.1
    print(", ".join(map(version, PEERS)))
    for name in options.only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            try:
                ways = SETS[name](Path(folder), options.workers, QUICK if options.quick else 1)
            except ImportError as error:
                print(f"not run: {name} ({error})")
                continue
            seen: dict[str, list[float]] = {way: [] for way in ways}
            for turn in range(options.rounds + 1):
                for way, batches in ways.items():
                    try:
                        seen[way].append(rate(batches(), options.seconds, rows))
                    except Exception as error:  # noqa: BLE001
                        if turn == 0:
                            print(f"not run: {name}, {way} ({type(error).__name__}: {error})"[:200])
            load = os.getloadavg()[0]
            for way, (_, *rest) in ((way, rates) for way, rates in seen.items() if len(rates) > 1):
                low, high = min(rest), max(rest)
                print(f"{name:9s} {way:32s} {statistics.median(rest):12,.0f}/s ({low:,.0f} to {high:,.0f}), load {load:.1f}", flush=True)


if __name__ == "__main__":
    main()
