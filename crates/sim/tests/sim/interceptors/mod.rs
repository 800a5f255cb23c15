//! The interceptors in front of the host device.

mod chaos;
mod count;
mod downcast;
mod faults;
mod hand_off;
mod raw;
mod ring;

use std::time::Duration;

/// The time limit of each test, and of each wait in a test.
const LIMIT: Duration = Duration::from_secs(60);

/// The bytes of a slot.
const BYTES: usize = 4096;

/// The slots of a ring.
const SLOTS: usize = 2;
