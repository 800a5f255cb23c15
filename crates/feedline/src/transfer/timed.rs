//! Times a sample of a stream's copies, or of other work that fills device slots, by events.
//!
//! Three events for each copy would add half to the driver's calls. So one copy per five milliseconds is
//! timed, or a few at once after a pause. That costs less than a thousandth of the time, and covers every
//! copy if steps are longer than that.

use std::sync::{Arc, Mutex, PoisonError};

use feedline_core::Result;
use feedline_device::device_slots::WriteLease;
use feedline_device::{Event, Stream};

use crate::report::CopyRates;
use crate::trace::{BatchId, DeviceClock, Lane, LoaderTrace};

/// The mean time between two timed copies, in nanoseconds.
const EVERY_NS: u64 = 5_000_000;

/// Copies that may be timed at once after a pause.
const BURST: u64 = 4;

/// The maximum number of timed copies in flight. Further copies are not timed.
const OPEN: usize = 8;

/// Times copies of one stream, or the work of a lane of the device map.
pub(crate) struct TimedCopies {
    samples: Vec<Sample>,
    /// The next sample to begin, and the oldest one that is running.
    next: usize,
    oldest: usize,
    running: usize,
    /// Grows by [`EVERY_NS`] with each timed copy; lags behind the clock by at most a burst.
    last: u64,
    /// Nanoseconds of the last timed copy, and of its wait for the readers of the device slot.
    times: (u64, u64),
    /// The lane and the name of the copies in a trace.
    shown: (Lane, &'static str),
    /// With a trace, every copy is timed if an event is free.
    trace: Option<(LoaderTrace, DeviceClock)>,
    /// Where the copies of [`count`](Self::count) are counted.
    rates: Option<Arc<Mutex<CopyRates>>>,
}

struct Sample {
    /// Recorded after the previous copy.
    queued: Event,
    /// Recorded after the wait for the slot's readers.
    started: Arc<Event>,
    ended: Event,
    batch: BatchId,
    /// What to count once the copy has ended: its bytes, and whether no host slot was being filled meanwhile.
    counted: Option<(usize, bool)>,
}

impl TimedCopies {
    /// Creates the events. A trace has the copies in the lane and under the name of `shown`.
    ///
    /// # Errors
    /// A device failure.
    pub(crate) fn new(
        stream: &Stream,
        shown: (Lane, &'static str),
        trace: Option<LoaderTrace>,
    ) -> Result<Self> {
        let sample = |_| {
            Ok(Sample {
                queued: stream.device().timing_event()?,
                started: Arc::new(stream.device().timing_event()?),
                ended: stream.device().timing_event()?,
                batch: BatchId::default(),
                counted: None,
            })
        };
        Ok(Self {
            samples: (0..OPEN).map(sample).collect::<Result<_>>()?,
            next: 0,
            oldest: 0,
            running: 0,
            last: 0,
            times: (0, 0),
            shown,
            trace: match trace {
                Some(trace) => Some((trace, DeviceClock::new(stream)?)),
                None => None,
            },
            rates: None,
        })
    }

    /// Counts copies in `rates`.
    pub(crate) fn counted(self, rates: Option<Arc<Mutex<CopyRates>>>) -> Self {
        Self { rates, ..self }
    }

    /// The nanoseconds of the last timed copy that has ended, and of its wait for the readers of the device
    /// slot.
    ///
    /// # Errors
    /// A device failure.
    pub(crate) fn times(&mut self) -> Result<(u64, u64)> {
        self.collect()?;
        Ok(self.times)
    }

    /// Whether a traced copy is still running.
    pub(crate) fn has_undrawn(&self) -> bool {
        self.trace.is_some() && self.running > 0
    }

    /// Adds the copies that have ended to the trace, if there is one.
    ///
    /// # Errors
    /// A device failure.
    pub(crate) fn draw(&mut self) -> Result<()> {
        if self.has_undrawn() { self.collect() } else { Ok(()) }
    }

    /// Prepares to time the copy into `slot` if a sample is due. `true` asks for [`end`](Self::end) once the
    /// copy is queued.
    ///
    /// # Errors
    /// A device failure.
    pub(crate) fn begin(&mut self, stream: &Stream, slot: &mut WriteLease, at: u64) -> Result<bool> {
        if at.saturating_sub(self.last) < EVERY_NS && self.trace.is_none() {
            return Ok(false);
        }
        self.collect()?;
        if self.running == OPEN {
            return Ok(false);
        }
        self.last = at.saturating_sub(BURST * EVERY_NS).max(self.last) + EVERY_NS;
        let sample = &self.samples[self.next];
        stream.record(&sample.queued)?;
        slot.record_copy_start(&sample.started);
        Ok(true)
    }

    /// Counts the copy that is timed, of `bytes` bytes; called before its [`end`](Self::end). `is_alone`: no
    /// host slot is being filled.
    pub(crate) fn count(&mut self, bytes: usize, is_alone: bool) {
        self.samples[self.next].counted = Some((bytes, is_alone));
    }

    /// The copy of `batch` is queued.
    ///
    /// # Errors
    /// A device failure.
    pub(crate) fn end(&mut self, stream: &Stream, batch: BatchId) -> Result<()> {
        self.samples[self.next].batch = batch;
        stream.record(&self.samples[self.next].ended)?;
        self.next = (self.next + 1) % OPEN;
        self.running += 1;
        Ok(())
    }

    /// Reads the events of the copies that have ended.
    fn collect(&mut self) -> Result<()> {
        while self.running > 0 {
            let sample = &mut self.samples[self.oldest];
            if !sample.ended.query()? {
                break;
            }
            let ns = |ms: f32| (f64::from(ms) * 1e6) as u64;
            let copy_ns = ns(sample.ended.elapsed_ms_since(&sample.started)?);
            let readers_ns = ns(sample.started.elapsed_ms_since(&sample.queued)?);
            self.times = (copy_ns, readers_ns);
            if let (Some((bytes, is_alone)), Some(rates)) = (sample.counted.take(), &self.rates) {
                rates.lock().unwrap_or_else(PoisonError::into_inner).add(bytes, is_alone, copy_ns);
            }
            if let Some((trace, clock)) = &mut self.trace {
                let ended = clock.time(&mut sample.ended)?;
                let started = ended.saturating_sub(copy_ns);
                let times = [started.saturating_sub(readers_ns), started, ended];
                trace.ran(self.shown, sample.batch, times);
            }
            self.oldest = (self.oldest + 1) % OPEN;
            self.running -= 1;
        }
        Ok(())
    }
}
