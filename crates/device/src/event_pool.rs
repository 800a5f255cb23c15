//! The events of copies. Each copy from a host block into a device slot has one event, to which the block
//! and the leases of the slot both refer.
//!
//! An event belongs to its copy, not to the block or the slot: the block's next copy goes to another
//! slot, and the slot's next copy comes from another block. If an event were recorded again while the
//! other side still refers to it, that side would wait for a later copy.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use feedline_core::Result;

use crate::Event;
use crate::device_core::Core;

/// The events for copies into the slots of one ring, recorded again and again. The front one was taken the
/// longest time ago: events become free in the order in which they were taken.
pub(crate) struct EventPool(Mutex<VecDeque<Arc<Event>>>);

impl EventPool {
    /// A pool of `count` events.
    pub(crate) fn new(device: &Arc<Core>, count: usize) -> Result<Self> {
        let all = (0..count).map(|_| Event::new(device, false).map(Arc::new)).collect::<Result<_>>()?;
        Ok(Self(Mutex::new(all)))
    }

    /// Takes an event that no block, lease or thread refers to, for the next copy. Creates one if there
    /// is none.
    ///
    /// The pool stops growing at one event per block and per slot, plus one per thread that waits for a
    /// copy of a block that other threads may take meanwhile.
    pub(crate) fn take(&self, device: &Arc<Core>) -> Result<Arc<Event>> {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // `get_mut` instead of `strong_count`: it also synchronises with the drop of the last other reference.
        let free = events.iter_mut().position(|event| Arc::get_mut(event).is_some());
        match free {
            Some(free) => events.rotate_left(free + 1),
            None => events.push_back(Arc::new(Event::new(device, false)?)),
        }
        Ok(events[events.len() - 1].clone())
    }

    /// The events of all copies so far.
    pub(crate) fn all(&self) -> Vec<Arc<Event>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
