"""Data sets of one's own beside torch's DataLoader: samples per second by the cost of a sample and by workers.

    python benches/own.py [--quick] [--workers 0,2,8,16] [--rows NAME,NAME] [--device cuda:0]

Both loaders read the same set, in shuffled batches of 128 (pictures: 32), each in a process of its own and in
turns; 0 workers are what each does without any. `--quick` takes at most four minutes. Also: CPU time and memory (PSS of all processes), the time of the
start after the imports of the script, and torchdata and grain, if they are installed. What is not installed is
said. With `--device` the batches end on a GPU: DataLoader's by `pin_memory` and `.to`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 128


class Rows:
    """Two arrays indexed: 1 us."""

    def __init__(self) -> None:
        self.x = np.random.default_rng(1).integers(0, 256, (60_000, 784), np.uint8)
        self.y = np.arange(60_000)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.x[index], self.y[index]


class Sorted(Rows):
    """NumPy: a sort and square roots of 784 numbers."""

    def __getitem__(self, index: int) -> Any:
        return np.sqrt(np.sort(self.x[index]).astype(np.float32)), self.y[index]


class Python(Rows):
    """Pure Python, which holds the lock."""

    def __getitem__(self, index: int) -> Any:
        total = 0
        for number in range(7000):
            total += number * index % 7
        return {"x": np.float32(total), "y": index}


class Large:
    """Arrays of 150 KB."""

    def __init__(self) -> None:
        self.x = np.random.default_rng(1).integers(0, 256, (512, 3, 224, 224), np.uint8)

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> Any:
        return self.x[index % 512], index


class Scalars:
    """Dicts of 20 numbers."""

    def __init__(self) -> None:
        self.names = [f"field{number}" for number in range(20)]

    def __len__(self) -> int:
        return 60_000

    def __getitem__(self, index: int) -> Any:
        return {name: float(index) for name in self.names}


class Tensors(Rows):
    """Tuples of tensors."""

    def __init__(self) -> None:
        import torch

        self.x, self.y = torch.rand(60_000, 64), torch.arange(60_000)


class Ragged:
    """Texts of up to 256 tokens; DataLoader pads them."""

    def __len__(self) -> int:
        return 60_000

    def __getitem__(self, index: int) -> Any:
        return {"tokens": np.arange(1 + index * 7919 % 256), "y": index}


class Pictures:
    """A photograph of 110 KB: Pillow, and transforms of torchvision."""

    def __init__(self) -> None:
        from PIL import Image
        from torchvision.transforms import v2

        chance, self.files = np.random.default_rng(1), []
        for _ in range(16):
            # Smooth noise, so that its file is as long as a photograph's.
            small = chance.integers(0, 256, (60, 80, 3), np.uint8)
            large = np.asarray(Image.fromarray(small).resize((500, 375), Image.Resampling.BICUBIC), np.int16)
            noisy = np.clip(large + chance.normal(0, 12, large.shape), 0, 255).astype(np.uint8)
            file = io.BytesIO()
            Image.fromarray(noisy).save(file, "JPEG", quality=93)
            self.files.append(file.getvalue())
        self.transform = v2.Compose(
            [
                v2.PILToTensor(),
                v2.RandomResizedCrop(224, antialias=True),
                v2.RandomHorizontalFlip(),
            ]
        )

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> Any:
        from PIL import Image

        with Image.open(io.BytesIO(self.files[index % 16])) as picture:
            return self.transform(picture.convert("RGB")), index


class HuggingFace:
    """A `datasets.Dataset` with a transform."""

    def __new__(cls) -> Any:
        import datasets

        datasets.disable_progress_bars()
        one = datasets.Dataset.from_dict({"x": [[float(n % 97)] * 16 for n in range(20_000)], "y": list(range(20_000))})
        return one.with_transform(_scaled)


def _scaled(rows: Any) -> Any:
    return {"x": [np.asarray(one, np.float32) / 97 for one in rows["x"]], "y": rows["y"]}


SETS: dict[str, Any] = {
    "1 us": Rows,
    "20 us of NumPy": Sorted,
    "400 us of Python": Python,
    "150 KB": Large,
    "dicts of 20 numbers": Scalars,
    "tuples of tensors": Tensors,
    "ragged": Ragged,
    "photographs": Pictures,
    "datasets.Dataset": HuggingFace,
}


def _padded(samples: list[Any]) -> Any:
    import torch

    tokens = [torch.from_numpy(one["tokens"]) for one in samples]
    padded = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True)
    return {"tokens": padded, "y": torch.tensor([one["y"] for one in samples])}


#: Where the batches are wanted.
DEVICE = "cpu"


def feedline_batches(name: str, workers: int) -> Any:
    import feedline

    data = SETS[name]()
    options: dict[str, Any] = {"framework": "torch", "workers": workers or None, "shuffle": 7, "device": DEVICE}
    if name == "ragged":
        data, options["pad"] = feedline.Data(data, max_length={"tokens": 256}), {"tokens": 0}
    return feedline.Loader(data, 32 if name == "photographs" else BATCH, **options)


def torch_batches(name: str, workers: int) -> Any:
    from torch.utils.data import DataLoader

    keeps = {"persistent_workers": True} if workers else {}
    collate = _padded if name == "ragged" else None
    size = 32 if name == "photographs" else BATCH
    to_gpu = DEVICE != "cpu"
    loader = DataLoader(
        SETS[name](), size, shuffle=True, num_workers=workers, collate_fn=collate, pin_memory=to_gpu, **keeps
    )
    return _ToGpu(loader) if to_gpu else loader


class _ToGpu:
    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Any:
        for batch in self.loader:
            if isinstance(batch, dict):
                yield {name: value.to(DEVICE, non_blocking=True) for name, value in batch.items()}
            else:
                yield [value.to(DEVICE, non_blocking=True) for value in batch]


def torchdata_batches(name: str, workers: int) -> Any:
    from torch.utils.data import RandomSampler, default_collate
    from torchdata.nodes import Batcher, Loader, ParallelMapper, SamplerWrapper

    data = SETS[name]()
    node = Batcher(SamplerWrapper(RandomSampler(data)), BATCH)
    many = _Many(data, default_collate)
    return Loader(ParallelMapper(node, many, num_workers=max(workers, 1), method="process"))


class _Many:
    def __init__(self, data: Any, collate: Any) -> None:
        self.data, self.collate = data, collate

    def __call__(self, indices: list[int]) -> Any:
        return self.collate([self.data[index] for index in indices])


def grain_batches(name: str, workers: int) -> Any:
    import grain
    from absl import flags

    # The workers of grain read the flags.
    flags.FLAGS.mark_as_parsed()
    data = SETS[name]()
    sampler = grain.samplers.IndexSampler(len(data), grain.sharding.NoSharding(), shuffle=True, num_epochs=1, seed=7)
    steps = [grain.transforms.Batch(BATCH)]
    return grain.DataLoader(data_source=data, sampler=sampler, operations=steps, worker_count=workers)


LOADERS = {
    "feedline": feedline_batches,
    "DataLoader": torch_batches,
    "torchdata": torchdata_batches,
    "grain": grain_batches,
}


def measure(loader: str, name: str, workers: int, seconds: float) -> None:
    """Runs in a process of its own; prints a line of JSON."""
    import torch

    import feedline  # noqa: F401

    if DEVICE != "cpu":
        torch.zeros(1, device=DEVICE)
    begun = time.perf_counter()
    batches = LOADERS[loader](name, workers)
    epochs = _forever(batches)
    _rows(next(epochs))
    started = time.perf_counter() - begun
    for _ in range(4):
        next(epochs)
    _synchronize()
    cpu, start, count = _cpu(), time.perf_counter(), 0
    rates = []
    for _ in range(3):
        part, at = 0, time.perf_counter()
        while time.perf_counter() - at < seconds / 3:
            part += _rows(next(epochs))
        _synchronize()
        rates.append(part / (time.perf_counter() - at))
        count += part
    result = {
        "rate": statistics.median(rates),
        "cpu_ms": 1e3 * (_cpu() - cpu) / count * 1000,
        "pss_mb": _pss(),
        "start_s": started,
        "seconds": time.perf_counter() - start,
        "read_by": str(getattr(batches, "_reads", "")),
    }
    print(json.dumps(result), flush=True)
    # Not the end of the loaders: some of them take long.
    for child in _processes()[1:]:
        os.kill(child, 9)
    os._exit(0)


def _synchronize() -> None:
    if DEVICE != "cpu":
        import torch

        torch.cuda.synchronize()


def _forever(batches: Any) -> Any:
    while True:
        yield from batches


def _rows(batch: Any) -> int:
    if isinstance(batch, dict) or hasattr(batch, "keys"):
        fields = [batch[name] for name in batch]
    else:
        fields = list(batch)
    return len(fields[-1])


def _processes() -> list[int]:
    found, todo = [], [os.getpid()]
    while todo:
        process = todo.pop()
        found.append(process)
        for task in Path(f"/proc/{process}/task").glob("*/children"):
            todo += map(int, task.read_text().split())
    return found


def _cpu() -> float:
    """Seconds of CPU of all processes."""
    total = 0
    for process in _processes():
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def _pss() -> float:
    total = 0
    for process in _processes():
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            total += int(line.split()[1]) if line.startswith("Pss:") else 0
    return total / 1024


def run(loader: str, name: str, workers: int, seconds: float) -> dict[str, Any] | str:
    command = [sys.executable, __file__, "--device", DEVICE, "--one", loader, name, str(workers), str(seconds)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 + 10 * seconds)
    except subprocess.TimeoutExpired:
        return "timed out"
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or ["failed"])[-1]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def installed(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="at most four minutes")
    options.add_argument("--workers", default="0,2,8,16")
    options.add_argument("--rows", default=",".join(SETS))
    options.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    options.add_argument("--device", default="cpu")
    options.add_argument("--limit", type=float, default=230.0, help="seconds of --quick")
    options.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    given = options.parse_args()
    global DEVICE
    DEVICE = given.device
    if given.one:
        loader, name, workers, seconds = given.one
        measure(loader, name, int(workers), float(seconds))
        return
    import feedline

    if not installed("torch"):
        sys.exit("not run: torch is not installed")
    import torch

    cores = len(os.sched_getaffinity(0))
    print(f"{cores} cores, Python {sys.version.split()[0]}, NumPy {np.__version__}, torch {torch.__version__}, ", end="")
    print(f"feedline {feedline.__version__}; samples/s, batches of {BATCH}, pictures of 32\n")
    needs = {"photographs": ("PIL", "torchvision"), "datasets.Dataset": ("datasets",)}
    names = [name for name in given.rows.split(",") if name]
    for name in list(names):
        absent = [one for one in needs.get(name, ()) if not installed(one)]
        if absent:
            print(f"not run: {name} ({', '.join(absent)} not installed)")
            names.remove(name)
    counts = [int(one) for one in given.workers.split(",")]
    until = time.monotonic() + given.limit if given.quick else float("inf")
    seconds = 0.7 if given.quick else given.seconds
    cells: dict[tuple[str, int], dict[str, Any]] = {}
    for count in counts:
        for name in names:
            if time.monotonic() > until:
                continue
            # In turns, so that a slow moment of the machine is not one loader's.
            cells[name, count] = {one: run(one, name, count, seconds) for one in ("feedline", "DataLoader")}
            by = cells[name, count]["feedline"]
            by = "" if isinstance(by, str) else f" ({by['read_by']})"
            print(f"{name}, {count} workers: {_cell(cells[name, count])}{by}", file=sys.stderr, flush=True)
    head = "".join(f" {count} workers: feedline, DataLoader, ratio |" for count in counts)
    print(f"| sample, on {DEVICE} |{head}\n|{' --- |' * (1 + len(counts))}", flush=True)
    for name in names:
        shown = [_cell(cells[name, one]) if (name, one) in cells else "not run: no time left" for one in counts]
        print(f"| {name} | {' | '.join(shown)} |", flush=True)
    print("\n| sample, workers | CPU ms per 1,000 | memory MB (PSS) | start s |\n| --- | --- | --- | --- |")
    for (name, count), pair in cells.items():
        print(f"| {name}, {count} | {_both(pair, 'cpu_ms')} | {_both(pair, 'pss_mb')} | {_both(pair, 'start_s')} |")
    print()
    for other in ("torchdata", "grain"):
        if not installed(other):
            print(f"not run: {other} (not installed)")
            continue
        for name in [one for one in ("1 us", "150 KB", "400 us of Python") if one in names]:
            if time.monotonic() > until:
                print(f"not run: {other}, {name} (no time left)")
                continue
            count = max((one for one in counts if 0 < one <= cores), default=2)
            turns = [(run("feedline", name, count, seconds), run(other, name, count, seconds)) for _ in range(3)]
            own, its = map(_median, zip(*turns, strict=True))
            print(f"{name}, {count} workers: feedline {_shown(own)}, {other} {_shown(its)}", flush=True)


def _median(turns: Any) -> Any:
    found = [one for one in turns if not isinstance(one, str)]
    return sorted(found, key=lambda one: one["rate"])[len(found) // 2] if found else turns[0]


def _shown(found: dict[str, Any] | str) -> str:
    return found if isinstance(found, str) else f"{found['rate']:,.0f}"


def _cell(pair: dict[str, Any]) -> str:
    own, its = pair["feedline"], pair["DataLoader"]
    ratio = "" if isinstance(own, str) or isinstance(its, str) else f", {own['rate'] / its['rate']:.1f}"
    return f"{_shown(own)}, {_shown(its)}{ratio}"


def _both(pair: dict[str, Any], key: str) -> str:
    return ", ".join("-" if isinstance(one, str) else f"{one[key]:,.1f}" for one in pair.values())


if __name__ == "__main__":
    main()
