//! The loaders of burn and dataloader-rs on the workload of `tiny`: 784-byte samples gathered from a
//! table of 60,000, shuffled, without a device. Each alternates with the bare gather on one thread.
//!
//! Three forms, from the documented to the tuned: `items`, one `Vec` per sample; `indices`, samples that
//! are numbers, gathered into a new `Vec` per batch; `recycled`, the same into pooled buffers.
#![forbid(unsafe_code)]

mod burn;
mod dataloader_rs;
mod measure;
mod row;
mod table;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use lexopt::ValueExt;
use lexopt::prelude::{Long, Short, Value};
use table::{Feed, Form, Table};

const HELP: &str = "\
Runs the loaders of other Rust libraries on the workload of the benchmark `tiny`.

usage: peers [options]
  --json FILE        append the rows to FILE, one JSON object per line
  --reps N           timed repetitions of each side [5]
  --seconds X        length of one repetition [0.1]
  --workers LIST     [0,1,2,8]
  --batches LIST     [128,512,4096]
  --only LIST        burn, dataloader-rs [both]
  --check            check the delivered samples without timing";

/// The parsed command line.
pub struct Options {
    json: Option<PathBuf>,
    reps: usize,
    repetition: Duration,
    workers: Vec<usize>,
    batches: Vec<usize>,
    only: Vec<String>,
    check: bool,
}

/// A library: its name, its crate, and the function that opens its loader.
struct Library {
    name: &'static str,
    package: &'static str,
    open: fn(&Arc<Table>, Form, usize, usize) -> Box<dyn Feed>,
}

const LIBRARIES: [Library; 2] = [
    Library { name: "burn", package: "burn-core", open: burn::open },
    Library { name: "dataloader-rs", package: "dataloader-rs", open: dataloader_rs::open },
];

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs all parts; returns whether every one succeeded.
fn run() -> Result<bool, Box<dyn Error>> {
    let Some(options) = parse()? else {
        println!("{HELP}");
        return Ok(true);
    };
    let table = Arc::new(Table::new());
    let mut report = row::Report::new(options.json.as_deref())?;
    let mut whole = true;
    for &batch in &options.batches {
        for library in &LIBRARIES {
            if !options.only.is_empty() && !options.only.iter().any(|name| name == library.name) {
                continue;
            }
            for form in Form::ALL {
                for &workers in &options.workers {
                    if let Err(error) = one(&options, &mut report, &table, library, (form, batch, workers)) {
                        // Report and skip a part that fails; the others still run.
                        let name = library.name;
                        eprintln!("FAILED {name}, {form}, batch {batch}, {workers} workers: {error}");
                        whole = false;
                    }
                }
            }
        }
    }
    Ok(whole)
}

fn one(
    options: &Options,
    report: &mut row::Report,
    table: &Arc<Table>,
    library: &Library,
    (form, batch, workers): (Form, usize, usize),
) -> Result<(), Box<dyn Error>> {
    let mut feed = (library.open)(table, form, batch, workers);
    // Two epochs: do not time a loader that delivers wrong bytes, a sample twice, or the same order again.
    table::check(table, feed.as_mut())?;
    if options.check {
        println!("{}, {form}, batch {batch}, {workers} workers: two correct epochs", library.name);
        return Ok(());
    }
    let mut baseline = table::Gather::new(table, batch);
    let sides = measure::sides(options, feed.as_mut(), &mut baseline)?;
    let version = row::version(library.package)?;
    report.add(library.name, &version, (form, batch, workers), &sides)
}

/// Parses the command line; `None` for `--help`.
fn parse() -> Result<Option<Options>, Box<dyn Error>> {
    let mut options = Options {
        json: None,
        reps: 5,
        repetition: Duration::from_millis(100),
        workers: vec![0, 1, 2, 8],
        batches: vec![128, 512, 4096],
        only: Vec::new(),
        check: false,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("json") => options.json = Some(parser.value()?.into()),
            Long("reps") => options.reps = parser.value()?.parse::<usize>()?.max(1),
            Long("seconds") => options.repetition = Duration::try_from_secs_f64(parser.value()?.parse()?)?,
            Long("workers") => options.workers = parser.value()?.parse_with(list)?,
            Long("batches") => options.batches = parser.value()?.parse_with(list)?,
            Long("only") => options.only = parser.value()?.string()?.split(',').map(str::to_owned).collect(),
            Long("check") => options.check = true,
            Long("help") | Short('h') => return Ok(None),
            Value(name) => return Err(format!("unknown argument {name:?}: see --help").into()),
            other => return Err(other.unexpected().into()),
        }
    }
    if let Some(name) =
        options.only.iter().find(|name| LIBRARIES.iter().all(|library| library.name != **name))
    {
        return Err(format!("no library is called {name:?}: see --help").into());
    }
    if options.batches.iter().any(|&batch| batch == 0 || batch > table::SAMPLES) {
        return Err(format!("--batches must be 1 to {}", table::SAMPLES).into());
    }
    Ok(Some(options))
}

fn list(text: &str) -> Result<Vec<usize>, std::num::ParseIntError> {
    text.split(',').map(str::parse).collect()
}
