//! For feedline's own crates. No stability: items change in any release.
//!
//! A module per type of this crate, with what loaders, bridges and readers of formats do with it and its
//! users do not.

pub mod bad_samples;
pub mod batch_sampler;
pub mod column;
pub mod content;
pub mod context;
pub mod cursor;
pub mod dtype;
pub mod error;
pub mod pad;
pub mod prefetch;
pub mod proof;
pub mod random;
pub mod row;
pub mod rows;
pub mod sampler;
pub mod source;
pub mod spec;

pub use crate::compose::map::check_whole;
pub use crate::lengths::{OneRow, ReadRow, before_labels, lengths_with_labels};
pub use crate::named::{named, speak_python, speaks_python};
pub use crate::on_threads::on_threads;

/// Refuses a set that is nested too deep; `what` makes or reads it.
///
/// # Errors
/// `Config`.
pub fn check_nesting(what: &str, nesting: usize) -> crate::Result<()> {
    crate::compose::check_nesting(what, nesting)
}
