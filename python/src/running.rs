//! A loader and the epoch that borrows it, in one value that Python can own.

use std::time::Duration;

use feedline::{Cursor, Epoch, Loader, Result, Stream, TryNext};
use feedline_dlpack::Share;
use self_cell::{MutBorrow, self_cell};

use crate::batch::closed;

/// The time between two checks for a signal, such as Ctrl-C.
pub(crate) const TICK: Duration = Duration::from_millis(30);

self_cell!(
    /// A loader within an epoch.
    pub(crate) struct Running {
        owner: MutBorrow<Box<Loader>>,
        #[not_covariant]
        dependent: Epoch,
    }
);

/// A loader and the stream on which its batches are read. The loader is between epochs, within an epoch, or
/// closed.
pub(crate) enum State {
    Idle(Box<Loader>, Stream),
    Running(Running, Stream),
    Closed,
}

/// The answer to a request for a batch.
pub(crate) enum Answer {
    Batch(Share),
    NotYet,
    Over,
}

impl State {
    /// Begins an epoch, or continues the epoch of a cursor. Returns its number of steps, if known.
    pub(crate) fn begin(&mut self, from: Start) -> Result<Option<u64>> {
        self.check_thread(match from {
            Start::Epoch(_) => "epoch",
            Start::Cursor(_) => "load_state_dict",
        })?;
        let (loader, stream) = self.take()?;
        let begun = Running::try_new_or_recover(MutBorrow::new(loader), |loader| match from {
            Start::Epoch(epoch) => loader.borrow_mut().epoch(epoch),
            Start::Cursor(cursor) => loader.borrow_mut().resume(cursor),
        });
        match begun {
            Ok(running) => {
                let steps = running.with_dependent(|_, epoch| epoch.steps());
                *self = Self::Running(running, stream);
                Ok(steps)
            }
            Err((loader, error)) => {
                *self = Self::Idle(loader.into_inner(), stream);
                Err(error)
            }
        }
    }

    /// Returns the next batch. Waits for it for at most `limit`.
    pub(crate) fn next(&mut self, limit: Duration) -> Result<Answer> {
        match self {
            Self::Closed => Err(closed()),
            Self::Idle(..) => Ok(Answer::Over),
            Self::Running(running, stream) => {
                match running.with_dependent_mut(|_, epoch| epoch.next_timeout(limit))? {
                    TryNext::Batch(batch) => {
                        let batch = batch.wait_on(stream)?;
                        if batch.stream().device().kind() != feedline::device::BackendKind::Cuda {
                            // The wait is here, so that no later wait holds the interpreter's lock.
                            batch.wait_until_copied()?;
                        }
                        Ok(Answer::Batch(Share::new(batch)))
                    }
                    TryNext::NotYet => Ok(Answer::NotYet),
                    TryNext::Over => Ok(Answer::Over),
                }
            }
        }
    }

    /// Fails if batches hold every slot.
    pub(crate) fn check_slots(&self, on_any_thread: bool) -> Result<()> {
        match self {
            Self::Running(running, _) => running.with_dependent(|_, epoch| epoch.check_slots(on_any_thread)),
            _ => Ok(()),
        }
    }

    /// Ends the epoch, and calls `work` with the loader.
    pub(crate) fn with_loader<T>(&mut self, work: impl FnOnce(&mut Loader) -> T) -> Result<T> {
        self.check_thread("close")?;
        let (mut loader, stream) = self.take()?;
        let done = work(&mut loader);
        *self = Self::Idle(loader, stream);
        Ok(done)
    }

    /// Ends the loader, and waits for its threads for at most `limit`. Does nothing if the loader is closed.
    pub(crate) fn stop(&mut self, limit: Duration) -> Result<()> {
        match self {
            Self::Closed => Ok(()),
            _ => self.with_loader(|loader| loader.stop(limit))?,
        }
    }

    /// Refuses `call` on a worker of the loader while the epoch can still continue.
    pub(crate) fn check_thread(&self, call: &str) -> Result<()> {
        match self {
            Self::Running(running, _) => running.with_dependent(|_, epoch| epoch.check_thread(call)),
            _ => Ok(()),
        }
    }

    /// Takes out the loader and its stream. Ends the epoch.
    fn take(&mut self) -> Result<(Box<Loader>, Stream)> {
        match std::mem::replace(self, Self::Closed) {
            Self::Idle(loader, stream) => Ok((loader, stream)),
            Self::Running(running, stream) => Ok((running.into_owner().into_inner(), stream)),
            Self::Closed => Err(closed()),
        }
    }
}

/// Where an epoch begins.
#[derive(Clone, Copy)]
pub(crate) enum Start {
    Epoch(u64),
    Cursor(Cursor),
}
