//! Sounds as samples: decoding with seeks, channels, resampling, crops and mel spectrograms.
//!
//! | part | what |
//! | --- | --- |
//! | [`SoundFile`], [`Format`] | WAV, FLAC, MP3, Ogg Vorbis and AAC to `f32`, any part of a file |
//! | [`Resampler`] | another sample rate, with the values of `torchaudio.functional.resample` |
//! | [`MelSpectrogram`] | mel spectrograms, with the values of `torchaudio.transforms.MelSpectrogram` |
//! | [`Sounds`], [`SoundField`] | what becomes of each sound, and the field of the batch that it makes |
//!
//! ```
//! use feedline_audio::{Crop, MelSpectrogram, Sounds};
//! use feedline_core::Spec;
//!
//! // A second at random of each sound, as 80 mel bands of 101 frames.
//! let sounds = Sounds::new().rate(16_000).crop(16_000, Crop::Random).mel(MelSpectrogram::new(80));
//! let field = sounds.field(16_000)?;
//! let spec = field.add(Spec::new(), "sound", 0)?;
//! assert_eq!(spec.fields()[0].shape(), [80, 81]);
//! # Ok::<(), feedline_core::Error>(())
//! ```
#![forbid(unsafe_code)]

mod decode;
mod field;
mod mel;
mod resample;
mod sounds;

pub use decode::{Format, SoundFile};
pub use field::{Scratch, SoundField};
pub use mel::{Log, MelSpectrogram};
pub use resample::Resampler;
pub use sounds::{Channels, Crop, Sounds};

use feedline_core::{Error, ErrorKind};

/// The rates of files and of batches, in Hz.
pub(crate) const RATES: std::ops::RangeInclusive<u32> = 1..=768_000;

/// An error about the content of a file.
fn data(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Data, why)
}

/// An error about an option.
fn config(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, why)
}
