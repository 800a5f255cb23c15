//! Whose turn it is to take the next batch; and what makers do whose turn it is not.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::Sender;
use feedline_core::Ticket;
use rayon::Yield;

use crate::Run;
use crate::feed::Feed;
use crate::patience::Patience;

/// What is done by one maker at a time: where the stage is. It goes from hand to hand.
pub(crate) struct Head {
    pub(crate) feed: Box<dyn Feed>,
    /// The run that is going on; none before the first and after the last epoch of one.
    pub(crate) run: Option<Run>,
    /// Batches of its epoch that were taken.
    pub(crate) steps: u64,
    /// The number of the next batch, over all runs.
    pub(crate) number: u64,
    pub(crate) patience: Patience,
}

impl Head {
    /// Goes to the beginning of `run`.
    pub(crate) fn begin(&mut self, run: Run) {
        self.feed.begin(run);
        self.patience.forget();
        (self.run, self.steps) = (Some(run), 0);
    }

    /// Goes on to the epoch after one that is over, when the run has another.
    pub(crate) fn begin_next_epoch(&mut self, run: Run) {
        if run.epoch < run.end.saturating_sub(1) {
            self.begin(Run { epoch: run.epoch + 1, start: 0, offset: 0, ..run });
        } else {
            self.run = None;
        }
    }

    /// Writes into `ticket` which batch is next.
    pub(crate) fn name(&self, run: Run, ticket: &mut Ticket) {
        (ticket.run, ticket.epoch, ticket.step, ticket.reached) = (run.number, run.epoch, self.steps, None);
    }
}

/// The makers' queue for the head.
///
/// A maker that waits is a worker that does not read. So, as long as a batch is in pieces, no maker waits without a limit: it
/// reads pieces of that batch, and asks again. When there are no pieces it sleeps until it is woken.
pub(crate) struct Turn {
    state: Mutex<State>,
    free: Condvar,
    /// Batches in pieces. Only who has the head adds one.
    split: AtomicUsize,
}

struct State {
    /// `None` while a maker has it.
    head: Option<Head>,
    waiting: usize,
    /// Open until the stage is over.
    open: Option<Sender<Infallible>>,
}

/// How long to wait before the next look for pieces: not at all while there are some, then longer each time.
pub(crate) struct Pace(Duration);

impl Pace {
    const FIRST: Duration = Duration::from_micros(100);
    const LAST: Duration = Duration::from_millis(10);

    pub(crate) fn new() -> Self {
        Self(Duration::ZERO)
    }

    /// Reads pieces while there are any.
    fn help(&mut self) {
        let mut helped = false;
        // Nothing but pieces is ever in the pool's queues: all makers were running before the first batch was begun.
        while rayon::yield_now() == Some(Yield::Executed) {
            helped = true;
        }
        self.0 = if helped { Duration::ZERO } else { (2 * self.0).clamp(Self::FIRST, Self::LAST) };
    }
}

/// A batch in pieces, until it is dropped.
pub(crate) struct InPieces<'a>(&'a Turn);

impl Turn {
    /// `open` is dropped when the stage is over.
    pub(crate) fn new(head: Head, open: Sender<Infallible>) -> Self {
        let state = State { head: Some(head), waiting: 0, open: Some(open) };
        Self { state: Mutex::new(state), free: Condvar::new(), split: AtomicUsize::new(0) }
    }

    /// Takes the head, waiting for it; `None` when the stage is over.
    pub(crate) fn take(&self, pace: &mut Pace) -> Option<Head> {
        let mut state = self.state();
        loop {
            state.open.as_ref()?;
            if let Some(head) = state.head.take() {
                return Some(head);
            }
            state.waiting += 1;
            state = match self.limit(pace) {
                None => self.free.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => state,
                Some(limit) => self.free.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0,
            };
            state.waiting -= 1;
            if state.head.is_none() && self.limit(pace).is_some() {
                drop(state);
                pace.help();
                state = self.state();
            }
        }
    }

    /// How long who has the head, or waits for it, may wait before it is to [`help`](Self::help); no limit when there is
    /// nothing to help with, and for who has the head there will not be.
    pub(crate) fn limit(&self, pace: &Pace) -> Option<Duration> {
        (self.split.load(Ordering::Relaxed) > 0).then_some(pace.0)
    }

    /// Gives the head back, after a wait that came to its limit, and reads pieces.
    pub(crate) fn help(&self, head: Head, pace: &mut Pace) {
        self.give(head, false);
        pace.help();
    }

    /// Counts the batch that was just taken as one in pieces; before the head is given back.
    pub(crate) fn in_pieces(&self) -> InPieces<'_> {
        self.split.fetch_add(1, Ordering::Relaxed);
        InPieces(self)
    }

    /// Gives the head back; when `wake`, to makers that sleep: one to take it, all when there are pieces to read.
    pub(crate) fn give(&self, head: Head, wake: bool) {
        let mut state = self.state();
        if state.open.is_none() {
            drop(state);
            return; // `head` is dropped outside of the lock: it holds what users wrote
        }
        state.head = Some(head);
        if wake && state.waiting > 0 {
            if self.split.load(Ordering::Relaxed) > 0 {
                self.free.notify_all()
            } else {
                self.free.notify_one()
            }
        }
    }

    /// Ends all turns, and all waits for one. Calling it again does nothing.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        let (head, open) = (state.head.take(), state.open.take());
        drop(state);
        self.free.notify_all();
        drop((head, open));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InPieces<'_> {
    fn drop(&mut self) {
        self.0.split.fetch_sub(1, Ordering::Relaxed);
    }
}
