//! RandAugment and TrivialAugment.

mod operation;
mod rand_augment;
mod trivial_augment;

pub use operation::Operation;
pub use rand_augment::RandAugment;
pub use trivial_augment::TrivialAugment;
