"""Lightning, stopped within an epoch and continued by its own checkpoint, which has the loader's state.

Lightning counts steps of its own: within an epoch, continue with the same batch size and number of ranks, or samples
are left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import torch
from made import loader


class Model(lightning.LightningModule):
    def __init__(self, stop: int | None) -> None:
        super().__init__()
        self.layer, self.stop = torch.nn.Linear(4, 1), stop
        self.seen: list[int] = []

    def training_step(self, batch: Any, step: int) -> Any:
        self.seen += batch["id"].tolist()
        return torch.nn.functional.mse_loss(self.layer(batch["x"]), batch["y"])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def on_train_batch_end(self, *_: Any) -> None:
        if self.trainer.global_step == self.stop:  # as if the machine were taken away
            self.trainer.save_checkpoint(self.trainer.default_root_dir + "/last.ckpt")
            self.trainer.should_stop = True


def train(folder: Path, epochs: int = 2, stop: int | None = None) -> list[int]:
    """Trains from the checkpoint in ``folder``, if there is one; returns the ids of the samples in order."""
    trainer = lightning.Trainer(
        max_epochs=epochs, min_epochs=0, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
    )  # fmt: skip
    last, model = folder / "last.ckpt", Model(stop)
    # The file is one's own: the state is plain numbers, and the rest is Lightning's.
    options: dict[str, Any] = {"ckpt_path": last, "weights_only": False} if last.exists() else {}
    with loader(framework="torch") as data:
        trainer.fit(model, data, **options)
    return model.seen


if __name__ == "__main__":
    print(len(train(Path("."))), "samples")
