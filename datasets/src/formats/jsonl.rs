//! JSON Lines: each line is an object, and its keys are typed columns.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use feedline_core::{
    About, Context, Dataset, ElementType, Error, Field, Meaning, ReadError, Result, Row, Spec,
};

use crate::bounded::row_memory::CACHE_BYTES;
use crate::error::{check_names, data, inside, one_line};
use crate::formats::column_type::{ByName, ColumnType, Rounded};
use crate::formats::json::entries;
use crate::io::at_once::at_once;
use crate::io::bytes::Content;
use crate::tables::nulls::{missing, present};
use crate::{Buffers, Lines, Nulls};

mod types;

use types::Seen;

/// Max columns. A file with more keys is not a table.
const MAX_COLUMNS: usize = 1 << 16;

/// How to read a JSON Lines file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonLinesOptions {
    /// The keys to read, in the order of first appearance; `None` reads all.
    pub columns: Option<Vec<String>>,
    /// Types for single columns instead of the inferred ones: `i64`, `u64`, `f64`, `bool` or `text`. For
    /// lists, it is the type of the elements. A value that does not fit is an error.
    pub types: Vec<(String, ElementType)>,
    /// Columns that may lack values. The field `NAME.present` (`bool`) follows each of them. A missing value
    /// is read as zero or empty, and its `NAME.present` is false. A column without any value is `f64`.
    pub masks: Vec<String>,
    /// How missing values in other columns are read: a `null`, or a key that a line lacks.
    pub nulls: Nulls,
    /// Columns of codes, such as the categories of a `Table`. A list or an object among their values is an
    /// error.
    pub codes: Vec<String>,
    /// Max bytes of rows in memory. If all fields have one size and the rows fit, each row is decoded once.
    /// Otherwise rows are read from the file.
    pub cache_bytes: u64,
}

impl Default for JsonLinesOptions {
    /// All columns, the types of their values, and 512 MiB for rows.
    fn default() -> Self {
        let (columns, types, masks, nulls, codes) = Default::default();
        Self { columns, types, masks, nulls, codes, cache_bytes: CACHE_BYTES }
    }
}

impl JsonLinesOptions {
    /// What the options say of single keys.
    fn by_name(&self) -> ByName<'_> {
        ByName::new(self.columns.as_deref(), &self.types, &self.masks, &self.codes, self.nulls)
    }
}

/// A JSON Lines file, plain or gzip. Each key of its objects is a field, in the order of first appearance.
///
/// A column of numbers has the first type of `i64`, `u64`, `f64` that holds them all. Lists of numbers are
/// `i64` or `f64`. Their length varies, unless all lists have the same length. If `f64` would round a whole
/// number of its column, the column is refused: for example 9007199254740993 beside 0.5. A column of `true`
/// and `false` is `bool`.
///
/// Any other column is `text`: strings are unchanged, and other values are their JSON. `null` is a missing
/// value, and so is a key that a line lacks, see [`Nulls`]. Blank lines at the end are skipped. A blank line
/// elsewhere is an error, as it may stand for a lost row.
///
/// A plain file stays on disk. It takes 8 bytes of memory per line.
#[derive(Debug)]
pub struct JsonLines {
    lines: Lines,
    /// The number of lines, without the blank lines at the end.
    len: u64,
    schema: Spec,
    columns: Vec<Column>,
    nulls: Nulls,
    /// The column of each key; `None` if the key is not read.
    numbers: HashMap<String, Option<usize>>,
    cache_bytes: u64,
}

/// A column that is read.
#[derive(Clone, Copy, Debug)]
struct Column {
    /// The index of the column's field.
    field: usize,
    kind: ColumnType,
    /// Whether the next field is the column's mask.
    marked: bool,
}

/// A scanned file: its lines, and the types that fit the values of its keys.
struct Scan {
    path: PathBuf,
    lines: Lines,
    len: u64,
    keys: Vec<String>,
    /// The index of each key.
    places: HashMap<String, usize>,
    seen: Vec<Seen>,
}

impl JsonLines {
    /// Opens a file, and reads it once to find its lines and the types of its columns.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, JsonLinesOptions::default())
    }

    /// As [`open`](Self::open), with options.
    ///
    /// # Errors
    /// `Data` if the file is missing, empty or not UTF-8. Also if a line is not an object, or has a key twice
    /// or half of a surrogate pair. Also if values do not fit a stated type, or `f64` does not hold the whole
    /// numbers of its column. `Config` if a column of the options does not exist. The error names the file
    /// and, if known, the byte and the line.
    pub fn open_with(path: impl AsRef<Path>, options: JsonLinesOptions) -> Result<Self> {
        let path = path.as_ref();
        Self::of_lines(path, Lines::open(path)?, &options)
    }

    pub(crate) fn of_lines(path: &Path, lines: Lines, options: &JsonLinesOptions) -> Result<Self> {
        let scan = Scan::open(path, lines, options)?;
        let (keys, seen, len, by_name) = (scan.keys.clone(), scan.seen.clone(), scan.len, options.by_name());
        scan.check_exact(&|key| scan.place(key).map(|at| seen[at]), len, &by_name)?;
        scan.into_table(&keys, (&seen, len), (&by_name, options.cache_bytes))
    }

    /// Opens the shards of one set. Each shard has the keys of all shards. A key has the first type that fits
    /// its values in all shards, as if they were one file.
    pub(crate) fn of_shards(
        shards: Vec<(PathBuf, Content)>,
        options: &JsonLinesOptions,
    ) -> Result<Vec<Self>> {
        let scans = at_once(shards, |(path, content)| {
            let lines = Lines::of_content(&path, content).map_err(|error| error.at_path(&path))?;
            Scan::open(&path, lines, options)
        })?;
        let (mut keys, mut all) = (Vec::<String>::new(), Vec::<Seen>::new());
        let mut places = HashMap::<&str, usize>::new();
        for scan in &scans {
            for (key, seen) in scan.keys.iter().zip(&scan.seen) {
                match places.get(key.as_str()) {
                    Some(&at) => all[at] = all[at].and(*seen),
                    None => {
                        places.insert(key, keys.len());
                        keys.push(key.clone());
                        all.push(*seen);
                    }
                }
            }
        }
        let (lines, by_name) = (scans.iter().map(|scan| scan.len).sum(), options.by_name());
        let of = |key: &str| places.get(key).map(|&at| all[at]);
        scans.iter().try_for_each(|scan| scan.check_exact(&of, lines, &by_name))?;
        let table = |scan: Scan| scan.into_table(&keys, (&all, lines), (&by_name, options.cache_bytes));
        scans.into_iter().map(table).collect()
    }

    fn fill(&self, sample: u64, line: &[u8], scratch: &mut Scratch) -> Result<()> {
        let Scratch { is_there, fields: to } = scratch;
        to.resize_with(self.schema.fields().len(), Vec::new);
        is_there.clear();
        is_there.resize(self.columns.len(), false);
        let changed = || data("the line is not of the types that the file was opened with: open it again");
        entries(line, |key, json| {
            let Some(number) = *self.numbers.get(key).ok_or_else(changed)? else { return Ok(()) };
            if json == "null" {
                return Ok(());
            }
            let is_twice = std::mem::replace(&mut is_there[number], true);
            let Column { field, kind, .. } = self.columns[number];
            let bytes = &mut to[field];
            bytes.clear();
            let written = types::write(kind, json, bytes).filter(|()| !is_twice);
            written.ok_or_else(changed)
        })?;
        for (&Column { field, kind, marked, .. }, &is_there) in self.columns.iter().zip(&*is_there) {
            let of = &self.schema.fields()[field];
            let (name, element, shape) = (of.name(), of.element(), of.dims());
            if marked {
                to[field + 1].clear();
                to[field + 1].push(is_there.into());
            }
            let value = &mut to[field];
            let fixed = shape.iter().try_fold(1, |product, dim| Some(product * (*dim)?));
            if !is_there {
                value.clear();
                match (self.nulls, kind) {
                    // All lists have one length.
                    _ if marked && shape.len() == 1 => {
                        value.resize(fixed.unwrap_or_default() * element.size(), 0);
                    }
                    _ if marked => value.extend(kind.blank()),
                    (Nulls::Refuse, _) => return Err(missing(name, sample)),
                    (Nulls::Fill, ColumnType::Float) => value.extend(f64::NAN.to_le_bytes()),
                    _ => {}
                }
            }
            if fixed.is_some_and(|fixed| fixed * element.size() != value.len()) {
                return Err(changed());
            }
        }
        Ok(())
    }
}

impl Scan {
    fn open(path: &Path, lines: Lines, options: &JsonLinesOptions) -> Result<Self> {
        let scan = Self::of_lines(path, lines)?;
        for (key, element) in &options.types {
            if let Some(at) = scan.place(key) {
                let checked = scan.seen[at].check(key, *element, true);
                checked.map_err(|error| scan.at_first_unfit(key, *element, error).at_path(path))?;
            }
        }
        let (mut seen, by_name) = (scan.keys.iter().zip(&scan.seen), options.by_name());
        let nested = seen.find(|(key, seen)| by_name.is_code(key) && seen.nested > 0);
        if let Some((key, &Seen { nested, .. })) = nested {
            let why = format!("key \"{}\" has a list or an object in line {nested}", one_line(key));
            let why = why + ", which has no category: leave it out, or write one text or number in each line";
            return Err(data(why).at_sample(nested - 1).at_path(path));
        }
        Ok(scan)
    }

    fn of_lines(path: &Path, lines: Lines) -> Result<Self> {
        let len = without_blank_end(&lines)?;
        let (mut keys, mut seen) = (Vec::new(), Vec::new());
        let mut numbers = HashMap::<String, usize>::new();
        let mut buffers = Buffers::default();
        for line in 0..len {
            let result = entries(lines.line(line, &mut buffers)?, |key, json| {
                let number = match numbers.get(key) {
                    Some(&number) => number,
                    None => {
                        numbers.insert(key.to_owned(), keys.len());
                        keys.push(key.to_owned());
                        seen.push(Seen::NOTHING);
                        keys.len() - 1
                    }
                };
                seen[number]
                    .add(line + 1, json)
                    .map_err(|why| data(format!("key \"{}\" {why}", one_line(key))))
            });
            let many = (keys.len() > MAX_COLUMNS)
                .then(|| data(format!("{} different keys: this is not a table", keys.len())));
            let result = result.and(many.map_or(Ok(()), Err));
            result.map_err(|error| in_line(error, line).at_path(path).at_offset(lines.start(line)))?;
        }
        if keys.is_empty() {
            return Err(data("no object has a key: the file holds no columns").at_path(path));
        }
        Ok(Self { path: path.to_path_buf(), lines, len, keys, places: numbers, seen })
    }

    fn place(&self, key: &str) -> Option<usize> {
        self.places.get(key).copied()
    }

    /// Adds to `error` the first line whose value does not fit the stated type.
    fn at_first_unfit(&self, key: &str, element: ElementType, error: Error) -> Error {
        let Some((line, json)) = self.first_unfit(key, element) else { return error };
        let why = format!("{}: line {} has {}", error.message(), line + 1, one_line(json));
        Error::new(error.kind(), why).at_offset(self.lines.start(line)).at_sample(line)
    }

    /// The line (from 0) and the JSON of the first value that does not fit the type.
    fn first_unfit(&self, key: &str, element: ElementType) -> Option<(u64, String)> {
        let mut buffers = Buffers::default();
        for line in 0..self.len {
            let mut unfit = None;
            let read = self.lines.line(line, &mut buffers).and_then(|line| {
                entries(line, |own, json| {
                    let mut seen = Seen::NOTHING;
                    if own == key && seen.add(1, json).is_ok() && seen.values > 0 {
                        unfit = seen.check(key, element, true).err().map(|_| json.to_owned());
                    }
                    Ok(())
                })
            });
            if let (Ok(()), Some(json)) = (read, unfit) {
                return Some((line, json));
            }
        }
        None
    }

    /// Refuses a column if `f64` would round its values. `all` has the types that fit a key in the `len`
    /// lines of all shards.
    fn check_exact(&self, all: &dyn Fn(&str) -> Option<Seen>, len: u64, options: &ByName<'_>) -> Result<()> {
        for (key, own) in self.keys.iter().zip(&self.seen) {
            if options.stated(key).is_some() || !options.reads(key) {
                continue;
            }
            let Some(all) = all(key) else { continue };
            let (kind, _) = all.decide(all.is_full(key, len, options), options.is_marked(key));
            if !own.is_rounded_as(kind) {
                continue;
            }
            let first = self.first_unfit(key, ColumnType::Float.element());
            let at = first.as_ref().map_or(0, |(line, _)| *line);
            let first = first.map(|(line, json)| format!("{} of line {}", one_line(json), line + 1));
            let (is_whole, is_filled) = (own.is_whole(), all.is_whole());
            let first = first.unwrap_or_default();
            let error = Rounded { what: "key", name: key, first, is_whole, is_filled }.error();
            return Err(error.at_path(&self.path).at_offset(self.lines.start(at)).at_sample(at));
        }
        Ok(())
    }

    /// The table with the columns `keys`. `seen` has the types that fit their values in `len` lines.
    fn into_table(
        self,
        keys: &[String],
        (seen, len): (&[Seen], u64),
        (options, cache_bytes): (&ByName<'_>, u64),
    ) -> Result<JsonLines> {
        let at = |error: Error| error.at_path(&self.path);
        options.check(keys).map_err(at)?;
        let (mut columns, mut fields, mut numbers) = (Vec::new(), Vec::new(), HashMap::new());
        for (key, seen) in keys.iter().zip(seen) {
            if !options.reads(key) {
                numbers.insert(key.clone(), None);
                continue;
            }
            let marked = options.is_marked(key);
            let full = seen.is_full(key, len, options);
            let (kind, shape) = match options.stated(key) {
                Some(element) => seen.check(key, element, full).map_err(at)?,
                None => seen.decide(full, marked),
            };
            numbers.insert(key.clone(), Some(columns.len()));
            // A stated type is what the user wants.
            let is_json = kind == ColumnType::Text && seen.nested > 0 && options.stated(key).is_none();
            let meaning = if is_json { Meaning::Json } else { Meaning::Plain };
            columns.push(Column { field: fields.len(), kind, marked });
            fields.push(Field::open(key, kind.element(), shape).with_meaning(meaning));
            fields.extend(marked.then(|| present(key)));
        }
        let schema = Spec::of_fields(fields);
        check_names(&schema).map_err(at)?;
        let nulls = options.nulls;
        Ok(JsonLines { lines: self.lines, len: self.len, schema, columns, nulls, numbers, cache_bytes })
    }
}

/// The number of lines up to the last one that is not blank.
fn without_blank_end(lines: &Lines) -> Result<u64> {
    let (mut len, mut buffers) = (lines.len(), Buffers::default());
    while len > 0 {
        if !lines.line(len - 1, &mut buffers)?.trim_ascii().is_empty() {
            break;
        }
        len -= 1;
    }
    Ok(len)
}

/// Adds to an error the line, counted from 1, and the sample, counted from 0.
fn in_line(error: Error, line: u64) -> Error {
    let why = data(format!("line {}: {}", line + 1, error.message())).at_sample(line);
    match error.get_ref() {
        Some(cause) => why.with_source(cause.to_string()),
        None => why,
    }
}

/// Buffers of one worker.
#[derive(Default)]
struct Scratch {
    /// The value of each field.
    fields: Vec<Vec<u8>>,
    /// Whether the line has a value for each column.
    is_there: Vec<bool>,
}

impl Dataset for JsonLines {
    fn spec(&self) -> &Spec {
        &self.schema
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        if let Some(path) = self.path(sample) {
            inside(sample, self.len, path)?;
        }
        context.scoped_scratch(|scratch: &mut Scratch, context| {
            let line = self.lines.line(sample, context.scratch())?;
            self.fill(sample, line, scratch).map_err(|error| {
                let error = error.at_sample(sample).at_offset(self.lines.start(sample));
                self.path(sample).map_or(error.clone(), |path| error.at_path(path))
            })?;
            let mut fields = scratch.fields.iter().enumerate();
            Ok(fields.try_for_each(|(field, value)| row.put(field, value))?)
        })
    }

    fn about(&self) -> About<'_> {
        About { format: "jsonl", row_memory: self.cache_bytes, ..About::default() }
    }

    fn path(&self, sample: u64) -> Option<&Path> {
        self.lines.path(sample)
    }

    fn fingerprint(&self) -> u64 {
        self.lines.fingerprint()
    }
}
