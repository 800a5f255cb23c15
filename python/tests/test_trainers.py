"""Lightning and Accelerate save and resume in the middle of an epoch, by their own calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ids, numbers

import feedline

torch = pytest.importorskip("torch", reason="not run: torch is not installed")


def loader(**options: Any) -> feedline.Loader:
    return feedline.Loader(numbers(), 10, shuffle=7, framework="torch", **options)


def whole(epochs: int) -> list[int]:
    with loader() as one:
        return [sample for epoch in range(epochs) for sample in ids(one.epoch(epoch))]


@pytest.mark.parametrize("step", [1, 4, 10, 13])
def test_lightning_resumes_the_epoch_at_the_next_batch(tmp_path: Path, step: int) -> None:
    lightning = pytest.importorskip("lightning", reason="not run: lightning is not installed")

    class Model(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self, stop: int | None) -> None:
            super().__init__()
            self.layer, self.seen, self.stop = torch.nn.Linear(5, 1), [], stop

        def training_step(self, batch: Any, number: int) -> Any:
            assert isinstance(batch["x"], torch.Tensor)
            self.seen += batch["id"].tolist()
            return self.layer(batch["x"] / 1e5).square().mean()

        def on_train_batch_end(self, *_: Any) -> None:
            if self.trainer.global_step == self.stop:
                self.trainer.save_checkpoint(tmp_path / "middle.ckpt")
                self.trainer.should_stop = True

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def fit(model: Any, path: Path | None) -> list[int]:
        trainer = lightning.Trainer(
            max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, min_epochs=0,
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
        )  # fmt: skip
        with loader() as data:
            # The checkpoint is a file of one's own.
            trainer.fit(model, data, ckpt_path=path, **({"weights_only": False} if path else {}))
        seen: list[int] = model.seen
        return seen

    first = fit(Model(step), None)
    assert len(first) == 10 * step
    again = Model(None)
    assert first + fit(again, tmp_path / "middle.ckpt") == whole(3)


def test_accelerate_saves_the_loader_with_the_rest(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate", reason="not run: accelerate is not installed")

    def made() -> Any:
        accelerator = accelerate.Accelerator(cpu=True)
        model = torch.nn.Linear(5, 1)
        data = loader()
        model, optimizer, prepared = accelerator.prepare(
            model, torch.optim.SGD(model.parameters(), lr=0.1), data
        )
        # It is not a DataLoader of torch: its batches are on their device already.
        assert prepared is data
        accelerator.register_for_checkpointing(data)
        return accelerator, model, optimizer, data

    def train(accelerator: Any, model: Any, optimizer: Any, data: Any, stop: int | None) -> list[int]:
        seen, steps = [], 0
        for epoch in range(data.next_epoch, 2):
            for batch in data.epoch(epoch):
                accelerator.backward(model(batch["x"] / 1e5).square().mean())
                optimizer.step()
                optimizer.zero_grad()
                seen += batch["id"].tolist()
                steps += 1
                if steps == stop:
                    accelerator.save_state(tmp_path)
                    return seen
        return seen

    for stop in (4, 10, 13):
        one = made()
        first = train(*one, stop)
        weights = one[1].weight.detach().clone()
        one[3].close()
        other = made()
        other[0].load_state(tmp_path)
        assert torch.equal(other[1].weight, weights)
        assert first + train(*other, None) == whole(2)
        assert other[3].state_dict()["epoch"] == 1
        other[3].close()
    assert np.all(np.bincount(whole(1)) == 1)


def orders(epochs: int) -> list[list[int]]:
    with loader() as one:
        return [ids(one.epoch(epoch)) for epoch in range(epochs)]


def test_the_epoch_that_is_set_is_the_next_one() -> None:
    wanted = orders(4)
    with loader() as one:
        assert one.next_epoch == 0
        for epoch in (2, 2, 0, 3, 1):
            one.set_epoch(epoch)
            assert one.next_epoch == epoch and ids(one) == wanted[epoch]
        # Without it, the epoch after the last.
        assert ids(one) == wanted[2]
        one.sampler.set_epoch(1)
        assert ids(one.epoch(3)) == wanted[3] and one.next_epoch == 4
        with pytest.raises(feedline.ConfigError, match="epoch is -1"):
            one.set_epoch(-1)


def test_an_iterator_that_has_delivered_nothing_moves_to_the_epoch_that_is_set() -> None:
    wanted = [whole(3)[at : at + len(whole(1))] for at in range(0, len(whole(3)), len(whole(1)))]
    with loader() as one:
        batches = iter(one)
        one.set_epoch(2)
        assert (batches.epoch, batches.steps) == (2, len(one)) and ids(batches) == wanted[2]
        named = one.epoch(0)
        one.set_epoch(1)
        assert (named.epoch, ids(named)) == (0, wanted[0]) and ids(one) == wanted[1]
        batches = iter(one)
        first = ids([next(batches)])
        one.set_epoch(0)
        assert first + ids(batches) == wanted[2] and ids(one) == wanted[0]


@pytest.mark.parametrize("steps", [0, 3, 10])
@pytest.mark.parametrize("ahead", [0, 2])
def test_a_loaded_state_comes_before_the_epoch_that_is_set(steps: int, ahead: int) -> None:
    wanted = orders(6)
    with loader() as one:
        batches = one.epoch(2)
        seen = ids(next(batches) for _ in range(steps))
        state = one.state_dict()
    first = 3 if steps == 10 else 2
    with loader() as again:
        again.load_state_dict(state)
        for epoch in range(2):
            # A trainer may count its epochs from 0.
            again.set_epoch(first - ahead + epoch)
            rest = ids(again)
            assert (seen + rest if epoch == 0 and steps < 10 else rest) == wanted[first + epoch]


@pytest.mark.parametrize("epochs", [1, 2])
def test_lightning_goes_on_with_the_order_of_the_next_epoch(tmp_path: Path, epochs: int) -> None:
    lightning = pytest.importorskip("lightning", reason="not run: lightning is not installed")
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Model(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.seen = torch.nn.Linear(5, 1), []

        def training_step(self, batch: Any, number: int) -> Any:
            self.seen += batch["id"].tolist()
            return self.layer(batch["x"] / 1e5).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def fit(most: int, path: Path | None) -> list[int]:
        trainer = lightning.Trainer(
            max_epochs=most, accelerator="cpu", logger=False, callbacks=[ModelCheckpoint(tmp_path, "end")],
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
        )  # fmt: skip
        model = Model()
        with loader() as data:
            trainer.fit(model, data, ckpt_path=path, weights_only=False)
        seen: list[int] = model.seen
        return seen

    first = fit(epochs, None)
    assert first + fit(4, tmp_path / "end.ckpt") == whole(4)


def trainer(folder: Path, steps: int, resume: str | None = None, **options: Any) -> Any:
    transformers = pytest.importorskip("transformers", reason="not run: transformers is not installed")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.seen = torch.nn.Linear(5, 1), []

        def forward(self, x: Any, id: Any) -> Any:
            self.seen += id.tolist()
            return {"loss": self.layer(x / 1e5).square().mean()}

    class Trainer(transformers.Trainer):  # type: ignore[misc]
        def get_train_dataloader(self) -> Any:
            return self.train_dataset

    args = transformers.TrainingArguments(
        str(folder), num_train_epochs=3, max_steps=steps, save_steps=max(steps, 1), use_cpu=True, report_to=[],
        disable_tqdm=True, **options,
    )  # fmt: skip
    model = Model()
    with loader() as data:
        Trainer(model, args, train_dataset=data).train(resume_from_checkpoint=resume)
    return model.seen


@pytest.mark.parametrize("epochs", [1, 2])
def test_the_trainer_goes_on_with_the_order_of_the_next_epoch(tmp_path: Path, epochs: int) -> None:
    first = trainer(tmp_path, 10 * epochs)
    assert first + trainer(tmp_path, -1, str(tmp_path / f"checkpoint-{10 * epochs}")) == whole(3)


def test_the_trainer_within_an_epoch_says_what_to_set(tmp_path: Path) -> None:
    trainer(tmp_path, 14)
    with pytest.raises(AttributeError, match=r"ignore_data_skip=True.*load_state_dict"):
        trainer(tmp_path, -1, str(tmp_path / "checkpoint-14"))
    with loader() as one:
        assert not hasattr(one, "dataset") and not hasattr(one, "drop_last")
