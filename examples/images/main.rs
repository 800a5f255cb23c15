//! Trains a small classifier on a folder of pictures, and shows its input.
//!
//! `cargo run --release --features nvjpeg --example images -- FOLDER [--epochs N] [--decode BY]`
#![forbid(unsafe_code)]

mod feed;
mod options;
mod pictures;
mod sheet;
mod train;
mod waited;

use std::io::Write;
use std::process::ExitCode;

use feedline::Result;

fn main() -> ExitCode {
    let Err(error) = run() else { return ExitCode::SUCCESS };
    // Not `eprintln`, which panics if standard error is closed: the exit code still shows the result.
    let _ = writeln!(std::io::stderr(), "images: {error}");
    ExitCode::from(2)
}

fn run() -> Result<()> {
    let Some(options) = options::parse(std::env::args_os().skip(1))? else {
        return options::print(options::HELP);
    };
    if let Some(path) = &options.sheet {
        sheet::write(&options, path)?;
        options::print(&format!("sheet     {}", path.display()))?;
    }
    if options.epochs > 0 { train::run(&options) } else { Ok(()) }
}
