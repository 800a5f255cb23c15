//! Data sets, good and bad.
//!
//! The good ones say what they wrote, so that a batch can be checked with nothing but itself in hand:
//!
//! | data set | a sample | file |
//! | --- | --- | --- |
//! | [`Fine`] | its id, and self-describing bytes | `fine.rs` |
//! | [`Laid`] | that of another set, lying ready in memory | `laid.rs` |
//! | [`Random`] | the random numbers of its context | `random.rs` |
//! | [`Wide`] | a field of every type, whole numbers that all hold | `wide.rs` |
//!
//! Sources, which are read in sequence, are in [`streams`].
//!
//! The bad ones are a good one with something done before each read: [`slow`], [`failing`], [`panicking`],
//! [`blocking`] and [`counting`], in `before.rs`. They nest.

mod before;
mod fine;
mod laid;
mod random;
pub mod streams;
mod wide;

pub use before::{Before, Gate, Reads, blocking, counting, failing, panicking, slow};
pub use fine::Fine;
pub use laid::Laid;
pub use random::Random;
pub use wide::Wide;
