//! Writes any source as Arrow files, which are read fastest.
//!
//! `cargo run --release -p feedline-tools --example pack -- SRC DST [--shard-mib N] [--test] [--fill] [--quiet]`
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use feedline_datasets::{Nulls, OpenOptions, PackOptions, Packed, Split, open_with, pack};
use indicatif::{ProgressBar, ProgressStyle};
use lexopt::prelude::{Long, Short, Value, ValueExt as _};

const HELP: &str = "\
Writes any file or folder of training data as Arrow files.

usage: pack SRC DST [options]
  --shard-mib N   DST is a folder: files of about N MiB each, with an index
  --test          the test set of a folder or archive whose file names tell the sets apart
  --fill          missing values become NaN, or zero among whole numbers; without it they are an error
  --quiet         no progress bar
  --help

A run that was ended goes on where it was.

exit code: 0 done, 2 an error, on one line: what is wrong and where";

/// Files of up to this many bytes are read into memory; samples of larger ones are read one by one.
const IN_MEMORY: u64 = 256 << 20;

struct Options {
    from: PathBuf,
    to: PathBuf,
    shard_bytes: Option<u64>,
    split: Option<Split>,
    nulls: Nulls,
    quiet: bool,
}

fn main() -> ExitCode {
    feedline_tools::end("pack", run(std::env::args_os().skip(1)))
}

fn run(arguments: impl Iterator<Item = OsString>) -> Result<String, Box<dyn std::error::Error>> {
    let Some(Options { from, to, shard_bytes, split, nulls, quiet }) = parse(arguments)? else {
        return Ok(format!("{HELP}\n"));
    };
    let reader =
        open_with(&from, &OpenOptions { split, nulls, ..OpenOptions::with_memory_limit(IN_MEMORY) })?;
    let bar = if quiet || !std::io::stderr().is_terminal() {
        ProgressBar::hidden()
    } else {
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} samples, {per_sec}, {eta} left")?;
        ProgressBar::new(reader.len()).with_style(style)
    };
    let packed = pack(&*reader, &to, PackOptions { shard_bytes }, |samples| bar.set_position(samples));
    bar.finish_and_clear();
    let Packed { samples, files, bytes, kept, kept_samples } = packed?;
    let files = match (files, kept_samples) {
        (1, 0) => "1 file".into(),
        (1, _) => format!("1 file ({kept_samples} samples were there)"),
        _ => format!("{files} files ({kept} were there)"),
    };
    Ok(format!("packed {samples} samples: {files}, {bytes} bytes\n"))
}

fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Option<Options>, lexopt::Error> {
    let (mut from, mut to, mut shard_bytes, mut split, mut quiet) = (None, None, None, None, false);
    let mut nulls = Nulls::default();
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("shard-mib") => {
                let mib: u64 = parser.value()?.parse()?;
                let bytes = mib.checked_mul(1 << 20).filter(|bytes| *bytes > 0);
                shard_bytes = Some(bytes.ok_or("--shard-mib takes a number from 1 on")?);
            }
            Long("test") => split = Some(Split::Test),
            Long("fill") => nulls = Nulls::Fill,
            Long("quiet") => quiet = true,
            Long("help") | Short('h') => return Ok(None),
            Value(value) if from.is_none() => from = Some(PathBuf::from(value)),
            Value(value) if to.is_none() => to = Some(PathBuf::from(value)),
            argument => return Err(argument.unexpected()),
        }
    }
    let (Some(from), Some(to)) = (from, to) else {
        return Err("give a source and a target, see --help".into());
    };
    Ok(Some(Options { from, to, shard_bytes, split, nulls, quiet }))
}
