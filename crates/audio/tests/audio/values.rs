//! Resampling and spectrograms against torchaudio.

use feedline_audio::{Log, MelSpectrogram, Resampler, Scratch, Sounds};
use feedline_core::{Layout, Random, Spec};

use super::*;

fn worst(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len());
    got.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn resampled_sounds_have_the_values_of_torchaudio() {
    let sound = whole(&bytes("f32.wav")).unwrap().remove(0);
    for line in lines("resampled.tsv") {
        let resampler = Resampler::new(line[0].parse().unwrap(), line[1].parse().unwrap());
        let (want, mut got) = (values(&line[2]), Vec::new());
        resampler.run(&sound, 0, 0..resampler.outputs(sound.len() as u64), &mut got);
        assert!(worst(&got, &want) < 2e-6, "{line:?}: {}", worst(&got, &want));
    }
}

/// The spectrogram of `f32.wav`, windows first.
fn mel(mel: MelSpectrogram) -> Vec<f32> {
    let file = bytes("f32.wav");
    let mut sound = open(&file).unwrap();
    let frames = sound.frames().unwrap();
    let field = Sounds::new().mel(mel).field(8000).unwrap();
    let spec = field.add(Spec::new(), "sound", field.items_of(frames, 8000).unwrap()).unwrap();
    let layout = Layout::new(&spec, 1).unwrap();
    let mut slab = vec![0; layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, 1);
    let row = &mut rows.row(0);
    field.write(&mut sound, frames, &mut Random::from_key(0), &mut Scratch::default(), row, 0).unwrap();
    row.ragged_mut::<f32>(0).unwrap().to_vec()
}

#[test]
fn mel_spectrograms_have_the_values_of_torchaudio() {
    for line in lines("mels.tsv") {
        let number = |at: usize| line[at].parse::<f64>().unwrap();
        let [bands, fft, window, hop] = [0, 1, 2, 3].map(|at| number(at) as usize);
        let of = MelSpectrogram::new(bands).fft(fft).window(window).hop(hop).range(number(4), number(5));
        let (got, want) = (mel(of), values(&line[6]));
        let windows = of.frames(1200);
        assert_eq!((got.len(), want.len()), (bands * windows, bands * windows), "{line:?}");
        let largest = want.iter().copied().fold(0.0, f32::max);
        for window in 0..windows {
            for band in 0..bands {
                let (got, want) = (got[window * bands + band], want[band * windows + window]);
                assert!((got - want).abs() < 2e-5 * want + 1e-6 * largest, "{line:?}: {got} and {want}");
            }
        }
    }
}

#[test]
fn a_logarithm_is_of_the_powers() {
    let powers = mel(MelSpectrogram::new(8));
    for (log, of) in [
        (Log::Natural, f32::ln as fn(f32) -> f32),
        (Log::Ten, f32::log10),
        (Log::Decibel, |power| 10.0 * power.log10()),
    ] {
        let got = mel(MelSpectrogram::new(8).log(log));
        assert!(got.iter().zip(&powers).all(|(got, power)| *got == of(power.max(1e-10))), "{log:?}");
    }
}
