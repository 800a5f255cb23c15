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

/// Batches after which the shares of both have settled.
const SETTLING: u64 = 8;

/// How far one batch moves the rates that the shares follow.
const SMOOTHING: f64 = 0.3;

/// What one side decoded of a batch, and how long it took while the other side worked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    pub(super) pictures: usize,
    pub(super) time: Duration,
}

impl Part {
    fn rate(&self) -> f64 {
        self.pictures as f64 / self.time.as_secs_f64().max(1e-9)
    }
}

/// A way to decode, with the time that it took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Way {
    /// The GPU's share of the pictures.
    share: f64,
    /// Batches that are not measured.
    warm_up: u64,
    batches: u64,
    pictures: u64,
    seconds: f64,
}

impl Way {
    fn new(share: f64, warm_up: u64) -> Self {
        Self { share, warm_up, ..Self::default() }
    }

    fn rate(&self) -> f64 {
        self.pictures as f64 / self.seconds.max(1e-9)
    }

    fn is_measured(&self) -> bool {
        self.batches >= self.warm_up + MEASURED
    }
}

/// The GPU's share of the pictures: given, or being measured.
#[derive(Debug)]
pub(super) enum Choice {
    Given(f64),
    Measured(Measured),
}

/// The GPU alone, then the CPU alone, then both in the shares of their rates; the fastest is kept.
#[derive(Debug)]
pub(super) struct Measured {
    ways: Vec<Way>,
    /// Pictures per second of the GPU and of the CPU while both work. Each is slower than alone: the thread
    /// that feeds the GPU needs a core, and other threads decode too.
    rates: [f64; 2],
}

impl Choice {
    pub(super) fn new(decode: Decode, has_gpu: bool) -> Self {
        match decode {
            Decode::Cpu => Self::Given(0.0),
            Decode::Gpu => Self::Given(1.0),
            Decode::Auto if !has_gpu => Self::Given(0.0),
            Decode::Auto => Self::Measured(Measured { ways: vec![Way::new(1.0, 1)], rates: [0.0; 2] }),
        }
    }

    /// The GPU's share of the next batch.
    pub(super) fn share(&self) -> f64 {
        match self {
            Self::Given(share) => *share,
            Self::Measured(measured) => measured.share(),
        }
    }

    /// A batch took so long, with so much of it on the GPU and on the CPU.
    pub(super) fn took(&mut self, time: Duration, gpu: Part, cpu: Part) {
        if let Self::Measured(measured) = self {
            measured.follow(gpu, cpu);
            measured.count(gpu.pictures + cpu.pictures, time);
        }
    }
}

impl Measured {
    fn share(&self) -> f64 {
        match self.ways.last() {
            Some(way) if !way.is_measured() => way.share,
            _ => best(&self.ways).share,
        }
    }

    /// Shares in which both sides take equally long.
    fn follow(&mut self, gpu: Part, cpu: Part) {
        let [_, _, both] = &mut self.ways[..] else { return };
        if gpu.pictures == 0 || cpu.pictures == 0 {
            return;
        }
        for (rate, part) in self.rates.iter_mut().zip([gpu, cpu]) {
            *rate += SMOOTHING * (part.rate() - *rate);
        }
        both.share = self.rates[0] / (self.rates[0] + self.rates[1]);
    }

    fn count(&mut self, pictures: usize, time: Duration) {
        let Some(way) = self.ways.last_mut().filter(|way| !way.is_measured()) else { return };
        if way.batches >= way.warm_up {
            way.pictures += pictures as u64;
            way.seconds += time.as_secs_f64();
        }
        way.batches += 1;
        if !way.is_measured() {
            return;
        }
        match self.ways[..] {
            [_] => self.ways.push(Way::new(0.0, 1)),
            [gpu, cpu] => {
                self.rates = [gpu.rate(), cpu.rate()];
                self.ways.push(Way::new(gpu.rate() / (gpu.rate() + cpu.rate()), SETTLING));
            }
            _ => {}
        }
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
            Self::Measured(Measured { ways, .. }) => {
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

    /// Lets a choice decode batches of 200 on a GPU and a CPU of such rates, alone and beside the other.
    fn settled(alone: [f64; 2], beside: [f64; 2]) -> Choice {
        let mut choice = Choice::new(Decode::Auto, true);
        for batch in 0..40 {
            let on_gpu = (choice.share() * 200.0).round() as usize;
            let rates = if on_gpu.is_multiple_of(200) { alone } else { beside };
            // The first batch of each kind is slow.
            let slow = if batch % 4 == 0 && batch < 9 { 50.0 } else { 1.0 };
            let part = |pictures: usize, rate: f64| Part {
                pictures,
                time: Duration::from_secs_f64(slow * pictures as f64 / rate),
            };
            let [gpu, cpu] = [part(on_gpu, rates[0]), part(200 - on_gpu, rates[1])];
            choice.took(gpu.time.max(cpu.time), gpu, cpu);
        }
        choice
    }

    #[test]
    fn the_fastest_way_is_kept_and_named() {
        let both = settled([9000.0, 3000.0], [9000.0, 3000.0]);
        assert!((both.share() - 0.75).abs() < 0.01, "{both}");
        assert!(both.to_string().starts_with("75 % on the GPU, on the GPU 9000 pictures/s"), "{both}");
        assert_eq!(settled([9000.0, 3000.0], [4000.0, 1500.0]).share(), 1.0);
        assert_eq!(settled([100.0, 3000.0], [50.0, 1500.0]).share(), 0.0);
    }

    #[test]
    fn shares_follow_the_rates_that_both_have_together() {
        let both = settled([8000.0, 6000.0], [7600.0, 2000.0]);
        assert!((both.share() - 0.79).abs() < 0.02, "{both}");
    }

    #[test]
    fn what_is_given_is_not_measured() {
        for (decode, has_gpu, share) in
            [(Decode::Cpu, true, 0.0), (Decode::Gpu, true, 1.0), (Decode::Auto, false, 0.0)]
        {
            let mut choice = Choice::new(decode, has_gpu);
            let part = Part { pictures: 10, time: Duration::from_millis(1) };
            (0..20).for_each(|_| choice.took(part.time, part, Part::default()));
            assert_eq!(choice.share(), share);
        }
    }
}
