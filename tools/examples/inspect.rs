//! Says what a file or folder holds: format, samples, fields, and checksums of the first and the last sample.
//!
//! `cargo run --release --example inspect -- PATH [--all] [--json]`
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use feedline_datasets::{OpenOptions, Reader, Values, open_with};
use lexopt::prelude::{Long, Short, Value};
use serde_json::json;
use sha2::{Digest, Sha256};

const HELP: &str = "\
Says what a file or folder of training data holds.

usage: inspect PATH [options]
  --all     read every sample, not the first and the last one only
  --json    print one JSON object: format, samples, fields, first, last
  --help

first and last are the SHA-256 of a sample: the bytes of its fields in order, little-endian, C order.
exit code: 0 done, 2 an error, on one line: what is wrong and where";

/// Files of up to this many bytes are read into memory; samples of larger ones are read one by one.
const IN_MEMORY: u64 = 16 << 20;

struct Options {
    path: PathBuf,
    all: bool,
    json: bool,
}

fn main() -> ExitCode {
    feedline_tools::end("inspect", run(std::env::args_os().skip(1)))
}

fn run(arguments: impl Iterator<Item = OsString>) -> Result<String, Box<dyn std::error::Error>> {
    let Some(options) = parse(arguments)? else { return Ok(format!("{HELP}\n")) };
    let reader = open_with(&options.path, &OpenOptions::with_memory_limit(IN_MEMORY))?;
    let [first, last] = checksums(&*reader, options.all)?;
    Ok(if options.json { as_json(&*reader, first, last) } else { as_text(&*reader, first, last) })
}

fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Option<Options>, lexopt::Error> {
    let (mut path, mut all, mut json) = (None, false, false);
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("all") => all = true,
            Long("json") => json = true,
            Long("help") | Short('h') => return Ok(None),
            Value(value) if path.is_none() => path = Some(PathBuf::from(value)),
            argument => return Err(argument.unexpected()),
        }
    }
    let path = path.ok_or("there is no path: give a file or a folder, see --help")?;
    Ok(Some(Options { path, all, json }))
}

/// The checksums of the first and the last sample; none where there are no samples.
fn checksums(reader: &dyn Reader, all: bool) -> feedline_core::Result<[Option<String>; 2]> {
    let Some(last) = reader.len().checked_sub(1) else { return Ok([None, None]) };
    let mut values = Values::new();
    if all {
        for sample in 0..reader.len() {
            reader.read(sample, &mut values)?;
        }
    }
    let mut checksum = |sample| {
        reader.read(sample, &mut values)?;
        let mut hash = Sha256::new();
        values.fields().iter().for_each(|value| hash.update(&value.bytes));
        Ok(Some(hash.finalize().iter().fold(String::new(), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })))
    };
    Ok([checksum(0)?, checksum(last)?])
}

fn as_json(reader: &dyn Reader, first: Option<String>, last: Option<String>) -> String {
    let fields = reader.schema().fields().iter();
    let fields: Vec<_> = fields
        .map(|field| json!({"name": field.name, "dtype": field.element.name(), "shape": field.shape}))
        .collect();
    let all = json!({
        "format": reader.format(), "samples": reader.len(), "fields": fields, "first": first, "last": last,
    });
    format!("{all}\n")
}

fn as_text(reader: &dyn Reader, first: Option<String>, last: Option<String>) -> String {
    let mut text = format!("format   {}\nsamples  {}\n", reader.format(), reader.len());
    for field in reader.schema().fields() {
        text += &format!("field    {}\n", field.to_string().replace(char::is_control, " "));
    }
    for (name, checksum) in [("first", first), ("last", last)] {
        text += &format!("{name:<8} {}\n", checksum.unwrap_or_else(|| "none".into()));
    }
    text
}
