"""Small files of every kind that docs/data.md names."""

from __future__ import annotations

import io
import json
import shutil
import struct
import tarfile
import wave
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).parent.parent.parent / "datasets" / "tests" / "golden" / "page"
WORDS = ["?", "<s>", "</s>", "user", "assistant", ":", "Hi", "there"]
TEMPLATE = (
    "{% for m in messages %}{{ m.role }} : {% if m.role == 'assistant' %}{% generation %}{{ m.content }} "
    "{{ eos_token }} {% endgeneration %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}assistant : {% endif %}"
)


def write(folder: Path) -> None:
    """Writes the files that the page names."""
    tables(folder)
    texts(folder)
    pictures(folder)
    sounds(folder)
    records(folder)


def tables(folder: Path) -> None:
    flowers = [{"length": 1.5, "width": 2.5, "kind": 0}, {"length": 3, "width": 4, "kind": 1}]
    lines(folder / "flowers.jsonl", *flowers, {"length": 5.25, "width": 6, "kind": 2})
    (folder / "flowers.csv").write_text("length,width,kind\n1.5,2.5,0\n3,4,1\n5.25,6,2\n")
    for golden in GOLDEN.iterdir():
        shutil.copy(golden, folder)
    (folder / "train.csv").write_text("age,income,city\n30,1,Rome\n,3,Oslo\n50,,\n")
    (folder / "val.csv").write_text("age,income,city\n45,2,Rome\n")
    (folder / "shards").mkdir()
    (folder / "shards" / "0.csv").write_text("code,rare\n7,\n12,2.5\n")
    (folder / "shards" / "1.csv").write_text("code,rare\nA7,\n")
    days = [(shop, day) for shop in "BA" for day in (5, 0, 7, 2, 1, 6, 4, 3) if (shop, day) != ("B", 2)]
    sales = "".join(f"{shop},{day},{day + 1 if day < 6 else 100},0.5\n" for shop, day in days)
    (folder / "sales.csv").write_text("shop,day,sold,price\n" + sales)
    sessions = [([5, 7, 2, 3], 4), ([], 0), ([9], 9)]
    lines(folder / "sessions.jsonl", *({"history": past, "next": item} for past, item in sessions))


def texts(folder: Path) -> None:
    tokenizer(folder)
    chats = [{"messages": [said("user", "Hi"), said("assistant", answer)]} for answer in ("Hi", "Hi there")]
    lines(folder / "chats.jsonl", *chats)
    pairs = [
        {"prompt": [said("user", "Hi")], "chosen": [said("assistant", a)], "rejected": [said("assistant", b)]}
        for a, b in (("Hi there", "Hi"), ("Hi", "there"))
    ]
    lines(folder / "pairs.jsonl", *pairs)
    for name, first, count in (("web", 100, 20), ("wiki", 200, 12), ("math", 300, 8)):
        ids = list(range(first, first + count))
        megatron(folder, name, [ids[:3], ids[3:]])
    np.array([1, 2, 3, 4, 5, 0, 1, 2, 0], np.uint16).tofile(folder / "books.bin")
    np.array([5, 6, 7, 8, 9, 0], np.uint16).tofile(folder / "code.bin")


def megatron(folder: Path, name: str, documents: list[list[int]]) -> Path:
    """A pair of .bin and .idx, of uint16."""
    ids = [np.array(document, np.uint16) for document in documents]
    lengths = [len(document) for document in ids]
    starts = np.cumsum([0, *lengths[:-1]]) * 2
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(ids), len(ids) + 1)
    index += np.array(lengths, np.int32).tobytes() + np.array(starts, np.int64).tobytes()
    (folder / f"{name}.idx").write_bytes(index + np.arange(len(ids) + 1, dtype=np.int64).tobytes())
    (folder / f"{name}.bin").write_bytes(np.concatenate(ids).tobytes())
    return folder / f"{name}.bin"


def tokenizer(folder: Path, template: str = TEMPLATE) -> Path:
    """A tokenizer of words with a chat template."""
    (folder / "tokenizer").mkdir()
    model = {"type": "WordLevel", "unk_token": "?", "vocab": {word: id for id, word in enumerate(WORDS)}}
    whole = {"model": model, "pre_tokenizer": {"type": "WhitespaceSplit"}}
    (folder / "tokenizer" / "tokenizer.json").write_text(json.dumps(whole))
    config = {"eos_token": "</s>", "chat_template": template}
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(config))
    return folder / "tokenizer"


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def pictures(folder: Path) -> None:
    for number, name in enumerate(("train/ant", "train/bee", "train/cat", "val/ant", "val/cat")):
        bitmap(folder / "pictures" / name / "1.bmp", number)
    species = [("train/bee/1.bmp", "bee"), ("train/bee/2.bmp", "an ant"), ("val/cat/1.bmp", "bee")]
    (folder / "pictures.csv").write_text("file,species\n" + "".join(f"{file},{name}\n" for file, name in species))
    lines(folder / "pictures.jsonl", *({"file": file, "species": name} for file, name in species))
    for shard, members in archives().items():
        (folder / shard).write_bytes(members)
    for number in range(3):
        bitmap(folder / "photographs" / f"{number}.bmp", number)
        bitmap(folder / "masks" / f"{number}.bmp", number, number, number)
    images = [{"id": number, "file_name": f"{number}.bmp"} for number in range(3)]
    boxes: list[dict[str, Any]] = [{"image_id": 2, "category_id": 1, "bbox": [0, 0, 8, 8]}]
    boxes.append({"image_id": 0, "category_id": 2, "bbox": [1, 1, 3, 4]})
    named = [{"id": 1, "name": "bee"}, {"id": 2, "name": "ant"}]
    whole = {"images": images, "annotations": boxes, "categories": named}
    (folder / "instances.json").write_text(json.dumps(whole))
    (folder / "mnist").mkdir()
    for name, label in (("train", 7), ("t10k", 3)):
        head = struct.pack(">HBBIII", 0, 8, 3, 1, 2, 2)
        (folder / "mnist" / f"{name}-images-idx3-ubyte").write_bytes(head + bytes(range(4)))
        head = struct.pack(">HBBI", 0, 8, 1, 1)
        (folder / "mnist" / f"{name}-labels-idx1-ubyte").write_bytes(head + bytes([label]))
    (folder / "cifar-10-batches-bin").mkdir()
    for label in range(1, 7):
        name = "test_batch.bin" if label == 6 else f"data_batch_{label}.bin"
        (folder / "cifar-10-batches-bin" / name).write_bytes(bytes([label] * 3073))


def bitmap_bytes(blue: int, green: int = 2, red: int = 3) -> bytes:
    """A picture of 8 x 8 pixels of one colour."""
    header = struct.pack("<13I", 246, 0, 54, 40, 8, 8, 1 | 24 << 16, 0, 192, 0, 0, 0, 0)
    return b"BM" + header + bytes([blue, green, red]) * 64


def bitmap(path: Path, *colour: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bitmap_bytes(*colour))


def archives() -> dict[str, bytes]:
    """Two archives of two pictures and their classes: 0, 1, 5, 6."""

    def tar(members: Mapping[str, bytes]) -> bytes:
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w") as archive:
            for name, content in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        return file.getvalue()

    return {
        f"pictures-{shard:03}.tar": tar(
            {
                f"{number}.{kind}": bitmap_bytes(first) if kind == "jpg" else str(first + number).encode()
                for number in range(2)
                for kind in ("jpg", "cls")
            }
        )
        for shard, first in enumerate((0, 5))
    }


def sounds(folder: Path) -> None:
    (folder / "clips.csv").write_text("clip,word\n1.wav,yes\n2.wav,no\n")
    (folder / "1.wav").write_bytes(b"yes")
    (folder / "2.wav").write_bytes(b"no")
    for name, frames in (("speech/1", 1600), ("speech/2", 4000), ("words/no/1", 1600), ("words/yes/1", 9000)):
        sawtooth(folder / f"{name}.wav", frames)
    said_there = "speech/1.wav,Hi there\nspeech/2.wav,Hi Hi there\n"
    (folder / "speech.csv").write_text("path,sentence\n" + said_there)


def sawtooth(path: Path, frames: int) -> None:
    """A sound of 8,000 frames a second."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as to:
        to.setparams((1, 2, 8000, frames, "NONE", ""))
        to.writeframes((np.arange(frames) % 41 * 300).astype("<i2").tobytes())


def records(folder: Path) -> None:
    np.save(folder / "x.npy", np.arange(6, dtype=np.int16).reshape(2, 3))
    np.savez(folder / "xy.npz", x=np.array([1, 2, 3]), y=np.array([7, 8, 9]))
    for shard in range(2):
        rows = [tfrecord(b"one", shard), tfrecord(b"three", 7)]
        (folder / f"train-0000{shard}.tfrecord").write_bytes(b"".join(rows))
    mds(folder / "mds")


def tfrecord(image: bytes, label: int) -> bytes:
    """A record with a `tf.train.Example` of the features `image` and `label`."""

    def crc(data: bytes) -> bytes:
        code = 0xFFFF_FFFF
        for byte in data:
            code ^= byte
            for _ in range(8):
                code = code >> 1 ^ (0x82F6_3B78 if code & 1 else 0)
        code ^= 0xFFFF_FFFF
        return struct.pack("<I", ((code >> 15 | code << 17) + 0xA282_EAD8) & 0xFFFF_FFFF)

    def part(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    features = {b"image": part(1, part(1, image)), b"label": part(3, part(1, bytes([label])))}
    entries = [part(1, part(1, name) + part(2, feature)) for name, feature in features.items()]
    example, length = part(1, b"".join(entries)), len(part(1, b"".join(entries)))
    head = struct.pack("<Q", length)
    return head + crc(head) + example + crc(example)


def mds(folder: Path) -> None:
    """A shard of the texts "ab" and "cdef", and its index."""
    columns = {"column_names": ["a"], "column_encodings": ["str"], "column_sizes": [None]}
    head = json.dumps(columns).encode()
    first = 4 + 3 * 4 + len(head)
    shard = struct.pack("<4I", 2, first, first + 6, first + 14) + head
    shard += b"".join(struct.pack("<I", len(text)) + text for text in (b"ab", b"cdef"))
    folder.mkdir()
    (folder / "0.mds").write_bytes(shard)
    data = {"basename": "0.mds", "bytes": len(shard), "hashes": {}}
    of = {"raw_data": data, "zip_data": None, "samples": 2, "format": "mds", "compression": None, "version": 2}
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": [{**columns, **of}]}))
