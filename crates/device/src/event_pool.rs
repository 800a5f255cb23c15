//! The events of copies. Each copy from a host block into a device slot has one event, to which the block
//! and the leases of the slot both refer.
//!
//! An event belongs to its copy, not to the block or the slot: the block's next copy goes to another
//! slot, and the slot's next copy comes from another block. If an event were recorded again while the
//! other side still refers to it, that side would wait for a later copy.

use std::sync::{Arc, Mutex, PoisonError};

use feedline_core::Result;

use crate::Event;
use crate::device_core::Core;

/// The events for copies into the slots of one ring, recorded again and again.
pub(crate) struct EventPool(Mutex<Events>);

struct Events {
    all: Vec<Arc<Event>>,
    /// The index after the last event taken: events become free in the order in which they were taken.
    next: usize,
}

impl EventPool {
    /// A pool of `count` events.
    pub(crate) fn new(device: &Arc<Core>, count: usize) -> Result<Self> {
        let all = (0..count).map(|_| Event::new(device, false).map(Arc::new)).collect::<Result<_>>()?;
        Ok(Self(Mutex::new(Events { all, next: 0 })))
    }

    /// Takes an event that no block, lease or thread refers to, for the next copy. Creates one if there
    /// is none.
    ///
    /// The pool stops growing at one event per block and per slot, plus one per thread that waits for a
    /// copy of a block that other threads may take meanwhile.
    pub(crate) fn take(&self, device: &Arc<Core>) -> Result<Arc<Event>> {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Events { all, next } = &mut *events;
        let count = all.len();
        for at in (*next..count).chain(0..*next) {
            // `get_mut` instead of `strong_count`: it also synchronises with the drop of the last other
            // reference.
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

/// The event of the last copy from a block; `None` before the first copy.
#[derive(Default)]
pub(crate) struct LastCopy(Mutex<Option<Arc<Event>>>);

impl LastCopy {
    /// Replaces the event by that of a later copy.
    pub(crate) fn set(&self, event: Arc<Event>) {
        let earlier = self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(event);
        drop(earlier);
    }

    /// The event. It is not recorded again while the caller holds it.
    fn event(&self) -> Option<Arc<Event>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the copy has ended; never blocks.
    pub(crate) fn query(&self) -> Result<bool> {
        self.event().map_or(Ok(true), |event| event.query())
    }

    /// Blocks until the copy has ended.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.event().map_or(Ok(()), |event| event.synchronize())
    }
}
