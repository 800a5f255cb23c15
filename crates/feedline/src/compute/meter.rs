//! Measures how long a compute stream is idle because it waits for data, from event times on a sample of the
//! steps.

use std::time::{Duration, Instant};

use feedline_core::Result;
use feedline_device::{Event, Stream};

use crate::{Batch, Ready};

/// Samples that can be open at a time. A step that finds none free is not measured.
const OPEN: usize = 8;

/// Measures the share of a training loop's time in which its stream is idle because it waits for data.
///
/// That is while the host is blocked in `next` and the stream has no work left, and while the stream itself
/// waits for a copy. It is less than the waits of the host's thread
/// ([`Report::wait_share`](crate::report::Report::wait_share)), which include time in which the stream still
/// has work. Host work between steps, kernels and launch gaps do not count. One step in `period` is measured,
/// with four timing events; the other steps cost nothing.
///
/// Call [`begin`](Self::begin) before asking for the next batch, [`wait_on`](Self::wait_on) instead of
/// [`Batch::wait_on`], and [`end`](Self::end) once the step's work is queued on the stream.
pub struct WaitMeter {
    stream: Stream,
    period: u64,
    step: u64,
    samples: Vec<Sample>,
    /// The sample of the current step.
    current: Option<usize>,
    asked: Instant,
    waited_ms: f64,
    total_ms: f64,
    measured: u64,
}

struct Sample {
    /// The end of the previous step.
    start: Event,
    /// Before and after the wait for the copy.
    before: Event,
    after: Event,
    /// The end of the step.
    end: Event,
    host_ms: f64,
    open: bool,
}

impl WaitMeter {
    /// A meter for `stream` that measures one step in `period`.
    ///
    /// # Errors
    /// A device failure.
    pub fn new(stream: &Stream, period: u64) -> Result<Self> {
        let sample = |_| {
            Ok(Sample {
                start: stream.device().timing_event()?,
                before: stream.device().timing_event()?,
                after: stream.device().timing_event()?,
                end: stream.device().timing_event()?,
                host_ms: 0.0,
                open: false,
            })
        };
        Ok(Self {
            stream: stream.clone(),
            period: period.max(1),
            step: 0,
            samples: (0..OPEN).map(sample).collect::<Result<_>>()?,
            current: None,
            asked: Instant::now(),
            waited_ms: 0.0,
            total_ms: 0.0,
            measured: 0,
        })
    }

    /// Call this before asking for the next batch.
    #[doc(hidden)] // For the crates of this repository.
    pub fn begin(&mut self) {
        self.asked = Instant::now();
    }

    /// Calls [`Batch::wait_on`] with this meter's stream, and measures the wait.
    ///
    /// # Errors
    /// As [`Batch::wait_on`].
    pub fn wait_on(&mut self, batch: Batch) -> Result<Ready> {
        let Some(index) = self.current else { return batch.wait_on(&self.stream) };
        let sample = &mut self.samples[index];
        sample.host_ms = ms(self.asked.elapsed());
        self.stream.record(&sample.before)?;
        let ready = batch.wait_on(&self.stream)?;
        self.stream.record(&sample.after)?;
        Ok(ready)
    }

    /// Call this once the step's work is queued on the stream.
    ///
    /// # Errors
    /// A device failure.
    #[doc(hidden)] // For the crates of this repository.
    pub fn end(&mut self) -> Result<()> {
        if let Some(index) = self.current.take() {
            self.stream.record(&self.samples[index].end)?;
        }
        self.step += 1;
        if !self.step.is_multiple_of(self.period) {
            return Ok(());
        }
        self.collect()?;
        if let Some(index) = self.samples.iter().position(|sample| !sample.open) {
            self.stream.record(&self.samples[index].start)?;
            self.samples[index].open = true;
            self.current = Some(index);
        }
        Ok(())
    }

    /// The share of time in which the stream was idle because it waited for data, from 0 to 1, over the
    /// measured steps that have finished.
    ///
    /// # Errors
    /// A device failure.
    pub fn idle_share(&mut self) -> Result<f64> {
        self.collect()?;
        Ok(if self.total_ms > 0.0 { (self.waited_ms / self.total_ms).clamp(0.0, 1.0) } else { 0.0 })
    }

    /// How long a step takes on the stream without its waits for data, as a mean over the measured steps;
    /// `None` before the first.
    ///
    /// # Errors
    /// A device failure.
    pub fn step_time(&mut self) -> Result<Option<Duration>> {
        self.collect()?;
        let busy_ms = (self.total_ms - self.waited_ms).max(0.0);
        Ok((self.measured > 0).then(|| Duration::from_secs_f64(busy_ms / 1e3 / self.measured as f64)))
    }

    /// Steps measured so far.
    #[doc(hidden)] // For the crates of this repository.
    pub fn measured(&self) -> u64 {
        self.measured
    }

    fn collect(&mut self) -> Result<()> {
        for (index, sample) in self.samples.iter_mut().enumerate() {
            if !sample.open || self.current == Some(index) || !sample.end.query()? {
                continue;
            }
            let idle_ms = f64::from(sample.before.elapsed_ms_since(&sample.start)?);
            let copy_ms = f64::from(sample.after.elapsed_ms_since(&sample.before)?);
            self.waited_ms += idle_ms.min(sample.host_ms).max(0.0) + copy_ms.max(0.0);
            self.total_ms += f64::from(sample.end.elapsed_ms_since(&sample.start)?);
            self.measured += 1;
            sample.open = false;
        }
        Ok(())
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl std::fmt::Debug for WaitMeter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WaitMeter({} of {} steps)", self.measured, self.step)
    }
}
