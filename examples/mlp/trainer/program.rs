//! The program, in this workspace without decode servers; `crates/servers/examples/mlp.rs` has the one with
//! them.

mod checkpoint;
mod data;
mod delivered;
mod drawn;
mod expected;
mod files;
mod interrupt;
mod options;
mod pace;
mod progress;
mod ranks;
mod report;
mod run;
mod train;

use std::fmt::Display;
use std::io::{ErrorKind as Io, Write};
use std::process::ExitCode;

use feedline::{Error, ErrorKind, LoaderBuilder, Result};
use options::Command;
pub use options::Options;

/// Lets the decode servers of `--servers` fill batches of the training set.
pub type AddServers = fn(LoaderBuilder, &str, &Options) -> Result<LoaderBuilder>;

/// Runs the command line. Without `servers`, `--servers` is an error.
pub fn main(servers: Option<AddServers>) -> ExitCode {
    match run(servers) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not `eprintln`, which panics if standard error is full: the exit code still shows the result.
            let _ = writeln!(std::io::stderr(), "mlp: {error}");
            // 128 plus the number of SIGINT, as in shells.
            ExitCode::from(if error.kind() == ErrorKind::Stopped { 130 } else { 2 })
        }
    }
}

fn run(servers: Option<AddServers>) -> Result<()> {
    let options = match options::parse(std::env::args_os().skip(1))? {
        Command::Print(text) => return print(&text),
        Command::Train(options) => options,
    };
    if options.servers.is_some() && servers.is_none() {
        let why = "--servers: this program asks no servers, that of the folder servers does";
        return Err(Error::new(ErrorKind::Config, why));
    }
    interrupt::survive_file_size_limit()?;
    // Only the first rank prints.
    let Some((report, output)) = run::run(&options, servers)? else { return Ok(()) };
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
