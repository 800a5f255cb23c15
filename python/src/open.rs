//! The open loaders of this process. They end before the interpreter ends.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use feedline::{Result, StopHandle};
use pyo3::prelude::*;

use crate::interpreter::{detached, is_worker};
use crate::running::State;
use crate::turn::Waits;

static OPEN: Mutex<Vec<Weak<Open>>> = Mutex::new(Vec::new());

/// A loader that is open or has been closed.
pub(crate) struct Open {
    state: Mutex<State>,
    stop: StopHandle,
    /// The process that has the loader's threads.
    process: u32,
    drop_timeout: Duration,
}

impl Open {
    pub(crate) fn new(state: State, stop: StopHandle, drop_timeout: Duration) -> Arc<Self> {
        let process = std::process::id();
        let open = Arc::new(Self { state: Mutex::new(state), stop, process, drop_timeout });
        let mut all = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|open| open.strong_count() > 0);
        all.push(Arc::downgrade(&open));
        open
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state; `None` if another thread has locked it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Lets the threads of the loader end, without waiting for them.
    pub(crate) fn stop(&self) {
        self.stop.stop();
    }

    /// Ends the loader, and waits for its threads. A second call does nothing.
    pub(crate) fn close(&self) -> Result<()> {
        self.stop();
        self.close_within(self.drop_timeout)
    }

    /// Ends the loader within `limit`. If its threads do not end in time, another thread waits for them and
    /// frees their resources.
    fn close_within(&self, limit: Duration) -> Result<()> {
        let mut state = std::mem::replace(&mut *self.lock(), State::Closed);
        // A thread may wait for its turn to call a function of a batch, and ends after it.
        let waits = Waits::begin();
        let stopped = state.stop(limit);
        waits.give_up();
        if stopped.is_err() {
            drop_elsewhere(state)
        } else {
            drop(state)
        }
        stopped
    }

    /// Takes the loader out, so that it can be dropped.
    fn take(&mut self) -> State {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(state, State::Closed)
    }
}

impl Drop for Open {
    /// Waits for the threads without the interpreter's lock, because a worker may need this lock to end.
    fn drop(&mut self) {
        let state = self.take();
        if matches!(state, State::Closed) {
            return;
        }
        let mut state = Some(state);
        if !self.is_forked() {
            Python::try_attach(|py| {
                let state = state.take();
                detached(py, || {
                    if is_worker() { state.into_iter().for_each(drop_elsewhere) } else { drop_waiting(state) }
                });
            });
        }
        // The state is leaked in a forked child, and when the interpreter shuts down.
        std::mem::forget(state);
    }
}

/// Drops a loader on another thread. The garbage collector may have found the loader on a worker, and the
/// drop waits for the loader's workers.
fn drop_elsewhere(state: State) {
    // If no thread can be started, the closure is dropped here. The worker then waits until the time-out.
    let _ = std::thread::Builder::new().name("fl-drop".to_owned()).spawn(move || drop_waiting(state));
}

/// Drops a loader. A thread of it may wait for its turn to call a function of a batch, and ends after it.
fn drop_waiting<T>(state: T) {
    let waits = Waits::begin();
    drop(state);
    waits.give_up();
}

/// Ends all loaders of this process, when the interpreter shuts down.
pub(crate) fn close_all(py: Python<'_>) {
    py.detach(|| {
        let all: Vec<_> =
            open_now().iter().filter_map(Weak::upgrade).filter(|open| !open.is_forked()).collect();
        all.iter().for_each(|open| open.stop.stop());
        let start = Instant::now();
        for open in &all {
            // A thread that still runs after this does not use the interpreter.
            let _ = open.close_within(open.drop_timeout.saturating_sub(start.elapsed()));
        }
    });
}

/// The list of open loaders. It is empty if a thread held its lock while this process was forked.
fn open_now() -> Vec<Weak<Open>> {
    let start = Instant::now();
    loop {
        match OPEN.try_lock() {
            Ok(mut all) => return std::mem::take(&mut *all),
            Err(TryLockError::Poisoned(all)) => return std::mem::take(&mut *all.into_inner()),
            Err(TryLockError::WouldBlock) if start.elapsed() < Duration::from_secs(1) => {
                std::thread::yield_now()
            }
            Err(TryLockError::WouldBlock) => return Vec::new(),
        }
    }
}
