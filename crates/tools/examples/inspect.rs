//! Prints the content of a file or folder; see `--help`.
//!
//! `cargo run --release -p feedline-tools --example inspect -- PATH`
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    feedline_tools::end("inspect", feedline_tools::inspect::run(std::env::args_os().skip(1)))
}
