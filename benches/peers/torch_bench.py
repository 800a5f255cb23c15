"""PyTorch on the workloads of the benches: the step alone, and fed by its DataLoader.

train    MLP 784-512-512-10 on u8 pixels, momentum SGD, TF32: eager and as a CUDA graph on resident data; fed by a
         DataLoader of items, of `__getitems__`, of whole-batch indices, each with and without a side-stream
         prefetcher, eager and replaying the graph.
raw      3x224x224 u8 records of a memory-mapped file, shuffled, batch 256, to the device.
"""

import itertools
import statistics
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

from rows import CLASSES, HIDDEN, Report, alone, arguments, interleaved, raw_file, training_set

warnings.filterwarnings("ignore", category=UserWarning)  # more workers than cores; read-only arrays
RESIDENT = 8


def mlp(inputs, device):
    torch.manual_seed(1)
    layers = [
        torch.nn.Linear(inputs, HIDDEN),
        torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, HIDDEN),
        torch.nn.ReLU(),
    ]
    return torch.nn.Sequential(*layers, torch.nn.Linear(HIDDEN, CLASSES)).to(device)


class Trainer:
    """The model, its optimizer, and one step: eager or as a graph over fixed inputs."""

    def __init__(self, inputs, device):
        self.model = mlp(inputs, device)
        # The fastest form: one kernel for all parameters.
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=0.01, momentum=0.9, fused=device.type == "cuda"
        )
        self.graph = None

    def step(self, image, label):
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.model(image * (1.0 / 255.0))
        F.cross_entropy(logits, label.long()).backward()
        self.optimizer.step()

    def capture(self, image, label):
        """Captures the step over copies of these inputs, as the documentation of torch.cuda.graph shows."""
        self.image, self.label = image.clone(), label.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(5):
                self.step(self.image, self.label)
        torch.cuda.current_stream().wait_stream(side)
        self.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step(self.image, self.label)

    def replay(self, image, label):
        self.image.copy_(image, non_blocking=True)
        self.label.copy_(label, non_blocking=True)
        self.graph.replay()


class Items(Dataset):
    """One sample at a time; the default collate function makes the batch."""

    def __init__(self, images, labels):
        self.images, self.labels = torch.from_numpy(images), torch.from_numpy(labels)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


class Fetched(Items):
    """A batch at once through `__getitems__`; the collate function passes it on."""

    def __getitems__(self, indices):
        indices = torch.as_tensor(indices)
        return self.images[indices], self.labels[indices]


class Whole(Items):
    """A batch at once: the sampler gives lists of indices, automatic batching is off."""

    def __getitem__(self, indices):
        indices = torch.as_tensor(indices)
        return self.images[indices], self.labels[indices]


def same(batch):
    return batch


def loader(kind, images, labels, batch, workers, pin):
    common = dict(num_workers=workers, pin_memory=pin)
    if workers:
        common.update(persistent_workers=True, prefetch_factor=4)
    if kind == "items":
        return DataLoader(Items(images, labels), batch_size=batch, shuffle=True, drop_last=True, **common)
    if kind == "__getitems__":
        data = Fetched(images, labels)
        return DataLoader(data, batch_size=batch, shuffle=True, drop_last=True, collate_fn=same, **common)
    data = Whole(images, labels)
    batches = BatchSampler(RandomSampler(data), batch, drop_last=True)
    return DataLoader(data, sampler=batches, batch_size=None, **common)


def endless(batches):
    """Repeats epochs with the same workers."""
    while True:
        yield from batches


class Plain:
    """Copies on the compute stream, without blocking the host."""

    def __init__(self, batches, device):
        self.batches, self.device = endless(batches), device

    def next(self):
        return [tensor.to(self.device, non_blocking=True) for tensor in next(self.batches)]


class Prefetcher:
    """Copies one batch ahead on a side stream; the compute stream waits for it and tells the allocator."""

    def __init__(self, batches, device):
        self.batches, self.device, self.stream = endless(batches), device, torch.cuda.Stream()
        self.preload()

    def preload(self):
        batch = next(self.batches)
        with torch.cuda.stream(self.stream):
            self.ahead = [tensor.to(self.device, non_blocking=True) for tensor in batch]

    def next(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        batch = self.ahead
        for tensor in batch:
            tensor.record_stream(torch.cuda.current_stream())
        self.preload()
        return batch


def train(options, report, device, gpu):
    images, labels = training_set(options)
    finish = torch.cuda.synchronize if gpu else lambda: None
    for batch in options.batches:
        trainer = Trainer(images.shape[1], device)
        rows = [np.arange(n * batch, (n + 1) * batch) % len(labels) for n in range(RESIDENT)]
        resident = [
            (torch.from_numpy(images[ids]).to(device), torch.from_numpy(labels[ids]).to(device))
            for ids in rows
        ]
        turn = itertools.cycle(resident)
        eager = lambda: trainer.step(*next(turn))
        baselines = {"eager": eager}
        if gpu:

            def captured(trainer=trainer):
                trainer.capture(*resident[0])
                return trainer.graph.replay

            graph = report.part(f"graph {batch}", captured)
            if graph:
                baselines["graph"] = graph
        for mode, baseline in baselines.items():
            if not options.only or "step" in options.only:
                times = report.part(f"step {mode} {batch}", lambda: alone(options, baseline, finish))
                if times:
                    report.add(
                        "torch-step",
                        {"mode": mode, "batch": batch},
                        times,
                        "us/step",
                        samples_per_s=batch * 1e6 / statistics.median(times),
                    )
        if not options.only or "loader" in options.only:
            for kind in ("items", "__getitems__", "whole-batch"):
                report.part(
                    f"{kind} {batch}",
                    lambda: fed(
                        options,
                        report,
                        device,
                        gpu,
                        trainer,
                        baselines,
                        kind,
                        (images, labels),
                        batch,
                        finish,
                    ),
                )


def fed(options, report, device, gpu, trainer, baselines, kind, data, batch, finish):
    feeds = {"plain": Plain}
    if gpu:
        feeds["prefetcher"] = Prefetcher
    for name, feed in feeds.items():
        source = feed(loader(kind, *data, batch, options.workers, pin=gpu), device)
        for _ in range(8):
            source.next()
        steps = {"eager": lambda: trainer.step(*source.next())}
        if "graph" in baselines:
            steps["graph"] = lambda: trainer.replay(*source.next())
        for mode, step in steps.items():
            values, baseline, ratio = interleaved(options, step, baselines[mode], finish)
            report.add(
                "torch-train",
                {"loader": kind, "feed": name, "mode": mode, "batch": batch, "workers": options.workers},
                values,
                "us/step",
                baseline,
                ratio,
                samples_per_s=batch * 1e6 / statistics.median(values),
            )
        source.batches.close()
        del source


class Raw(Dataset):
    """Rows of a memory-mapped file; opened in each worker."""

    def __init__(self, path, rows, row_bytes):
        self.path, self.shape, self.map = path, (rows, row_bytes), None

    def rows(self):
        if self.map is None:
            self.map = np.memmap(self.path, np.uint8, "r", shape=self.shape)
        return self.map

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, index):
        # `index` is an int, or a list for a whole batch.
        return torch.from_numpy(np.array(self.rows()[index]))


def raw(options, report, device, gpu):
    row_bytes, batch = 3 * 224 * 224, 256
    path, rows = raw_file(options, row_bytes)
    finish = torch.cuda.synchronize if gpu else lambda: None
    try:
        for kind in ("items", "whole-batch"):

            def run(kind=kind):
                data = Raw(path, rows, row_bytes)
                common = dict(
                    num_workers=options.workers, pin_memory=gpu, persistent_workers=True, prefetch_factor=2
                )
                if kind == "items":
                    batches = DataLoader(data, batch_size=batch, shuffle=True, drop_last=True, **common)
                else:
                    sampler = BatchSampler(RandomSampler(data), batch, drop_last=True)
                    batches = DataLoader(data, sampler=sampler, batch_size=None, **common)
                source = endless(batches)
                step = lambda: next(source).to(device, non_blocking=True)
                for _ in range(2 * options.workers):
                    step()
                times = alone(options, step, finish)
                rates = [batch * row_bytes / us / 1e3 for us in times]
                report.add(
                    "torch-raw",
                    {"loader": kind, "batch": batch, "workers": options.workers},
                    rates,
                    "GB/s",
                    samples_per_s=batch * 1e6 / statistics.median(times),
                )
                source.close()

            report.part(f"raw {kind}", run)
    finally:
        path.unlink()


def main():
    options = arguments(__doc__)
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", 0) if gpu else torch.device("cpu")
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    versions = f"torch {torch.__version__}, CUDA {torch.version.cuda}, numpy {np.__version__}"
    report = Report(options, torch.cuda.get_device_name(0) if gpu else "cpu", versions)
    report.part("train", lambda: train(options, report, device, gpu))
    if not options.only or "raw" in options.only:
        report.part("raw", lambda: raw(options, report, device, gpu))


if __name__ == "__main__":
    main()
