//! The work of a stream in a trace, timed by events on the device.

use std::borrow::Cow;

use feedline_core::Result;
use feedline_device::{Event, Stream};

use super::{DeviceClock, Lane, Trace};

/// Spans of a stream that can be open at a time; further ones are not recorded until these have ended.
const OPEN: usize = 64;

/// A lane for the work of one stream; created by [`Trace::stream`].
pub struct StreamTrace {
    trace: Trace,
    stream: Stream,
    lane: Lane,
    clock: DeviceClock,
    spans: Vec<OpenSpan>,
    next: usize,
    oldest: usize,
    open: usize,
    /// Whether `begin` has found a free span.
    is_begun: bool,
}

struct OpenSpan {
    start: Event,
    end: Event,
    name: Cow<'static, str>,
}

impl Trace {
    /// A lane called `name` for the work of `stream`. Two events per span give the device's times, converted
    /// to the host's clock. Blocks until the work on the stream so far has ended.
    ///
    /// # Errors
    /// A device failure.
    pub fn stream(&self, stream: &Stream, name: &str) -> Result<StreamTrace> {
        let span = |_| {
            Ok(OpenSpan {
                start: stream.device().timing_event()?,
                end: stream.device().timing_event()?,
                name: Cow::Borrowed(""),
            })
        };
        Ok(StreamTrace {
            trace: self.clone(),
            stream: stream.clone(),
            lane: self.own(name, true),
            clock: DeviceClock::new(stream)?,
            spans: (0..OPEN).map(span).collect::<Result<_>>()?,
            next: 0,
            oldest: 0,
            open: 0,
            is_begun: false,
        })
    }
}

impl StreamTrace {
    /// Work that is queued from now on, until [`end`](Self::end), is drawn as one span.
    ///
    /// # Errors
    /// A device failure.
    pub fn begin(&mut self, name: impl Into<Cow<'static, str>>) -> Result<()> {
        self.collect()?;
        self.is_begun = self.open < OPEN;
        if self.is_begun {
            let span = &mut self.spans[self.next];
            span.name = name.into();
            self.stream.record(&span.start)?;
        }
        Ok(())
    }

    /// Ends the span.
    ///
    /// # Errors
    /// A device failure.
    pub fn end(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_begun) {
            self.stream.record(&self.spans[self.next].end)?;
            self.next = (self.next + 1) % OPEN;
            self.open += 1;
        }
        Ok(())
    }

    /// Waits for the work of the open spans, and records them.
    ///
    /// # Errors
    /// A device failure.
    pub fn finish(&mut self) -> Result<()> {
        self.stream.synchronize()?;
        self.collect()
    }

    fn collect(&mut self) -> Result<()> {
        while self.open > 0 {
            let span = &mut self.spans[self.oldest];
            if !span.end.query()? {
                break;
            }
            let start = self.clock.time(&mut span.start)?;
            let end = self.clock.time(&mut span.end)?;
            self.trace.record_own(self.lane, std::mem::take(&mut span.name), start, end);
            self.oldest = (self.oldest + 1) % OPEN;
            self.open -= 1;
        }
        Ok(())
    }
}

impl std::fmt::Debug for StreamTrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StreamTrace({} spans open)", self.open)
    }
}
