"""Data as Hugging Face's libraries and Pillow write it, and what they read of it: jobs.py KIND FOLDER.

Prints `not run: WHY` without the libraries.
"""
import io
import json
import os
import random
import struct
import sys
import zlib

kind, to = sys.argv[1:3]
try:
    import pyarrow as pa
    import pyarrow.parquet as pq
    if kind == "text":
        import tokenizers
    else:
        if kind != "deep":
            import datasets
        import numpy as np
        from PIL import Image
except ImportError as error:
    print(f"not run: {sys.executable}: {error}")
    sys.exit()


def path(*names):
    os.makedirs(os.path.join(to, *names[:-1]), exist_ok=True)
    return os.path.join(to, *names)


def texts(count):
    """Texts of every script, with what tokenizers stumble over."""
    draw = random.Random(7)
    pieces = [
        "the", "token", "Izer's", "don't", "I'LL", "naïve", "Straße", "Ångström", "e\u0301", "ﬁne", "2026", "3.14159",
        "0x1F", "https://a.b/c?d=e", "雪", "日本語の文章", "汉字", "한국어", "שלום", "مرحبا", "नमस्ते", "👍", "👩‍👩‍👧‍👦", "🇩🇪", "🏳️‍🌈",
        "\u200b", "\u00a0", "\t", "\n", "\r\n", "  ", "    ", "<s>", "[MASK]", "{}[]()", "...", "—", "“x”", "\u0000", "\ufeff",
        "𝒳", "ǅ", "İ", "ß", "\u0e01\u0e33", "aaaaaaaaaaaaaaaa", "!!!", "_x_", "CamelCase", "snake_case",
    ]
    alphabet = [chr(code) for span in ((32, 127), (0xC0, 0x180), (0x400, 0x460), (0x4E00, 0x4E80), (0x1F600, 0x1F640))
                for code in range(*span)]
    yield ""
    yield " "
    for _ in range(count - 2):
        words = []
        for _ in range(draw.choice([0, 1, 2, 5, 20, 60])):
            word = draw.choice(pieces) if draw.random() < 0.6 else "".join(draw.choices(alphabet, k=draw.randint(1, 12)))
            words.append(word)
        yield draw.choice(["", " ", " "]).join(words)


def train(name, corpus):
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    if name == "byte-level":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(vocab_size=3000, special_tokens=["<|endoftext|>"], show_progress=False,
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
        tokenizer.decoder = decoders.ByteLevel()
    elif name == "word-piece":
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=2000, show_progress=False,
                                            special_tokens=["[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    else:
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizers.NFKC()
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=1000, unk_token="<unk>", special_tokens=["<unk>", "<s>"],
                                          show_progress=False)
    tokenizer.train_from_iterator(corpus, trainer)
    if name == "word-piece":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    tokenizer.save(path(f"{name}.json"))
    return tokenizer


def text():
    corpus = list(texts(10_000))
    with open(path("corpus.jsonl"), "w", encoding="utf-8") as file:
        for number, line in enumerate(corpus):
            file.write(json.dumps({"id": number, "text": line}, ensure_ascii=number % 2 == 0) + "\n")
    pq.write_table(pa.table({"text": corpus}), path("corpus.parquet"), row_group_size=1000)
    for name in ["byte-level", "word-piece", "unigram"]:
        tokenizer = train(name, corpus[:2000])
        ids = {
            "plain": [encoding.ids for encoding in tokenizer.encode_batch(corpus, add_special_tokens=False)],
            "special": [encoding.ids for encoding in tokenizer.encode_batch(corpus[:2000])],
        }
        tokenizer.enable_truncation(16)
        ids["truncated"] = [encoding.ids for encoding in tokenizer.encode_batch(corpus[:2000])]
        with open(path(f"{name}.ids.json"), "w") as file:
            json.dump(ids, file)


def saved():
    draw = np.random.default_rng(7)
    features = datasets.Features({
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=["ant", "bee", "cat"]),
        "words": datasets.Value("string"),
        "ids": datasets.Sequence(datasets.Value("int32")),
        "box": datasets.Sequence(datasets.Value("float32"), length=4),
    })
    sets, expected = {}, {}
    for name, rows in [("train", 50), ("validation", 10), ("test", 7)]:
        images = [draw.integers(0, 256, (8, 8, 3), dtype=np.uint8) for _ in range(rows)]
        columns = {
            "image": [Image.fromarray(image) for image in images],
            "label": [int(label) for label in draw.integers(0, 3, rows)],
            "words": ["雪 " * int(count) for count in draw.integers(0, 5, rows)],
            "ids": [draw.integers(0, 1000, int(count)).tolist() for count in draw.integers(0, 9, rows)],
            "box": draw.random((rows, 4), dtype=np.float32).tolist(),
        }
        sets[name] = datasets.Dataset.from_dict(columns, features=features)
        expected[name] = {**columns, "image": [image.tobytes().hex() for image in images]}
    sets = datasets.DatasetDict(sets)
    sets.save_to_disk(path("saved"), num_shards={"train": 3, "validation": 1, "test": 2})
    for name, of in sets.items():
        shards = 2 if name == "train" else 1
        for shard in range(shards):
            part = of.shard(shards, shard, contiguous=True)
            part.to_parquet(path("hub", "data", f"{name}-{shard:05}-of-{shards:05}.parquet"))
    with open(path("hub", "README.md"), "w") as file:
        file.write("---\nlicense: mit\n---\n# A set\n")
    with open(path("expected.json"), "w") as file:
        json.dump(expected, file)


def folders():
    draw = np.random.default_rng(8)
    expected = {}
    for set_name, classes in [("train", ["ant", "bee", "cat", "dog"]), ("val", ["ant", "cat", "dog"])]:
        for name in classes:
            for number in range(5):
                image = draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)
                Image.fromarray(image).save(path("folders", set_name, name, f"{number}.png"))
                expected[f"{set_name}/{name}/{number}"] = image.tobytes().hex()
    with open(path("expected.json"), "w") as file:
        json.dump(expected, file)


def deep():
    """Five gray pictures of 16 bits by Pillow, and five in RGB, which Pillow reads but does not write."""
    draw = np.random.default_rng(9)
    expected = []
    for number in range(5):
        gray = draw.integers(0, 1 << 16, (8, 8), dtype=np.uint16)
        Image.fromarray(gray).save(path("deep", "a", f"{number}.png"))
        with Image.open(path("deep", "a", f"{number}.png")) as image:
            assert image.mode.startswith("I;16"), image.mode
            levels = np.asarray(image)
        assert (levels == gray).all()
        expected.append(np.repeat(levels >> 8, 3).astype(np.uint8).tobytes().hex())
    for number in range(5):
        rgb = draw.integers(0, 1 << 16, (8, 8, 3), dtype=np.uint16)
        rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in rgb)
        chunk = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        with open(path("deep", "b", f"{number}.png"), "wb") as file:
            file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 16, 2, 0, 0, 0))
                       + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
        with Image.open(path("deep", "b", f"{number}.png")) as image:
            expected.append(np.asarray(image.convert("RGB")).tobytes().hex())
    with open(path("expected.json"), "w") as file:
        json.dump(expected, file)


if kind in ("saved", "folders"):
    datasets.disable_progress_bars()
{"text": text, "saved": saved, "folders": folders, "deep": deep}[kind]()
print("ok")
