#!/usr/bin/env python3
"""JPEG files to finished batches by others: decode, random-resized-crop 224, flip, normalise, planes; on the GPU at the end.

torchvision through DataLoader, nvJPEG through torchvision, and DALI on the CPU and mixed, as far as they can be imported.
"""

import itertools
import pathlib
import sys

import torch
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from rows import Report, alone, arguments

BATCH = 256
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class Files(Dataset):
    """The files of a folder, in turn, as torchvision users decode them."""

    def __init__(self, paths, transform):
        self.paths, self.transform = paths, transform

    def __len__(self):
        return 1 << 24

    def __getitem__(self, at):
        from torchvision.io import ImageReadMode, decode_jpeg, read_file

        image = decode_jpeg(read_file(self.paths[at % len(self.paths)]), mode=ImageReadMode.RGB)
        return self.transform(image)


def finished(batch, device):
    mean, std = (torch.tensor(numbers, device=device).view(1, 3, 1, 1) for numbers in (MEAN, STD))
    return batch.to(device, non_blocking=True).float().div_(255).sub_(mean).div_(std)


def add(options, report, name, workers, step, finish):
    for _ in range(4):
        step()
    rates = [BATCH * 1e6 / us for us in alone(options, step, finish)]
    report.add("peer-jpeg", {"by": name, "workers": workers}, rates, "images/s", batch=BATCH)


def data_loader(options, report, device, finish, paths, workers):
    from torchvision.transforms import v2

    transform = v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()])
    batches = iter(
        DataLoader(
            Files(paths, transform),
            batch_size=BATCH,
            num_workers=workers,
            pin_memory=device.type == "cuda",
            prefetch_factor=4,
        )
    )
    step = lambda: finished(next(batches), device)
    for _ in range(2 * workers):
        step()
    add(options, report, "DataLoader, torchvision", workers, step, finish)


def nvjpeg(options, report, device, finish, paths):
    from torchvision.io import ImageReadMode, decode_jpeg, read_file
    from torchvision.transforms import v2

    files = itertools.cycle([read_file(path) for path in paths])
    transform = v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()])

    def step():
        encoded = [next(files) for _ in range(BATCH)]
        images = decode_jpeg(encoded, mode=ImageReadMode.RGB, device=device)
        return finished(torch.stack([transform(image) for image in images]), device)

    add(options, report, "nvJPEG, torchvision", 1, step, finish)


def dali(options, report, finish, paths, kind, threads, interpolated=False):
    import nvidia.dali.fn as fn
    import nvidia.dali.types as types
    from nvidia.dali import pipeline_def

    # Without a device, everything runs on the CPU.
    device = 0 if torch.cuda.is_available() else None

    @pipeline_def(batch_size=BATCH, num_threads=threads, device_id=device, prefetch_queue_depth=3)
    def pipeline():
        encoded, _ = fn.readers.file(files=[str(path) for path in paths], random_shuffle=True, name="files")
        # The crop is known before decoding, so only that part is decoded where the decoder can.
        images = fn.decoders.image_random_crop(
            encoded, device=kind, output_type=types.RGB, jpeg_fancy_upsampling=interpolated
        )
        images = fn.resize(images, size=[224, 224])
        mirror = fn.random.coin_flip()
        scaled = [[255 * number for number in numbers] for numbers in (MEAN, STD)]
        images = images.gpu() if kind == "cpu" and device is not None else images
        return fn.crop_mirror_normalize(
            images, mirror=mirror, mean=scaled[0], std=scaled[1], dtype=types.FLOAT, output_layout="CHW"
        )

    made = pipeline()
    made.build()
    step = made.run
    for _ in range(8):
        step()
    chroma = ", chroma interpolated" if interpolated else ""
    add(options, report, f"DALI, {kind}{chroma}", threads, step, finish)


def main():
    options = arguments(__doc__)
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", 0) if gpu else torch.device("cpu")
    finish = torch.cuda.synchronize if gpu else lambda: None
    paths = sorted(str(path) for path in pathlib.Path(options.images).rglob("*.JP*G"))
    paths += sorted(str(path) for path in pathlib.Path(options.images).rglob("*.jp*g"))
    if not paths:
        sys.exit(f"no JPEG files in {options.images}: give --images")
    versions = f"torch {torch.__version__}"
    report = Report(options, torch.cuda.get_device_name(0) if gpu else "cpu", versions)
    for workers in (options.workers, 2 * options.workers):
        run = lambda workers=workers: data_loader(options, report, device, finish, paths, workers)
        report.part(f"DataLoader {workers}", run)
    if gpu:
        report.part("nvJPEG", lambda: nvjpeg(options, report, device, finish, paths))
    threads = {options.workers, 2 * options.workers} if not gpu else {2 * options.workers}
    for kind in ("cpu", "mixed") if gpu else ("cpu",):
        for count in sorted(threads):
            run = lambda kind=kind, count=count: dali(options, report, finish, paths, kind, count)
            report.part(f"DALI {kind} {count}", run)
    if gpu:
        run = lambda: dali(options, report, finish, paths, "mixed", 2 * options.workers, interpolated=True)
        report.part("DALI mixed, chroma interpolated", run)


if __name__ == "__main__":
    main()
