//! Writes any source as Arrow files; see `--help`.
//!
//! `cargo run --release -p feedline-tools --example pack -- SRC DST`
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    feedline_tools::end("pack", feedline_tools::pack::run(std::env::args_os().skip(1)))
}
