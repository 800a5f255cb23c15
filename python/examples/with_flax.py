"""Flax's loop (nnx), stopped within an epoch and continued."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import jax
import optax
from flax import nnx
from made import loader


@nnx.jit
def step(model: nnx.Linear, optimizer: nnx.Optimizer[Any], x: jax.Array, y: jax.Array) -> None:
    def loss(model: nnx.Linear) -> Any:
        return ((model(x) - y) ** 2).mean()

    optimizer.update(model, nnx.grad(loss)(model))


def train(folder: Path, epochs: int = 2, stop: int | None = None) -> list[int]:
    """Trains from the file in ``folder``, if there is one; returns the ids of the samples in order."""
    model, path, data = nnx.Linear(4, 1, rngs=nnx.Rngs(0)), folder / "run.pkl", loader(framework="jax")
    seen: list[int] = []
    optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)
    if path.exists():
        saved = pickle.loads(path.read_bytes())
        nnx.update(model, saved["model"])
        nnx.update(optimizer, saved["optimizer"])
        data.load_state_dict(saved["data"])
    with data:
        for epoch in range(data.next_epoch, epochs):
            for batch in data.epoch(epoch):
                step(model, optimizer, batch["x"], batch["y"])
                seen += batch["id"].tolist()
                if len(seen) == 16 * (stop or 0):  # as if the machine were taken away
                    parts = {"model": nnx.to_pure_dict(nnx.state(model)), "data": data.state_dict()}
                    path.write_bytes(pickle.dumps({**parts, "optimizer": nnx.state(optimizer)}))
                    return seen
    return seen


if __name__ == "__main__":
    print(len(train(Path("."))), "samples")
