//! Inspects the machine, and reports what will limit training on it and what to change. The same as the
//! command `feedline doctor` of `tools`.
//!
//! `cargo run --release --example doctor [-- --json] [--data FOLDER]`
#![forbid(unsafe_code)]

#[path = "doctor/mod.rs"]
mod doctor;

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let text = match doctor::run(lexopt::Parser::from_env()) {
        Ok(text) => text,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "doctor: {error}");
            return ExitCode::from(2);
        }
    };
    // A closed pipe is not an error.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}
