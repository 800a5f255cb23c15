"""Measures on the host: the cost of a batch in Python, how a data set in Python scales with workers, and
samples/s and memory beside torch's DataLoader and SPDL.

    python benches/host.py [SECONDS]

Prints a line per measurement. What is not installed is said.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROWS, RECORDS = 60_000, 2_000


def files(folder: Path) -> dict[str, Path]:
    """Rows of 784 bytes, as MNIST's, and records of 150 KB, as pictures of 224 x 224."""
    random = np.random.default_rng(7)
    made = {"rows of 784 B": folder / "rows.npy", "records of 150 KB": folder / "records.npy"}
    np.save(made["rows of 784 B"], random.integers(0, 256, (ROWS, 784), np.uint8))
    np.save(made["records of 150 KB"], random.integers(0, 256, (RECORDS, 3, 224, 224), np.uint8))
    return made


def cost(framework: str) -> None:
    """The time of `next` and of two fields for batches that are ready: all of it is the hand-over."""
    import feedline

    data = {"x": np.zeros((100_000, 16), np.float32), "y": np.zeros(100_000, np.int64)}
    loader = feedline.Loader(data, 8, framework=framework, prefetch=64)
    batches, times = iter(loader), []
    for _ in range(60):
        time.sleep(0.02)  # the workers fill the slots meanwhile
        for _ in range(32):
            start = time.perf_counter()
            batch = next(batches)
            batch["x"], batch["y"]
            del batch
            times.append(time.perf_counter() - start)
    times.sort()
    print(
        f"cost of a batch, {framework}: median {1e6 * statistics.median(times):.1f} us, "
        f"p90 {1e6 * times[len(times) * 9 // 10]:.1f} us"
    )


class Work:
    """Samples that Python computes, under the interpreter's lock if there is one."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> dict[str, Any]:
        total = 0
        for number in range(2000):
            total += number * index % 7
        return {"x": total}


def scaling(seconds: float) -> None:
    """Samples/s of a data set written in Python, by workers."""
    import feedline

    rates = {}
    for workers in sorted({1, 2, os.cpu_count() or 1}):
        with feedline.Loader(Work(), 64, framework="numpy", workers=workers, parallel="threads") as loader:
            batches, count = iter(loader), 0
            for _ in range(8):  # those that the workers had ready
                next(batches)
            start = time.perf_counter()
            while time.perf_counter() - start < seconds:
                count += next(batches).rows
            rates[workers] = count / (time.perf_counter() - start)
    lock = "with the lock" if getattr(sys, "_is_gil_enabled", lambda: True)() else "free-threaded"
    shown = ", ".join(f"{workers} workers {rate:,.0f}" for workers, rate in rates.items())
    print(f"own data in Python {sys.version_info.major}.{sys.version_info.minor}, {lock}, samples/s: {shown}")


class Rows:
    """A data set for DataLoader over the same file."""

    def __init__(self, path: str) -> None:
        self.rows = np.load(path, mmap_mode="r")

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return np.array(self.rows[index])


def rate(loader: str, framework: str, path: str, batch: int, seconds: float) -> None:
    """Runs in a process of its own, so that its memory is its own."""
    count = 0
    if loader == "feedline":
        import feedline

        batches = feedline.Loader(feedline.open(path), batch, shuffle=True, seed=7, framework=framework)
    elif loader == "feedline, own data":
        import feedline

        batches = feedline.Loader(Rows(path), batch, shuffle=True, seed=7, framework=framework)
    elif loader == "SPDL":
        batches = spdl(Rows(path), batch, framework)
    else:
        import torch

        collate = (lambda rows: np.stack(rows)) if framework == "numpy" else None
        batches = torch.utils.data.DataLoader(
            Rows(path), batch, shuffle=True, num_workers=int(loader[-1]), collate_fn=collate
        )
    next(iter(batches))
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        for one in batches:
            array = one[{"feedline": "array"}.get(loader, "0")] if loader.startswith("feedline") else one
            count += len(array)
            if time.perf_counter() - start > seconds:
                break
    took = time.perf_counter() - start
    print(f"{count / took:.0f} {memory():.0f}")
    if loader == "SPDL":
        batches.stop()


def spdl(rows: Rows, batch: int, framework: str) -> Any:
    """SPDL's threads over the same data set."""
    from spdl.pipeline import PipelineBuilder

    chance = np.random.default_rng(7)

    def source() -> Any:
        while True:
            yield from chance.permutation(len(rows)).tolist()

    def collate(samples: list[Any]) -> Any:
        array = np.stack(samples)
        if framework == "numpy":
            return array
        import torch

        return torch.from_numpy(array)

    builder = PipelineBuilder().add_source(source()).pipe(rows.__getitem__, concurrency=2)
    pipeline = builder.aggregate(batch).pipe(collate).add_sink(4).build(num_threads=2)
    pipeline.start()
    return pipeline


def memory() -> float:
    """MiB of this process and its children that no other process shares."""
    total, todo = 0, [os.getpid()]
    while todo:
        process = todo.pop()
        try:
            smaps = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
            todo += map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in smaps if line.startswith("Private_"))
    return total / 1024


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 4
    try:
        import torch

        frameworks = ["numpy", "torch"]
        print(f"{os.cpu_count()} cores, torch {torch.__version__}")
    except ImportError:
        frameworks = ["numpy"]
        print("not run: DataLoader and tensors (torch is not installed)")
    for framework in frameworks:
        cost(framework)
    scaling(seconds)
    try:
        import spdl.pipeline  # noqa: F401

        others = ["SPDL"]
    except ImportError:
        others = []
        print("not run: SPDL (spdl is not installed)")
    with tempfile.TemporaryDirectory() as folder:
        for name, path in files(Path(folder)).items():
            for framework in frameworks:
                loaders = ["feedline", "feedline, own data"]
                loaders += ["DataLoader, workers 0", "DataLoader, workers 2"] if len(frameworks) > 1 else []
                loaders += others
                for loader in loaders:
                    command = [
                        sys.executable,
                        __file__,
                        "rate",
                        loader,
                        framework,
                        str(path),
                        "256",
                        str(seconds),
                    ]
                    done = subprocess.run(command, capture_output=True, text=True)
                    if done.returncode != 0:
                        sys.exit(done.stderr)
                    samples, held = done.stdout.split()
                    print(
                        f"{name}, {framework}, {loader}: {int(samples):,} samples/s, {held} MiB", flush=True
                    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["rate"]:
        rate(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), float(sys.argv[6]))
    else:
        main()
