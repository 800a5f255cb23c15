//! Benchmarks of feedline. Each is compared with its baseline on the same device in the same run; see
//! `README.md`.
#![deny(unsafe_code)]

mod augment;
#[allow(unsafe_code, reason = "the baselines are raw backend calls")]
mod baseline;
mod devices;
mod epoch;
#[cfg(feature = "formats")]
mod groups;
mod guards;
mod handoff;
mod idle;
mod jpeg;
#[cfg(feature = "cuda")]
mod jpeg_gpu;
mod mapped;
mod measure;
mod noisy;
mod options;
mod overlap;
#[cfg(feature = "formats")]
mod packed;
#[cfg(feature = "formats")]
mod readers;
mod record;
mod records;
mod resident;
mod row;
mod scale;
mod sets;
mod setting;
mod start;
mod tiny;
mod tokens;
mod train;
mod transfer;

use std::process::ExitCode;

use feedline::{Error, ErrorKind, Result};
use options::{Command, Options};
use row::Report;

/// A benchmark adds its rows to the report.
type Bench = fn(&Options, &mut Report) -> Result<()>;

/// Every benchmark, in the order `all` runs them.
const BENCHES: [(&str, Bench); 13] = [
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
    ("augment", augment::run),
];

/// Benchmarks that run only by name: they take minutes, or need files or formats that the repository does not
/// have.
const BY_NAME: &[(&str, Bench)] = &[
    ("scale", scale::run),
    ("devices", devices::run),
    ("jpeg", jpeg::run),
    #[cfg(feature = "cuda")]
    ("jpeg-gpu", jpeg_gpu::run),
    ("tokens", tokens::run),
    ("record", record::run),
    ("resident", resident::run),
    ("mapped", mapped::run),
    #[cfg(feature = "formats")]
    ("readers", readers::run),
    #[cfg(feature = "formats")]
    ("groups", groups::run),
    #[cfg(feature = "formats")]
    ("packed", packed::run),
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
    for (name, bench) in BY_NAME {
        if options.names.iter().any(|asked| asked == name) {
            found = true;
            bench(&options, &mut report)?;
        }
    }
    if found {
        return Ok(());
    }
    let names: Vec<_> = BENCHES.iter().chain(BY_NAME).map(|(name, _)| *name).collect();
    let why = format!("no benchmark is called {:?}: name some of {names:?}, or all", options.names);
    Err(Error::new(ErrorKind::Config, why))
}
