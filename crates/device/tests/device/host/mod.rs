//! Tests of the host device: concurrent calls, work that uses its own stream, work that panics, and slots
//! that are read in place.
//!
//! Each case is a regression test for a hang, so each runs under a watchdog.

mod concurrent;
mod in_place;
mod own_stream;
mod panics;
mod resident;

use std::time::Duration;

/// Every case takes less than a second, except under miri.
const LIMIT: Duration = Duration::from_secs(if cfg!(miri) { 600 } else { 30 });
