//! Times of device events on the host's clock.

use feedline_core::Result;
use feedline_core::timeline::now;
use feedline_device::{Event, Stream};

/// Differences of events are single-precision milliseconds: after this time the anchor moves, so that they
/// stay exact to a microsecond.
const MOVE_NS: u64 = 10_000_000_000;

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
        let anchor = stream.event(true)?;
        // The first recording may take long; the second one is near the reading of the clock.
        stream.record(&anchor)?;
        anchor.synchronize()?;
        stream.record(&anchor)?;
        anchor.synchronize()?;
        Ok(Self { anchor, host_ns: now() })
    }

    /// When `event`, a timing event that is complete, happened. It may take the anchor's place, so the
    /// caller must record it again before it asks for the time of another one relative to it.
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
