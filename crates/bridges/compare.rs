// Shared by the examples `candle_compare` and `burn_compare`, through links: the samples, the clock and the
// table. All loops of a comparison read the same samples by the same function.

use std::time::{Duration, Instant};

use feedline::{Context, DType, Dataset, ReadError, Row, Spec};
use feedline_datasets::Split;
use feedline_digits::{self as digits, IMAGE_BYTES};

/// Samples of a batch.
pub const BATCH: usize = 128;

/// The feed that has no loader: the same batch for every step.
pub const ALONE: &str = "one batch again and again";

/// The kinds of samples: a name, and how many times each read draws the image.
const KINDS: [(&str, u32); 3] = [("in memory", 0), ("drawn", 1), ("drawn 16 times", 16)];

/// The command-line options.
pub struct Options {
    /// Length of one run.
    pub length: Duration,
    pub workers: usize,
    pub rounds: usize,
}

impl Options {
    /// Reads `[SECONDS] [WORKERS] [ROUNDS]`.
    pub fn read() -> Result<Self, Box<dyn std::error::Error>> {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let word = |at: usize, default: &'static str| words.get(at).map_or(default, String::as_str);
        let length = Duration::try_from_secs_f64(word(0, "3").parse()?)?;
        Ok(Self { length, workers: word(1, "2").parse()?, rounds: word(2, "3").parse()? })
    }
}

/// The images of the test split, in memory or drawn at each read.
#[derive(Clone)]
pub struct Samples {
    spec: Spec,
    labels: Vec<u8>,
    images: Option<Vec<[u8; IMAGE_BYTES]>>,
    draws: u32,
}

impl Samples {
    /// Samples whose image is drawn `draws` times at each read; with 0 the images are in memory.
    fn new(draws: u32) -> feedline::Result<Self> {
        let labels = digits::labels(Split::Test);
        let draw = |(id, &label): (usize, &u8)| {
            let mut image = [0; IMAGE_BYTES];
            digits::draw(Split::Test, id as u64, label, &mut image);
            image
        };
        let images = (draws == 0).then(|| labels.iter().enumerate().map(draw).collect());
        let spec = Spec::new().field("image", DType::U8, [IMAGE_BYTES])?.field("label", DType::I64, [])?;
        Ok(Self { spec, labels, images, draws })
    }

    /// Writes image `id`, and returns its label.
    pub fn read_into(&self, id: usize, image: &mut [u8; IMAGE_BYTES]) -> u8 {
        match &self.images {
            Some(images) => *image = images[id],
            None => (0..self.draws).for_each(|_| {
                digits::draw(Split::Test, id as u64, self.labels[id], std::hint::black_box(&mut *image));
            }),
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

/// Measures a loop from before its loader exists. The first step is not part of the rate.
pub struct Clock {
    length: Duration,
    start: Instant,
    first: Option<Instant>,
    samples: usize,
}

impl Clock {
    fn start(length: Duration) -> Self {
        Self { length, start: Instant::now(), first: None, samples: 0 }
    }

    /// A step has been queued; returns whether there is time for more. `wait` waits for the device, after the
    /// first step only.
    pub fn step(&mut self, rows: usize, wait: impl FnOnce()) -> bool {
        let Some(first) = self.first else {
            wait();
            self.first = Some(Instant::now());
            return true;
        };
        self.samples += rows;
        first.elapsed() < self.length
    }

    /// Samples per second, and milliseconds to the end of the first step; `wait` waits for the device.
    fn finish(self, wait: impl FnOnce()) -> (f64, f64) {
        wait();
        let first = self.first.unwrap_or(self.start);
        let rate = self.samples as f64 / first.elapsed().as_secs_f64();
        (rate, (first - self.start).as_secs_f64() * 1e3)
    }
}

/// Runs every feed on each kind of samples, in rounds that go forwards and backwards through `feeds`, and
/// prints the medians. A ratio compares two runs of one round: a feed, and the first of `feeds`.
pub fn table(
    options: &Options,
    feeds: &[&str],
    mut run: impl FnMut(&Samples, &str, Clock) -> feedline::Result<Clock>,
    wait: impl Fn(),
) -> feedline::Result<()> {
    let Options { length, workers, rounds } = options;
    println!("batch {BATCH}, {workers} workers, {rounds} rounds of {length:?}: median (least to most)");
    println!(
        "| samples | feed | samples/s | over the first | first step, ms |\n| --- | --- | --- | --- | --- |"
    );
    for (kind, draws) in KINDS {
        let samples = Samples::new(draws)?;
        // The loop without a loader is the same for every kind.
        let feeds: Vec<&str> = feeds.iter().copied().filter(|&feed| draws == 0 || feed != ALONE).collect();
        // For each feed, one entry a round.
        let mut found = vec![Vec::with_capacity(*rounds); feeds.len()];
        for feed in &feeds {
            // Kernels are compiled, and caches warm, before the first round.
            run(&samples, feed, Clock::start(*length / 10))?;
            wait();
        }
        for round in 0..*rounds {
            let mut turns: Vec<_> = feeds.iter().zip(&mut found).collect();
            if round % 2 == 1 {
                turns.reverse();
            }
            for (feed, runs) in turns {
                runs.push(run(&samples, feed, Clock::start(*length))?.finish(&wait));
            }
        }
        for (feed, runs) in feeds.iter().zip(&found) {
            let rates = spread(runs.iter().map(|run| run.0), 0);
            let ratios = spread(runs.iter().zip(&found[0]).map(|(run, usual)| run.0 / usual.0), 2);
            println!(
                "| {kind} | {feed} | {rates} | {ratios} | {} |",
                spread(runs.iter().map(|run| run.1), 1)
            );
        }
    }
    Ok(())
}

/// The median, the minimum and the maximum of some numbers.
fn spread(numbers: impl Iterator<Item = f64>, digits: usize) -> String {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (numbers.first(), numbers.last()) else { return "-".to_owned() };
    format!("{:.digits$} ({least:.digits$} to {most:.digits$})", numbers[numbers.len() / 2])
}
