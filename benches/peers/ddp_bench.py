"""PyTorch DDP on the model of the trainer: eager, and the whole step as a CUDA graph; on resident data.

    torchrun --standalone --nproc-per-node 2 benches/peers/ddp_bench.py --json rows.jsonl

One row per size and form, with the microseconds of a step and the samples per second of all ranks; and the time of an
all-reduce of the gradients alone.
"""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

RESIDENT, INPUTS, CLASSES = 8, 784, 10


def mlp(hidden, device):
    torch.manual_seed(1)
    layers = [
        torch.nn.Linear(INPUTS, hidden),
        torch.nn.ReLU(),
        torch.nn.Linear(hidden, hidden),
        torch.nn.ReLU(),
    ]
    return torch.nn.Sequential(*layers, torch.nn.Linear(hidden, CLASSES)).to(device)


class Trainer:
    def __init__(self, hidden, batch, device, world):
        self.model = mlp(hidden, device)
        if world > 1:
            ids = [device] if device.type == "cuda" else None
            self.model = DistributedDataParallel(
                self.model, ids, gradient_as_bucket_view=True, static_graph=True
            )
        fused = device.type == "cuda"
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9, fused=fused)
        self.images = [
            torch.randint(0, 256, (batch, INPUTS), dtype=torch.uint8, device=device) for _ in range(RESIDENT)
        ]
        self.labels = [torch.randint(0, CLASSES, (batch,), device=device) for _ in range(RESIDENT)]
        self.at = 0

    def step(self, image, label):
        self.optimizer.zero_grad(set_to_none=False)
        F.cross_entropy(self.model(image * (1.0 / 255.0)), label).backward()
        self.optimizer.step()

    def eager(self):
        self.at = (self.at + 1) % RESIDENT
        self.step(self.images[self.at], self.labels[self.at])

    def capture(self):
        """DDP wants eleven steps before a capture (PyTorch's notes on CUDA graphs)."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(12):
                self.step(self.images[0], self.labels[0])
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step(self.images[0], self.labels[0])
        return graph.replay


def measure(step, device, seconds):
    """Microseconds of a step: the median of three turns, each of the same length on all ranks."""
    wait = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    count = torch.tensor([8], dtype=torch.int64)
    for _ in range(2):
        wait()
        start = time.perf_counter()
        for _ in range(int(count)):
            step()
        wait()
        each = (time.perf_counter() - start) / int(count)
        count[0] = max(8, min(20000, int(seconds / each)))
        if dist.is_initialized():
            on_device = count.to(device)
            dist.broadcast(on_device, 0)
            count = on_device.cpu()
    turns = []
    for _ in range(3):
        wait()
        start = time.perf_counter()
        for _ in range(int(count)):
            step()
        wait()
        turns.append((time.perf_counter() - start) / int(count) * 1e6)
    return sorted(turns)[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", required=True)
    parser.add_argument("--sizes", default="512x512,512x4096,4096x4096", help="hidden units x batch per rank")
    parser.add_argument("--seconds", type=float, default=0.4)
    options = parser.parse_args()
    world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if has_gpu else torch.device("cpu")
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    if has_gpu:
        torch.cuda.set_device(device)
    if world > 1:
        # Turns off NCCL's own timer, which cannot query a stream that is being captured.
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
        dist.init_process_group("nccl" if has_gpu else "gloo", device_id=device if has_gpu else None)

    def add(form, hidden, batch, microseconds):
        if rank == 0:
            row = {
                "form": form,
                "world": world,
                "hidden": hidden,
                "batch": batch,
                "us": microseconds,
                "samples_per_s": batch * world / microseconds * 1e6,
                "torch": torch.__version__,
            }
            print(json.dumps(row), flush=True)
            with open(options.json, "a") as file:
                file.write(json.dumps(row) + "\n")

    for size in options.sizes.split(","):
        hidden, batch = map(int, size.split("x"))
        trainer = Trainer(hidden, batch, device, world)
        add("eager", hidden, batch, measure(trainer.eager, device, options.seconds))
        if has_gpu:
            try:
                # A new model: DDP is made on a side stream for a capture.
                side = torch.cuda.Stream()
                with torch.cuda.stream(side):
                    trainer = Trainer(hidden, batch, device, world)
                torch.cuda.current_stream().wait_stream(side)
                add("graph", hidden, batch, measure(trainer.capture(), device, options.seconds))
            except Exception as error:  # the eager rows count all the same
                print(f"graph of {size}: {error}", flush=True)
                break
        if world > 1:
            count = sum(p.numel() for p in trainer.model.parameters())
            gradients = torch.zeros(count, device=device)
            add(
                "all-reduce alone",
                hidden,
                batch,
                measure(lambda: dist.all_reduce(gradients), device, options.seconds),
            )
        del trainer
    if world > 1:
        dist.barrier()
        # A graph that holds collectives keeps the group from ending in time.
        os._exit(0)


if __name__ == "__main__":
    main()
