//! The batches of one epoch, as an iterator: the consumer's side, which waits for the next batch and counts
//! it.

use std::iter::FusedIterator;
use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;
use feedline_core::{Error, ErrorKind, Result, named};
use feedline_device::device_slots::Held;

use super::Loader;
use crate::job::Delivery;
use crate::spans::enter;
use crate::{Batch, Progress};

/// The factor by which slots may be held longer while another thread seems to work with a batch.
const OTHER_THREADS: u32 = 30;

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

    /// Whether every batch has been delivered, or an error has ended the epoch.
    pub fn is_over(&self) -> bool {
        self.failed || self.loader.is_at_end()
    }

    /// The next batch. Blocks for at most `limit`.
    fn advance(&mut self, limit: Option<Duration>) -> Result<TryNext> {
        // This check comes first: a refused call must not end the epoch for the thread that owns it.
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

/// # For loaders
///
/// What the Python package calls. It may change in any release.
impl Epoch<'_> {
    /// Fails if batches hold every slot, so that no batch can arrive: for callers of
    /// [`next_timeout`](Epoch::next_timeout) that have their own time limit.
    ///
    /// # Errors
    /// `SlotsHeld`, unless another thread seems to work with the batches; with `on_any_thread`, even then.
    pub fn check_slots(&self, on_any_thread: bool) -> Result<()> {
        self.loader.check_slots(on_any_thread)
    }

    /// Refuses `call` on a worker of the loader's own pool. Call it before ending the epoch.
    ///
    /// # Errors
    /// `Config`.
    pub fn check_thread(&self, call: &str) -> Result<()> {
        self.loader.check_thread(call)
    }
}

impl Loader {
    /// The next batch of the current request. Blocks for at most `limit`.
    pub(crate) fn receive(&mut self, limit: Option<Duration>) -> Result<TryNext> {
        self.running.check_process()?;
        self.running.check_stopped()?;
        let _span = enter!("next");
        self.ledger.ask(self.slots.take_host_waits());
        let start = limit.map(|_| Instant::now());
        loop {
            let left = limit.zip(start).map(|(limit, start)| limit.saturating_sub(start.elapsed()));
            let delivery = match self.next_delivery(left) {
                Ok(Some(delivery)) => delivery,
                none_or_error => {
                    self.ledger.nothing();
                    return none_or_error.map(|_| TryNext::NotYet);
                }
            };
            let Some(at) = &mut self.current else { continue };
            match delivery {
                // Dropping the batches of an abandoned request releases their slots.
                Delivery::Copied(loaded) if loaded.info().request != at.number => {}
                Delivery::EpochEnd { request, .. } if request != at.number => {}
                // Only lanes get batches in their host slots.
                Delivery::Filled(_) => debug_assert!(false, "a batch that is not on the device"),
                Delivery::EpochEnd { source_position, .. } => {
                    *at = at.next_epoch();
                    self.progress.end_epoch(source_position);
                    self.ledger.nothing();
                    return Ok(TryNext::Over);
                }
                Delivery::Copied(loaded) => {
                    let batch = Batch::new(loaded, self.delivered.clone());
                    let (now, waited) = self.ledger.deliver(&batch, self.layout.used_bytes(batch.len()));
                    if let Some((tuner, workers)) = &mut self.tuning
                        && let Some(tuning) =
                            tuner.delivered(now, waited, &batch.timeline, || self.ledger.reporter().service())
                    {
                        workers.set(tuning.workers);
                        self.ledger.reporter().set_tuning(tuning);
                    }
                    debug_assert_eq!(
                        (batch.epoch(), batch.step()),
                        (at.epoch, at.step),
                        "batch out of order"
                    );
                    at.step += 1;
                    let is_last = match batch.source_position {
                        Some(source_position) => {
                            self.batch_sampler.steps(at.epoch, source_position.position) == 0
                        }
                        None => at.step == self.batch_sampler.steps(at.epoch, at.start),
                    };
                    if is_last {
                        *at = at.next_epoch();
                    }
                    // Sources have no custom sampler.
                    self.batch_sampler.check_again(&batch, &mut self.ids_again)?;
                    self.progress.count(&batch, &self.batch_sampler)?;
                    return Ok(TryNext::Batch(batch));
                }
            }
        }
    }

    /// The next delivery, of any request; `None` once `limit` has passed.
    ///
    /// # Errors
    /// `SlotsHeld`, not with a `limit` of zero; the first cause once the transfer thread has ended.
    fn next_delivery(&mut self, limit: Option<Duration>) -> Result<Option<Delivery>> {
        let start = limit.map(|_| Instant::now());
        loop {
            // Only this thread takes batches, so slots that are held now stay held by the same batches.
            let held = self.slots.held();
            if held != self.held.0 {
                self.held = (held, Duration::ZERO);
            }
            let longest = match held {
                Held::Free => None,
                Held::Idle => Some(self.held_timeout),
                Held::InUse => Some(self.held_timeout.saturating_mul(OTHER_THREADS)),
            };
            // Checks again earlier: another thread may have begun to work with a batch, or finished.
            let look = longest.map(|longest| longest.saturating_sub(self.held.1).min(self.held_timeout / 4));
            let left = limit.zip(start).map(|(limit, start)| limit.saturating_sub(start.elapsed()));
            let wait = left.into_iter().chain(look).min();
            // Neither a batch that is ready nor a poll counts as a wait.
            let is_waiting = wait != Some(Duration::ZERO) && self.loaded.is_empty();
            if is_waiting {
                self.requests.set_waited_for(true);
            }
            let received = match wait {
                Some(wait) => self.loaded.recv_timeout(wait),
                None => self.loaded.recv().map_err(RecvTimeoutError::from),
            };
            if is_waiting {
                self.requests.set_waited_for(false);
            }
            match received {
                Ok(item) => {
                    self.held.1 = Duration::ZERO;
                    return Ok(Some(item));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.running.cause()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let wait = wait.unwrap_or_default();
            // Only the time of waits counts: between two calls the caller may release a batch.
            self.held.1 = self.held.1.saturating_add(wait);
            if longest.is_some_and(|longest| self.held.1 >= longest)
                && left != Some(Duration::ZERO)
                && self.slots.held() == held
            {
                return Err(self.slots_held());
            }
            if left.is_some_and(|left| left <= wait) {
                return Ok(None);
            }
        }
    }

    /// Fails if batches of the calling thread hold every slot; with `on_any_thread`, batches of any thread.
    ///
    /// # Errors
    /// `SlotsHeld`.
    pub(crate) fn check_slots(&self, on_any_thread: bool) -> Result<()> {
        let held = self.slots.held();
        let are_held = held == Held::Idle || (on_any_thread && held == Held::InUse);
        if are_held { Err(self.slots_held()) } else { Ok(()) }
    }

    fn slots_held(&self) -> Error {
        let why = format!(
            "all {} device slots have been held for {:.1} s by batches that were not dropped: drop one \
             before the next, or raise the {}; if another thread drops them later, raise held_timeout",
            self.slots.len(),
            self.held.1.as_secs_f64(),
            named("depth", "prefetch")
        );
        Error::new(ErrorKind::SlotsHeld, why)
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
