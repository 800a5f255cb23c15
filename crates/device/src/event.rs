//! An event: a point in a stream's work. It is created once and recorded many times.
//!
//! Each copy from a host block into a device slot has one event of an [`EventPool`]. The block and the leases
//! of the slot both refer to it. The event belongs to its copy, not to the block or the slot: the block's
//! next copy goes to another slot, and the slot's next copy comes from another block. If the event were
//! recorded again while one side still refers to it, this side would wait for a later copy.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use feedline_core::Result;

use crate::backend::EventId;
use crate::device_core::Core;

/// A point in the work of a stream.
///
/// An event that was never recorded counts as complete. Recording the event again replaces the point. Waits
/// that were issued before still wait for the old point.
pub struct Event {
    device: Arc<Core>,
    id: EventId,
}

impl Event {
    pub(crate) fn new(device: &Arc<Core>, timing: bool) -> Result<Self> {
        let id = device.backend.create_event(timing)?;
        device.stats.events.add(1);
        Ok(Self { device: device.clone(), id })
    }

    pub(crate) fn device(&self) -> &Arc<Core> {
        &self.device
    }

    pub(crate) fn id(&self) -> EventId {
        self.id
    }

    /// Whether the recorded work has ended; never blocks.
    ///
    /// # Errors
    /// A device failure.
    #[track_caller]
    pub fn query(&self) -> Result<bool> {
        let _site = self.device.call_site();
        // SAFETY: the event is alive and belongs to this backend.
        unsafe { self.device.backend.query(self.id) }
    }

    /// Blocks the calling thread until the recorded work has ended.
    ///
    /// # Errors
    /// A device failure.
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        let _site = self.device.call_site();
        // SAFETY: the event is alive and belongs to this backend.
        unsafe { self.device.backend.synchronize(self.id) }
    }

    /// Like [`synchronize`](Self::synchronize), but blocks for at most `limit`. Returns whether the work
    /// has ended.
    ///
    /// # Errors
    /// A device failure.
    pub fn synchronize_timeout(&self, limit: std::time::Duration) -> Result<bool> {
        let start = std::time::Instant::now();
        let mut pause = std::time::Duration::from_micros(5);
        loop {
            if self.query()? {
                return Ok(true);
            }
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            // No device offers a wait with a time limit, so this polls with increasing pauses.
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(std::time::Duration::from_millis(1));
        }
    }

    /// Milliseconds from `start` to this event. Both must have been created with timing and be complete.
    ///
    /// # Errors
    /// A device failure, for example for an event without timing.
    pub fn elapsed_ms_since(&self, start: &Event) -> Result<f32> {
        self.device.same(&start.device, "the first event")?;
        // SAFETY: both events are alive and belong to the same backend.
        unsafe { self.device.backend.elapsed_ms(start.id, self.id) }
    }
}

impl From<&Event> for EventId {
    /// The handle for calls on the backend; valid while the event lives.
    fn from(event: &Event) -> Self {
        event.id
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: dropped once, and not used afterwards.
        if let Err(error) = unsafe { self.device.backend.destroy_event(self.id) } {
            self.device.stats.report(error);
        }
        self.device.stats.events.subtract(1);
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Event({})", self.id.0)
    }
}

/// The events for copies into the slots of one ring. They are recorded again and again. The front event was
/// taken the longest time ago; events become free in the order in which they were taken.
pub(crate) struct EventPool(Mutex<VecDeque<Arc<Event>>>);

impl EventPool {
    /// A pool of `count` events.
    pub(crate) fn new(device: &Arc<Core>, count: usize) -> Result<Self> {
        let all = (0..count).map(|_| Event::new(device, false).map(Arc::new)).collect::<Result<_>>()?;
        Ok(Self(Mutex::new(all)))
    }

    /// Takes an event to which no block, lease or thread refers, for the next copy. Creates one if there is
    /// none.
    ///
    /// The pool stops growing at one event per block and per slot, plus one per thread that waits for a
    /// copy of a block that other threads may take meanwhile.
    pub(crate) fn take(&self, device: &Arc<Core>) -> Result<Arc<Event>> {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // `get_mut` instead of `strong_count`, because it also synchronises with the drop of the last other
        // reference.
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
