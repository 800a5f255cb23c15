//! Mel spectrograms, with the values of torchaudio.

use std::f64::consts::PI;
use std::fmt;
use std::sync::Arc;

use feedline_core::Result;
use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};

use crate::config;

/// The min power in a logarithm. Smaller powers are raised to it.
const FLOOR: f32 = 1e-10;

/// Max length of the FFT.
const MAX_FFT: usize = 1 << 20;

/// The logarithm of a mel spectrogram. Powers below 1e-10 count as 1e-10.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Log {
    /// No logarithm.
    #[default]
    None,
    /// The natural logarithm.
    Natural,
    /// The decimal logarithm.
    Ten,
    /// Decibels: ten times the decimal logarithm, as `torchaudio.transforms.AmplitudeToDB`.
    Decibel,
}

/// A mel spectrogram. It is that of `torchaudio.transforms.MelSpectrogram` with its defaults: power, a
/// periodic Hann window, centred frames with reflected ends of the sound, HTK's mel scale, and bands without
/// a norm.
///
/// ```
/// use feedline_audio::{Log, MelSpectrogram};
///
/// // As Whisper's features have it: 80 bands of windows of 25 ms, every 10 ms, at 16 kHz.
/// let mel = MelSpectrogram::new(80).fft(400).hop(160).log(Log::Ten);
/// assert_eq!(mel.frames(16_000), 101);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MelSpectrogram {
    bands: usize,
    fft: usize,
    window: Option<usize>,
    hop: Option<usize>,
    low: f64,
    high: Option<f64>,
    log: Log,
}

impl MelSpectrogram {
    /// A spectrogram of `bands` bands up to half of the rate. A window has 400 frames, and begins every 200
    /// frames.
    pub fn new(bands: usize) -> Self {
        Self { bands, fft: 400, window: None, hop: None, low: 0.0, high: None, log: Log::None }
    }

    /// Sets the length of the FFT in frames of the sound: `n_fft`.
    pub fn fft(self, fft: usize) -> Self {
        Self { fft, ..self }
    }

    /// Sets the length of the window, `win_length`. Default: the length of the FFT.
    pub fn window(self, window: usize) -> Self {
        Self { window: Some(window), ..self }
    }

    /// Sets the frames of the sound from one window to the next, `hop_length`. Default: half a window.
    pub fn hop(self, hop: usize) -> Self {
        Self { hop: Some(hop), ..self }
    }

    /// Sets the lowest frequency of the bands, in Hz: `f_min`.
    pub fn low(self, low: f64) -> Self {
        Self { low, ..self }
    }

    /// Sets the lowest and the highest frequency of the bands, in Hz: `f_min` and `f_max`.
    pub fn range(self, low: f64, high: f64) -> Self {
        Self { low, high: Some(high), ..self }
    }

    /// Takes the logarithm. Default: [`Log::None`].
    pub fn log(self, log: Log) -> Self {
        Self { log, ..self }
    }

    /// Number of bands.
    pub fn bands(&self) -> usize {
        self.bands
    }

    /// The number of windows of a sound of `frames` frames.
    pub fn frames(&self, frames: usize) -> usize {
        (frames + 2 * (self.fft / 2)).saturating_sub(self.fft) / self.hop_len() + 1
    }

    /// The min number of frames of a sound. A shorter sound cannot be reflected at its ends.
    pub fn shortest(&self) -> usize {
        self.fft / 2 + 1
    }

    fn window_len(&self) -> usize {
        self.window.unwrap_or(self.fft)
    }

    fn hop_len(&self) -> usize {
        self.hop.unwrap_or(self.window_len() / 2).max(1)
    }

    /// This spectrogram for sounds of `rate` Hz.
    pub(crate) fn at(self, rate: u32) -> Result<Mel> {
        let (fft, window, hop) = (self.fft, self.window_len(), self.hop.unwrap_or(self.window_len() / 2));
        if !(2..=MAX_FFT).contains(&fft) || !(1..=fft).contains(&window) || hop == 0 {
            return Err(config(format!(
                "an FFT of {fft} frames with a window of {window} every {hop}: take an FFT of 2 to {MAX_FFT} \
                 frames, a window that is not longer, and a hop of 1 or more"
            )));
        }
        let high = self.high.unwrap_or(f64::from(rate / 2));
        let is_range = self.low >= 0.0 && self.low < high && high.is_finite();
        if !is_range || self.bands == 0 {
            let (bands, low) = (self.bands, self.low);
            return Err(config(format!(
                "{bands} mel bands from {low} Hz to {high} Hz: give a band or more, and a range from low to \
                 high"
            )));
        }
        Ok(Mel {
            of: self,
            window: hann(window, fft),
            bands: bands(self.bands, fft / 2 + 1, rate, (self.low, high)),
            transform: RealFftPlanner::new().plan_fft_forward(fft),
        })
    }
}

/// A periodic Hann window of `len` frames in the middle of `fft`.
fn hann(len: usize, fft: usize) -> Vec<f32> {
    let mut window = vec![0.0; fft];
    for (at, weight) in window[(fft - len) / 2..][..len].iter_mut().enumerate() {
        *weight = (0.5 - 0.5 * (2.0 * PI * at as f64 / len as f64).cos()) as f32;
    }
    window
}

/// For each band, its first frequency and the weights of its frequencies.
fn bands(bands: usize, bins: usize, rate: u32, (low, high): (f64, f64)) -> Vec<(usize, Vec<f32>)> {
    let mel = |frequency: f64| 2595.0 * (1.0 + frequency / 700.0).log10();
    let frequency = |mel: f64| 700.0 * (10f64.powf(mel / 2595.0) - 1.0);
    let (first, last) = (mel(low), mel(high));
    let point = |at: usize| frequency(first + (last - first) * at as f64 / (bands + 1) as f64);
    let bin = |bin: usize| f64::from(rate / 2) * bin as f64 / (bins - 1).max(1) as f64;
    let band = |band: usize| {
        let [start, center, end] = [0, 1, 2].map(|more| point(band + more));
        let weight = |at: usize| {
            let at = bin(at);
            ((at - start) / (center - start)).min((end - at) / (end - center)).max(0.0) as f32
        };
        let from = (0..bins).find(|&at| weight(at) > 0.0).unwrap_or(bins);
        let weights = (from..bins).map(weight).take_while(|&weight| weight > 0.0);
        (from, weights.collect())
    };
    (0..bands).map(band).collect()
}

/// A mel spectrogram that is ready to run at one rate.
#[derive(Clone)]
pub(crate) struct Mel {
    of: MelSpectrogram,
    window: Vec<f32>,
    bands: Vec<(usize, Vec<f32>)>,
    transform: Arc<dyn RealToComplex<f32>>,
}

/// The scratch memory of a worker.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    windowed: Vec<f32>,
    spectrum: Vec<Complex<f32>>,
    scratch: Vec<Complex<f32>>,
    powers: Vec<f32>,
}

impl Mel {
    pub(crate) fn options(&self) -> &MelSpectrogram {
        &self.of
    }

    /// Calls `to` with the window, the band and the value of each point. The sound has
    /// [`shortest`](MelSpectrogram::shortest) frames or more.
    pub(crate) fn run(
        &self,
        sound: &[f32],
        memory: &mut Memory,
        mut to: impl FnMut(usize, usize, f32),
    ) -> Result<()> {
        let Memory { windowed, spectrum, scratch, powers } = memory;
        let (fft, hop, pad) = (self.of.fft, self.of.hop_len(), self.of.fft / 2);
        spectrum.resize(fft / 2 + 1, Complex::default());
        scratch.resize(self.transform.get_scratch_len(), Complex::default());
        for frame in 0..self.of.frames(sound.len()) {
            let start = frame * hop;
            windowed.clear();
            match start.checked_sub(pad).and_then(|start| sound.get(start..start + fft)) {
                Some(part) => windowed.extend(part.iter().zip(&self.window).map(|(a, b)| a * b)),
                None => {
                    let inside = |at: usize| sound[reflected((start + at) as i64 - pad as i64, sound.len())];
                    windowed.extend(self.window.iter().enumerate().map(|(at, weight)| inside(at) * weight));
                }
            }
            let done = self.transform.process_with_scratch(windowed, spectrum, scratch);
            // This cannot fail: the buffers have the lengths that the FFT requires.
            done.map_err(|error| config("the FFT refuses its buffers").with_source(error.to_string()))?;
            powers.clear();
            powers.extend(spectrum.iter().map(|bin| bin.norm_sqr()));
            for (band, (from, weights)) in self.bands.iter().enumerate() {
                let power: f32 =
                    powers[*from..].iter().zip(weights).map(|(power, weight)| power * weight).sum();
                to(frame, band, self.log(power));
            }
        }
        Ok(())
    }

    fn log(&self, power: f32) -> f32 {
        match self.of.log {
            Log::None => power,
            Log::Natural => power.max(FLOOR).ln(),
            Log::Ten => power.max(FLOOR).log10(),
            Log::Decibel => 10.0 * power.max(FLOOR).log10(),
        }
    }
}

/// The index of frame `at` in a sound that is reflected at its ends. The sound has `len` frames, at least
/// two.
fn reflected(at: i64, len: usize) -> usize {
    let last = len as i64 - 1;
    let at = at.abs();
    (if at > last { 2 * last - at } else { at }).clamp(0, last) as usize
}

impl fmt::Debug for Mel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.of.fmt(f)
    }
}
