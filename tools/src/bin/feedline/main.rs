//! `feedline`: what data holds, what a training run has seen, and what limits it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use feedline_tools::{commands, end_with};

fn main() -> ExitCode {
    end_with("feedline", commands::run(std::env::args_os().skip(1).collect()))
}
