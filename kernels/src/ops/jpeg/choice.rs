//! Where the pictures of a batch are decoded.

use std::fmt;
use std::time::Duration;

/// Who decodes the pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decode {
    /// The CPU.
    Cpu,
    /// nvJPEG on the GPU; what it refuses, the CPU.
    Gpu,
    /// The faster of the two, or both, each with a share of the batch: measured over the first batches.
    #[default]
    Auto,
}

/// Batches of each kind that are measured, after one that loads and allocates.
const MEASURED: u64 = 3;

/// A way to decode, with the time that it took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Way {
    /// The GPU's share of the pictures.
    share: f64,
    batches: u64,
    pictures: u64,
    seconds: f64,
}

impl Way {
    fn rate(&self) -> f64 {
        self.pictures as f64 / self.seconds.max(1e-9)
    }

    fn is_measured(&self) -> bool {
        self.batches > MEASURED
    }
}

/// The GPU's share of the pictures: given, or being measured.
#[derive(Debug)]
pub(super) enum Choice {
    Given(f64),
    /// The GPU alone, then the CPU alone, then both in the shares of their rates; the fastest is kept.
    Measured(Vec<Way>),
}

impl Choice {
    pub(super) fn new(decode: Decode, has_gpu: bool) -> Self {
        match decode {
            Decode::Cpu => Self::Given(0.0),
            Decode::Gpu => Self::Given(1.0),
            Decode::Auto if !has_gpu => Self::Given(0.0),
            Decode::Auto => Self::Measured(vec![Way { share: 1.0, ..Way::default() }]),
        }
    }

    /// The GPU's share of the next batch.
    pub(super) fn share(&self) -> f64 {
        match self {
            Self::Given(share) => *share,
            Self::Measured(ways) => match ways.last() {
                Some(way) if !way.is_measured() => way.share,
                _ => best(ways).share,
            },
        }
    }

    /// A batch of so many pictures took so long.
    pub(super) fn took(&mut self, pictures: usize, time: Duration) {
        let Self::Measured(ways) = self else { return };
        let Some(way) = ways.last_mut().filter(|way| !way.is_measured()) else { return };
        // The first batch of a way loads code and allocates.
        if way.batches > 0 {
            way.pictures += pictures as u64;
            way.seconds += time.as_secs_f64();
        }
        way.batches += 1;
        if !way.is_measured() {
            return;
        }
        let next = match &ways[..] {
            [_] => Some(0.0),
            [gpu, cpu] => Some(gpu.rate() / (gpu.rate() + cpu.rate())),
            _ => None,
        };
        ways.extend(next.map(|share| Way { share, ..Way::default() }));
    }
}

fn best(ways: &[Way]) -> Way {
    ways.iter().copied().max_by(|a, b| a.rate().total_cmp(&b.rate())).unwrap_or_default()
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |share: f64| match share {
            0.0 => "on the CPU".to_owned(),
            1.0 => "on the GPU".to_owned(),
            share => format!("{:.0} % on the GPU", 100.0 * share),
        };
        match self {
            Self::Given(share) => f.write_str(&place(*share)),
            Self::Measured(ways) => {
                let is_done = ways.len() == 3 && ways[2].is_measured();
                f.write_str(&if is_done { place(best(ways).share) } else { "being measured".into() })?;
                for way in ways.iter().filter(|way| way.is_measured()) {
                    write!(f, ", {} {:.0} pictures/s", place(way.share), way.rate())?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets a choice decode batches of 100 on a GPU and a CPU of such rates; both at once are as fast as
    /// `together` says of their sum.
    fn settled(gpu: f64, cpu: f64, together: f64) -> Choice {
        let mut choice = Choice::new(Decode::Auto, true);
        for batch in 0..20 {
            let share = choice.share();
            let rate = match share {
                1.0 => gpu,
                0.0 => cpu,
                _ => (gpu + cpu) * together,
            };
            // The first batch of each kind is slow.
            let slow = if batch % 4 == 0 { 50.0 } else { 1.0 };
            choice.took(100, Duration::from_secs_f64(slow * 100.0 / rate));
        }
        choice
    }

    #[test]
    fn the_fastest_way_is_kept_and_named() {
        let both = settled(9000.0, 3000.0, 0.95);
        assert!((both.share() - 0.75).abs() < 1e-9, "{both}");
        assert!(both.to_string().starts_with("75 % on the GPU, on the GPU 9000 pictures/s"), "{both}");
        assert_eq!(settled(9000.0, 3000.0, 0.5).share(), 1.0);
        assert_eq!(settled(100.0, 3000.0, 0.5).share(), 0.0);
    }

    #[test]
    fn what_is_given_is_not_measured() {
        for (decode, has_gpu, share) in
            [(Decode::Cpu, true, 0.0), (Decode::Gpu, true, 1.0), (Decode::Auto, false, 0.0)]
        {
            let mut choice = Choice::new(decode, has_gpu);
            (0..20).for_each(|_| choice.took(10, Duration::from_millis(1)));
            assert_eq!(choice.share(), share);
        }
    }
}
