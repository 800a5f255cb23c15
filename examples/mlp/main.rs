//! The example trainer: an MLP from IDX files through decode, transfer and compute.
#![forbid(unsafe_code)]

mod checkpoint;
mod data;
mod options;
mod progress;
mod report;
mod run;
mod train;

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use feedline::ErrorKind;
use options::Command;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mlp: {error}");
            // 128 and the number of SIGINT, as shells have it.
            ExitCode::from(if error.kind() == ErrorKind::Stopped { 130 } else { 2 })
        }
    }
}

fn run() -> feedline::Result<()> {
    let options = match options::parse(std::env::args_os().skip(1))? {
        Command::Print(text) => {
            print(&text);
            return Ok(());
        }
        Command::Train(options) => options,
    };
    let report = run::run(&options)?;
    if let Some(path) = &options.json {
        report.write(path)?;
    }
    if !options.quiet {
        print(&report);
    }
    Ok(())
}

/// Prints to whoever listens: a closed standard output is no error.
fn print(text: &dyn Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}
