//! Tests of the programs.

mod inspect;
mod pack;
#[path = "../run/mod.rs"]
mod run;
