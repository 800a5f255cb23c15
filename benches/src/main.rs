//! Benchmarks of feedline, each against its floor on the same device in the same run; see the README of this folder.
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "raw calls of a backend are what benchmarks are held against")]
mod baseline;
mod epoch;
mod guards;
mod handoff;
mod idle;
mod measure;
mod noisy;
mod options;
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

/// A benchmark: it adds its rows to the report.
type Bench = fn(&Options, &mut Report) -> Result<()>;

/// Every benchmark, in the order `all` runs them.
const BENCHES: [(&str, Bench); 11] = [
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
    // Sweeps take minutes: they are asked for by name.
    if options.names.iter().any(|asked| asked == "scale") {
        found = true;
        scale::run(&options, &mut report)?;
    }
    if found {
        return Ok(());
    }
    let names: Vec<_> = BENCHES.iter().map(|(name, _)| *name).chain(["scale"]).collect();
    let why = format!("no benchmark {:?}: give all or some of {names:?}", options.names);
    Err(Error::new(ErrorKind::Config, why))
}
