//! Changes the sample rate by a windowed sinc, as torchaudio's `resample` does.
//!
//! An output depends only on the inputs around it, so a crop has the same values as within the whole sound.

use std::f64::consts::PI;
use std::ops::Range;

/// Zero crossings of the sinc on each side: `lowpass_filter_width` of torchaudio.
const ZEROS: f64 = 6.0;

/// The cut-off as a fraction of the lower Nyquist frequency: `rolloff` of torchaudio.
const ROLLOFF: f64 = 0.99;

/// Changes the rate of a sound as `torchaudio.functional.resample` does by default. The filter is a sinc in a
/// Hann window. It has six zero crossings on each side, and a cut-off at 0.99 of the lower Nyquist frequency.
///
/// ```
/// use feedline_audio::Resampler;
///
/// let resampler = Resampler::new(44_100, 16_000);
/// assert_eq!(resampler.outputs(44_100), 16_000);
/// let (sound, mut half) = (vec![0.5; 441], Vec::new());
/// resampler.run(&sound, 0, 80..160, &mut half); // the second half only
/// assert!(half.len() == 80 && (half[20] - 0.5).abs() < 1e-2);
/// ```
#[derive(Clone, Debug)]
pub struct Resampler {
    /// The rates, divided by their greatest common divisor.
    from: u64,
    to: u64,
    /// For each of `to` phases, the first input relative to its block of `from` inputs.
    first: Vec<i64>,
    /// Number of inputs per output.
    taps: usize,
    /// `taps` weights for each phase.
    weights: Vec<f32>,
}

impl Resampler {
    /// A resampler from rate `from` to rate `to`, both above 0.
    pub fn new(from: u32, to: u32) -> Self {
        let common = greatest_common_divisor(from.into(), to.into()).max(1);
        let (from, to) = (u64::from(from) / common, (u64::from(to) / common).max(1));
        if from == to {
            return Self { from, to, first: vec![0], taps: 1, weights: vec![1.0] };
        }
        let (old, new) = (from as f64, to as f64);
        let base = old.min(new) * ROLLOFF;
        // Beyond this distance, the window is zero.
        let reach = ZEROS * old / base;
        let taps = 2 * reach.ceil() as usize + 1;
        let (mut first, mut weights) = (Vec::new(), Vec::new());
        for phase in 0..to {
            let center = phase as f64 * old / new;
            let start = (center - reach).ceil();
            first.push(start as i64);
            weights.extend((0..taps).map(|tap| {
                let time = ((start + tap as f64) / old - phase as f64 / new) * base;
                if time.abs() >= ZEROS {
                    return 0.0;
                }
                let window = (time * PI / ZEROS / 2.0).cos().powi(2);
                let sinc = if time == 0.0 { 1.0 } else { (time * PI).sin() / (time * PI) };
                (sinc * window * base / old) as f32
            }));
        }
        Self { from, to, first, taps, weights }
    }

    /// The number of outputs for `inputs` inputs.
    pub fn outputs(&self, inputs: u64) -> u64 {
        let outputs = (u128::from(inputs) * u128::from(self.to)).div_ceil(u128::from(self.from));
        u64::try_from(outputs).unwrap_or(u64::MAX)
    }

    /// The inputs from which the outputs `range` are computed. The sound has `len` inputs.
    pub fn inputs(&self, range: Range<u64>, len: u64) -> Range<u64> {
        if range.is_empty() {
            return 0..0;
        }
        let start = self.first_input(range.start).max(0) as u64;
        let end = (self.first_input(range.end - 1).saturating_add(self.taps as i64)).max(0) as u64;
        start.min(len)..end.min(len)
    }

    /// Writes the outputs `range`. `inputs` is the part of the sound that begins at frame `offset`. Frames
    /// outside of this part count as zeros.
    pub fn run(&self, inputs: &[f32], offset: u64, range: Range<u64>, to: &mut Vec<f32>) {
        to.clear();
        if (self.from, self.to) == (1, 1) {
            let at =
                |frame: u64| frame.checked_sub(offset).and_then(|at| inputs.get(usize::try_from(at).ok()?));
            to.extend(range.map(|frame| at(frame).copied().unwrap_or_default()));
            return;
        }
        to.extend(range.map(|output| {
            let phase = (output % self.to) as usize;
            let weights = &self.weights[phase * self.taps..][..self.taps];
            let begin = self.first_input(output) - offset as i64;
            if let Ok(begin) = usize::try_from(begin)
                && let Some(inputs) = inputs.get(begin..begin + self.taps)
            {
                return dot(inputs, weights);
            }
            // Some inputs are outside of the part.
            let input = |tap: usize| {
                let at = usize::try_from(begin + tap as i64).ok();
                at.and_then(|at| inputs.get(at)).copied().unwrap_or_default()
            };
            let inputs: Vec<f32> = (0..self.taps).map(input).collect();
            dot(&inputs, weights)
        }));
    }

    /// The first input from which an output is computed.
    fn first_input(&self, output: u64) -> i64 {
        let block = output / self.to * self.from;
        block as i64 + self.first[(output % self.to) as usize]
    }
}

/// The dot product, in eight partial sums, so that it is vectorised.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut sums = [0.0; 8];
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_the_values_that_it_has_within_the_whole() {
        let sound: Vec<f32> = (0..5000).map(|at| ((at * at) as f32 * 0.37).sin()).collect();
        for (from, to) in [(44_100, 16_000), (8_000, 16_000), (16_000, 44_100), (22_050, 22_050), (7, 5)] {
            let resampler = Resampler::new(from, to);
            let all = resampler.outputs(sound.len() as u64);
            let (mut whole, mut part) = (Vec::new(), Vec::new());
            resampler.run(&sound, 0, 0..all, &mut whole);
            assert_eq!(whole.len() as u64, all);
            for range in [0..all, 0..1, 700..701, all / 3..all / 2, all - 9..all, all..all] {
                let inputs = resampler.inputs(range.clone(), sound.len() as u64);
                let held = &sound[inputs.start as usize..inputs.end as usize];
                resampler.run(held, inputs.start, range.clone(), &mut part);
                assert_eq!(
                    part,
                    whole[range.start as usize..range.end as usize],
                    "{from} to {to}, {range:?}"
                );
            }
        }
    }
}
