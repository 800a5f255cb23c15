//! Sounds: `feedline.sounds`.

use feedline::{Error, ErrorKind};
use feedline_audio::{Channels, Crop, Log, MelSpectrogram, Sounds};
use feedline_datasets::{SoundDataset, open_sounds as open_encoded};
use pyo3::prelude::*;

use crate::dataset::{DataSet, detached};
use crate::error::raise;
use crate::images::tokenized;
use crate::opening::Opening;

/// The processing of the sounds, from `_sounds.py`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Given {
    rate: Option<u32>,
    /// The number of channels. 0 means the mean of all channels.
    channels: usize,
    /// The number of frames of a crop, and its start: a frame, random (-1) or the middle (-2).
    crop: Option<(usize, i64)>,
    mel: Option<Mel>,
    max_seconds: f64,
    field: Option<String>,
    beside: Vec<String>,
    /// The field of texts to tokenize, and the file of the tokenizer.
    tokenized: Option<(String, String)>,
}

/// A `MelSpectrogram`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Mel {
    n_mels: usize,
    n_fft: usize,
    win_length: Option<usize>,
    hop_length: Option<usize>,
    f_min: f64,
    f_max: Option<f64>,
    log: Option<String>,
}

/// Opens encoded sounds.
#[pyfunction]
pub(crate) fn open_sounds(py: Python<'_>, opening: Opening, given: Given) -> PyResult<DataSet> {
    let (from, mut options) = opening.options()?;
    options.files.extend(given.field.clone());
    let sounds = sounds(&given).map_err(raise)?;
    detached(py, || {
        let mut reader = open_encoded(from, &options)?;
        let classes = reader.about().classes.map(<[String]>::to_vec);
        if let Some((text, file)) = &given.tokenized {
            reader = tokenized(reader, text, file)?;
        }
        let set = match &given.field {
            Some(field) => SoundDataset::with_field(reader, field, sounds)?,
            None => SoundDataset::new(reader, sounds)?,
        };
        let set = set.beside(&given.beside)?;
        let lengths =
            if sounds.is_cropped() { Vec::new() } else { vec![("sound".to_owned(), set.lengths().to_vec())] };
        let left_out = set.left_out().into_iter().map(str::to_owned).collect();
        Ok(DataSet { lengths, classes, left_out, ..DataSet::new("sounds", set) })
    })
}

fn sounds(given: &Given) -> feedline::Result<Sounds> {
    let mut sounds = Sounds::new().max_seconds(given.max_seconds);
    if let Some(rate) = given.rate {
        sounds = sounds.rate(rate);
    }
    if given.channels > 0 {
        sounds = sounds.channels(Channels::Exactly(given.channels));
    }
    if let Some((frames, at)) = given.crop {
        let at = match at {
            -1 => Crop::Random,
            -2 => Crop::Center,
            at => Crop::From(at.unsigned_abs()),
        };
        sounds = sounds.crop(frames, at);
    }
    let Some(mel) = &given.mel else { return Ok(sounds) };
    let log = match mel.log.as_deref() {
        None => Log::None,
        Some("e") => Log::Natural,
        Some("10") => Log::Ten,
        Some("db") => Log::Decibel,
        Some(other) => {
            let why = format!("log {other:?}: use \"e\", \"10\", \"db\" or None");
            return Err(Error::new(ErrorKind::Config, why));
        }
    };
    let mut made = MelSpectrogram::new(mel.n_mels).fft(mel.n_fft).log(log);
    if let Some(window) = mel.win_length {
        made = made.window(window);
    }
    if let Some(hop) = mel.hop_length {
        made = made.hop(hop);
    }
    made = match (mel.f_max, mel.f_min) {
        (Some(high), low) => made.range(low, high),
        (None, low) => made.low(low),
    };
    Ok(sounds.mel(made))
}
