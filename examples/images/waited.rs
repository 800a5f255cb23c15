//! The share of the training time in which the device has no step to run, because it waits for data.

use std::time::{Duration, Instant};

use feedline::{Event, Result, Stream};

/// Measures every step by two events of the compute stream. The first one is recorded after the wait for the
/// step's batch, so the time between two steps is time without data, on the device's own clock. It is the
/// same for batches that the workers decode and for those that lanes decode.
///
/// A gap between two kernels of a step counts as work, and so does the slowdown of a step by a decoder on the
/// same device: look at the rate too. A few batches are read ahead between two epochs, while the accuracy is
/// tested; their waits are not counted.
pub struct Waited {
    stream: Stream,
    /// Before and after each step of an epoch; reused in the next one.
    events: Vec<[Event; 2]>,
    /// Steps of this epoch.
    steps: usize,
    start: Instant,
    /// Of all epochs, and of the last one.
    all: Spent,
    last: Spent,
}

/// The time of the training and of its steps.
#[derive(Clone, Copy, Default)]
pub struct Spent {
    pub steps: usize,
    /// From the first request for a batch to the end of the last step.
    pub whole: Duration,
    /// The sum of all steps, on the device's clock.
    pub in_steps: Duration,
}

impl Spent {
    /// The share of the time without a step, in percent.
    pub fn percent_waited(&self) -> f64 {
        100.0 * (1.0 - self.in_steps.as_secs_f64() / self.whole.as_secs_f64().max(1e-9)).max(0.0)
    }
}

impl Waited {
    pub fn new(stream: &Stream) -> Self {
        Self {
            stream: stream.clone(),
            events: Vec::new(),
            steps: 0,
            start: Instant::now(),
            all: Spent::default(),
            last: Spent::default(),
        }
    }

    /// Begins an epoch. The stream has no work.
    pub fn begin(&mut self) {
        (self.steps, self.start) = (0, Instant::now());
    }

    /// Lets `work` queue a step. The stream waits for its batch already.
    pub fn step(&mut self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.steps == self.events.len() {
            self.events.push([self.stream.device().timing_event()?, self.stream.device().timing_event()?]);
        }
        let [before, after] = &self.events[self.steps];
        self.stream.record(before)?;
        work()?;
        self.stream.record(after)?;
        self.steps += 1;
        Ok(())
    }

    /// Ends the epoch: waits for its last step.
    pub fn end(&mut self) -> Result<()> {
        self.stream.synchronize()?;
        let mut milliseconds = 0.0;
        for [before, after] in &self.events[..self.steps] {
            milliseconds += f64::from(after.elapsed_ms_since(before)?);
        }
        let (steps, whole) = (self.steps, self.start.elapsed());
        self.last = Spent { steps, whole, in_steps: Duration::from_secs_f64(milliseconds / 1e3) };
        self.all.steps += self.last.steps;
        self.all.whole += self.last.whole;
        self.all.in_steps += self.last.in_steps;
        Ok(())
    }

    /// Of all epochs, and of the last one.
    pub fn spent(&self) -> [Spent; 2] {
        [self.all, self.last]
    }
}
