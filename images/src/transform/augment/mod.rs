//! Augmentations that choose from a set of operations.

mod affine;
mod operation;
mod rand_augment;
mod trivial_augment;

pub use operation::Operation;
pub use rand_augment::RandAugment;
pub use trivial_augment::TrivialAugment;
