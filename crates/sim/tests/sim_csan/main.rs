//! What the simulator's analysis must tell apart, case by case, and the misuse it must refuse.

mod bench;
mod host;
mod misuse;
mod streams;
