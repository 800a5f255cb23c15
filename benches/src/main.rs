//! Benchmarks of feedline. Each is compared with its baseline on the same device in the same run; see
//! `README.md`.
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "the baselines are raw backend calls")]
mod baseline;
mod devices;
mod epoch;
mod guards;
mod handoff;
mod idle;
mod jpeg;
mod measure;
mod noisy;
mod options;
mod overlap;
mod records;
mod row;
mod scale;
mod sets;
mod setting;
mod start;
mod tiny;
mod train;
mod transfer;

use std::process::ExitCode;

use feedline::{Error, ErrorKind, Result};
use options::{Command, Options};
use row::Report;

/// A benchmark adds its rows to the report.
type Bench = fn(&Options, &mut Report) -> Result<()>;

/// Every benchmark, in the order `all` runs them.
const BENCHES: [(&str, Bench); 12] = [
    ("handoff", handoff::run),
    ("guards", guards::run),
    ("transfer", transfer::run),
    ("train", train::run),
    ("raw", records::raw),
    ("gather", records::gather),
    ("tiny", tiny::run),
    ("epoch", epoch::run),
    ("start", start::run),
    ("idle", idle::run),
    ("noisy", noisy::run),
    ("overlap", overlap::run),
];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("benches: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<()> {
    let options = match options::parse(std::env::args_os().skip(1))? {
        Command::Print(text) => {
            println!("{text}");
            return Ok(());
        }
        Command::Run(options) => options,
    };
    let mut report = Report::new(&options)?;
    let mut found = false;
    for (name, bench) in BENCHES {
        if options.names.iter().any(|asked| asked == name || asked == "all") {
            found = true;
            bench(&options, &mut report)?;
        }
    }
    // Sweeps take minutes, so they run only by name.
    if options.names.iter().any(|asked| asked == "scale") {
        found = true;
        scale::run(&options, &mut report)?;
    }
    // All GPUs of the host at once.
    if options.names.iter().any(|asked| asked == "devices") {
        found = true;
        devices::run(&options, &mut report)?;
    }
    // It needs files, which the repository does not have.
    if options.names.iter().any(|asked| asked == "jpeg") {
        found = true;
        jpeg::run(&options, &mut report)?;
    }
    if found {
        return Ok(());
    }
    let names: Vec<_> = BENCHES.iter().map(|(name, _)| *name).chain(["scale", "devices", "jpeg"]).collect();
    let why = format!("no benchmark is called {:?}: name some of {names:?}, or all", options.names);
    Err(Error::new(ErrorKind::Config, why))
}
