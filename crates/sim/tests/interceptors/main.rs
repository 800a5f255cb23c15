//! Faults, chaos and counts around the host device.

mod chaos;
mod count;
mod downcast;
mod faults;
mod hand_off;
mod raw;
mod ring;

use std::time::Duration;

/// How long any test, and any wait in one, may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Bytes of a slot.
const BYTES: usize = 4096;

/// Slots of a ring.
const SLOTS: usize = 2;
