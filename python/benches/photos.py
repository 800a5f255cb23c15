"""JPEGs for a training step by other loaders: torchvision, DALI, SPDL and FFCV."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch


class Photos(torch.utils.data.Dataset[Any]):
    """The same photographs for DataLoader, by torchvision."""

    def __init__(self, folder: Path, times: int) -> None:
        from torchvision import transforms

        self.paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
        self.times = times
        self.transform = transforms.Compose(
            [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.PILToTensor()]
        )

    def __len__(self) -> int:
        return self.times * len(self.paths)

    def __getitem__(self, index: int) -> Any:
        from PIL import Image

        with Image.open(self.paths[index % len(self.paths)]) as photo:
            return self.transform(photo.convert("RGB"))


def dali(photos: Path) -> Callable[[int], Iterator[torch.Tensor]]:
    """The same list by DALI: nvJPEG with a random crop, and the resize on the GPU."""

    def batches(batch: int) -> Iterator[torch.Tensor]:
        from nvidia.dali import fn, pipeline_def, types
        from nvidia.dali.plugin.pytorch import DALIGenericIterator

        @pipeline_def(batch_size=batch, num_threads=os.cpu_count(), device_id=0, seed=7)  # type: ignore[misc]
        def pipeline() -> Any:
            files, _ = fn.readers.file(file_root=str(photos), random_shuffle=True, name="files")
            images = fn.decoders.image_random_crop(files, device="mixed", output_type=types.RGB)
            images = fn.resize(images, size=[224, 224])
            return fn.crop_mirror_normalize(
                images, mirror=fn.random.coin_flip(), dtype=types.UINT8, mean=[0.0], std=[1.0],
                output_layout="CHW",
            )  # fmt: skip

        built = pipeline()
        built.build()
        for one in DALIGenericIterator([built], ["image"]):
            yield one[0]["image"]

    return batches


def spdl(photos: Photos, device: str) -> Callable[[int], Iterator[torch.Tensor]]:
    """SPDL's threads over torchvision's transforms. Its own decoder needs the libraries of FFmpeg."""

    def batches(batch: int) -> Iterator[torch.Tensor]:
        from spdl.pipeline import PipelineBuilder

        chance, workers = np.random.default_rng(7), os.cpu_count() or 1

        def source() -> Iterator[int]:
            while True:
                yield from chance.permutation(len(photos)).tolist()

        def collate(rows: list[torch.Tensor]) -> torch.Tensor:
            stacked = torch.stack(rows)
            stacked = stacked.pin_memory() if device != "cpu" else stacked
            return stacked.to(device, non_blocking=True)

        builder = PipelineBuilder().add_source(source())
        builder = builder.pipe(photos.__getitem__, concurrency=workers).aggregate(batch).pipe(collate)
        pipeline = builder.add_sink(4).build(num_threads=workers)
        with pipeline.auto_stop():
            yield from pipeline

    return batches


def ffcv(_: int) -> Iterator[torch.Tensor]:
    """FFCV reads only its own files, and PyPI has no wheel of it: it is said whether it installs."""
    import ffcv  # noqa: F401

    raise NotImplementedError("installed, and not measured: it needs the photographs in its own format")
