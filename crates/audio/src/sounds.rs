//! The processing of each sound: rate, channels, crop, spectrogram.

use feedline_core::Result;

use crate::field::SoundField;
use crate::{MelSpectrogram, RATES, config};

/// Default for the max seconds of a sound that is not cropped.
const MAX_SECONDS: f64 = 3600.0;

/// The channels of a sound in a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Channels {
    /// One channel: the mean of all channels.
    #[default]
    Mono,
    /// This many channels. A sound with another number is a bad sample.
    Exactly(usize),
}

/// Where a crop begins in a longer sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crop {
    /// At a random frame. The sample's random numbers choose it.
    Random,
    /// At this frame. If the crop would end after the sound, it begins earlier.
    From(u64),
    /// In the middle of the sound.
    Center,
}

/// The processing of each sound: rate, channels, crop, spectrogram.
///
/// Without a crop, the field is ragged. With a crop, it has one size. A sound that is shorter than the crop
/// is padded with zeros, and the field `NAME.length` has its number of frames.
///
/// | | mono | channels | mel | mel of channels |
/// | --- | --- | --- | --- | --- |
/// | cropped | `[frames]` | `[channels, frames]` | `[bands, windows]` | `[channels, bands, windows]` |
/// | ragged, an item | `[]` | `[channels]` | `[bands]` | `[channels, bands]` |
///
/// ```
/// use feedline_audio::{Crop, Sounds};
/// use feedline_core::Spec;
///
/// let sounds = Sounds::new().rate(16_000).crop(24_000, Crop::Random);
/// let spec = sounds.field(16_000)?.add(Spec::new(), "sound", 0)?;
/// assert_eq!((spec.fields()[0].name(), spec.fields()[0].shape()), ("sound", &[24_000][..]));
/// assert_eq!(spec.fields()[1].name(), "sound.length");
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sounds {
    pub(crate) rate: Option<u32>,
    pub(crate) channels: Channels,
    pub(crate) crop: Option<(usize, Crop)>,
    pub(crate) mel: Option<MelSpectrogram>,
    pub(crate) max_seconds: f64,
}

impl Default for Sounds {
    fn default() -> Self {
        let channels = Channels::Mono;
        Self { rate: None, channels, crop: None, mel: None, max_seconds: MAX_SECONDS }
    }
}

impl Sounds {
    /// Whole sounds, mono, at the rate of the files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Resamples each sound to `rate` Hz, see [`Resampler`](crate::Resampler). If no rate is set, all sounds
    /// must have the rate of the first sound.
    pub fn rate(self, rate: u32) -> Self {
        Self { rate: Some(rate), ..self }
    }

    /// Sets the channels. Default: [`Channels::Mono`].
    pub fn channels(self, channels: Channels) -> Self {
        Self { channels, ..self }
    }

    /// Takes a crop of `frames` frames, counted at the rate of the batch. Only the crop is decoded.
    pub fn crop(self, frames: usize, at: Crop) -> Self {
        Self { crop: Some((frames, at)), ..self }
    }

    /// Makes a mel spectrogram of each sound.
    pub fn mel(self, mel: MelSpectrogram) -> Self {
        Self { mel: Some(mel), ..self }
    }

    /// Sets the max seconds of a sound that is not cropped. Default: 3600. A longer sound is a bad sample.
    pub fn max_seconds(self, seconds: f64) -> Self {
        Self { max_seconds: seconds, ..self }
    }

    /// The rate that is set.
    pub fn stated_rate(&self) -> Option<u32> {
        self.rate
    }

    /// Whether sounds are cropped to one size.
    pub fn is_cropped(&self) -> bool {
        self.crop.is_some()
    }

    /// Whether a part is taken at random.
    pub fn is_random(&self) -> bool {
        matches!(self.crop, Some((_, Crop::Random)))
    }

    /// The field of a batch at `rate` Hz. Pass the rate that is set, or else the rate of the files.
    ///
    /// # Errors
    /// `Config` for a rate outside of 1 to 768,000, for no frames or channels, and for a spectrogram that
    /// they do not allow.
    pub fn field(&self, rate: u32) -> Result<SoundField> {
        if !RATES.contains(&rate) {
            return Err(config(format!("a rate of {rate} Hz: give one from 1 to {}", RATES.end())));
        }
        if self.channels == Channels::Exactly(0) {
            return Err(config("sounds of 0 channels: give 1 or more, or mono"));
        }
        if self.max_seconds.is_nan() || self.max_seconds <= 0.0 {
            return Err(config(format!("sounds of at most {} seconds: give more than 0", self.max_seconds)));
        }
        let mel = self.mel.map(|mel| mel.at(rate)).transpose()?;
        match self.crop {
            Some((0, _)) => return Err(config("a crop of 0 frames: give 1 or more")),
            Some((frames, _)) if mel.as_ref().is_some_and(|mel| frames < mel.options().shortest()) => {
                let shortest = mel.as_ref().map_or(0, |mel| mel.options().shortest());
                return Err(config(format!(
                    "a crop of {frames} frames is too short for its spectrogram: give {shortest} or more"
                )));
            }
            _ => {}
        }
        Ok(SoundField::new(*self, rate, mel))
    }
}
