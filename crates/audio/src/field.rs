//! The field of a batch that holds sounds. Defines its shape, and writes a sound into a row.

use std::ops::Range;

use feedline_core::{DType, Error, ErrorKind, Random, Result, Row, Spec};

use crate::mel::{Mel, Memory};
use crate::{Channels, Crop, Resampler, SoundFile, Sounds};

/// The field of a batch that [`Sounds`] make at one rate.
///
/// ```no_run
/// use std::fs::File;
/// use feedline_audio::{Crop, Scratch, SoundFile, Sounds};
/// use feedline_core::{Context, Row};
///
/// fn read(row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), Box<dyn std::error::Error>> {
///     let field = Sounds::new().crop(16_000, Crop::Random).field(16_000)?;
///     let file = File::open("speech.flac")?;
///     let len = file.metadata()?.len();
///     let mut sound = SoundFile::open(file, len)?;
///     let frames = sound.frames()?;
///     Ok(field.write(&mut sound, frames, context.random(), &mut Scratch::default(), row, 0)?)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct SoundField {
    sounds: Sounds,
    rate: u32,
    mel: Option<Mel>,
}

/// The scratch memory of a worker. Each sample reuses it.
#[derive(Debug, Default)]
pub struct Scratch {
    channels: Vec<Vec<f32>>,
    /// The channels, resampled to the rate of the batch.
    resampled: Vec<Vec<f32>>,
    values: Vec<f32>,
    mel: Memory,
    /// The rates of the last sound, and its resampler.
    resampler: Option<((u32, u32), Resampler)>,
}

impl SoundField {
    pub(crate) fn new(sounds: Sounds, rate: u32, mel: Option<Mel>) -> Self {
        Self { sounds, rate, mel }
    }

    /// The rate of the batch, in Hz.
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// Whether crops are random.
    pub fn is_random(&self) -> bool {
        self.sounds.is_random()
    }

    /// Adds the field to `spec`. With a crop, it has a fixed size, and a field `NAME.length` follows.
    /// Otherwise it is a ragged field of up to `max_items` items.
    ///
    /// # Errors
    /// As [`Spec::field`] and [`Spec::ragged`].
    pub fn add(&self, spec: Spec, name: &str, max_items: usize) -> Result<Spec> {
        let channels = match self.sounds.channels {
            Channels::Mono => None,
            Channels::Exactly(channels) => Some(channels),
        };
        let bands = self.mel.as_ref().map(|mel| mel.options().bands());
        let item = channels.into_iter().chain(bands);
        let Some((frames, _)) = self.sounds.crop else {
            return spec.ragged(name, DType::F32, item.collect::<Vec<_>>(), max_items);
        };
        let shape: Vec<_> = item.chain([self.items(frames)]).collect();
        spec.field(name, DType::F32, shape)?.field(&format!("{name}.length"), DType::I64, [])
    }

    /// The number of items of a sound with `frames` frames at the rate of the batch. An item is a frame, or a
    /// window of a spectrogram.
    pub fn items(&self, frames: usize) -> usize {
        self.mel.as_ref().map_or(frames, |mel| mel.options().frames(frames))
    }

    /// The number of items of a sound with `frames` frames at `rate`. `None` if the sound exceeds the max
    /// length.
    pub fn items_of(&self, frames: u64, rate: u32) -> Option<usize> {
        let is_too_long = self.is_too_long(frames, rate);
        let outputs = (u128::from(frames) * u128::from(self.rate)).div_ceil(u128::from(rate.max(1)));
        usize::try_from(outputs).ok().filter(|_| !is_too_long).map(|frames| self.items(frames))
    }

    fn is_too_long(&self, frames: u64, rate: u32) -> bool {
        !self.sounds.is_cropped() && frames as f64 > self.sounds.max_seconds * f64::from(rate)
    }

    /// Reads a sound of `frames` frames into field `index` of the row. If sounds are cropped, also writes its
    /// length to the next field.
    ///
    /// # Errors
    /// As [`SoundFile::read`]. `Sample` for a sound that has another rate or number of channels, is too long,
    /// or is too short for its spectrogram.
    pub fn write(
        &self,
        sound: &mut SoundFile<'_>,
        frames: u64,
        random: &mut Random,
        scratch: &mut Scratch,
        row: &mut Row<'_, '_>,
        index: usize,
    ) -> Result<()> {
        self.check(sound, frames)?;
        let Scratch { channels, resampled, values, mel, resampler } = scratch;
        let rates = (sound.rate(), self.rate);
        let resampler = match resampler {
            Some((of, resampler)) if *of == rates => resampler,
            other => &mut other.insert((rates, Resampler::new(rates.0, rates.1))).1,
        };
        let part = self.part(resampler.outputs(frames), random);
        let inputs = resampler.inputs(part.clone(), frames);
        let offset = inputs.start;
        sound.read(inputs, channels)?;
        if self.sounds.channels == Channels::Mono {
            mix(channels);
        }
        resampled.resize_with(channels.len(), Vec::new);
        for (from, to) in channels.iter().zip(resampled.iter_mut()) {
            resampler.run(from, offset, part.clone(), to);
        }
        let length = (part.end - part.start) as usize;
        if let Some((frames, _)) = self.sounds.crop {
            resampled.iter_mut().for_each(|channel| channel.resize(frames, 0.0));
            self.fill(resampled, mel, row.field_mut::<f32>(index)?)?;
            row.field_mut::<i64>(index + 1)?[0] = self.items(length).min(self.items(frames)) as i64;
            return Ok(());
        }
        self.check_length(length)?;
        self.gather(resampled, mel, values)?;
        row.write_ragged(index, values)
    }

    fn check(&self, sound: &SoundFile<'_>, frames: u64) -> Result<()> {
        let refuse = |why: String| Err(Error::new(ErrorKind::Sample, why));
        let (rate, channels) = (sound.rate(), sound.channels());
        if self.sounds.rate.is_none() && rate != self.rate {
            return refuse(format!(
                "the sound has a rate of {rate} Hz, and the first one {} Hz: state the rate of all",
                self.rate
            ));
        }
        if let Channels::Exactly(wanted) = self.sounds.channels
            && wanted != channels
        {
            return refuse(format!(
                "the sound has {channels} channels instead of {wanted}: take mono, or convert it"
            ));
        }
        if frames == 0 {
            return refuse("the sound has no frames: leave it out".into());
        }
        if self.is_too_long(frames, rate) {
            return refuse(format!(
                "the sound has {:.1} seconds, and {} are the most: crop it, or allow more",
                frames as f64 / f64::from(rate),
                self.sounds.max_seconds
            ));
        }
        Ok(())
    }

    fn check_length(&self, frames: usize) -> Result<()> {
        match &self.mel {
            Some(mel) if frames < mel.options().shortest() => {
                let why = format!(
                    "the sound has {frames} frames, and its spectrogram needs {}: leave it out, or crop it, \
                     which adds zeros",
                    mel.options().shortest()
                );
                Err(Error::new(ErrorKind::Sample, why))
            }
            _ => Ok(()),
        }
    }

    /// The range of frames that is read from a sound of `all` frames.
    fn part(&self, all: u64, random: &mut Random) -> Range<u64> {
        let Some((frames, at)) = self.sounds.crop else { return 0..all };
        let free = all.saturating_sub(frames as u64);
        let start = match at {
            Crop::Random => random.below(free + 1),
            Crop::From(start) => start.min(free),
            Crop::Center => free / 2,
        };
        start..all.min(start + frames as u64)
    }

    /// Writes in the layout `[channels, ..]`, frames last.
    fn fill(&self, channels: &[Vec<f32>], memory: &mut Memory, to: &mut [f32]) -> Result<()> {
        let each = to.len() / channels.len().max(1);
        for (channel, to) in channels.iter().zip(to.chunks_exact_mut(each.max(1))) {
            match &self.mel {
                None => to.copy_from_slice(channel),
                Some(mel) => {
                    let frames = self.items(channel.len());
                    mel.run(channel, memory, |frame, band, value| to[band * frames + frame] = value)?;
                }
            }
        }
        Ok(())
    }

    /// Writes in the layout `[.., channels]`, frames first.
    fn gather(&self, channels: &[Vec<f32>], memory: &mut Memory, to: &mut Vec<f32>) -> Result<()> {
        let frames = self.items(channels.first().map_or(0, Vec::len));
        let bands = self.mel.as_ref().map_or(1, |mel| mel.options().bands());
        let (item, number) = (channels.len() * bands, channels.len());
        to.clear();
        to.resize(frames * item, 0.0);
        for (at, channel) in channels.iter().enumerate() {
            match &self.mel {
                None => {
                    to.iter_mut().skip(at).step_by(number).zip(channel).for_each(|(to, from)| *to = *from)
                }
                Some(mel) => {
                    mel.run(channel, memory, |frame, band, value| {
                        to[frame * item + at * bands + band] = value
                    })?;
                }
            }
        }
        Ok(())
    }
}

/// Replaces the first channel by the mean of all channels.
fn mix(channels: &mut Vec<Vec<f32>>) {
    let Some((first, rest)) = channels.split_first_mut() else { return };
    if rest.is_empty() {
        return;
    }
    let count = (1 + rest.len()) as f32;
    for (at, sum) in first.iter_mut().enumerate() {
        *sum = (*sum + rest.iter().map(|channel| channel[at]).sum::<f32>()) / count;
    }
    channels.truncate(1);
}
