"""Accelerate, stopped within an epoch and continued by ``save_state``, which has the loader's state."""

from __future__ import annotations

from pathlib import Path

import accelerate
import torch
from made import loader


def train(folder: Path, epochs: int = 2, stop: int | None = None) -> list[int]:
    """Trains from the state in ``folder``, if there is one; returns the ids of the samples in order."""
    accelerator, model, data = accelerate.Accelerator(cpu=True), torch.nn.Linear(4, 1), loader(framework="torch")
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    accelerator.register_for_checkpointing(data)
    seen: list[int] = []
    if (folder / "state").exists():
        accelerator.load_state(folder / "state")
    with data:
        for epoch in range(data.next_epoch, epochs):
            for step, batch in enumerate(data.epoch(epoch)):
                accelerator.backward(torch.nn.functional.mse_loss(model(batch["x"]), batch["y"]))
                optimizer.step()
                optimizer.zero_grad()
                seen += batch["id"].tolist()
                if 10 * epoch + step + 1 == stop:  # as if the machine were taken away
                    accelerator.save_state(folder / "state")
                    return seen
    return seen


if __name__ == "__main__":
    print(len(train(Path("."))), "samples")
