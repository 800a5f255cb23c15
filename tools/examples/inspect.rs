//! Prints the content of a file or folder: format, samples, fields, and checksums of the first and the last
//! sample.
//!
//! `cargo run --release -p feedline-tools --example inspect -- PATH [--all] [--test] [--fill] [--json]`
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use feedline_core::Error;
use feedline_datasets::{Nulls, OpenOptions, Reader, Split, Values, open_with};
use lexopt::prelude::{Long, Short, Value};
use serde_json::json;
use sha2::{Digest, Sha256};

const HELP: &str = "\
Says what a file or folder of training data holds.

usage: inspect PATH [options]
  --all     read every sample, not the first and the last one only
  --test    the test set of a folder or archive whose file names tell the sets apart
  --fill    missing values become NaN, or zero among whole numbers; without it they are an error
  --json    print one JSON object: format, samples, fields, first, last
  --help

first and last are the SHA-256 of a sample: the bytes of its fields in order, little-endian, C order.
If a folder cannot be read, all its files are listed, each with good or bad (JSON: files, with path, format
and samples, or path and error).
exit code: 0 done, 2 an error, on one line: what is wrong and where";

/// Files of up to this many bytes are read into memory; samples of larger ones are read one by one.
const IN_MEMORY: u64 = 16 << 20;

struct Options {
    path: PathBuf,
    all: bool,
    test: bool,
    fill: bool,
    json: bool,
}

fn main() -> ExitCode {
    feedline_tools::end("inspect", run(std::env::args_os().skip(1)))
}

fn run(arguments: impl Iterator<Item = OsString>) -> Result<String, Box<dyn std::error::Error>> {
    let Some(options) = parse(arguments)? else { return Ok(format!("{HELP}\n")) };
    match inspect(&options.path, &options) {
        Ok((reader, [first, last])) => {
            Ok(if options.json { as_json(&*reader, first, last) } else { as_text(&*reader, first, last) })
        }
        Err(error) if options.path.is_dir() => {
            let listed = list(&options, &error)?;
            // The listing goes to standard output, and the error to standard error.
            std::io::stdout().write_all(listed.text.as_bytes())?;
            let (bad, files) = (listed.bad, listed.files);
            Err(format!("{bad} of {files} files are bad: {error}").into())
        }
        Err(error) => Err(error.into()),
    }
}

type Inspected = (Box<dyn Reader>, [Option<String>; 2]);

fn inspect(path: &Path, options: &Options) -> feedline_core::Result<Inspected> {
    let split = options.test.then_some(Split::Test);
    let nulls = if options.fill { Nulls::Fill } else { Nulls::Refuse };
    let open = OpenOptions { split, nulls, ..OpenOptions::with_memory_limit(IN_MEMORY) };
    let reader = open_with(path, &open)?;
    let checksums = checksums(&*reader, options.all)?;
    Ok((reader, checksums))
}

/// What is said of the files of a folder.
struct Listed {
    text: String,
    files: usize,
    bad: usize,
}

/// Inspects each file below a folder that cannot be read as a whole, because of `error`.
fn list(options: &Options, error: &Error) -> std::io::Result<Listed> {
    let mut paths = Vec::new();
    walk(&options.path, &mut paths)?;
    let (mut listed, mut entries) = (Listed { text: String::new(), files: paths.len(), bad: 0 }, Vec::new());
    for path in paths {
        let inspected = match inspect(&path, options) {
            // It may be good alone, and not fit the others.
            Ok(_) if error.path() == Some(&path) => Err(error.clone()),
            inspected => inspected,
        };
        let name = path.display().to_string();
        let (state, what, entry) = match inspected {
            Ok((reader, _)) => {
                let (format, samples) = (reader.format(), reader.len());
                let entry = json!({"path": name, "format": format, "samples": samples});
                ("good", format!("{name}  {format}, {samples} samples"), entry)
            }
            Err(error) => {
                listed.bad += 1;
                ("bad", format!("{name}  {error}"), json!({"path": name, "error": error.to_string()}))
            }
        };
        listed.text += &format!("{state:<8} {}\n", what.replace(char::is_control, " "));
        entries.push(entry);
    }
    if options.json {
        listed.text = format!("{}\n", json!({"files": entries}));
    }
    Ok(listed)
}

/// The files below a folder, sorted; indexes and hidden files are left out.
fn walk(folder: &Path, to: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let mut entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(|entry| entry.path());
    for entry in entries {
        let name = entry.file_name();
        // A link to a folder may lead round in a circle.
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), to)?;
        } else if !name.as_encoded_bytes().starts_with(b".")
            && !name.as_encoded_bytes().starts_with(b"_")
            && name != "index.json"
        {
            to.push(entry.path());
        }
    }
    Ok(())
}

fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Option<Options>, lexopt::Error> {
    let (mut path, mut all, mut test, mut fill, mut json) = (None, false, false, false, false);
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("all") => all = true,
            Long("test") => test = true,
            Long("fill") => fill = true,
            Long("json") => json = true,
            Long("help") | Short('h') => return Ok(None),
            Value(value) if path.is_none() => path = Some(PathBuf::from(value)),
            argument => return Err(argument.unexpected()),
        }
    }
    let path = path.ok_or("there is no path: give a file or a folder, see --help")?;
    Ok(Some(Options { path, all, test, fill, json }))
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
