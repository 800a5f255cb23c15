//! The batches of one epoch, as an iterator.

use std::time::Duration;

use feedline_core::{BadSampleReport, Cursor, Result};

use crate::{Batch, Loader};

/// The batches of one epoch, in order; created by [`Loader::epoch`].
///
/// `next` blocks until a batch's copy to the device is queued. An error ends the epoch: after it `next`
/// returns `None`. An epoch never ends early without an error.
pub struct Epoch<'a> {
    loader: &'a mut Loader,
    epoch: u64,
    steps: Option<u64>,
    delivered: u64,
    failed: bool,
}

impl<'a> Epoch<'a> {
    pub(crate) fn new(loader: &'a mut Loader, epoch: u64, steps: Option<u64>) -> Self {
        Self { loader, epoch, steps, delivered: 0, failed: false }
    }

    /// The epoch's number.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Batches from the start of this iterator to the end of the epoch; `None` for a source, whose end is not
    /// known in advance.
    pub fn steps(&self) -> Option<u64> {
        self.steps
    }

    /// The next batch if it is ready; never blocks. `None` means "not yet" or that the epoch is over:
    /// [`is_over`](Self::is_over) tells which.
    ///
    /// # Errors
    /// As the iterator's items.
    pub fn try_next(&mut self) -> Result<Option<Batch>> {
        self.next_timeout(Duration::ZERO)
    }

    /// Like `next`, but blocks for at most `limit`; `None` once it has passed, or if the epoch is over.
    ///
    /// # Errors
    /// As the iterator's items.
    pub fn next_timeout(&mut self, limit: Duration) -> Result<Option<Batch>> {
        self.advance(Some(limit))
    }

    pub(crate) fn loader(&self) -> &Loader {
        self.loader
    }

    /// The position after the batches delivered so far; see [`Loader::cursor`]. To save a run, use
    /// [`checkpoint`](Self::checkpoint).
    pub fn cursor(&self) -> Cursor {
        self.loader.cursor()
    }

    /// The samples that could not be read so far; see [`Loader::bad_sample_report`].
    pub fn bad_sample_report(&self) -> &BadSampleReport {
        self.loader.bad_sample_report()
    }

    /// Whether every batch has been delivered, or an error has ended the epoch.
    pub fn is_over(&self) -> bool {
        self.failed || self.loader.is_at_end()
    }

    fn advance(&mut self, limit: Option<Duration>) -> Result<Option<Batch>> {
        if self.is_over() {
            self.loader.ledger.end();
            return Ok(None);
        }
        let received = self.loader.receive(limit);
        match &received {
            Ok(Some(_)) => self.delivered += 1,
            Ok(None) if self.is_over() => self.loader.ledger.end(),
            Ok(None) => {}
            Err(_) => self.failed = true,
        }
        received
    }
}

impl Iterator for Epoch<'_> {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance(None).transpose()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // The lower bound is 0 because an error may end the epoch early.
        let left = if self.is_over() { Some(0) } else { self.steps.map(|steps| steps - self.delivered) };
        (0, left.and_then(|left| usize::try_from(left).ok()))
    }
}

impl std::fmt::Debug for Epoch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.steps {
            Some(steps) => write!(f, "Epoch({}, {} of {steps} batches)", self.epoch, self.delivered),
            None => write!(f, "Epoch({}, {} batches so far)", self.epoch, self.delivered),
        }
    }
}
