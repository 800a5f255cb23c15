//! Random loaders, and a reference to compare them with.

pub mod case;
pub mod reference;
pub mod run;
