"""Hugging Face's Trainer, stopped within an epoch and continued by its checkpoint, with the loader's state beside it.

The Trainer counts steps of its own: within an epoch, continue with the same batch size and number of ranks, or samples
are left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from made import loader


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.seen: list[int] = []

    def forward(self, x: Any, y: Any, id: Any) -> Any:
        self.seen += id.tolist()
        return {"loss": torch.nn.functional.mse_loss(self.layer(x), y)}


class Trainer(transformers.Trainer):
    def get_train_dataloader(self) -> Any:
        return self.train_dataset  # the loader itself


class SaveData(transformers.TrainerCallback):
    def on_save(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        path = Path(args.output_dir, f"checkpoint-{state.global_step}", "data.json")
        path.write_text(json.dumps(given["train_dataloader"].state_dict()))


def train(folder: Path, epochs: int = 2, stop: int | None = None) -> list[int]:
    """Trains from the last checkpoint in ``folder``, if there is one; returns the ids of the samples in order."""
    args = transformers.TrainingArguments(
        str(folder), num_train_epochs=epochs, max_steps=stop or -1, save_steps=stop or 1000, use_cpu=True,
        report_to=[], disable_tqdm=True, ignore_data_skip=True,  # the loader's state says where it goes on
    )  # fmt: skip
    last = transformers.trainer_utils.get_last_checkpoint(str(folder))  # type: ignore[no-untyped-call]
    model = Model()
    with loader(framework="torch") as data:
        if last:
            data.load_state_dict(json.loads(Path(last, "data.json").read_text()))
        Trainer(model, args, train_dataset=data, callbacks=[SaveData()]).train(resume_from_checkpoint=last)
    return model.seen


if __name__ == "__main__":
    print(len(train(Path("."))), "samples")
