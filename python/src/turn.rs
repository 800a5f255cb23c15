//! When Python code of samples may run: with other threads, or alone, while a loop waits for a batch.
//!
//! The global random generators belong to the process. Samples that draw from them are read with seeded
//! generators, which are restored afterwards. Nothing else may draw meanwhile, so such a read has a [`Turn`]:
//! it begins while a loop waits for a batch, the loop goes on after it, and other threads read no samples
//! during it.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use feedline::{Context, ReadError};

use crate::interpreter::may_go_on;

/// The time between two checks whether the loader has ended.
const TICK: Duration = Duration::from_millis(20);

/// How long a thread that has got no batch waits for the end of a turn.
const PATIENCE: Duration = Duration::from_millis(20);

/// The threads that use Python code.
struct State {
    /// Loops that wait for a batch.
    waiting: usize,
    /// Those of them that have one, and wait for the end of the turns.
    leaving: usize,
    /// Turns while a loop waits, also those that wait for a loader of their own.
    turns: usize,
    /// Whether a turn reads.
    is_taken: bool,
    /// Threads that wait for a turn, and for nothing but readers.
    next: usize,
    /// Threads that read beside others.
    readers: usize,
}

static STATE: Mutex<State> =
    Mutex::new(State { waiting: 0, leaving: 0, turns: 0, is_taken: false, next: 0, readers: 0 });
static CHANGED: Condvar = Condvar::new();

thread_local! {
    /// What this thread has.
    static OWN: Cell<Own> = const { Cell::new(Own::Nothing) };
}

#[derive(Clone, Copy, PartialEq)]
enum Own {
    Nothing,
    Reads,
    Turn(Alone),
}

/// What else may go on while a thread reads.
#[derive(Clone, Copy, PartialEq)]
enum Alone {
    /// The loop.
    InThreads,
    /// Nothing: the loop waits.
    InProcess,
}

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait(state: MutexGuard<'static, State>) -> MutexGuard<'static, State> {
    CHANGED.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0
}

/// The right to read samples, until it is dropped. A thread that has one gets others that do nothing.
pub(crate) struct Turn(Own);

/// Reads beside other threads.
pub(crate) const BESIDE: u8 = 0;
/// Reads while no other thread does.
pub(crate) const ALONE_IN_THREADS: u8 = 1;
/// Reads while no other thread does, and a loop waits for a batch.
pub(crate) const ALONE: u8 = 2;

impl Turn {
    /// The right to read in one of the ways above. Waits for it.
    ///
    /// # Errors
    /// Once the loader ends.
    pub(crate) fn new(how: u8, context: &Context) -> Result<Self, ReadError> {
        match how {
            _ if OWN.get() != Own::Nothing => Ok(Self(Own::Nothing)),
            BESIDE => Self::beside(context),
            ALONE_IN_THREADS => Self::alone(Alone::InThreads, context),
            _ => Self::alone(Alone::InProcess, context),
        }
    }

    fn beside(context: &Context) -> Result<Self, ReadError> {
        let mut state = lock();
        while state.is_taken || state.next > 0 {
            may_go_on(context)?;
            state = wait(state);
        }
        state.readers += 1;
        OWN.set(Own::Reads);
        Ok(Self(Own::Reads))
    }

    fn alone(alone: Alone, context: &Context) -> Result<Self, ReadError> {
        let mut state = lock();
        let mut is_next = false;
        loop {
            let does_loop_wait = state.waiting > 0 && state.leaving == 0;
            let is_open = !state.is_taken && (alone == Alone::InThreads || does_loop_wait);
            if is_open && state.readers == 0 {
                break;
            }
            if is_open != is_next {
                // Readers that begin later wait, so that this thread gets its turn.
                is_next = is_open;
                state.next = if is_next { state.next + 1 } else { state.next - 1 };
                CHANGED.notify_all();
            }
            if let Err(error) = may_go_on(context) {
                state.next -= usize::from(is_next);
                drop(state);
                CHANGED.notify_all();
                return Err(error);
            }
            state = wait(state);
        }
        state.next -= usize::from(is_next);
        state.turns += usize::from(alone == Alone::InProcess);
        state.is_taken = true;
        OWN.set(Own::Turn(alone));
        Ok(Self(Own::Turn(alone)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.0 == Own::Nothing {
            return;
        }
        OWN.set(Own::Nothing);
        let mut state = lock();
        if let Own::Turn(alone) = self.0 {
            state.turns -= usize::from(alone == Alone::InProcess);
            state.is_taken = false;
        } else {
            state.readers -= 1;
        }
        drop(state);
        CHANGED.notify_all();
    }
}

/// A thread that waits for a batch or for the end of a loader, until it is dropped: that waits for the end
/// of a turn. If a sample waits for a loader of its own, its right is suspended meanwhile.
pub(crate) struct Waits {
    own: Own,
    /// Until when the end of a turn is awaited.
    until: Option<Instant>,
}

impl Waits {
    pub(crate) fn begin() -> Self {
        let own = OWN.replace(Own::Nothing);
        let mut state = lock();
        state.waiting += 1;
        match own {
            Own::Turn(_) => state.is_taken = false,
            Own::Reads => state.readers -= 1,
            Own::Nothing => {}
        }
        drop(state);
        CHANGED.notify_all();
        Self { own, until: None }
    }

    /// Ends the wait of a thread that has got no batch: after an interrupt it waits for no slow sample.
    pub(crate) fn give_up(mut self) {
        self.until = Some(Instant::now());
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        let is_over = || self.until.is_some_and(|until| until.elapsed() >= PATIENCE);
        let mut state = lock();
        match self.own {
            Own::Nothing => {
                state.leaving += 1;
                while state.turns > 0 && !is_over() {
                    state = wait(state);
                }
                state.leaving -= 1;
            }
            Own::Turn(_) => {
                while state.is_taken {
                    state = wait(state);
                }
                state.is_taken = true;
            }
            Own::Reads => {
                while state.is_taken {
                    state = wait(state);
                }
                state.readers += 1;
            }
        }
        state.waiting -= 1;
        drop(state);
        OWN.set(self.own);
        CHANGED.notify_all();
    }
}

/// Forgets the threads of the process that this one was forked from.
pub(crate) fn forget() {
    // Locked by a thread of the other process, if it fails.
    if let Ok(mut state) = STATE.try_lock() {
        *state = State { waiting: 0, leaving: 0, turns: 0, is_taken: false, next: 0, readers: 0 };
    }
    OWN.set(Own::Nothing);
}
