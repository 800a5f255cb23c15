//! `feedline`: inspects data, and records and limits of training runs.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use feedline_tools::{commands, end_with};

fn main() -> ExitCode {
    end_with("feedline", commands::run(std::env::args_os().skip(1).collect()))
}
