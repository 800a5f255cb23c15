//! Measures how long a compute stream is idle because it waits for data. Some of the steps are measured, by
//! events.

use std::time::{Duration, Instant};

use feedline::{Batch, Event, Ready, Result, Stream};

/// Max measurements that are open at a time. A step is not measured if all are open.
const OPEN: usize = 8;

/// Measures the share of a training loop's time in which its stream is idle because it waits for data.
///
/// The stream counts as idle while the host is blocked in `next` and the stream has no work left, and while
/// the stream itself waits for a copy. This is less than the waits of the host's thread
/// ([`Account::wait_share`](feedline::report::Account::wait_share)), which include time in which the stream
/// still has work. Host work between steps, kernels and launch gaps do not count. One step in `period` is
/// measured, with four timing events. The other steps cost nothing.
///
/// Call [`begin`](Self::begin) before asking for the next batch, [`wait_on`](Self::wait_on) instead of
/// [`Batch::wait_on`], and [`end`](Self::end) once the step's work is queued on the stream.
pub struct WaitMeter {
    stream: Stream,
    period: u64,
    step: u64,
    samples: Vec<Sample>,
    /// The measurement of the current step.
    current: Option<usize>,
    asked: Instant,
    waited_ms: f64,
    total_ms: f64,
    measured: u64,
}

struct Sample {
    /// The end of the previous step.
    start: Event,
    /// Events before and after the wait for the copy.
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
    pub fn begin(&mut self) {
        self.asked = Instant::now();
    }

    /// Calls [`Batch::wait_on`] with this meter's stream, and measures the wait.
    ///
    /// # Errors
    /// As [`Batch::wait_on`].
    pub fn wait_on(&mut self, batch: Batch) -> Result<Ready> {
        self.measure(|stream| batch.wait_on(stream))
    }

    /// Calls `wait`, which makes the stream wait for data, and measures the wait.
    fn measure<T>(&mut self, wait: impl FnOnce(&Stream) -> Result<T>) -> Result<T> {
        let Some(index) = self.current else { return wait(&self.stream) };
        let sample = &mut self.samples[index];
        sample.host_ms = ms(self.asked.elapsed());
        self.stream.record(&sample.before)?;
        let ready = wait(&self.stream)?;
        self.stream.record(&sample.after)?;
        Ok(ready)
    }

    /// Call this once the step's work is queued on the stream.
    ///
    /// # Errors
    /// A device failure.
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

    /// The share of time in which the stream was idle because it waited for data, from 0 to 1. It covers the
    /// measured steps that have finished.
    ///
    /// # Errors
    /// A device failure.
    pub fn idle_share(&mut self) -> Result<f64> {
        self.collect()?;
        Ok(if self.total_ms > 0.0 { (self.waited_ms / self.total_ms).clamp(0.0, 1.0) } else { 0.0 })
    }

    /// The mean time of a step on the stream without its waits for data, over the measured steps; `None`
    /// before the first measured step.
    ///
    /// # Errors
    /// A device failure.
    pub fn step_time(&mut self) -> Result<Option<Duration>> {
        self.collect()?;
        let busy_ms = (self.total_ms - self.waited_ms).max(0.0);
        Ok((self.measured > 0).then(|| Duration::from_secs_f64(busy_ms / 1e3 / self.measured as f64)))
    }

    /// Steps measured so far.
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

#[cfg(test)]
mod tests {
    use feedline::{Device, ErrorKind, InMemory, Loader};
    use feedline_device::{Memory, host::Host, launch_host};
    use feedline_sim::interceptors::count::{CountHandle, Snapshot};
    use feedline_sim::interceptors::{Count, Op};
    use feedline_testkit::{watchdog::LIMIT, with_watchdog};

    use super::*;

    fn counted() -> (CountHandle, Stream) {
        let backend = Count::new(Host::new());
        let count = backend.handle();
        (count, feedline_device::with_backend(backend).stream().unwrap())
    }

    fn step(meter: &mut WaitMeter) {
        meter.begin();
        meter.measure(|_| Ok(())).unwrap();
        meter.end().unwrap();
    }

    #[test]
    fn a_batch_of_another_device_is_refused() {
        with_watchdog(LIMIT, || {
            let numbers = InMemory::new().field("x", [], [1_u8, 2]).unwrap();
            let mut loader = Loader::builder(numbers).depth(1).build(&Device::new_host()).unwrap();
            let mut meter = WaitMeter::new(&Device::new_host().stream().unwrap(), 1).unwrap();
            // The slot is free again after the error, so the second batch can arrive in it.
            for batch in loader.epoch(0).unwrap() {
                meter.begin();
                let error = meter.wait_on(batch.unwrap()).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Config, "{error}");
                // The error distinguishes two devices with the same name.
                assert!(error.to_string().contains("belongs to host (device #"), "{error}");
                assert!(error.to_string().contains("not to host (device #"), "{error}");
            }
        });
    }

    /// Runs `steps` steps with a meter of `period`. Returns the meter and the driver calls of the steps.
    fn metered(period: u64, steps: u64) -> (WaitMeter, Snapshot) {
        let (count, compute) = counted();
        let mut meter = WaitMeter::new(&compute, period).unwrap();
        assert_eq!((meter.idle_share().unwrap(), meter.measured()), (0.0, 0), "before the first step");
        let before = count.snapshot();
        for _ in 0..steps {
            step(&mut meter);
            compute.synchronize().unwrap();
        }
        let made = count.snapshot() - before;
        (meter, made)
    }

    #[test]
    fn one_step_per_period_is_measured_and_the_others_cost_nothing() {
        with_watchdog(LIMIT, || {
            let steps = 40;
            let (mut every, _) = metered(1, steps);
            let share = every.idle_share().unwrap();
            // The first step has no start event, because no step precedes it.
            assert_eq!(every.measured(), steps - 1);
            assert!((0.0..=1.0).contains(&share), "{share}");

            let (mut some, made) = metered(8, steps);
            some.idle_share().unwrap();
            assert_eq!(some.measured(), steps / 8 - 1);
            let (_, without) = metered(u64::MAX, steps);
            assert_eq!((without.of(Op::Record), without.of(Op::Elapsed)), (0, 0));
            // There are four events per measured step, and the start event of the open measurement.
            assert_eq!(made.of(Op::Record), 4 * (steps / 8 - 1) + 1);
            assert_eq!(made.created(), 0, "the meter creates its events when it is created");
        });
    }

    #[test]
    fn a_meter_without_a_free_sample_skips_steps() {
        with_watchdog(LIMIT, || {
            let (_, compute) = counted();
            let mut meter = WaitMeter::new(&compute, 1).unwrap();
            // While the stream is blocked no step finishes, so no sample can be complete.
            let (go, wait) = std::sync::mpsc::channel::<()>();
            let block = move |_: &mut Memory<'_>| {
                let _ = wait.recv_timeout(LIMIT);
            };
            launch_host(&compute, "block", [], [], block).unwrap();
            (0..20).for_each(|_| step(&mut meter));
            go.send(()).unwrap();
            compute.synchronize().unwrap();
            meter.idle_share().unwrap();
            assert!((1..=8).contains(&meter.measured()), "{} of 20", meter.measured());
        });
    }
}
