//! Tests of the programs.

mod inspect;
mod jobs;
mod pack;
mod record;
#[path = "../run/mod.rs"]
mod run;
