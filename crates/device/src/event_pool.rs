//! The marks of copies: each copy out of a host block into a device slot has one, to which the block refers and the leases of what
//! it brought.
//!
//! A mark belongs to the copy, to neither of the two: the block's next copy goes to another slot, and the slot's next comes out
//! of another block. Recorded again while the other one refers to it, a mark would make that one wait for a later copy.

use std::sync::{Arc, Mutex, PoisonError};

use feedline_core::Result;

use crate::Event;
use crate::device_core::Core;

/// Events for the copies into one ring's slots, recorded again and again.
pub(crate) struct Marks(Mutex<Events>);

struct Events {
    all: Vec<Arc<Event>>,
    /// Behind the one that was taken last: marks come free in the order in which they were taken.
    next: usize,
}

impl Marks {
    /// `count` events.
    pub(crate) fn new(device: &Arc<Core>, count: usize) -> Result<Self> {
        let all = (0..count).map(|_| Event::new(device, false).map(Arc::new)).collect::<Result<_>>()?;
        Ok(Self(Mutex::new(Events { all, next: 0 })))
    }

    /// One that no block, no lease and no thread refers to, to be recorded behind the next copy; made where there is none.
    ///
    /// None is made any more once there are as many as blocks and slots, and one for each thread that waits for a copy of
    /// a block which others may take meanwhile.
    pub(crate) fn take(&self, device: &Arc<Core>) -> Result<Arc<Event>> {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Events { all, next } = &mut *events;
        let count = all.len();
        for at in (*next..count).chain(0..*next) {
            // `get_mut`, not a count: it also sees what was done with the event before the last other reference went.
            if Arc::get_mut(&mut all[at]).is_some() {
                *next = (at + 1) % count;
                return Ok(all[at].clone());
            }
        }
        let event = Arc::new(Event::new(device, false)?);
        all.push(event.clone());
        Ok(event)
    }

    /// The events of all copies so far.
    pub(crate) fn all(&self) -> Vec<Arc<Event>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).all.clone()
    }
}

/// The mark of the last copy out of a block; none before the first one.
#[derive(Default)]
pub(crate) struct LastCopy(Mutex<Option<Arc<Event>>>);

impl LastCopy {
    /// There is a later copy.
    pub(crate) fn set(&self, mark: Arc<Event>) {
        let earlier = self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(mark);
        drop(earlier);
    }

    /// The mark, which is not recorded again as long as the caller has it.
    fn mark(&self) -> Option<Arc<Event>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the copy has ended; never blocks.
    pub(crate) fn query(&self) -> Result<bool> {
        self.mark().map_or(Ok(true), |mark| mark.query())
    }

    /// Blocks until the copy has ended.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.mark().map_or(Ok(()), |mark| mark.synchronize())
    }
}
