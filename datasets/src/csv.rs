//! Tables of comma-separated values, with the types of their columns.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use csv::{ByteRecord, ErrorKind as CsvError, ReaderBuilder};
use csv_core::ReadRecordResult;
use feedline_core::{Error, ErrorKind, Fingerprint, Result};

use crate::at_once::at_once;
use crate::bytes::Content;
use crate::column_type::{ColumnType, rounded};
use crate::error::{data, of_stream, one_line};
use crate::nulls::{missing, no_column, present};
use crate::reader::inside;
use crate::{ElementType, Nulls, Reader, Schema, SchemaField, Values};

mod types;

use types::Seen;

/// Delimiters that are tried, in this order.
const DELIMITERS: [u8; 4] = [b',', b'\t', b';', b'|'];
/// Rows that are read to find the delimiter.
const SNIFFED_ROWS: usize = 100;
/// Bytes that are read to find the delimiter.
const SNIFFED_BYTES: u64 = 64 << 10;
/// Max columns of a table.
const MAX_COLUMNS: usize = 1 << 16;
/// The byte order mark of UTF-8.
const BOM: char = '\u{FEFF}';

/// How to read a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsvOptions {
    /// The byte between cells. `None` tries a comma, a tab, a semicolon and a bar.
    pub delimiter: Option<u8>,
    /// Whether the first row names the columns. `None` decides by its cells: they are names if they all
    /// differ and none is empty or a number. Columns without names are called `c0`, `c1` and so on.
    pub header: Option<bool>,
    /// The columns to read, in the file's order; `None` reads all.
    pub columns: Option<Vec<String>>,
    /// Types of columns that are not those of their cells: `i64`, `u64`, `f64`, `bool` or `text`. Cells that
    /// do not fit are an error.
    pub types: Vec<(String, ElementType)>,
    /// Columns that may lack values: each is followed by the field `NAME.present` (`bool`). An empty cell,
    /// also of a text column, is zero or an empty text there, and not present. A column without any value is
    /// `f64`.
    pub masks: Vec<String>,
    /// What an empty cell of other columns becomes, except in a column of text.
    pub nulls: Nulls,
}

/// The rows of a table, plain or gzip: a field per column.
///
/// A column has the first of these types that all of its cells have: `i64`, `u64`, `f64`, `bool` (`true`,
/// `True`, `TRUE` and so on), `text`. An empty cell of a text column is an empty text; in other columns a
/// value is missing, see [`Nulls`]. All rows have the same number of cells; quotes follow RFC 4180. A byte
/// order mark at the start of the file is skipped.
///
/// A plain file stays on disk, with 8 bytes of memory per row.
#[derive(Debug)]
pub struct Csv {
    path: PathBuf,
    content: Content,
    delimiter: u8,
    /// Where each row begins, and the end of the last.
    starts: Vec<u64>,
    /// Cells of a row.
    cells: usize,
    schema: Schema,
    columns: Vec<Column>,
    nulls: Nulls,
    fingerprint: u64,
}

/// A column that is read.
#[derive(Clone, Copy, Debug)]
struct Column {
    /// Its place in a row of the file.
    cell: usize,
    kind: ColumnType,
    /// Whether the next field says if the cell is there.
    marked: bool,
}

/// A file whose rows were found, and what fits the cells of its columns.
struct Scan {
    path: PathBuf,
    content: Content,
    delimiter: u8,
    starts: Vec<u64>,
    names: Vec<String>,
    seen: Vec<Seen>,
}

impl Csv {
    /// Opens a table, and reads it once to find its rows and the types of its columns.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, CsvOptions::default())
    }

    /// As [`open`](Self::open), with options.
    ///
    /// # Errors
    /// `Data` if the file is missing, empty or not UTF-8, rows differ in their number of cells, two columns
    /// have the same name, a row other than the first begins with a byte order mark, or cells do not fit a
    /// stated type; `Config` if a column of the options does not exist. Names the file, and where known the
    /// byte and the line.
    pub fn open_with(path: impl AsRef<Path>, options: CsvOptions) -> Result<Self> {
        let path = path.as_ref();
        let content = Content::open_unclaimed(path).map_err(|error| error.at_path(path))?;
        Self::of(path, content, &options).map_err(|error| error.at_path(path))
    }

    pub(crate) fn of(path: &Path, content: Content, options: &CsvOptions) -> Result<Self> {
        let scan = Scan::of(path, content, options)?;
        let (names, seen) = (scan.names.clone(), scan.seen.clone());
        scan.into_table(&names, &seen, options)
    }

    /// Opens the shards of one set. A column has the first type that all of its cells in all shards have, as
    /// if they were one file; columns may be in another order.
    pub(crate) fn of_shards(shards: Vec<(PathBuf, Content)>, options: &CsvOptions) -> Result<Vec<Self>> {
        let scans = at_once(shards, |(path, content)| {
            Scan::of(&path, content, options).map_err(|error| error.at_path(&path))
        })?;
        let Some(first) = scans.first() else { return Ok(Vec::new()) };
        let (names, mut all) = (first.names.clone(), first.seen.clone());
        for scan in &scans[1..] {
            for (name, all) in names.iter().zip(&mut all) {
                *all = all.and(scan.seen_of(name)?);
            }
            if let Some(more) = scan.names.iter().find(|name| !names.contains(name)) {
                let why = format!("the shards differ: only this one has the column \"{}\"", one_line(more));
                return Err(data(why + ", the first shard lacks it").at_path(&scan.path));
            }
        }
        let is_read = |name: &String| options.columns.as_ref().is_none_or(|columns| columns.contains(name));
        let is_stated = |name: &String| options.types.iter().any(|(stated, _)| stated == name);
        for scan in &scans {
            for (name, all) in names.iter().zip(&all).filter(|(name, _)| is_read(name) && !is_stated(name)) {
                if scan.seen_of(name)?.is_rounded_by(*all) {
                    return Err(rounded("column", name).at_path(&scan.path));
                }
            }
        }
        scans.into_iter().map(|scan| scan.into_table(&names, &all, options)).collect()
    }
}

impl Scan {
    fn of(path: &Path, content: Content, options: &CsvOptions) -> Result<Self> {
        let delimiter = match options.delimiter {
            Some(delimiter) => delimiter,
            None => delimiter(&content)?.unwrap_or(b','),
        };
        let mut rows = ReaderBuilder::new();
        let mut rows = rows.delimiter(delimiter).has_headers(false).from_reader(content.stream());
        let mut row = ByteRecord::new();
        let (mut starts, mut seen, mut header) = (Vec::new(), Vec::new(), None);
        while rows.read_byte_record(&mut row).map_err(damaged)? {
            let start = row.position().map_or(0, csv::Position::byte);
            let cells = cells(&row).map_err(|error| error.at_offset(start))?;
            if cells.first().is_some_and(|cell| cell.starts_with(BOM)) {
                // The parser of a single row would skip it.
                let line = row.position().map_or(0, csv::Position::line);
                let why = format!("line {line} begins with a byte order mark, as if files were joined");
                return Err(data(why + ": remove it").at_offset(start));
            }
            if header.is_none() {
                if cells.len() > MAX_COLUMNS {
                    let why = format!("{} columns, more than the max of {MAX_COLUMNS}", cells.len());
                    return Err(data(format!("the first row has {why}: this is not a table")));
                }
                seen = vec![Seen::NOTHING; cells.len()];
                let named = options.header.unwrap_or_else(|| is_header(&cells));
                let names = cells.iter().enumerate();
                let name =
                    |(at, cell): (usize, &&str)| if named { (*cell).to_owned() } else { format!("c{at}") };
                header = Some(names.map(name).collect::<Vec<_>>());
                if named {
                    continue;
                }
            }
            starts.push(start);
            seen.iter_mut().zip(&cells).for_each(|(column, cell)| column.add(cell));
        }
        drop(rows);
        content.check_unchanged()?;
        starts.push(content.len());
        let Some(names) = header else { return Err(data("the table has no row: fetch the file again")) };
        let scan = Self { path: path.to_path_buf(), content, delimiter, starts, names, seen };
        scan.check_types(options).map(|()| scan)
    }

    fn check_types(&self, options: &CsvOptions) -> Result<()> {
        for (name, element) in &options.types {
            if let Some(cell) = self.names.iter().position(|own| own == name) {
                let checked = self.seen[cell].check(name, *element);
                checked.map_err(|error| self.first_unfit(cell, *element, error))?;
            }
        }
        Ok(())
    }

    fn place(&self, name: &str) -> Result<usize> {
        self.names.iter().position(|own| own == name).ok_or_else(|| {
            let why = format!("the shards differ: this one lacks the column \"{}\"", one_line(name));
            data(why).at_path(&self.path)
        })
    }

    fn seen_of(&self, name: &str) -> Result<Seen> {
        Ok(self.seen[self.place(name)?])
    }

    /// Adds to `error` the first line whose cell does not fit the stated type.
    fn first_unfit(&self, cell: usize, element: ElementType, error: Error) -> Error {
        let mut rows = ReaderBuilder::new();
        let mut rows = rows.delimiter(self.delimiter).has_headers(false).from_reader(self.content.stream());
        let mut row = ByteRecord::new();
        while let Ok(true) = rows.read_byte_record(&mut row) {
            let place = row.position().filter(|place| self.starts.first() <= Some(&place.byte()));
            let text = row.get(cell).and_then(|cell| std::str::from_utf8(cell).ok());
            let (Some(place), Some(text)) = (place, text.filter(|text| !text.is_empty())) else { continue };
            if !types::fits(element, text) {
                let why = format!("{}: line {} has \"{}\"", error.message(), place.line(), one_line(text));
                return Error::new(error.kind(), why).at_offset(place.byte());
            }
        }
        error
    }

    /// The table of the columns `names`, whose cells have the types `seen`.
    fn into_table(self, names: &[String], seen: &[Seen], options: &CsvOptions) -> Result<Csv> {
        let at = |error: Error| error.at_path(&self.path);
        let stated = options.types.iter().map(|(name, _)| name);
        let asked = options.columns.iter().flatten().chain(stated).chain(&options.masks);
        if let Some(unknown) = asked.into_iter().find(|name| !names.contains(name)) {
            return Err(at(no_column(unknown)));
        }
        let (mut columns, mut fields) = (Vec::new(), Vec::new());
        for (name, seen) in names.iter().zip(seen) {
            if options.columns.as_ref().is_some_and(|columns| !columns.contains(name)) {
                continue;
            }
            let marked = options.masks.contains(name);
            let kind = match options.types.iter().find(|(stated, _)| stated == name) {
                Some((_, element)) => seen.check(name, *element).map_err(at)?,
                None => seen.decide(options.nulls, marked),
            };
            fields.push(match kind {
                ColumnType::Text => SchemaField::variable(name, kind.element()),
                _ => SchemaField::fixed(name, kind.element(), &[]),
            });
            fields.extend(marked.then(|| present(name)));
            columns.push(Column { cell: self.place(name)?, kind, marked });
        }
        let schema = Schema::new(fields);
        schema.check_names().map_err(at)?;
        let Self { path, content, delimiter, starts, names, .. } = self;
        let state = Fingerprint::new().number(starts.len() as u64).number(delimiter.into());
        let fingerprint = content.fingerprint_sampled(state)?.value();
        let (cells, nulls) = (names.len(), options.nulls);
        Ok(Csv { path, content, delimiter, starts, cells, schema, columns, nulls, fingerprint })
    }
}

/// The cells of a row; an error for one that is not UTF-8.
fn cells(row: &ByteRecord) -> Result<Vec<&str>> {
    let cell = |(at, cell)| {
        std::str::from_utf8(cell)
            .map_err(|_| data(format!("column {at} of the row is not UTF-8: convert the file first")))
    };
    row.iter().enumerate().map(cell).collect()
}

/// Whether the first row names the columns.
fn is_header(cells: &[&str]) -> bool {
    let is_name = |cell: &&str| !cell.is_empty() && cell.parse::<f64>().is_err();
    cells.iter().all(is_name) && cells.iter().collect::<HashSet<_>>().len() == cells.len()
}

/// The delimiter that splits the first rows of a text into the same number of cells, at least two; `None` if
/// there is none.
pub(crate) fn delimiter(content: &Content) -> Result<Option<u8>> {
    let mut head = content.read(0, content.len().min(SNIFFED_BYTES) as usize)?;
    if content.len() > SNIFFED_BYTES {
        // Drops the last row, which may be cut.
        head.truncate(head.iter().rposition(|&byte| byte == b'\n').unwrap_or_default());
    }
    let cells = |delimiter: u8| {
        let mut rows = ReaderBuilder::new();
        let mut rows = rows.delimiter(delimiter).has_headers(false).from_reader(head.as_slice());
        let (mut row, mut cells) = (ByteRecord::new(), None);
        for number in 0..SNIFFED_ROWS {
            match rows.read_byte_record(&mut row) {
                Ok(true) => cells = Some(row.len()),
                // A single row may be any text that contains a comma.
                Ok(false) if number < 2 => return None,
                Ok(false) => break,
                Err(_) => return None,
            }
        }
        cells.filter(|&cells| cells > 1)
    };
    let possible = DELIMITERS.into_iter().filter_map(|one| Some((cells(one)?, one)));
    // If several fit, the one that makes the most cells; in a tie the first.
    Ok(possible.rev().max_by_key(|(cells, _)| *cells).map(|(_, delimiter)| delimiter))
}

fn damaged(error: csv::Error) -> Error {
    let (offset, text) = (error.position().map(csv::Position::byte), one_line(&error));
    let error = match error.into_kind() {
        // A read error already names its place.
        CsvError::Io(error) => {
            return of_stream(error, |error| data("the table cannot be read").with_source(error));
        }
        CsvError::UnequalLengths { expected_len, len, pos } => {
            let row = pos.as_ref().map_or(0, csv::Position::line);
            data(format!("line {row} has {len} cells, the first row has {expected_len}: repair the file"))
        }
        _ => data("the table cannot be read").with_source(text),
    };
    offset.map_or(error.clone(), |offset| error.at_offset(offset))
}

/// Buffers of one worker: a parser with its delimiter, a row's cells without quotes, and their ends.
#[derive(Default)]
struct Scratch {
    /// Kept, because building a parser takes longer than parsing a row.
    parser: Option<(u8, csv_core::Reader)>,
    cells: Vec<u8>,
    ends: Vec<usize>,
}

thread_local! {
    static SCRATCH: std::cell::RefCell<Scratch> = std::cell::RefCell::default();
}

impl Csv {
    fn fill(&self, sample: u64, scratch: &mut Scratch, values: &mut Values) -> Result<()> {
        let (start, end) = (self.starts[sample as usize], self.starts[sample as usize + 1]);
        let damaged = |why: String| Error::new(ErrorKind::Data, why).at_offset(start);
        let len =
            usize::try_from(end - start).map_err(|_| damaged("the row is larger than the memory".into()))?;
        let (values, ahead) = values.begin_with_ahead(self.schema.fields().len());
        let row = ahead.read(&self.content, start, len)?;
        scratch.cells.resize(len + 1, 0);
        scratch.ends.resize(self.cells + 1, 0);
        let parser = scratch.parser.take().filter(|(delimiter, _)| *delimiter == self.delimiter);
        let (_, parser) = scratch.parser.insert(parser.unwrap_or_else(|| {
            (self.delimiter, csv_core::ReaderBuilder::new().delimiter(self.delimiter).build())
        }));
        parser.reset();
        let (mut read, mut written, mut cells) = (0, 0, 0);
        loop {
            let (result, taken, put, ended) =
                parser.read_record(&row[read..], &mut scratch.cells[written..], &mut scratch.ends[cells..]);
            (read, written, cells) = (read + taken, written + put, cells + ended);
            match result {
                // Called once more with an empty input, which ends the row.
                ReadRecordResult::InputEmpty if read == len && taken > 0 => {}
                ReadRecordResult::InputEmpty if read < len => {}
                _ => break,
            }
        }
        if cells != self.cells {
            return Err(damaged(format!("the row has {cells} cells instead of {}", self.cells)));
        }
        let mut fields = values.iter_mut().zip(self.schema.fields());
        for &Column { cell, kind, marked } in &self.columns {
            let Some((value, field)) = fields.next() else { break };
            let begin = if cell == 0 { 0 } else { scratch.ends[cell - 1] };
            let cell = &scratch.cells[begin..scratch.ends[cell]];
            value.bytes.clear();
            let is_missing = cell.is_empty() && (marked || kind != ColumnType::Text);
            if marked && let Some((present, _)) = fields.next() {
                present.resize(1)[0] = (!is_missing).into();
                present.set_shape([]);
            }
            let written = match self.nulls {
                _ if is_missing && marked => {
                    value.bytes.extend(kind.blank());
                    Some(())
                }
                Nulls::Refuse if is_missing => return Err(missing(&field.name, sample).at_offset(start)),
                Nulls::Fill if is_missing && kind == ColumnType::Float => {
                    value.bytes.extend(f64::NAN.to_le_bytes());
                    Some(())
                }
                _ => {
                    std::str::from_utf8(cell).ok().and_then(|cell| types::write(kind, cell, &mut value.bytes))
                }
            };
            written.ok_or_else(|| {
                damaged(format!("column \"{}\" is not {}", one_line(&field.name), field.element))
            })?;
            let len = value.bytes.len();
            value.set_shape(field.shape.iter().map(|_| len));
        }
        Ok(())
    }
}

impl Reader for Csv {
    fn format(&self) -> &'static str {
        "csv"
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn len(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    fn read(&self, sample: u64, values: &mut Values) -> Result<()> {
        inside(sample, self.len(), &self.path)?;
        let read = SCRATCH.with_borrow_mut(|scratch| self.fill(sample, scratch, values));
        read.map_err(|error| error.at_path(&self.path).at_sample(sample))
    }

    fn path(&self, _: u64) -> Option<&Path> {
        Some(&self.path)
    }

    /// Covers the content of a gzip file. Covers name, size and last write time of a plain one.
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}
