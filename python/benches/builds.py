"""Compares builds of the package: samples per second of what most of their machine code is for.

    python benches/builds.py FOLDER... [--rounds 5] [--seconds 2] [--only csv,jpeg]

A folder is what `pip install --no-deps --target FOLDER WHEEL` made. Each measurement is an interpreter of its own with
two workers that read one file or folder in shuffled batches of NumPy; the builds take turns. Prints the median of the
rounds, and the range of the last builds' shares of the first, round by round. Needs pyarrow and Pillow; soundfile and
tokenizers for the rows of sounds and of tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pictures

ROWS = ("parquet", "arrow", "csv", "jsonl", "npz", "tar", "jpeg", "png", "tokens", "wav", "flac", "mp3", "ogg", "mel")
# Samples that cost more than a millisecond.
HEAVY = ROWS[5:8] + ROWS[9:]


def write_tables(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    chance, rows = np.random.default_rng(7), 400_000
    table = pa.table({f"x{at}": chance.random(rows, dtype=np.float32) for at in range(10)})
    pa.parquet.write_table(table, folder / "parquet", compression="zstd", row_group_size=65536)
    with pa.ipc.new_file(folder / "arrow", table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as out:
        out.write_table(table, max_chunksize=8192)
    pa.csv.write_csv(table.slice(0, 100_000), folder / "rows.csv")
    with (folder / "rows.jsonl").open("w") as out:
        for row in table.slice(0, 50_000).to_pylist():
            out.write(json.dumps(row) + "\n")
    np.savez_compressed(folder / "rows.npz", x=chance.integers(0, 9, (50_000, 256), np.uint8))


def write_pictures(folder: Path) -> None:
    for name in ("jpeg", "png"):
        (folder / name / "class").mkdir(parents=True)
    files = pictures.jpegs(64)
    for number, (file, picture) in enumerate(zip(files, pictures.smooth(64), strict=True)):
        (folder / "jpeg" / "class" / f"{number}.jpg").write_bytes(file)
        picture.resize((250, 188)).save(folder / "png" / "class" / f"{number}.png")
    pictures.write_tar(folder / "pictures.tar", files)


def write_texts(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    chance = np.random.default_rng(7)
    words = ["".join(chr(97 + at) for at in chance.integers(0, 26, chance.integers(2, 9))) for _ in range(4000)]
    texts = [" ".join(words[at] for at in chance.zipf(1.3, 200) % len(words)) for _ in range(4000)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=2000, show_progress=False))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def write_sounds(folder: Path) -> None:
    import soundfile

    time_of = np.arange(16_000 * 10) / 16_000
    for name in ("wav", "flac", "mp3", "ogg"):
        (folder / name).mkdir()
        for number in range(24):
            tone = 0.3 * np.sin(2 * np.pi * (150 + 10 * number) * time_of * (1 + 0.2 * np.sin(2 * time_of)))
            noise = np.random.default_rng(number).normal(0, 0.03, len(time_of))
            soundfile.write(folder / name / f"{number}.{name}", np.asarray(tone + noise, np.float32), 16_000)


def data(row: str, folder: Path) -> Any:
    import feedline

    T = feedline.transforms
    match row:
        case "parquet" | "arrow":
            return feedline.open(folder / row)
        case "csv" | "jsonl" | "npz":
            return feedline.open(folder / f"rows.{row}")
        case "tokens":
            return feedline.open(folder / "texts.jsonl", tokenizer=folder / "tokenizer.json").packed("ids", 512)
        case "tar" | "jpeg" | "png":
            path = folder / ("pictures.tar" if row == "tar" else row)
            return feedline.images(path, [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.Normalize()])
        case "mel":
            return feedline.sounds(folder / "wav", rate=16_000, mel=feedline.MelSpectrogram())
        case _:
            return feedline.sounds(folder / row, rate=16_000)


def measured(row: str, folder: Path, seconds: float) -> float:
    """Samples per second over whole epochs, after a first; each opens the data anew, as a table is decoded once."""
    import feedline

    batch, done, seen, start = 8 if row in HEAVY else 256, 0, 0, time.perf_counter()
    while time.perf_counter() - start < seconds or seen < 2:
        with feedline.Loader(data(row, folder), batch, shuffle=True, seed=7, workers=2, framework="numpy") as loader:
            done += sum(batch.rows for batch in loader)
        seen += 1
        if seen == 1:
            done, start = 0, time.perf_counter()
    return done / (time.perf_counter() - start)


def run(build: Path, row: str, folder: Path, seconds: float) -> float:
    command = [sys.executable, __file__, str(build), "--row", row, "--data", str(folder), "--seconds", str(seconds)]
    environment = {**os.environ, "PYTHONPATH": str(build.resolve())}
    return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--only", default=",".join(ROWS))
    parser.add_argument("--row", help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        print(measured(options.row, options.data, options.seconds))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for write in (write_tables, write_pictures, write_texts, write_sounds):
            try:
                write(folder)
            except ImportError as error:
                print(f"not run: rows of {write.__name__}: {error}")
        for row in options.only.split(","):
            rates: dict[Path, list[float]] = {build: [] for build in options.builds}
            try:
                for number in range(options.rounds):
                    for build in options.builds if number % 2 == 0 else reversed(options.builds):
                        rates[build].append(run(build, row, folder, options.seconds))
            except subprocess.CalledProcessError as error:
                print(f"{row:10} not run: {error.stderr.strip().splitlines()[-1]}", flush=True)
                continue
            first, *others = rates.values()
            line = f"{row:10} {statistics.median(first):12,.0f}"
            for other in others:
                shares = sorted(after / before for before, after in zip(first, other, strict=True))
                line += f"{statistics.median(other):12,.0f} {statistics.median(shares):5.2f}"
                line += f" ({shares[0]:.2f} to {shares[-1]:.2f})"
            print(line, flush=True)


if __name__ == "__main__":
    main()
