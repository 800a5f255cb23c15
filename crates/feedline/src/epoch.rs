//! The batches of one epoch, as an iterator.

use std::iter::FusedIterator;
use std::time::Duration;

use feedline_core::Result;

use crate::{Batch, Loader, Progress};

/// The result of [`Epoch::try_next`] and [`Epoch::next_timeout`].
#[derive(Debug)]
#[must_use = "a batch that is dropped unread was decoded and copied for nothing"]
pub enum TryNext {
    /// The next batch.
    Batch(Batch),
    /// The next batch is not ready: ask again.
    NotYet,
    /// The epoch is over: every batch has been delivered, or an error has ended it.
    Over,
}

impl TryNext {
    /// The batch, if there is one.
    pub fn batch(self) -> Option<Batch> {
        match self {
            Self::Batch(batch) => Some(batch),
            Self::NotYet | Self::Over => None,
        }
    }
}

/// The batches of one epoch, in order; created by [`Loader::epoch`].
///
/// `next` blocks until a batch's copy to the device is queued; a [`StopHandle`](crate::StopHandle) ends the
/// wait. An error ends the epoch: after it `next` returns `None`. An epoch never ends early without an error.
/// Only a call on a worker of the loader's own pool, which would wait for itself, is refused and ends
/// nothing.
#[must_use = "its batches are read ahead for nothing if no one takes them"]
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

    /// Batches from the start of this iterator to the end of the epoch; `None` for a source, whose end is not
    /// known in advance.
    pub fn steps(&self) -> Option<u64> {
        self.steps
    }

    /// The next batch if it is ready; never blocks, and never fails with
    /// [`SlotsHeld`](crate::ErrorKind::SlotsHeld).
    ///
    /// ```
    /// use feedline::TryNext;
    /// # use feedline::{Context, DType, Dataset, Device, Loader, ReadError, Row, Spec};
    /// # struct Ones(Spec);
    /// # impl Dataset for Ones {
    /// #     fn len(&self) -> u64 { 10 }
    /// #     fn spec(&self) -> &Spec { &self.0 }
    /// #     fn read(&self, _: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
    /// #         row.bytes_mut(0).fill(1);
    /// #         Ok(())
    /// #     }
    /// # }
    /// # let data = Ones(Spec::new().field("x", DType::U8, [])?);
    /// let mut loader = Loader::builder(data).batch_size(2).build(&Device::new_host())?;
    /// let mut batches = loader.epoch(0)?;
    /// let mut steps = 0;
    /// loop {
    ///     match batches.try_next()? {
    ///         TryNext::Batch(_batch) => steps += 1,
    ///         TryNext::NotYet => std::thread::yield_now(), // do something else meanwhile
    ///         TryNext::Over => break,
    ///     }
    /// }
    /// assert_eq!(steps, 5);
    /// # Ok::<(), feedline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As the iterator's items.
    pub fn try_next(&mut self) -> Result<TryNext> {
        self.next_timeout(Duration::ZERO)
    }

    /// The next batch. Blocks for at most `limit`, and is [`NotYet`](TryNext::NotYet) once it has passed.
    ///
    /// # Errors
    /// As the iterator's items.
    pub fn next_timeout(&mut self, limit: Duration) -> Result<TryNext> {
        self.advance(Some(limit))
    }

    /// Fails if batches hold every slot, so that no batch can arrive: for callers of
    /// [`next_timeout`](Self::next_timeout) that have their own time limit.
    ///
    /// # Errors
    /// `SlotsHeld`, unless another thread seems to work with the batches; with `on_any_thread`, even then.
    #[doc(hidden)] // For the Python package.
    pub fn check_slots(&self, on_any_thread: bool) -> Result<()> {
        self.loader.check_slots(on_any_thread)
    }

    /// Refuses `call` on a worker of the loader's own pool. Call it before ending the epoch.
    ///
    /// # Errors
    /// `Config`.
    #[doc(hidden)] // For the Python package.
    pub fn check_thread(&self, call: &str) -> Result<()> {
        self.loader.check_thread(call)
    }

    /// Whether every batch has been delivered, or an error has ended the epoch.
    pub fn is_over(&self) -> bool {
        self.failed || self.loader.is_at_end()
    }

    /// The next batch. Blocks for at most `limit`.
    fn advance(&mut self, limit: Option<Duration>) -> Result<TryNext> {
        // Checked first: a refused call must not end the epoch for its own thread.
        self.loader.check_thread("next")?;
        if self.is_over() {
            self.loader.end_epoch();
            return Ok(TryNext::Over);
        }
        let received = self.loader.receive(limit);
        match &received {
            Ok(TryNext::Batch(_)) => self.delivered += 1,
            Ok(TryNext::Over) => self.loader.end_epoch(),
            Ok(TryNext::NotYet) => {}
            Err(_) => self.failed = true,
        }
        received
    }
}

impl Iterator for Epoch<'_> {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance(None).map(TryNext::batch).transpose()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // The lower bound is 0 because an error may end the epoch early.
        let left = if self.is_over() { Some(0) } else { self.steps.map(|steps| steps - self.delivered) };
        (0, left.and_then(|left| usize::try_from(left).ok()))
    }
}

/// The progress of the loader: its cursor, checkpoints and report.
impl std::ops::Deref for Epoch<'_> {
    type Target = Progress;

    fn deref(&self) -> &Progress {
        self.loader
    }
}

/// Once `next` has returned `None`, it returns `None` for good.
impl FusedIterator for Epoch<'_> {}

impl std::fmt::Debug for Epoch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.steps {
            Some(steps) => write!(f, "Epoch({}, {} of {steps} batches)", self.epoch, self.delivered),
            None => write!(f, "Epoch({}, {} batches so far)", self.epoch, self.delivered),
        }
    }
}
