"""Keras' ``fit`` on any backend, stopped within an epoch and continued. Keras takes batches ahead of its steps: the state
of each travels with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
from made import loader


def train(folder: Path, epochs: int = 2, stop: int | None = None) -> list[int]:
    """Trains from the model in ``folder``, if there is one; returns the ids of the samples in order."""
    path, seen = folder / "model.keras", list[int]()
    ahead: list[tuple[list[int], dict[str, Any]]] = []
    data = loader(framework="numpy", copy=True)  # Keras keeps the arrays that it takes ahead
    if path.exists():
        model = keras.models.load_model(path)
        data.load_state_dict(json.loads((folder / "data.json").read_text()))
    else:
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse")

    def batches() -> Iterator[Any]:
        for batch in data:
            ahead.append((batch["id"].tolist(), data.state_dict()))
            yield batch["x"], batch["y"]

    class Step(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            ids, state = ahead.pop(0)
            seen.extend(ids)
            if int(self.model.optimizer.iterations) == stop:  # as if the machine were taken away
                self.model.save(path)
                (folder / "data.json").write_text(json.dumps(state))
                raise KeyboardInterrupt

    with data:
        try:
            for epoch in range(data.next_epoch, epochs):
                model.fit(batches(), initial_epoch=epoch, epochs=epoch + 1, callbacks=[Step()], verbose=0)
        except KeyboardInterrupt:
            pass
    return seen


if __name__ == "__main__":
    print(len(train(Path("."))), "samples")
