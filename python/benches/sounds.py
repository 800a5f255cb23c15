"""Hours of sound per second on one core: feedline with one worker beside soundfile, and torchaudio for what comes
after it, in one thread.

    python python/benches/sounds.py [--seconds 2] [--reps 3]

Makes 40 sounds of 20 seconds, 16 kHz mono, in each format. Rows: whole sounds; a second at random of each, counted
as the seconds that are delivered; sounds of 44.1 kHz at 16 kHz; log-mel spectrograms of 80 bands. Needs soundfile;
without torch and torchaudio the rows that need them have no peer.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

import feedline

try:
    import torch

    if torch.version.cuda:
        torch.version.cuda = "13.0"  # type: ignore[attr-defined]  # torchaudio refuses another minor version
    import torchaudio

    torch.set_num_threads(1)
except Exception:  # noqa: BLE001
    torchaudio = None

FILES, SECONDS, RATE = 40, 20, 16_000


def speech(rate: int, number: int) -> np.ndarray[Any, Any]:
    """Something that does not compress to nothing: tones that rise, and noise."""
    time = np.arange(rate * SECONDS) / rate
    tone = 0.3 * np.sin(2 * np.pi * (150 + 10 * number) * time * (1 + 0.2 * np.sin(2 * time)))
    noise = np.random.default_rng(number).normal(0, 0.03, len(time))
    return np.asarray(tone * (1 + np.sin(7 * time)) / 2 + noise, np.float32)


def make(folder: Path) -> dict[str, Path]:
    folders = {}
    for name, rate, options in (
        ("wav", RATE, {"subtype": "PCM_16"}),
        ("flac", RATE, {}),
        ("mp3", RATE, {}),
        ("ogg", RATE, {}),
        ("wav44", 44_100, {"subtype": "PCM_16"}),
    ):
        folders[name] = folder / name
        folders[name].mkdir()
        for number in range(FILES):
            path = folders[name] / f"{number}.{name.removesuffix('44')}"
            soundfile.write(path, speech(rate, number), rate, **options)
    return folders


def ours(data: feedline.Data, seconds: Callable[[Any], float]) -> Callable[[], Iterator[float]]:
    loader = feedline.Loader(data, 8, shuffle=True, seed=7, workers=1, framework="numpy")
    return lambda: (seconds(batch) for batch in loader)


def rate_of(run: Callable[[], Iterator[float]], seconds: float) -> float:
    """Hours of sound per second, over whole epochs."""
    done, start = 0.0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        done += sum(run())
    return done / 3600 / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--reps", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folders = make(Path(folder))
        rows: list[tuple[str, Callable[[], Iterator[float]], Callable[[], Iterator[float]] | None]] = []
        whole = lambda batch: len(batch["sound"].values) / RATE
        for name in ("wav", "flac", "mp3", "ogg"):
            paths = sorted(folders[name].iterdir())

            def read(paths: list[Path] = paths) -> Iterator[float]:
                return (len(soundfile.read(path, dtype="float32")[0]) / RATE for path in paths)

            def crop(paths: list[Path] = paths) -> Iterator[float]:
                random = np.random.default_rng(0)
                for path in paths:
                    with soundfile.SoundFile(path) as file:
                        file.seek(int(random.integers(0, file.frames - RATE)))
                        yield len(file.read(RATE, dtype="float32")) / RATE

            rows.append((f"{name}, whole", ours(feedline.sounds(folders[name], rate=RATE), whole), read))
            data = feedline.sounds(folders[name], rate=RATE, crop=RATE)
            rows.append((f"{name}, a second of each", ours(data, lambda batch: float(batch.rows)), crop))
        paths = sorted(folders["wav44"].iterdir())
        wav = sorted(folders["wav"].iterdir())

        def resample() -> Iterator[float]:
            for path in paths:
                sound = torch.from_numpy(soundfile.read(path, dtype="float32")[0])
                yield len(torchaudio.functional.resample(sound, 44_100, RATE)) / RATE

        def mel() -> Iterator[float]:
            made = torchaudio.transforms.MelSpectrogram(RATE, hop_length=160, n_mels=80)
            for path in wav:
                sound = torch.from_numpy(soundfile.read(path, dtype="float32")[0])
                yield made(sound).clamp_(min=1e-10).log10_().shape[1] / 100

        has = torchaudio is not None
        rows.append(
            ("wav, 44.1 to 16 kHz", ours(feedline.sounds(folders["wav44"], rate=RATE), whole), resample if has else None)
        )
        spectrogram = feedline.MelSpectrogram(n_mels=80, hop_length=160, log="10")
        data = feedline.sounds(folders["wav"], rate=RATE, mel=spectrogram)
        windows = lambda batch: len(batch["sound"].values) / 100
        rows.append(("wav, log-mel", ours(data, windows), mel if has else None))
        print("| sound | feedline, h/s | soundfile (torchaudio), h/s |\n| --- | --- | --- |")
        for name, mine, peer in rows:
            both = [
                [] if run is None else [rate_of(run, options.seconds) for _ in range(options.reps)]
                for run in (mine, peer)
            ]
            shown = [f"{statistics.median(found):.2f}" if found else "not run" for found in both]
            print(f"| {name} | {shown[0]} | {shown[1]} |", flush=True)


if __name__ == "__main__":
    main()
