"""Checks feedline on a GPU under PyTorch, then measures a fed step against the step alone.

    python benches/gpu.py check [--photos FOLDER]
    python benches/gpu.py measure [--seconds 4] [--photos FOLDER] [--only jpeg]

`measure` runs the same model on the same samples three ways: on one batch that stays on the GPU (the step
alone), fed by feedline, and fed by torch's DataLoader; JPEG also fed by DALI and SPDL. It prints the time of
a step, and the step alone over the fed step: 1 is a GPU that never waits. `--photos` is a folder of JPEGs
with a folder per class. Ends with "ok", or with the first failure.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from photos import Photos, dali, ffcv, spdl

import feedline

DEVICE = "cuda:0"


def numbers(samples: int = 4096, width: int = 784) -> dict[str, np.ndarray[Any, Any]]:
    ids = np.arange(samples)
    rows = (ids[:, None] * 31 + np.arange(width)) % 251
    return {"x": rows.astype(np.uint8), "f": rows[:, :16].astype(np.float16), "id": ids}


# Checks


def values() -> None:
    """Every field of every batch, over three epochs, with states in between."""
    arrays = numbers()
    wanted = {name: torch.from_numpy(array).to(DEVICE) for name, array in arrays.items()}
    loader = feedline.Loader(arrays, 100, shuffle=True, seed=7, device=DEVICE)
    for epoch in range(3):
        for batch in loader.epoch(epoch):
            ids = torch.from_numpy(batch.ids.astype(np.int64)).to(DEVICE)
            for name, array in wanted.items():
                assert batch[name].device == torch.device(DEVICE)
                assert torch.equal(batch[name], array[ids]), (epoch, batch.step, name)
            if batch.step == 10:
                loader.load_state_dict(loader.state_dict())


def side_streams() -> None:
    """Work that runs late on a side stream reads its own batch, although the host has long dropped it."""
    arrays = numbers()
    wanted = torch.from_numpy(arrays["x"]).to(DEVICE).sum(1, dtype=torch.int64)
    loader = feedline.Loader(arrays, 64, shuffle=True, seed=7, device=DEVICE, prefetch=3)
    streams = [torch.cuda.Stream() for _ in range(2)]
    sums = []
    for batch in loader:
        ids = batch.ids.astype(np.int64)
        stream = streams[batch.step % 2]
        with torch.cuda.stream(stream):
            torch.cuda._sleep(3_000_000)  # the host and the copies are far ahead
            sums.append((ids, batch["x"].sum(1, dtype=torch.int64)))
        del batch
    torch.cuda.synchronize()
    for step, (ids, sum) in enumerate(sums):
        assert torch.equal(sum, wanted[torch.from_numpy(ids).to(DEVICE)]), (
            f"step {step}: a slot was written again"
        )


def two_streams_of_one_batch() -> None:
    arrays = numbers(2048)
    wanted = torch.from_numpy(arrays["x"]).to(DEVICE).sum(1, dtype=torch.int64)
    loader = feedline.Loader(arrays, 64, device=DEVICE, prefetch=3)
    side = torch.cuda.Stream()
    results = []
    for batch in loader:
        here = batch["x"].sum(1, dtype=torch.int64)
        with torch.cuda.stream(side):
            torch.cuda._sleep(1_000_000)
            there = batch["x"].sum(1, dtype=torch.int64)
        results.append((batch.step, here, there))
        del batch
    torch.cuda.synchronize()
    for step, here, there in results:
        assert torch.equal(here, there) and torch.equal(here, wanted[64 * step : 64 * step + 64]), step


def gradients() -> None:
    """The autograd graph keeps its slot until backward, while other batches go through."""
    arrays = {"x": np.random.default_rng(7).standard_normal((2000, 32)).astype(np.float32)}
    loader = feedline.Loader(arrays, 20, device=DEVICE, prefetch=4)
    weights = torch.ones(32, device=DEVICE, requires_grad=True)
    batches = iter(loader)
    held = next(batches)["x"]
    loss = (held @ weights).sum()
    del held
    for batch in batches:
        del batch
    loss.backward()
    wanted = torch.from_numpy(arrays["x"][:20]).to(DEVICE).sum(0)
    assert weights.grad is not None and torch.allclose(weights.grad, wanted, rtol=1e-4, atol=1e-4)


def slots_held() -> None:
    loader = feedline.Loader(numbers(), 64, device=DEVICE, prefetch=3)
    kept, start = [], time.monotonic()
    try:
        for batch in loader:
            kept.append(batch["x"])
            start = time.monotonic()
    except feedline.SlotsHeldError:
        assert len(kept) == 3 and time.monotonic() - start < 2
        return
    raise AssertionError("a loop that holds every slot must get an error")


def lifetimes() -> None:
    """Tensors that outlive the loader, and tensors that other threads free."""
    arrays = numbers()
    loader = feedline.Loader(arrays, 64, device=DEVICE, prefetch=4)
    batches = iter(loader)
    kept = next(batches)["x"]
    copied = kept.clone()
    del batches
    loader.close()
    del loader
    gc.collect()
    torch.cuda.synchronize()
    assert torch.equal(kept, copied)
    loader = feedline.Loader(arrays, 64, device=DEVICE, prefetch=4)
    for _ in range(5):
        for batch in loader:
            holder = [batch["x"]]
            thread = threading.Thread(target=holder.clear)
            thread.start()
            del batch
            thread.join()


def no_leak() -> None:
    loader = feedline.Loader(numbers(), 64, device=DEVICE)

    def epochs(count: int) -> tuple[int, int]:
        for _ in range(count):
            for batch in loader:
                batch["x"].float().mean()
                del batch
        torch.cuda.synchronize()
        return len(os.listdir("/proc/self/fd")), torch.cuda.mem_get_info()[0]

    before = epochs(20)
    after = epochs(100)
    assert after[0] == before[0] and before[1] - after[1] < 1 << 20, (before, after)


def pictures(photos: Path | None) -> None:
    """Pictures decoded by nvJPEG, and by both processors, against those of the workers."""
    if photos is None:
        print("not run: pictures (give --photos FOLDER)")
        return
    from feedline import transforms as T

    def taken(steps: list[T.Transform], decode: str, device: str) -> dict[int, torch.Tensor]:
        loader = feedline.Loader(
            feedline.images(photos, steps, decode=decode), 16, shuffle=True, seed=7, device=device, framework="torch"
        )
        print(f"  {loader!r}", flush=True)
        rows = {}
        for batch in loader:
            assert batch["image"].device == torch.device(device)
            assert torch.equal(batch["label"].cpu(), labels[batch.ids.astype(np.int64)])
            # A copy: a view of a batch on the host would hold its slot.
            pictures = batch["image"].to("cpu", torch.float32, copy=True)
            rows.update(zip(batch.ids.tolist(), pictures, strict=True))
            del batch
        loader.close()
        return rows

    plain = feedline.images(photos, [T.CenterCrop((64, 64))])
    labels = torch.tensor([int(plain[index]["label"]) for index in range(len(plain))])
    lists: list[tuple[list[T.Transform], float, float]] = [
        # nvJPEG differs by up to three levels, which a scaled picture keeps; a median says that most do not.
        ([T.CenterCrop((64, 64))], 4, 1),
        ([T.RandomResizedCrop(224), T.RandomHorizontalFlip()], 6, 1),
        (
            [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.Normalize()],
            6 / 255 / 0.224,
            1 / 255 / 0.224,
        ),
    ]
    for steps, worst, median in lists:
        wanted = taken(steps, "cpu", "cpu")
        for decode in ("gpu", "auto"):
            found = taken(steps, decode, DEVICE)
            assert found.keys() == wanted.keys()
            apart = torch.stack(
                [(found[row] - wanted[row]).abs().flatten().topk(1).values[0] for row in wanted]
            )
            means = torch.stack([(found[row] - wanted[row]).abs().mean() for row in wanted])
            print(
                f"  {steps}, {decode}: worst {apart.max():.3f}, mean {means.mean():.4f} over {len(wanted)}",
                flush=True,
            )
            assert apart.max() <= worst * 1.01 and means.median() <= median, (apart.max(), means.median())
    # A tensor of the stage outlives its loader, and a state continues.
    data = feedline.images(photos, [T.Resize((64, 64))], decode="gpu")
    loader = feedline.Loader(data, 4, shuffle=True, seed=7, device=DEVICE, framework="torch")
    whole = [batch.ids.tolist() for batch in loader.epoch(0)]
    epoch = loader.epoch(1)
    kept = next(epoch)["image"]
    copied = kept.clone()
    state = loader.state_dict()
    rest = [batch.ids.tolist() for batch in epoch]
    loader.load_state_dict(state)
    assert [batch.ids.tolist() for batch in loader] == rest and len(rest) == len(whole) - 1
    loader.close()
    torch.cuda.synchronize()
    assert torch.equal(kept, copied)


def jax_arrays(_: Path | None) -> None:
    """Values as arrays of JAX on the GPU, without a copy; the slot waits for the work on them."""
    try:
        import jax
    except ImportError:
        print("not run: jax_arrays (jax is not installed)")
        return
    if jax.default_backend() != "gpu":
        print("not run: jax_arrays (JAX has no GPU: install jax[cuda])")
        return
    arrays = numbers()
    loader = feedline.Loader(arrays, 64, shuffle=True, seed=7, device=DEVICE, framework="jax", prefetch=3)
    total = jax.jit(lambda rows: rows.astype("int32").sum(1))
    sums = []
    for batch in loader:
        assert batch["x"].devices() == {jax.devices()[0]}
        sums.append((batch.ids.astype(np.int64), total(batch["x"])))
        del batch
    for ids, found in sums:
        assert (np.asarray(found) == arrays["x"][ids].astype(np.int32).sum(1)).all()


def device_map() -> None:
    """What a function makes ahead of the step is right, although its kernels and those of the step run late; also
    on a side stream, with one slot, and if all results are kept."""

    def late(batch: dict[str, Any]) -> dict[str, Any]:
        torch.cuda._sleep(500_000)
        doubled = batch["x"].float() * 2
        torch.cuda._sleep(200_000)
        return {"y": doubled, "id": batch["id"], "head": batch["x"][:, :8]}

    arrays = numbers()
    wanted = torch.from_numpy(arrays["x"]).to(DEVICE).float() * 2
    for prefetch in (1, 2, None):
        for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
            loader = feedline.Loader(arrays, 100, shuffle=True, seed=7, device=DEVICE, prefetch=prefetch, device_map=late)
            kept, wrong = [], torch.zeros((), dtype=torch.int64, device=DEVICE)
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                for batch in loader:
                    torch.cuda._sleep(400_000)
                    wrong += (batch["y"] != wanted[batch["id"]]).sum()
                    wrong += (batch["head"].float() * 2 != batch["y"][:, :8]).sum()
                    if prefetch == 1:
                        kept.append(batch)
            torch.cuda.synchronize()
            assert wrong.item() == 0, (prefetch, wrong.item())
            assert all(torch.equal(batch["y"], wanted[batch["id"]]) for batch in kept)


def device_map_and_the_loop() -> None:
    """The loop draws what it would draw alone, also by dropout in a graph; a batch is refused in a capture."""

    def noise(batch: dict[str, Any]) -> dict[str, Any]:
        return {"noise": torch.rand(3, device=DEVICE), "host": torch.rand(2), "id": batch["id"]}

    def drawn() -> tuple[list[float], list[float]]:
        return torch.rand(2, device=DEVICE).tolist(), torch.rand(2).tolist()

    def loader() -> feedline.Loader:
        return feedline.Loader(numbers(), 400, shuffle=True, seed=7, device=DEVICE, device_map=noise)

    torch.manual_seed(3)
    alone = [drawn() for _ in range(10)]
    torch.manual_seed(3)
    one, own, made, state = loader(), [], [], None
    for batch in one.epoch(0):
        if batch.step == 10:
            break
        own.append(drawn())
        made.append((batch["noise"].tolist(), batch["host"].tolist()))
        state = one.state_dict() if batch.step == 4 else state
    assert own == alone and len({str(row) for row in made}) == 10
    again = loader()
    again.load_state_dict(state)
    rest = iter(again)
    assert [next(rest)["noise"].tolist() for _ in range(5)] == [on_device for on_device, _ in made[5:]]
    batches, static = iter(loader()), torch.zeros(4, device=DEVICE)
    next(batches)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static += 1
        try:
            next(batches)
        except feedline.ConfigError:
            pass
        else:
            raise AssertionError("a batch was mapped in a capture")
    graph.replay()
    assert next(batches).rows == 400


CHECKS = [values, side_streams, two_streams_of_one_batch, gradients, slots_held, lifetimes, no_leak]
CHECKS += [device_map, device_map_and_the_loop]


def check(photos: Path | None) -> None:
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, feedline {feedline.__version__}",
        flush=True,
    )
    for one in CHECKS:
        one()
        print(f"{one.__name__}: ok", flush=True)
    for two in (pictures, jax_arrays):
        two(photos)
        print(f"{two.__name__}: ok", flush=True)


# Measurements


def model(features: int, width: int) -> torch.nn.Module:
    layers = [torch.nn.Linear(features, width), torch.nn.ReLU()]
    layers += [torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)]
    return torch.nn.Sequential(*layers).to(DEVICE)


def training(features: int, width: int) -> Callable[[torch.Tensor], None]:
    """A step of training on a batch of u8 rows."""
    network = model(features, width)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4)

    def step(rows: torch.Tensor) -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = network(rows.flatten(1).to(torch.bfloat16) / 255).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def timed(batches: Iterator[torch.Tensor], step: Callable[[torch.Tensor], None], seconds: float) -> float:
    """Milliseconds of a step: the median of five parts."""
    for _ in range(20):
        step(next(batches))
    torch.cuda.synchronize()
    parts = []
    for _ in range(5):
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < seconds / 5:
            for _ in range(10):
                step(next(batches))
            count += 10
            # Without this the host runs ahead of the GPU, and only the host is timed.
            torch.cuda.current_stream().synchronize()
        parts.append((time.perf_counter() - start) / count)
    return 1e3 * statistics.median(parts)


def forever(loader: Any, tensor: Callable[[Any], torch.Tensor]) -> Iterator[torch.Tensor]:
    while True:
        for batch in loader:
            rows = tensor(batch)
            del batch
            yield rows


class Rows(torch.utils.data.Dataset[Any]):
    """The same file for DataLoader."""

    def __init__(self, path: Path) -> None:
        self.rows = np.load(path, mmap_mode="r")

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return torch.from_numpy(np.array(self.rows[index]))


def compare(
    name: str,
    ours: dict[str, feedline.Data],
    field: str,
    theirs: Any,
    batch: int,
    features: int,
    width: int,
    seconds: float,
    others: dict[str, Callable[[int], Iterator[torch.Tensor]]] | None = None,
) -> None:
    """The step alone and fed; `others` have further loaders by name: functions of the batch size."""
    step = training(features, width)

    def opened(data: feedline.Data) -> feedline.Loader:
        return feedline.Loader(data, batch, shuffle=True, seed=7, last_batch="drop", device=DEVICE, framework="torch")

    with opened(next(iter(ours.values()))) as loader:
        first = next(iter(loader))[field].clone()

    def alone() -> Iterator[torch.Tensor]:
        while True:
            yield first

    base = timed(alone(), step, seconds)
    print(f"{name}, batch {batch}: step alone {base:.3f} ms", flush=True)

    def line(what: str, took: float) -> None:
        print(
            f"  {what}: {took:.3f} ms, {base / took:.3f} of the step alone, {batch / took:.0f}k samples/s",
            flush=True,
        )

    for what, data in ours.items():
        try:
            loader = opened(data)
        except feedline.Error as error:
            print(f"  not run: {what} ({error})")
            continue
        line(what, timed(forever(loader, lambda one: one[field]), step, seconds))
        print("  " + loader.report().diagnosis)
        loader.close()
    cores = os.cpu_count() or 1
    for workers in [0, min(8, cores), cores]:
        if theirs is None:
            print("  not run: DataLoader (Pillow or torchvision is not installed)")
            break
        other = torch.utils.data.DataLoader(
            theirs, batch, shuffle=True, drop_last=True, num_workers=workers, pin_memory=True,
            persistent_workers=workers > 0,
        )  # fmt: skip
        took = timed(forever(other, lambda one: one.to(DEVICE, non_blocking=True)), step, seconds)
        line(f"DataLoader, {workers} workers, pinned", took)
        del other
        gc.collect()
    for what, batches in (others or {}).items():
        try:
            made = batches(batch)
            next(made)
        except Exception as error:  # of another library, which may not be installed or may have changed # noqa: BLE001
            print(f"  not run: {what} ({type(error).__name__}: {str(error).splitlines()[0]})", flush=True)
            continue
        line(what, timed(made, step, seconds))
        del made
        gc.collect()
    # What a drift of the clock would have done.
    print(f"  step alone, again: {timed(alone(), step, seconds):.3f} ms", flush=True)


def measure(seconds: float, photos: Path | None, only: str | None) -> None:
    if only != "jpeg":
        measure_rows(seconds)
    if photos is None:
        print("not run: JPEG (give --photos FOLDER)")
        return
    steps: list[feedline.transforms.Transform] = [
        feedline.transforms.RandomResizedCrop(224), feedline.transforms.RandomHorizontalFlip(),
    ]  # fmt: skip
    names = {
        "feedline, GPU and CPU decode": "auto",
        "feedline, nvJPEG decodes": "gpu",
        "feedline, the CPU decodes": "cpu",
    }
    ours = {name: feedline.images(photos, steps, decode=decode).repeat(100) for name, decode in names.items()}
    try:
        import PIL  # noqa: F401
        import torchvision  # noqa: F401

        theirs = Photos(photos, 100)
    except ImportError:
        theirs = None
    others = {"DALI": dali(photos), "FFCV": ffcv}
    if theirs is not None:
        others["SPDL, torchvision"] = spdl(theirs, DEVICE)
    compare("JPEG", ours, "image", theirs, 128, 150_528, 2048, seconds, others)


def measure_rows(seconds: float) -> None:
    random = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as folder:
        rows, records = Path(folder) / "rows.npy", Path(folder) / "records.npy"
        np.save(rows, random.integers(0, 256, (500_000, 784), np.uint8))
        compare(
            "rows of 784 B", {"feedline": feedline.open(rows)}, "array", Rows(rows), 4096, 784, 8192, seconds
        )
        np.save(records, random.integers(0, 256, (16_384, 3, 224, 224), np.uint8))
        compare(
            "records of 150 KB",
            {"feedline": feedline.open(records)},
            "array",
            Rows(records),
            256,
            150_528,
            2048,
            seconds,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["check", "measure"])
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--only", choices=["jpeg"])
    given = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("not run: there is no GPU, or torch does not see it")
    if given.what == "check":
        check(given.photos)
    else:
        measure(given.seconds, given.photos, given.only)
    print("ok")


if __name__ == "__main__":
    main()
