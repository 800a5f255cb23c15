//! The example trainer: trains an MLP on labelled images through feedline.
#![forbid(unsafe_code)]

mod checkpoint;
mod data;
mod delivered;
mod drawn;
mod expected;
mod files;
mod interrupt;
mod labelled;
mod options;
mod pace;
mod pictures;
mod progress;
mod ranks;
mod report;
mod run;
mod train;

use std::fmt::Display;
use std::io::{ErrorKind as Io, Write};
use std::process::ExitCode;

use feedline::{Error, ErrorKind, Result};
use options::Command;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not `eprintln`, which panics if standard error is full: the exit code still shows the result.
            let _ = writeln!(std::io::stderr(), "mlp: {error}");
            // 128 plus the number of SIGINT, as in shells.
            ExitCode::from(if error.kind() == ErrorKind::Stopped { 130 } else { 2 })
        }
    }
}

fn run() -> Result<()> {
    let options = match options::parse(std::env::args_os().skip(1))? {
        Command::Print(text) => return print(&text),
        Command::Train(options) => options,
    };
    interrupt::survive_file_size_limit()?;
    // Only the first rank prints.
    let Some((report, output)) = run::run(&options)? else { return Ok(()) };
    let written = output.map_or(Ok(()), |output| report.write(&output));
    if written.is_err() {
        // If the file cannot be written, the report of a long run must still be printed.
        print(&report.json()?)?;
    }
    if !options.quiet {
        print(&report)?;
    }
    written.and_then(|()| report.check())
}

/// Prints to standard output. A closed pipe is not an error.
fn print(text: &dyn Display) -> Result<()> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != Io::BrokenPipe => {
            Err(Error::new(ErrorKind::Data, "cannot write to standard output").with_source(error))
        }
        _ => Ok(()),
    }
}
