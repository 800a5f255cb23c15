"""Sounds: formats, parts, what is beside them, and what is refused."""

from __future__ import annotations

import shutil
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline

GOLDEN = Path(__file__).parent.parent.parent / "crates" / "audio" / "tests" / "golden"
RATE = 8000


def numbered(frames: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Frames of which no two parts are alike."""
    return np.random.default_rng(seed).integers(-30_000, 30_000, frames).astype("<i2")


def save(path: Path, sound: np.ndarray[Any, Any], rate: int = RATE, channels: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as to:
        to.setparams((channels, 2, rate, len(sound), "NONE", ""))
        to.writeframes(sound.tobytes())


def floats(sound: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (sound / np.float32(32768)).astype(np.float32)


@pytest.fixture
def words(tmp_path: Path) -> Path:
    for number, (word, frames) in enumerate((("no", 3000), ("no", 900), ("yes", 5000))):
        save(tmp_path / "words" / word / f"{number}.wav", numbered(frames, number))
    return tmp_path / "words"


def batches(data: feedline.Data, batch: int = 3, **options: Any) -> feedline.Loader:
    return feedline.Loader(data, batch, framework="numpy", **options)


def test_a_folder_of_words_gives_waveforms_and_labels(words: Path) -> None:
    data = feedline.sounds(words)
    assert data.classes == ["no", "yes"] and data.lengths("sound").tolist() == [3000, 900, 5000]
    (batch,) = batches(data)
    assert batch["label"].tolist() == [0, 0, 1]
    for row, (number, frames) in zip(batch["sound"].rows(), enumerate((3000, 900, 5000)), strict=True):
        assert (row == floats(numbered(frames, number))).all()
    cropped = feedline.sounds(words, rate=RATE, crop=0.25, crop_at="center")
    assert [field[:3] for field in cropped.fields] == [
        ("sound", "f32", (2000,)), ("sound.length", "i64", ()), ("label", "i64", ())
    ]  # fmt: skip
    (batch,) = batches(cropped)
    assert batch["sound.length"].tolist() == [2000, 900, 2000]
    assert (batch["sound"][0] == floats(numbered(3000, 0))[500:2500]).all()
    assert (batch["sound"][1][900:] == 0).all() and (batch["sound"][1][:900] == floats(numbered(900, 1))).all()
    assert (feedline.sounds(words, crop=100, crop_at=250)[2]["sound"] == floats(numbered(5000, 2))[250:350]).all()


def test_crops_at_random_are_those_of_the_draw_and_resume(words: Path) -> None:
    data = feedline.sounds(words, crop=500)
    sampler = feedline.Sampler.weighted([1.0, 1.0, 1.0]).draws(30)
    loader = batches(data, sampler=sampler, seed=7)
    first = [(batch.ids.tolist(), batch["sound"].copy()) for batch in loader.epoch(0)]
    again = batches(data, sampler=sampler, seed=7, workers=3)
    for (ids, sounds), batch in zip(first, again.epoch(0), strict=True):
        assert ids == batch.ids.tolist() and (sounds == batch["sound"]).all()
    stopped = batches(data, sampler=sampler, seed=7)
    for _, _batch in zip(range(4), stopped, strict=False):
        pass
    resumed = batches(data, sampler=sampler, seed=7)
    resumed.load_state_dict(stopped.state_dict())
    left = [(batch.ids.tolist(), batch["sound"].copy()) for batch in resumed.epoch(0)]
    assert len(left) == 6
    for (ids, sounds), (others, of) in zip(left, first[4:], strict=True):
        assert ids == others and (sounds == of).all()
    crops = [sound.tobytes() for _, sounds in first for sound in sounds]
    assert len(set(crops)) > 25
    whole = [floats(numbered(frames, number)).tobytes() for number, frames in enumerate((3000, 900, 5000))]
    for (ids, sounds) in first:
        for one, sound in zip(ids, sounds, strict=True):
            assert sound.tobytes() in whole[one]


def test_a_manifest_gives_what_is_said_as_text_or_as_ids(tmp_path: Path) -> None:
    save(tmp_path / "clips" / "1.wav", numbered(1000, 1))
    shutil.copy(GOLDEN / "sounds" / "mono.mp3", tmp_path / "clips" / "2.mp3")
    (tmp_path / "clips.csv").write_text("file,sentence,speaker\n1.wav,open the door,3\n2.mp3,stop,4\ngone.flac,no,5\n")
    data = feedline.sounds(tmp_path / "clips.csv", root=tmp_path / "clips", rate=RATE, text="sentence")
    (batch,) = batches(data, bad_samples=1)
    assert batch["sentence"][:2] == ["open the door", "stop"] and batch["speaker"].tolist()[:2] == [3, 4]
    assert len(batch.substituted) == 1
    with pytest.raises(feedline.SampleError, match=r"in row 2.*gone\.flac"):
        list(batches(data))
    (tmp_path / "tokenizer.json").write_text(
        '{"model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "open": 1, "the": 2, "door": 3, "stop": 4}},'
        ' "pre_tokenizer": {"type": "Whitespace"}}'
    )
    data = feedline.sounds(
        tmp_path / "clips.csv", root=tmp_path / "clips", rate=16_000, crop=800,
        text="sentence", tokenizer=tmp_path / "tokenizer.json",
    )  # fmt: skip
    assert [data[row]["ids"].tolist() for row in (0, 1)] == [[1, 2, 3], [4]]


def test_spectrograms_and_rates_have_the_values_of_torchaudio(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "sounds" / "f32.wav", tmp_path / "f32.wav")
    for line in (GOLDEN / "mels.tsv").read_text().splitlines():
        bands, fft, window, hop, low, high, name = line.split("\t")
        mel = feedline.MelSpectrogram(int(fft), int(window), int(hop), float(low), float(high), int(bands))
        want = np.fromfile(GOLDEN / "values" / name, "<f4").reshape(int(bands), -1)
        ragged = feedline.sounds(tmp_path / "f32.wav", mel=mel)
        cropped = feedline.sounds(tmp_path / "f32.wav", mel=mel, crop=1200)
        for got in (ragged[0]["sound"].T, cropped[0]["sound"]):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6 * want.max())
        log = feedline.sounds(tmp_path / "f32.wav", mel=feedline.MelSpectrogram(n_mels=9, log="db"), crop=1200)
        power = feedline.sounds(tmp_path / "f32.wav", mel=feedline.MelSpectrogram(n_mels=9), crop=1200)
        want = 10 * np.log10(np.maximum(power[0]["sound"], 1e-10))
        np.testing.assert_allclose(log[0]["sound"], want, rtol=1e-5, atol=1e-4)
    for name, new in (("resampled-8000-16000.f32", 16_000), ("resampled-8000-3000.f32", 3000)):
        want = np.fromfile(GOLDEN / "values" / name, "<f4")
        np.testing.assert_allclose(feedline.sounds(tmp_path / "f32.wav", rate=new)[0]["sound"], want, atol=2e-6)


def test_channels_are_mixed_or_kept(tmp_path: Path) -> None:
    both = numbered(2000).reshape(1000, 2)
    save(tmp_path / "two.wav", both, channels=2)
    assert (feedline.sounds(tmp_path / "two.wav", channels=2)[0]["sound"] == floats(both)).all()
    assert (feedline.sounds(tmp_path / "two.wav", channels=2, crop=1000)[0]["sound"] == floats(both).T).all()
    np.testing.assert_allclose(feedline.sounds(tmp_path / "two.wav")[0]["sound"], floats(both).mean(1), atol=1e-7)


def test_a_file_that_was_cut_is_a_bad_sample_that_says_what_is_there(words: Path) -> None:
    path = words / "yes" / "2.wav"
    path.write_bytes(path.read_bytes()[:-1000])
    for options in ({}, {"crop": 100}):
        data = feedline.sounds(words, **options)
        with pytest.raises(feedline.SampleError, match=r"claims 10000 bytes, and 9000 are there.*2\.wav"):
            list(batches(data))
        assert sum(batch.rows for batch in batches(data, bad_samples=1)) == 3


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"crop": 0.5}, "give the rate too"),
        ({"crop": 10, "crop_at": "end"}, '"random", "center"'),
        ({"crop": -1}, "a whole number from 0"),
        ({"crop": 0}, "a crop of 0 frames"),
        ({"rate": 0}, "a whole number from 1"),
        ({"channels": "stereo"}, "a whole number from 1"),
        ({"mel": 80}, r"MelSpectrogram\(n_mels=80\)"),
        ({"mel": feedline.MelSpectrogram(log="2")}, 'use "e", "10", "db"'),
        ({"mel": feedline.MelSpectrogram(hop_length=0)}, "every 0"),
        ({"beside": "sentence"}, 'no field "sentence" to go beside'),
        ({"tokenizer": "t.json"}, 'text="sentence"'),
        ({"field": "wav"}, 'no field "wav"'),
        ({"root": "x"}, "root= is for a manifest"),
    ],
)
def test_what_cannot_be_is_refused(words: Path, options: dict[str, Any], why: str) -> None:
    with pytest.raises(feedline.ConfigError, match=why):
        feedline.sounds(words, **options)


def test_zipped_crops_at_random_are_refused(words: Path) -> None:
    one = feedline.sounds(words, crop=100)
    other = feedline.sounds(words, crop=200).map(lambda sample: {"other": sample["sound"]})
    with pytest.raises(feedline.ConfigError, match="at random, each in its own way"):
        feedline.zip(one, other)
    assert len(feedline.zip(one, other, independent=True)) == 3
