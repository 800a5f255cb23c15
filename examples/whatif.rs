//! Predicts the effect of other settings from the service times of a run; needs no GPU. The same as the
//! command `feedline whatif` of `tools`.
//!
//! `cargo run --release --example whatif -- FILE --workers 8`, with a file of `mlp --profile FILE`.
#![forbid(unsafe_code)]

#[path = "whatif/mod.rs"]
mod whatif;

use std::io::Write as _;
use std::process::ExitCode;

use feedline_examples::program;

fn main() -> ExitCode {
    program::main("whatif", "", whatif::run(lexopt::Parser::from_env()).map(Some), |text| {
        // A closed pipe is not an error.
        let _ = std::io::stdout().write_all(text.as_bytes());
        Ok(())
    })
}
