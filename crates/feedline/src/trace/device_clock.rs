//! Times of device events on the host's clock.

use feedline_core::timeline::now;
use feedline_core::{Error, ErrorKind, Result};
use feedline_device::{Event, Stream};

/// CUDA states differences of events in single-precision milliseconds. After this time the anchor moves, so
/// that differences stay exact to a microsecond.
const MOVE_NS: u64 = 10_000_000_000;

/// How often the clocks are compared at the start.
const TRIES: usize = 5;

/// An event whose time on the host's clock is known.
pub(crate) struct DeviceClock {
    anchor: Event,
    host_ns: u64,
}

impl DeviceClock {
    /// Blocks until the work of `stream` so far has ended.
    ///
    /// # Errors
    /// A device failure.
    pub(crate) fn new(stream: &Stream) -> Result<Self> {
        stream.synchronize()?;
        // The anchor happened between two readings of the clock. A thread that is preempted reads the clock
        // late, so the try with the shortest interval counts.
        let mut best: Option<(u64, Event, u64)> = None;
        for _ in 0..TRIES {
            let (anchor, before) = (stream.device().timing_event()?, now());
            stream.record(&anchor)?;
            while !anchor.query()? {
                std::thread::yield_now();
            }
            let after = now();
            if best.as_ref().is_none_or(|(width, ..)| after - before < *width) {
                best = Some((after - before, anchor, before + (after - before) / 2));
            }
        }
        let Some((_, anchor, host_ns)) = best else {
            return Err(Error::new(ErrorKind::Device, "the device's clock was not read"));
        };
        Ok(Self { anchor, host_ns })
    }

    /// The time of `event`, a timing event that is complete. The event may become the new anchor, in exchange
    /// for the old one, so the caller must record it again before further use.
    ///
    /// # Errors
    /// A device failure.
    pub(crate) fn time(&mut self, event: &mut Event) -> Result<u64> {
        let ms = event.elapsed_ms_since(&self.anchor)?;
        let ns = self.host_ns.saturating_add_signed((f64::from(ms) * 1e6) as i64);
        if ns > self.host_ns + MOVE_NS {
            std::mem::swap(&mut self.anchor, event);
            self.host_ns = ns;
        }
        Ok(ns)
    }
}
