//! Inspects the machine, and reports what will limit training on it and what to change. The same as the
//! command `feedline doctor` of `tools`.
//!
//! `cargo run --release --example doctor [-- --json] [--data FOLDER]`
#![forbid(unsafe_code)]

#[path = "doctor/mod.rs"]
mod doctor;

use std::io::Write as _;
use std::process::ExitCode;

use feedline_examples::program;

fn main() -> ExitCode {
    program::main("doctor", "", doctor::run(lexopt::Parser::from_env()).map(Some), |text| {
        // A closed pipe is not an error.
        let _ = std::io::stdout().write_all(text.as_bytes());
        Ok(())
    })
}
