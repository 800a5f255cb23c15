//! The outcome of prefetching for sets of several parts.

use crate::Prefetched;

/// The combined outcome of `calls` for the parts of a set.
pub fn of_calls(calls: impl IntoIterator<Item = Prefetched>) -> Prefetched {
    Prefetched::of_calls(calls)
}

/// The outcome for a composed set if only some of its parts were called.
pub fn beside(prefetched: Prefetched, others: impl IntoIterator<Item = Prefetched>) -> Prefetched {
    prefetched.beside(others)
}
