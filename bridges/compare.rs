// Shared by the examples `candle_compare` and `burn_compare`, through links: the samples, and the clock. Both
// loops of a comparison read the same samples by the same function.

use std::time::Instant;

use feedline::{Context, DType, Dataset, ReadError, Row, Spec};
use feedline_datasets::digits::{self, IMAGE_BYTES, Split};

/// Samples of a batch.
pub const BATCH: usize = 128;

/// The images of the test split, in memory or drawn whenever they are read.
#[derive(Clone)]
pub struct Samples {
    spec: Spec,
    labels: Vec<u8>,
    images: Option<Vec<[u8; IMAGE_BYTES]>>,
}

impl Samples {
    /// The samples called `memory` or `drawn`.
    pub fn new(drawn: bool) -> feedline::Result<Self> {
        let labels = digits::labels(Split::Test);
        let draw = |(id, &label): (usize, &u8)| {
            let mut image = [0; IMAGE_BYTES];
            digits::draw(Split::Test, id as u64, label, &mut image);
            image
        };
        let images = (!drawn).then(|| labels.iter().enumerate().map(draw).collect());
        let spec = Spec::new().field("image", DType::U8, [IMAGE_BYTES])?.field("label", DType::I64, [])?;
        Ok(Self { spec, labels, images })
    }

    /// Writes image `id`, and returns its label.
    pub fn read_into(&self, id: usize, image: &mut [u8; IMAGE_BYTES]) -> u8 {
        match &self.images {
            Some(images) => *image = images[id],
            None => digits::draw(Split::Test, id as u64, self.labels[id], image),
        }
        self.labels[id]
    }

    /// The number of samples.
    pub fn count(&self) -> usize {
        self.labels.len()
    }
}

impl Dataset for Samples {
    fn len(&self) -> u64 {
        self.labels.len() as u64
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        let label = self.read_into(id as usize, row.bytes_mut(0).try_into()?);
        row.field_mut::<i64>(1)?[0] = i64::from(label);
        Ok(())
    }
}

/// Measures a loop from before its loader exists.
pub struct Clock {
    start: Instant,
    first: Option<Instant>,
    samples: usize,
    /// Steps to go.
    left: usize,
}

impl Clock {
    /// Starts the clock of a run of `steps` steps.
    fn start(steps: usize) -> Self {
        Self { start: Instant::now(), first: None, samples: 0, left: steps }
    }

    /// A step has been queued; returns whether there are more. `wait` waits for the device, after the first
    /// step only.
    pub fn step(&mut self, rows: usize, wait: impl FnOnce()) -> bool {
        if self.first.is_none() {
            wait();
            self.first = Some(Instant::now());
        } else {
            self.samples += rows;
        }
        self.left = self.left.saturating_sub(1);
        self.left > 0
    }

    /// Prints the row of the table; `wait` waits for the device. The first step is not part of the rate.
    fn finish(self, samples: &str, feed: &str, wait: impl FnOnce()) {
        wait();
        let Some(first) = self.first else { return };
        let rate = self.samples as f64 / first.elapsed().as_secs_f64();
        let first = (first - self.start).as_secs_f64() * 1e3;
        println!("| {samples} | {feed} | {rate:.0} | {first:.1} |");
    }
}

/// Runs `steps` steps for both kinds of samples and each feed, twice, so that a warm-up shows.
pub fn table(
    steps: usize,
    feeds: [&str; 2],
    mut run: impl FnMut(&Samples, &str, Clock) -> feedline::Result<Clock>,
    wait: impl Fn(),
) -> feedline::Result<()> {
    println!("| samples | feed | samples/s | first step, ms |\n| --- | --- | ---: | ---: |");
    for (name, drawn) in [("memory", false), ("drawn", true)] {
        let samples = Samples::new(drawn)?;
        for round in 0..2 {
            for feed in feeds {
                let clock = run(&samples, feed, Clock::start(steps))?;
                clock.finish(&format!("{name}, run {}", round + 1), feed, &wait);
            }
        }
    }
    Ok(())
}
