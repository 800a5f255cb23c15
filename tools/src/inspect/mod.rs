//! Prints the content of a file or folder: format, samples, fields, one sample, and the lines that load it.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;

use feedline_core::Result;
use feedline_datasets::{Nulls, OpenOptions, Reader, Split, Values, open_with};
use lexopt::prelude::{Long, Short, Value};
use serde_json::json;
use sha2::{Digest, Sha256};

mod lines;
mod list;
mod picture;
mod sample;

const HELP: &str = "\
Says what a file or folder of training data holds.

usage: inspect PATH [options]
  --sample N      the sample to show, 0 without it
  --save FILE     writes the picture of that sample: as it is stored, or as PNG where the pixels are stored
  --all           read every sample: finds bad ones, and takes the lengths over all
  --test          the test set of a folder or archive whose file names tell the sets apart
  --fill          missing values become NaN, or zero among whole numbers; without it they are an error
  --json          print one JSON object: format, samples, fields, first, last, lengths, sample, load
  --help

first and last are the SHA-256 of a sample: the bytes of its fields in order, little-endian, C order.
lengths are those of the fields that vary in size, over the first 1000 samples, or all with --all.
A picture is drawn in a terminal that is wide enough.
If a folder cannot be read, all its files are listed, each with good or bad (JSON: files, with path, format
and samples, or path and error).
exit code: 0 done, 2 an error, on one line: what is wrong and where";

/// Files of up to this many bytes are read into memory; samples of larger ones are read one by one.
const IN_MEMORY: u64 = 16 << 20;

/// Samples whose lengths are taken without `--all`.
const MEASURED: u64 = 1000;

struct Options {
    path: PathBuf,
    sample: u64,
    save: Option<PathBuf>,
    all: bool,
    test: bool,
    fill: bool,
    json: bool,
}

/// The content of a file or folder.
struct Inspected {
    reader: Box<dyn Reader>,
    first: Option<String>,
    last: Option<String>,
    lengths: Vec<Lengths>,
    /// The sample to show.
    values: Values,
}

/// The lengths of a field that varies in size, in its first dimension.
struct Lengths {
    field: usize,
    min: usize,
    max: usize,
    sum: u64,
    samples: u64,
}

/// Runs the program; returns what it prints.
///
/// # Errors
/// One line for the user.
pub fn run(
    arguments: impl Iterator<Item = OsString>,
) -> std::result::Result<String, Box<dyn std::error::Error>> {
    let Some(options) = parse(arguments)? else { return Ok(format!("{HELP}\n")) };
    match inspect(&options) {
        Ok(inspected) => {
            if let Some(path) = &options.save {
                picture::save(&*inspected.reader, &inspected.values, path)?;
            }
            Ok(if options.json { as_json(&options, &inspected) } else { as_text(&options, &inspected) })
        }
        Err(error) if options.path.is_dir() => Err(list::print(&options, &error)?.into()),
        Err(error) => Err(error.into()),
    }
}

fn open(path: &std::path::Path, options: &Options) -> Result<Box<dyn Reader>> {
    let split = options.test.then_some(Split::Test);
    let nulls = if options.fill { Nulls::Fill } else { Nulls::Refuse };
    open_with(path, &OpenOptions { split, nulls, ..OpenOptions::with_memory_limit(IN_MEMORY) })
}

fn inspect(options: &Options) -> Result<Inspected> {
    let reader = open(&options.path, options)?;
    let mut values = Values::new();
    let Some(last) = reader.len().checked_sub(1) else {
        return Ok(Inspected { reader, first: None, last: None, lengths: Vec::new(), values });
    };
    let fields = reader.schema().fields().iter().enumerate();
    let varying = fields.filter(|(_, field)| field.shape.contains(&None));
    let lengths = |(field, _)| Lengths { field, min: usize::MAX, max: 0, sum: 0, samples: 0 };
    let mut lengths: Vec<_> = varying.map(lengths).collect();
    let measured = if lengths.is_empty() { 0 } else { reader.len().min(MEASURED) };
    for sample in 0..if options.all { reader.len() } else { measured } {
        reader.read(sample, &mut values)?;
        for lengths in &mut lengths {
            let length = values.fields()[lengths.field].shape.first().copied().unwrap_or(1);
            lengths.min = lengths.min.min(length);
            lengths.max = lengths.max.max(length);
            lengths.sum += length as u64;
            lengths.samples += 1;
        }
    }
    let [first, last] = [checksum(&*reader, 0, &mut values)?, checksum(&*reader, last, &mut values)?];
    reader.read(options.sample, &mut values)?;
    Ok(Inspected { reader, first: Some(first), last: Some(last), lengths, values })
}

/// The checksum of a sample.
fn checksum(reader: &dyn Reader, sample: u64, values: &mut Values) -> Result<String> {
    reader.read(sample, values)?;
    let mut hash = Sha256::new();
    values.fields().iter().for_each(|value| hash.update(&value.bytes));
    Ok(hash.finalize().iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

fn parse(arguments: impl Iterator<Item = OsString>) -> std::result::Result<Option<Options>, lexopt::Error> {
    let (mut path, mut sample, mut save) = (None, 0, None);
    let (mut all, mut test, mut fill, mut json) = (false, false, false, false);
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("sample") => {
                let text = parser.value()?;
                let number = text.to_str().and_then(|text| text.parse().ok());
                sample = number.ok_or_else(|| {
                    format!("--sample is {text:?}: give a whole number, 0 for the first sample")
                })?;
            }
            Long("save") => save = Some(PathBuf::from(parser.value()?)),
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
    Ok(Some(Options { path, sample, save, all, test, fill, json }))
}

impl Lengths {
    fn mean(&self) -> f64 {
        self.sum as f64 / self.samples.max(1) as f64
    }
}

fn as_json(options: &Options, inspected: &Inspected) -> String {
    let Inspected { reader, first, last, lengths, values } = inspected;
    let fields = reader.schema().fields();
    let names: Vec<_> = fields
        .iter()
        .map(|field| json!({"name": field.name, "dtype": field.element.name(), "shape": field.shape}))
        .collect();
    let mut all = json!({
        "format": reader.format(), "samples": reader.len(), "fields": names, "first": first, "last": last,
    });
    let of = |lengths: &Lengths| {
        let Lengths { field, min, max, samples, .. } = lengths;
        json!({"field": fields[*field].name, "min": min, "max": max, "mean": lengths.mean(), "samples": samples})
    };
    if !lengths.is_empty() {
        all["lengths"] = lengths.iter().map(of).collect();
    }
    if !reader.is_empty() {
        let shown = fields.iter().zip(values.fields());
        let shown = shown.map(|(field, value)| (field.name.clone(), sample::show(field, value).into()));
        all["sample"] = json!({"number": options.sample, "fields": serde_json::Map::from_iter(shown)});
        all["load"] = lines::load(&options.path, &**reader, values).into();
    }
    format!("{all}\n")
}

fn as_text(options: &Options, inspected: &Inspected) -> String {
    let Inspected { reader, first, last, lengths, values } = inspected;
    let printable = |text: String| text.replace(char::is_control, " ");
    let mut text = format!("format   {}\nsamples  {}\n", reader.format(), reader.len());
    for field in reader.schema().fields() {
        text += &format!("field    {}\n", printable(field.to_string()));
    }
    for (name, checksum) in [("first", first), ("last", last)] {
        text += &format!("{name:<8} {}\n", checksum.as_deref().unwrap_or("none"));
    }
    if let Some(rows) = reader.together() {
        text += &format!("groups   up to {rows} samples are decoded together\n");
    }
    for lengths in lengths {
        let name = printable(reader.schema().fields()[lengths.field].name.clone());
        let Lengths { min, max, samples, .. } = lengths;
        let mean = lengths.mean();
        text += &format!("lengths  {name}: {min} to {max}, mean {mean:.1}, of {samples} samples\n");
    }
    if reader.is_empty() {
        return text;
    }
    text += &format!("\nsample {}\n", options.sample);
    for (field, value) in reader.schema().fields().iter().zip(values.fields()) {
        text +=
            &format!("  {:<12} {}\n", printable(field.name.clone()), printable(sample::show(field, value)));
    }
    text += &picture::for_terminal(&**reader, values);
    text += &format!("\nload it by\n{}", lines::load(&options.path, &**reader, values));
    text
}
