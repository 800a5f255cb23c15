"""Sounds: decoded, resampled, cropped, as spectrograms."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from . import _feedline, _options, _parts
from ._data import Data
from ._errors import ConfigError, shown
from ._made import keeps_its_call
from ._open import of_texts, opening, told
from ._tables import Table


@dataclass(frozen=True)
class MelSpectrogram:
    """A mel spectrogram with the values of ``torchaudio.transforms.MelSpectrogram``: the same arguments and defaults,
    power 2, a periodic Hann window, reflected ends, HTK's mel scale and no norm.

    ``log`` takes the logarithm of powers of 1e-10 and more: ``"e"``, ``"10"``, or ``"db"``, decibels, as
    ``torchaudio.transforms.AmplitudeToDB``.

    >>> import feedline
    >>> feedline.MelSpectrogram(n_mels=80, hop_length=160, log="10").hop_length
    160
    """

    n_fft: int = 400
    win_length: int | None = None
    hop_length: int | None = None
    f_min: float = 0.0
    f_max: float | None = None
    n_mels: int = 128
    log: str | None = None

    def _checked(self) -> dict[str, Any]:
        given = asdict(self)
        for name in ("n_fft", "n_mels"):
            given[name] = _options.whole(name, given[name])
        for name in ("win_length", "hop_length"):
            given[name] = _options.maybe(name, given[name])
        given["f_min"] = _options.number("f_min", self.f_min)
        given["f_max"] = None if self.f_max is None else _options.number("f_max", self.f_max)
        return given


@keeps_its_call
def sounds(
    path: str | os.PathLike[str] | Table,
    *,
    rate: int | None = None,
    channels: int | str = "mono",
    crop: int | float | None = None,
    crop_at: int | float | str = "random",
    mel: MelSpectrogram | None = None,
    max_seconds: float = 3600.0,
    field: str | None = None,
    beside: _parts.Names | None = None,
    text: str | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
    root: str | os.PathLike[str] | None = None,
    label: str | None = None,
    class_from: int | None = None,
    split: str | None = None,
    classes: Sequence[str] | None = None,
) -> Data:
    """Opens encoded sounds, which are decoded on their way: WAV, FLAC, MP3, Ogg Vorbis, and AAC in ``.aac`` and MP4.

    ``path`` is a folder with one folder per class, a list of files (``clips/**/*.flac``), a tar archive, a table with a
    column of encoded sounds, or a manifest: a table (CSV, JSON Lines, Parquet, Arrow) with a column of their paths or
    URLs. A sample has the field ``sound``, ``float32`` from -1 to 1, and the other fields of one size, such as
    ``label``.

    Without ``crop`` the sounds are ragged: ``[frames]``, with channels ``[frames, channels]``, as
    spectrograms ``[windows, bands]``. Each file is opened once to find the longest. With ``crop`` they have
    one size, and torchaudio's shapes: ``[frames]``, ``[channels, frames]``, ``[bands, windows]``. A shorter
    sound is padded with zeros; ``sound.length`` has its number of frames or windows. Only the crop is read
    and decoded.

    A random crop depends only on the seed, the epoch and the draw. A sound is a bad sample if its file is cut
    short or damaged, has another number of channels, or is longer than ``max_seconds``; see
    ``Loader(bad_samples=)``.

    Args:
        rate: Frames per second, to which other sounds are resampled, with the values of
            ``torchaudio.functional.resample``. By default the rate of the first sound, which all must have.
        channels: ``"mono"``, the mean of all channels, or the number that each sound must have.
        crop: Frames at ``rate``, or seconds as a ``float``.
        crop_at: ``"random"``, ``"center"``, or the frame or second at which the crop begins; earlier if it
            would exceed the sound.
        mel: Makes a spectrogram of each sound.
        max_seconds: The length of the longest sound that is not cropped.
        field: The field or the column that holds the sounds, if neither its name nor its values say so.
        beside: Further fields of varying size, as ragged fields. What is left out is logged as a warning.
        text: The field of the transcript, a list of ``str`` in a batch; with ``tokenizer`` its ids,
            ``batch["ids"]``.
        tokenizer: The ``tokenizer.json`` of Hugging Face's tokenizers.
        root: The folder or URL that relative paths of a manifest start from. Default: the manifest's own
            folder.
        label: The column of a manifest that becomes the class, as for :func:`feedline.images`; by default the column
            ``label``, ``class`` or the like.
        class_from: As for :func:`feedline.open`.
        split: As for :func:`feedline.open`.
        classes: As for :func:`feedline.open`.
    """
    # The options by name.
    options = dict(locals())
    named, tokenized = _parts.with_text(options)
    if mel is not None and not isinstance(mel, MelSpectrogram):
        raise ConfigError(f"mel is {shown(mel)}: give feedline.MelSpectrogram(n_mels=80)")
    rate = _options.maybe("rate", rate, 1, 768_000)
    given = {
        "rate": rate,
        "channels": 0 if channels == "mono" else _options.whole("channels", channels, 1),
        "crop": _crop(crop, crop_at, rate),
        "mel": None if mel is None else mel._checked(),
        "max_seconds": _options.number("max_seconds", max_seconds),
        "field": field,
        "beside": named,
        "tokenized": tokenized,
    }
    return of_texts(told(_feedline.open_sounds(opening(options), given)), text, tokenized)


def _crop(crop: int | float | None, at: int | float | str, rate: int | None) -> tuple[int, int] | None:
    """The frames of a crop, and the frame that it begins at; -1 is at random, -2 in the middle."""
    if crop is None:
        _options.unused("a crop", crop_at=at != "random")
        return None
    places = {"random": -1, "center": -2}
    if isinstance(at, str) and at not in places:
        raise ConfigError(f'crop_at is {shown(at)}: give "random", "center", a frame, or a second as a float')
    begin = places[at] if isinstance(at, str) else _frames("crop_at", at, rate)
    return _frames("crop", crop, rate), begin


def _frames(name: str, given: int | float, rate: int | None) -> int:
    if not isinstance(given, float):
        return _options.whole(name, given)
    if rate is None:
        raise ConfigError(f"{name} is {shown(given)} seconds: give the rate too, or a number of frames")
    if not 0.0 <= given < 1e9:
        raise ConfigError(f"{name} is {shown(given)}: give seconds from 0.0")
    return round(given * rate)
