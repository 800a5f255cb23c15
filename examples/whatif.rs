//! Predicts the effect of other settings from the service times of a run; needs no GPU. The same as the
//! command `feedline whatif` of `tools`.
//!
//! `cargo run --release --example whatif -- FILE --workers 8`, with a file of `mlp --profile FILE`.
#![forbid(unsafe_code)]

#[path = "whatif/mod.rs"]
mod whatif;

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let text = match whatif::run(lexopt::Parser::from_env()) {
        Ok(text) => text,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "whatif: {error}");
            return ExitCode::from(2);
        }
    };
    // A closed pipe is not an error.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}
