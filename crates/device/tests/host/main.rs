//! The host device under pressure: concurrent calls, work that uses its own stream, and work that panics.
//!
//! Each of these cases once hung; a watchdog ends the process when one does so again.

mod concurrent;
mod own_stream;
mod panics;

use std::time::Duration;

/// Every case takes less than a second.
const LIMIT: Duration = Duration::from_secs(30);
