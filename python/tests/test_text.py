"""Texts as token ids, and where the lengths of samples are kept."""

from __future__ import annotations

import json
from pathlib import Path

import feedline
import numpy as np
import pytest

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
