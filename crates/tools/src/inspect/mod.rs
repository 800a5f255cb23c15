//! Prints the content of a file or folder: format, samples, fields, one sample, and the lines that load it.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use columns::Columns;
use feedline_core::{Dataset, Result, Values, speaks_python};
use feedline_datasets::{Nulls, OpenOptions, Split, open_with};
use lexopt::prelude::{Long, Short, Value};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::EXIT;

mod columns;
mod lines;
mod list;
mod picture;
mod python;
mod sample;
mod steps;

/// The text of `--help`, without the exit codes.
pub const HELP: &str = "\
Says what a file or folder of training data holds.

usage: feedline inspect PATH [options]
  --sample N      the sample to show, 0 without it
  --save FILE     writes the picture of that sample: as it is stored, or as PNG where the pixels are stored
  --all           read every sample: finds bad ones, and takes lengths and missing values over all
  --test          the test set of a folder or archive whose file names tell the sets apart
  --fill          missing values become NaN, or zero among whole numbers; without it
                  a column that lacks values is followed by NAME.present
  --json          print one JSON object: format, samples, fields, classes, missing, first, last, lengths,
                  sample, load, or no_load where no lines load it
  --help

first and last are the SHA-256 of a sample: the bytes of its fields in order, little-endian, C order.
lengths are those of the fields that vary in size, and missing counts the rows of a table that lack a value:
over the first 1000 samples, the last one and the one that is shown, or all with --all.
A picture is drawn in a terminal that is wide enough.
If a folder cannot be read, all its files are listed, each with good or bad (JSON: files, with path, format
and samples, or path and error).";

/// Files of up to this many bytes are read into memory; samples of larger ones are read one by one.
const IN_MEMORY: u64 = 16 << 20;

/// Samples whose lengths and missing values are counted without `--all`.
const MEASURED: u64 = 1000;

/// Names of classes that are printed.
const CLASSES: usize = 10;

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
    reader: Arc<dyn Dataset>,
    first: Option<String>,
    last: Option<String>,
    lengths: Vec<Lengths>,
    /// The columns or fields; `None` if there are no samples.
    columns: Option<Columns>,
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
    let Some(options) = parse(arguments)? else { return Ok(format!("{HELP}\n{EXIT}")) };
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

/// The options for opening, from the arguments.
fn asked(options: &Options) -> OpenOptions {
    let split = options.test.then_some(Split::Test);
    let nulls = if options.fill { Nulls::Fill } else { Nulls::Refuse };
    OpenOptions { split, nulls, ..OpenOptions::with_memory_limit(IN_MEMORY) }
}

fn inspect(options: &Options) -> Result<Inspected> {
    let mut reader = open_with(&options.path, &asked(options))?;
    let mut values = Values::new();
    let Some(last) = reader.len().checked_sub(1) else {
        let (lengths, columns) = (Vec::new(), None);
        return Ok(Inspected { reader, first: None, last: None, lengths, columns, values });
    };
    let counted = if options.all { reader.len() } else { reader.len().min(MEASURED) };
    let rows =
        (0..counted).chain([options.sample, last].into_iter().filter(|&row| row >= counted && row <= last));
    let columns = Columns::read(&options.path, asked(options), &*reader, rows)?;
    let masks: Vec<_> = columns.missing().map(|(name, _)| name.to_owned()).collect();
    if !options.fill && !masks.is_empty() {
        // Masks let the other values of rows with missing ones be read.
        reader = open_with(&options.path, &OpenOptions { masks, ..asked(options) })?;
    }
    let fields = reader.spec().fields().iter().enumerate();
    let varying = fields.filter(|(_, field)| field.dims().contains(&None));
    let lengths = |(field, _)| Lengths { field, min: usize::MAX, max: 0, sum: 0, samples: 0 };
    let mut lengths: Vec<_> = varying.map(lengths).collect();
    let measured = if lengths.is_empty() { 0 } else { reader.len().min(MEASURED) };
    for sample in 0..if options.all { reader.len() } else { measured } {
        values.read(&*reader, sample)?;
        for lengths in &mut lengths {
            let length = values.fields()[lengths.field].shape.first().copied().unwrap_or(1);
            lengths.min = lengths.min.min(length);
            lengths.max = lengths.max.max(length);
            lengths.sum += length as u64;
            lengths.samples += 1;
        }
    }
    let [first, last] = [checksum(&*reader, 0, &mut values)?, checksum(&*reader, last, &mut values)?];
    values.read(&*reader, options.sample)?;
    let (first, last, columns) = (Some(first), Some(last), Some(columns));
    Ok(Inspected { reader, first, last, lengths, columns, values })
}

/// The checksum of a sample.
fn checksum(reader: &dyn Dataset, sample: u64, values: &mut Values) -> Result<String> {
    values.read(reader, sample)?;
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
    let Inspected { reader, first, last, lengths, columns, values } = inspected;
    let fields = reader.spec().fields();
    let names: Vec<_> = fields
        .iter()
        .map(|field| json!({"name": field.name(), "dtype": field.element().name(), "shape": field.dims()}))
        .collect();
    let mut all = json!({
        "format": reader.about().format, "samples": reader.len(), "fields": names,
        "first": first, "last": last,
    });
    if let Some(classes) = reader.about().classes {
        all["classes"] = classes.into();
    }
    if let Some(columns) = columns.as_ref().filter(|columns| columns.is_table) {
        let missing = columns.missing().map(|(name, count)| (name.to_owned(), count.into()));
        all["missing"] = json!({"rows": columns.rows, "columns": serde_json::Map::from_iter(missing)});
    }
    let of = |lengths: &Lengths| {
        let Lengths { field, min, max, samples, .. } = lengths;
        let mean = lengths.mean();
        json!({"field": fields[*field].name(), "min": min, "max": max, "mean": mean, "samples": samples})
    };
    if !lengths.is_empty() {
        all["lengths"] = lengths.iter().map(of).collect();
    }
    if reader.len() > 0 {
        let shown = fields.iter().zip(values.fields());
        let shown = shown.map(|(field, value)| (field.name().to_owned(), sample::show(field, value).into()));
        all["sample"] = json!({"number": options.sample, "fields": serde_json::Map::from_iter(shown)});
    }
    match load(options, inspected) {
        Ok(lines) => all["load"] = lines.into(),
        Err(why) => all["no_load"] = why.into(),
    }
    format!("{all}\n")
}

fn as_text(options: &Options, inspected: &Inspected) -> String {
    let Inspected { reader, first, last, lengths, columns, values } = inspected;
    let printable = |text: String| text.replace(char::is_control, " ");
    let mut text = format!("format   {}\nsamples  {}\n", reader.about().format, reader.len());
    for field in reader.spec().fields() {
        text += &format!("field    {}\n", printable(field.to_string()));
    }
    for (name, checksum) in [("first", first), ("last", last)] {
        text += &format!("{name:<8} {}\n", checksum.as_deref().unwrap_or("none"));
    }
    if let Some(rows) = reader.about().groups.map(|groups| groups.largest) {
        text += &format!("groups   up to {rows} samples are decoded together\n");
    }
    if let Some(classes) = reader.about().classes {
        let names: Vec<_> = classes.iter().take(CLASSES).cloned().map(printable).collect();
        let rest = if classes.len() > CLASSES { ", ..." } else { "" };
        text += &format!("classes  {}: {}{rest}\n", classes.len(), names.join(", "));
    }
    for (name, count) in columns.iter().flat_map(Columns::missing) {
        let rows = columns.as_ref().map_or(0, |columns| columns.rows);
        text += &format!("missing  {}: {count} of {rows} rows\n", printable(name.to_owned()));
    }
    for lengths in lengths {
        let name = printable(reader.spec().fields()[lengths.field].name().to_owned());
        let Lengths { min, max, samples, .. } = lengths;
        let mean = lengths.mean();
        text += &format!("lengths  {name}: {min} to {max}, mean {mean:.1}, of {samples} samples\n");
    }
    if reader.len() > 0 {
        text += &format!("\nsample {}\n", options.sample);
        for (field, value) in reader.spec().fields().iter().zip(values.fields()) {
            let (name, value) = (printable(field.name().to_owned()), printable(sample::show(field, value)));
            text += &format!("  {name:<12} {value}\n");
        }
        text += &picture::for_terminal(&**reader, values);
    }
    text + &match load(options, inspected) {
        Ok(lines) => format!("\nload it by\n{lines}"),
        Err(why) => format!("\nno lines load it: {}\n", printable(why)),
    }
}

/// The lines that load it, in the user's language.
///
/// # Errors
/// Why there are none.
fn load(options: &Options, inspected: &Inspected) -> std::result::Result<String, String> {
    if inspected.reader.len() == 0 {
        return Err("it has no samples".into());
    }
    let path = options.path.to_str().ok_or("its path is not Unicode: rename it")?;
    if speaks_python() {
        python::load(options, inspected, path)
    } else {
        lines::load(options, inspected, path)
    }
}
