//! Loaders drawn at random, and a reference to hold them against.

pub mod case;
pub mod reference;
pub mod run;
