//! Tests of the programs.

mod inspect;
mod jobs;
mod pack;
#[path = "../run/mod.rs"]
mod run;
