"""Texts as token ids, and where the lengths of samples are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_files import TEMPLATE, megatron, said
from page_files import lines as lines_of
from page_files import tokenizer as chat_tokenizer

import feedline

WORDS = {"?": 0, "[CLS]": 1, "[SEP]": 2, "the": 3, "fox": 4}


def tokenizer(folder: Path, **parts: object) -> Path:
    """A ``tokenizer.json`` of five words, with other parts."""
    special = {name: {"id": name, "ids": [WORDS[name]], "tokens": [name]} for name in ("[CLS]", "[SEP]")}
    single = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    template = {
        "type": "TemplateProcessing",
        "single": [*single, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": special,
    }
    file = folder / "tokenizer.json"
    model = {"type": "WordLevel", "unk_token": "?", "vocab": WORDS}
    whole = {"model": model, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": template, **parts}
    file.write_text(json.dumps(whole))
    return file


def lines(folder: Path, *texts: str) -> Path:
    file = folder / "x.txt"
    file.write_text("".join(f"{text}\n" for text in texts))
    return file


def test_fewer_tokens_than_the_special_ones_are_refused(tmp_path: Path) -> None:
    options = {"tokenizer": tokenizer(tmp_path), "special_tokens": True}
    text = lines(tmp_path, "the fox the fox")
    with pytest.raises(feedline.ConfigError, match="adds 2 special tokens to a text, which is cut to 1"):
        feedline.open(text, max_tokens=1, **options)
    assert feedline.open(text, max_tokens=3, **options)[0]["ids"].tolist() == [1, 3, 2]
    options["special_tokens"] = False
    assert feedline.open(text, max_tokens=1, **options)[0]["ids"].tolist() == [3]


def test_a_text_on_which_a_regular_expression_gives_up_is_an_error(tmp_path: Path) -> None:
    words = {"type": "Split", "pattern": {"Regex": r"\w+|\s+(?!\S)|\s+"}, "behavior": "Isolated", "invert": False}
    file = tokenizer(tmp_path, pre_tokenizer=words)
    text = lines(tmp_path, "the fox", "the" + " " * 1_000_100 + "fox the fox")
    data = feedline.open(text, tokenizer=file, max_length=100)
    assert data[0]["ids"].tolist() == [3, 0, 4]
    with pytest.raises(feedline.Error, match="gives up") as raised:
        data[1]
    assert raised.value.path == str(text) and raised.value.sample == 1


def test_lengths_are_kept_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    text = lines(folder, "the fox", "", "the")
    for cache, kept in (("cache", 1), ("off", 0)):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("FEEDLINE_CACHE", cache)
        data = feedline.open(text, tokenizer=tokenizer(tmp_path))
        assert [row["ids"].tolist() for row in data] == [[3, 4], [], [3]]
        assert len(list((tmp_path / cache).glob("lengths/*"))) == kept
        assert [file.name for file in folder.iterdir()] == ["x.txt"]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers_are_refused_with_what_to_write(tmp_path: Path, dtype: str) -> None:
    numbers = np.array([1 + 2j, 3 - 4j], dtype)
    np.save(tmp_path / "x.npy", numbers)
    np.savez(tmp_path / "x.npz", a=np.arange(2), b=numbers)
    for name in ("x.npy", "x.npz"):
        with pytest.raises(feedline.Error, match=f"{dtype} numbers.*np.stack") as raised:
            feedline.open(tmp_path / name)
        assert raised.value.path == str(tmp_path / name)
    np.save(tmp_path / "x.npy", np.stack([numbers.real, numbers.imag], axis=-1))
    assert feedline.open(tmp_path / "x.npy")[1]["array"].tolist() == [3, -4]


def test_token_files_are_opened_by_what_they_state(tmp_path: Path) -> None:
    bin = megatron(tmp_path, "corpus", [[1, 2, 3], [], [4, 5]])
    for path in (bin, bin.with_suffix(".idx")):
        data = feedline.open(path)
        assert [row["ids"].tolist() for row in data] == [[1, 2, 3], [], [4, 5]]
        assert data.lengths("ids").tolist() == [3, 0, 2] and data[0]["ids"].dtype == np.int64
    ids = np.arange(9, dtype=np.uint16)
    ids.tofile(tmp_path / "bare.bin")
    np.save(tmp_path / "ids.npy", ids)
    header = np.zeros(256, np.uint32)
    header[:3] = 20240520, 1, 9
    (tmp_path / "llm.bin").write_bytes(header.tobytes() + ids.tobytes())
    windows = [[0, 1, 2, 3], [4, 5, 6, 7]]
    for path, dtype in (("bare.bin", "uint16"), ("bare.bin", np.uint16), ("ids.npy", None), ("llm.bin", None)):
        data = feedline.tokens(tmp_path / path, 4, dtype=dtype)
        assert [row["tokens"].tolist() for row in data] == windows
        assert data.fate == "0 of 9 tokens are in no window, 0 documents have none"
    both = feedline.tokens([(tmp_path / "llm.bin", 1.5), tmp_path / "ids.npy"], 4)
    assert len(both) == 5
    cut = feedline.tokens(tmp_path / "llm.bin", 2, separator=4, stride=1, skip_short=True)
    assert [row["targets"].tolist() for row in cut] == [[1, 2], [2, 3], [3, 4], [6, 7], [7, 8]]
    for path, dtype, match in (
        ("bare.bin", None, r'no header that states the type.*dtype="u16"'),
        ("ids.npy", "uint16", "a .npy file, not bare numbers: read its ids by feedline.tokens without dtype"),
        ("corpus.idx", "uint16", "read it and the .bin beside it by `open`"),
        ("corpus.bin", "int32", "says that its ids are u16, not i32"),
        ("bare.bin", "float32", "token ids are whole numbers"),
    ):
        with pytest.raises(feedline.Error, match=match):
            feedline.tokens(tmp_path / path, 4, dtype=dtype)
    with pytest.raises(feedline.Error, match=r"unknown.*feedline.tokens"):
        feedline.open(tmp_path / "bare.bin")


def chats() -> feedline.Data:
    """Documents of ids, weights, and a source each."""
    rows = [
        {"ids": np.arange(n) + 10 * n, "weight": np.arange(n, dtype=np.float32) / 2, "source": np.uint8(n)}
        for n in (3, 1, 2, 5)
    ]
    return feedline.Data(rows, max_length={"ids": 5, "weight": 5})


def test_several_fields_are_packed_together() -> None:
    data = chats().packed(["ids", "weight", "source"], 6, labels=True, pad={"ids": 7, "source": 9})
    assert [field.name for field in data.fields][:4] == ["ids", "weight", "source", "labels"]
    rows = list(data)
    assert rows[0]["ids"].tolist() == [50, 51, 52, 53, 54, 10]
    assert rows[0]["labels"].tolist() == [-100, 51, 52, 53, 54, -100]
    assert rows[1]["ids"].tolist() == [30, 31, 32, 20, 21, 7] and rows[1]["segment"].tolist() == [1, 1, 1, 2, 2, 0]
    assert rows[1]["weight"].tolist() == [0, 0.5, 1, 0, 0.5, 0] and rows[1]["source"].tolist() == [3, 3, 3, 2, 2, 9]
    in_order = chats().packed("ids", 4, order="in order")
    assert [row["ids"].tolist() for row in in_order] == [[30, 31, 32, 10], [20, 21, 50, 51], [52, 53, 54, 0]]
    within = chats().packed("ids", 6, within=2)
    assert [row["ids"].tolist()[:4] for row in within] == [[30, 31, 32, 10], [50, 51, 52, 53], [20, 21, 0, 0]]
    cut = chats().packed("ids", 2, cut=True)
    assert cut.fate is not None and "2 cut by 4 items" in cut.fate
    for options, match in (
        ({"order": "best"}, "best fit"),
        ({"order": "in order", "within": 2}, "leave it out"),
        ({"order": "in order", "shuffle": 7}, "do not change places"),
        ({"pad": {"x": 1}}, "not packed"),
        ({"pad": {"ids": 1.5}}, 'pad has 1.5 for "ids"'),
        ({"labels": 3}, "name of a field"),
        ({"split": False, "window": 4}, "5 items, a window has 4"),
    ):
        with pytest.raises(feedline.ConfigError, match=match):
            chats().packed("ids", **{"window": 6, **options})  # type: ignore[arg-type]
    with pytest.raises(feedline.ConfigError, match="give the name of a field"):
        chats().packed([], 6)


def test_chats_become_ids_and_labels(tmp_path: Path) -> None:
    folder = chat_tokenizer(tmp_path)
    one = {"messages": [said("user", "Hi"), said("assistant", "Hi there")], "tools": [{"x": 1.0}]}
    path = lines_of(tmp_path / "chats.jsonl", one, {"messages": [said("user", "Hi")]})
    data = feedline.chats(path, folder)
    assert [row["ids"].tolist() for row in data] == [[3, 5, 4, 5, 6, 7, 2], [3, 5]]
    assert data[0]["labels"].tolist() == [-100, -100, -100, -100, 6, 7, 2]
    between = feedline.chats(path, folder, learn=("assistant :", "</s>"), max_tokens=6)
    assert between[0]["labels"].tolist() == [-100, -100, -100, -100, 6, 7]
    template = "{% for m in messages %}{{ m.content }} {{ tools | tojson }} {{ mood }}{% endfor %}"
    assert feedline.chat_text(one["messages"][:1], template=template, mood=1e16) == "Hi null 1e+16"
    assert feedline.chat_text(one["messages"], folder) == "user : assistant : Hi there </s> "
    other = feedline.chats(path, folder, learn="all", template=template, context={"mood": None})
    assert other[1]["ids"].tolist() == [6, 0, 0] and other[1]["labels"].tolist() == [6, 0, 0]
    texts = lines_of(tmp_path / "texts.jsonl", {"prompt": "Hi", "completion": "there"})
    assert feedline.chats(texts, folder, of="completions")[0]["labels"].tolist() == [-100, 7, 2]
    refuses = "{% for m in messages %}{% generation %}{{ raise_exception('no ' ~ m.role) }}{% endgeneration %}{% endfor %}"
    with pytest.raises(feedline.Error, match="refuses this conversation: no user") as raised:
        feedline.chats(path, folder, template=refuses)
    assert raised.value.path == str(path) and raised.value.sample == 0
    with pytest.raises(feedline.Error, match=r"does not mark what is learnt.*learn="):
        feedline.chats(path, folder, template=template)
    for options, match in (
        ({"of": "pairs"}, "of is 'pairs'"),
        ({"learn": "some"}, "learn is 'some'"),
        ({"learn": ("a",)}, "texts before"),
        ({"context": {"x": {1}}}, "no JSON"),
        ({"messages": "turns"}, 'no column "turns"'),
    ):
        with pytest.raises(feedline.ConfigError, match=match):
            feedline.chats(path, folder, **options)  # type: ignore[arg-type]


def test_prompts_are_padded_on_the_left_and_have_no_labels(tmp_path: Path) -> None:
    # Without marks of what is learnt.
    said_by = "{% for m in messages %}{{ m.role }} : {{ m.content }} {% endfor %}"
    folder = chat_tokenizer(tmp_path, said_by + "{% if add_generation_prompt %}assistant : {% endif %}")
    asked = {"prompt": [said("user", "Hi")]}
    path = lines_of(tmp_path / "prompts.jsonl", asked, {"prompt": [said("user", "Hi there")]})
    data = feedline.chats(path, folder, of="prompts")
    assert [field.name for field in data.fields] == ["ids"] and data.fate is None
    (batch,) = feedline.Loader(data, 2, pad={"ids": (2, 3, "left")}, framework="numpy")
    assert batch["ids"].values.tolist() == [[2, 3, 5, 6, 4, 5], [3, 5, 6, 7, 4, 5]]
    assert batch["ids"].lengths.tolist() == [5, 6]
    del batch
    assert feedline.chats(path, folder, of="prompts", max_tokens=3)[1]["ids"].tolist() == [7, 4, 5]
    assert feedline.chats(path, folder, of="prompts", add_generation_prompt=False)[0]["ids"].tolist() == [3, 5, 6]
    messages = lines_of(tmp_path / "messages.jsonl", {"messages": asked["prompt"]})
    assert feedline.chats(messages, folder, of="prompts")[0]["ids"].tolist() == data[0]["ids"].tolist()
    text = lines_of(tmp_path / "text.jsonl", {"prompt": "Hi there"})
    assert feedline.chats(text, folder, of="prompts")[0]["ids"].tolist() == [6, 7]
    with pytest.raises(feedline.ConfigError, match="learn is for conversations with answers"):
        feedline.chats(path, folder, of="prompts", learn="all")


def test_a_refused_conversation_is_a_bad_sample(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    template = TEMPLATE.replace("{{ m.role }} :", "{% if m.role == 'critic' %}{{ raise_exception('no critic') }}{% endif %}{{ m.role }} :")
    assert template != TEMPLATE
    folder = chat_tokenizer(tmp_path, template)
    chat = [said("user", "Hi"), said("assistant", "Hi there")]
    rows = [chat, [said("critic", "Hi")], chat, chat[:1], [*chat, said("critic", "Hi")], chat]
    path = lines_of(tmp_path / "chats.jsonl", *({"messages": row} for row in rows))
    data = feedline.chats(path, folder)
    assert data.lengths("ids").tolist() == [7, 0, 7, 2, 0, 7]
    why = "the chat template refuses this conversation: no critic"
    bad = f"2 of 6 conversations are bad samples, the first of them 1: {why}"
    assert data.fate == f"1 of 6 conversations teach nothing: all labels are -100; {bad}"
    for made in (data, data.unpadded("ids", labels="labels")):
        assert made.fate == data.fate
        caplog.clear()
        with feedline.Loader(made, 2, bad_samples=2, framework="numpy") as loader:
            substituted = [row for batch in loader for row, _ in batch.substituted]
        assert substituted == [1, 0]
        named = [record.getMessage() for record in caplog.records]
        assert len(named) == 2 and all(why in text and str(path) in text for text in named), named
        for budget in (0, 1):
            with pytest.raises(feedline.Error, match="no critic" if budget == 0 else "bad_samples|budget") as raised:
                list(feedline.Loader(made, 2, bad_samples=budget, framework="numpy"))
            assert budget or (raised.value.sample, raised.value.path) == (1, str(path))
    with pytest.raises(feedline.Error, match=r"no critic; windows have no substitutes.*data.subset\(np.flatnonzero") as raised:
        data.packed("ids", 8, labels="labels")
    assert (raised.value.sample, raised.value.path) == (1, str(path))
    kept = data.subset(np.flatnonzero(data.lengths("ids"))).packed("ids", 8, labels="labels")
    assert kept.fate is not None and kept.fate.startswith("4 documents of 23 items: 0 empty")
    # A part has no counts of its own: it is read, and refused.
    with pytest.raises(feedline.Error, match="no critic"):
        data.take(2).packed("ids", 8, labels="labels")


def test_chats_that_teach_nothing_are_counted_or_refused(tmp_path: Path) -> None:
    folder = chat_tokenizer(tmp_path)
    chat = [said("user", "Hi"), said("assistant", "Hi there")]
    path = lines_of(tmp_path / "chats.jsonl", {"messages": chat}, {"messages": chat[:1]}, {"messages": chat})

    def learnt(data: feedline.Data) -> int:
        with feedline.Loader(data, 1, framework="numpy") as loader:
            return sum(int((batch["labels"] != -100).sum()) for batch in loader)

    data = feedline.chats(path, folder)
    assert data.fate == "1 of 3 conversations teach nothing: all labels are -100"
    assert data.unpadded("ids", labels="labels").fate == data.fate
    packed = data.packed("ids", 8, labels="labels")
    assert packed.fate is not None and packed.fate.endswith("; 1 documents teach nothing: all of their labels are -100")
    assert learnt(packed) == 6
    # Packing cuts the answers off, also of a part, whose lengths are counted anew.
    for part, none in ((data, 3), (data.take(2), 2), (data.split(1.0)[0], 3)):
        cut = part.packed("ids", 4, labels="labels", cut=True)
        assert cut.fate is not None and f"; {none} documents teach nothing" in cut.fate, cut.fate
        assert cut.fate.endswith(f", of {none - 1} since they are cut") and learnt(cut) == 0
    assert "teach" not in (data.packed("ids", 8, labels=True).fate or "")
    for max_tokens, none in ((4, 3), (5, 1)):
        assert (feedline.chats(path, folder, max_tokens=max_tokens).fate or "").startswith(f"{none} of 3 conv")
    pair = {"chosen": chat, "rejected": chat[:1], "prompt": ""}
    fate = feedline.chats(lines_of(tmp_path / "pairs.jsonl", pair), folder, of="preferences", max_tokens=4).fate
    assert fate is not None and fate.startswith("1 of 1 conversations of chosen teach nothing"), fate
    for texts, why in (
        (("<|assistant|>", "<|end|>"), "no conversation has a token to learn between"),
        (("", "</s>"), "an empty text"),
    ):
        with pytest.raises(feedline.ConfigError, match=why):
            feedline.chats(path, folder, learn=texts)
    twice = lines_of(tmp_path / "twice.jsonl", {"messages": chat + chat})
    with pytest.raises(feedline.Error, match='answer 1 of the conversation has no "<.eot.>" before the next') as raised:
        feedline.chats(twice, folder, learn=("assistant :", "<|eot|>"))
    assert raised.value.path == str(twice) and raised.value.sample == 0


def test_prompts_that_are_texts_begin_as_the_tokenizer_begins_texts(tmp_path: Path) -> None:
    folder = chat_tokenizer(tmp_path)
    file = folder / "tokenizer.json"
    parts = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    post = {
        "type": "TemplateProcessing",
        "single": parts,
        "pair": [*parts, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    }
    file.write_text(json.dumps(json.loads(file.read_text()) | {"post_processor": post}))
    texts = lines_of(tmp_path / "texts.jsonl", {"prompt": "Hi", "completion": "there"})
    with_bos = feedline.chats(texts, folder, of="completions")
    assert with_bos[0]["ids"].tolist() == [1, 6, 7, 2] and with_bos[0]["labels"].tolist() == [-100, -100, 7, 2]
    without = feedline.chats(texts, folder, of="completions", special_tokens=False)
    assert without[0]["ids"].tolist() == [6, 7, 2] and without.fingerprint != with_bos.fingerprint


def test_a_token_budget_has_batches_of_similar_cost() -> None:
    data = chats().packed("ids", 6, labels=True, padded=False)
    assert data.costs().tolist() == [6, 5] and data.costs("squares").tolist() == [5, 3]
    sampler = feedline.Sampler.alike(data.costs("squares"), 2)
    assert repr(sampler) == "Sampler.bucketed(2 samples, runs of 2 of similar cost)"
    ids = []
    with feedline.Loader(data, 1, sampler=sampler, seed=3, framework="numpy") as loader:
        for batch in loader:
            assert batch["cu_seqlens"].values[-1] == len(batch["ids"].values) == batch["used"][0]
            ids += batch["ids"].values.tolist()
    assert sorted(ids) == [10, 20, 21, 30, 31, 32, 50, 51, 52, 53, 54]
    with pytest.raises(feedline.ConfigError, match="call packed first"):
        chats().costs()
    with pytest.raises(feedline.ConfigError, match="give \"items\""):
        data.costs("x")


def test_texts_become_a_pair_of_megatron(tmp_path: Path) -> None:
    folder = chat_tokenizer(tmp_path)
    texts = [" ".join(["Hi", "there"] * (number % 4) + ["user"]) for number in range(200)]
    path = lines_of(tmp_path / "texts.jsonl", *({"text": text} for text in texts))
    seen: list[int] = []
    packed = feedline.pack_tokens(
        path, tmp_path / "all.bin", folder / "tokenizer.json", end="</s>", threads=3, progress=seen.append
    )
    assert packed == (200, 200 * 2 + 2 * (0 + 1 + 2 + 3) * 50, 0)
    assert seen == sorted(seen) and seen[-1] == 200
    documents = feedline.open(tmp_path / "all.bin")
    assert [row["ids"].tolist() for row in documents][:3] == [[3, 2], [6, 7, 3, 2], [6, 7, 6, 7, 3, 2]]
    again = feedline.pack_tokens(tmp_path / "all.bin", tmp_path / "wide.bin", dtype="int64")
    assert again == packed and (tmp_path / "wide.bin").stat().st_size == 8 * packed.tokens
    for options, why in (
        ({"end": "<eos>", "tokenizer": folder / "tokenizer.json"}, "no such token"),
        ({"end": "</s>"}, "a token of a tokenizer"),
        ({"dtype": "float32"}, "whole numbers"),
        ({}, 'no field "ids"'),
    ):
        with pytest.raises(feedline.Error, match=why):
            feedline.pack_tokens(path, tmp_path / "x.bin", **options)  # type: ignore[arg-type]
    with pytest.raises(feedline.Error, match="exists already"):
        feedline.pack_tokens(path, tmp_path / "all.bin", folder / "tokenizer.json")
    with pytest.raises(feedline.Error, match="progress failed: ZeroDivisionError: division by zero"):
        feedline.pack_tokens(path, tmp_path / "y.bin", folder / "tokenizer.json", progress=lambda count: count / 0)


def test_documents_of_a_source_are_packed() -> None:
    def documents(first: int) -> Any:
        return lambda: ({"ids": np.full(number % 9, number)} for number in range(first, first + 150))

    source = feedline.Source(documents(1), documents(1000), max_length={"ids": 8})
    windows = source.packed("ids", 16, within=40, labels=True, pad={"ids": -1})
    assert [field.name for field in windows.fields][:2] == ["ids", "labels"]
    loader = feedline.Loader(windows, 2, shuffle=7, shuffle_buffer=2000, framework="numpy")
    batches, states = [], []
    for batch in loader:
        batches.append(batch["ids"].copy())
        states.append(loader.state_dict())
        assert ((batch["labels"] == batch["ids"]) | (batch["labels"] == -100)).all()
        assert batch["segment"].dtype == np.int32 and batch["cu_seqlens"].values[-1] == batch["ids"].size
    ids = np.concatenate(batches).ravel()
    wanted = np.concatenate([np.full(n % 9, n) for first in (1, 1000) for n in range(first, first + 150)])
    assert sorted(ids[ids >= 0]) == sorted(wanted)
    plain = source.packed("ids", 16)
    assert sum(int(batch["used"].sum()) for batch in feedline.Loader(plain, 2, framework="numpy")) == len(wanted)
    # Groups that were read again are counted again.
    assert plain.fate is not None and int(plain.fate.split()[0]) >= 300 and source.fate is None
    for at in (0, len(states) // 2):
        resumed = feedline.Loader(windows, 2, shuffle=7, shuffle_buffer=2000, framework="numpy")
        resumed.load_state_dict(states[at])
        rest = [batch["ids"].copy() for batch in resumed]
        assert len(rest) == len(batches) - at - 1 and all((a == b).all() for a, b in zip(rest, batches[at + 1 :]))
    for options in ({"within": 0}, {"window": 0}, {"order": "any"}, {"labels": 5}, {"field": "none"}):
        with pytest.raises(feedline.Error):
            source.packed(**{"field": "ids", "window": 16, **options})  # type: ignore[arg-type]


def test_weights_of_a_mix_change() -> None:
    few, many = feedline.Data({"x": np.zeros(10)}), feedline.Data({"x": np.ones(1000)})
    mixed = feedline.mix(
        [(few, 1), (many, 1)], samples=100, weights_from_epoch={1: [0, 1]}, weights_from={250: [1, 0]}
    )
    with feedline.Loader(mixed, 50, framework="numpy") as loader:
        sums = [int(batch["x"].sum()) for _ in range(4) for batch in loader]
    assert sums == [25, 25, 50, 50, 50, 0, 0, 0]
    for options in ({"weights_from": {5: [1]}}, {"weights_from": {"a": [1, 1]}}, {"weights_from_epoch": [1]}):
        with pytest.raises(feedline.Error):
            feedline.mix([(few, 1), (many, 1)], **options)  # type: ignore[arg-type]


def test_todays_date_is_given() -> None:
    template = "{{ strftime_now('%d %b %Y') }}"
    said = [{"role": "user", "content": "Hi"}]
    assert feedline.chat_text(said, template=template, today="2026-03-05") == "05 Mar 2026"
    with pytest.raises(feedline.Error, match="today="):
        feedline.chat_text(said, template=template)
