//! The simulator's analysis, case by case, and the misuse that it must reject.

mod bench;
mod host;
mod misuse;
mod streams;
