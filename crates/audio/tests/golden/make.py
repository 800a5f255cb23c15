"""Writes sounds/, small self-made tones in every format, and what other libraries make of them:

| file | what |
| --- | --- |
| sounds.tsv | name, rate, channels, frames, the max difference that is allowed, and the file of values |
| values/NAME.f32 | every 37th frame of all channels, by soundfile; AAC by PyAV, which is FFmpeg |
| resampled.tsv, values/resampled-*.f32 | torchaudio.functional.resample of `f32.wav` |
| mels.tsv, values/mel-*.f32 | torchaudio.transforms.MelSpectrogram of `f32.wav`, `[bands, windows]` |

    python crates/audio/tests/golden/make.py

Needs NumPy, soundfile, av, torch and torchaudio (written with soundfile 0.14, av 18.1 and torchaudio 2.11).
"""

from pathlib import Path

import av
import numpy as np
import soundfile
import torch

if torch.version.cuda:
    torch.version.cuda = "13.0"  # torchaudio refuses another minor version, and calls no kernel here
import torchaudio

HERE = Path(__file__).parent
SOUNDS, VALUES = HERE / "sounds", HERE / "values"
EVERY = 37


def tone(rate: int, frames: int, channels: int = 1) -> np.ndarray:
    """A tone that rises, louder and softer, and another in each further channel: no part is like another."""
    time = np.arange(frames) / rate
    rising = [200 * (1 + channel) * time + 900 * time**2 for channel in range(channels)]
    return np.stack([(0.4 + 0.3 * np.sin(9 * time)) * np.sin(2 * np.pi * one) for one in rising], axis=1)


def write_av(name: str, codec: str, rate: int, sound: np.ndarray, options: dict[str, str] | None = None) -> None:
    with av.open(str(SOUNDS / name), "w", options=options or {}) as to:
        stream = to.add_stream(codec, rate=rate)
        stream.layout = "mono" if sound.shape[1] == 1 else "stereo"
        stream.bit_rate = 32000
        if name in ("mono.aac", "fast.m4a"):
            stream.options = {"aac_pns": "0"}  # no noise, which a decoder makes by itself
        frame = av.AudioFrame.from_ndarray(sound.T.astype(np.float32).copy(), "fltp", stream.layout.name)
        frame.sample_rate = rate
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            to.mux(packet)


def read_av(name: str) -> tuple[np.ndarray, int]:
    with av.open(str(SOUNDS / name)) as file:
        parts = [frame.to_ndarray() for frame in file.decode(audio=0)]
        rate = file.streams.audio[0].rate
    return np.concatenate(parts, axis=1).T, rate


def values(name: str, of: np.ndarray) -> str:
    path = VALUES / f"{name}.f32"
    path.write_bytes(np.ascontiguousarray(of, "<f4").tobytes())
    return path.name


def main() -> None:
    for folder in (SOUNDS, VALUES):
        folder.mkdir(exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
    short = tone(8000, 500)
    for name, subtype in [
        ("u8", "PCM_U8"), ("i16", "PCM_16"), ("i24", "PCM_24"), ("i32", "PCM_32"), ("f32", "FLOAT"),
        ("f64", "DOUBLE"), ("mulaw", "ULAW"), ("alaw", "ALAW"),
    ]:  # fmt: skip
        soundfile.write(SOUNDS / f"{name}.wav", tone(8000, 1200) if name == "f32" else short, 8000, subtype)
    soundfile.write(SOUNDS / "stereo.wav", tone(22050, 1500, 2), 22050, "PCM_16")
    soundfile.write(SOUNDS / "mono.flac", tone(8000, 9000), 8000, "PCM_16")
    soundfile.write(SOUNDS / "stereo.flac", tone(16000, 5000, 2), 16000, "PCM_24")
    soundfile.write(SOUNDS / "mono.ogg", tone(16000, 20000), 16000, format="OGG", subtype="VORBIS")
    soundfile.write(SOUNDS / "stereo.ogg", tone(22050, 14000, 2), 22050, format="OGG", subtype="VORBIS")
    # Has several pages, so that a file may be cut after one.
    soundfile.write(SOUNDS / "pages.ogg", tone(16000, 120000), 16000, format="OGG", subtype="VORBIS")
    soundfile.write(SOUNDS / "mono.mp3", tone(16000, 20000), 16000, format="MP3", compression_level=0.9)
    soundfile.write(SOUNDS / "stereo.mp3", tone(44100, 30000, 2), 44100, format="MP3", compression_level=0.9)
    write_av("untagged.mp3", "libmp3lame", 16000, tone(16000, 20160), {"write_xing": "0", "id3v2_version": "0"})
    write_av("mono.aac", "aac", 16000, tone(16000, 12288))
    write_av("mono.m4a", "aac", 16000, tone(16000, 12288))
    write_av("fast.m4a", "aac", 16000, tone(16000, 12288), {"movflags": "faststart"})
    lines = []
    for path in sorted(SOUNDS.iterdir()):
        is_av = path.suffix in (".aac", ".m4a")
        sound, rate = read_av(path.name) if is_av else soundfile.read(path, always_2d=True, dtype="float32")
        allowed = 0 if path.suffix in (".wav", ".flac") else 2e-4
        of = values(path.name, sound[::EVERY])
        lines.append(f"{path.name}\t{rate}\t{sound.shape[1]}\t{len(sound)}\t{allowed}\t{of}\n")
    (HERE / "sounds.tsv").write_text("".join(lines))

    sound = torch.from_numpy(soundfile.read(SOUNDS / "f32.wav", dtype="float32")[0])
    lines = []
    for old, new in ((8000, 16000), (8000, 3000), (44100, 16000), (22050, 24000), (16000, 8000)):
        of = values(f"resampled-{old}-{new}", torchaudio.functional.resample(sound.double(), old, new).numpy())
        lines.append(f"{old}\t{new}\t{of}\n")
    (HERE / "resampled.tsv").write_text("".join(lines))
    lines = []
    for number, (bands, fft, window, hop, low, high) in enumerate(
        ((20, 400, 400, 200, 0.0, 4000.0), (16, 256, 200, 80, 50.0, 3600.0), (12, 301, 301, 150, 20.0, 4000.0))
    ):
        mel = torchaudio.transforms.MelSpectrogram(8000, fft, window, hop, low, high, n_mels=bands)
        of = values(f"mel-{number}", mel(sound).numpy())
        lines.append(f"{bands}\t{fft}\t{window}\t{hop}\t{low}\t{high}\t{of}\n")
    (HERE / "mels.tsv").write_text("".join(lines))


main()
