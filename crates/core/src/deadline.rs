//! The end of a time limit.

use std::time::{Duration, Instant};

/// The longest limit, a hundred years: no clock overflows within it.
const MAX_LIMIT: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The instant `limit` from now.
///
/// `Instant + Duration` panics on overflow, for example for [`Duration::MAX`]. This function saturates
/// instead: a limit above a hundred years counts as a hundred years.
///
/// ```
/// use std::time::{Duration, Instant};
/// use feedline_core::deadline;
/// assert!(deadline(Duration::from_secs(1)) < deadline(Duration::MAX));
/// assert!(deadline(Duration::ZERO) <= Instant::now());
/// ```
pub fn deadline(limit: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(limit.min(MAX_LIMIT)).unwrap_or(now)
}
