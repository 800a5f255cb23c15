//! Tables of comma-separated values, with the types of their columns.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use csv::{ByteRecord, ErrorKind as CsvError, ReaderBuilder};
use csv_core::ReadRecordResult;
use feedline_core::{DType, Error, ErrorKind, Fingerprint, Result};

use crate::bytes::Content;
use crate::error::{data, of_stream, one_line};
use crate::nulls::missing;
use crate::reader::inside;
use crate::{ElementType, Nulls, Reader, Schema, SchemaField, Values};

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CsvOptions {
    /// The byte between cells. `None` tries a comma, a tab, a semicolon and a bar.
    pub delimiter: Option<u8>,
    /// Whether the first row names the columns. `None` decides by its cells: they are names if they all
    /// differ and none is empty or a number. Columns without names are called `c0`, `c1` and so on.
    pub header: Option<bool>,
    /// What an empty cell becomes, except in a column of text.
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
    schema: Schema,
    types: Vec<Type>,
    nulls: Nulls,
    fingerprint: u64,
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Int,
    Uint,
    Float,
    Bool,
    Text,
}

impl Type {
    fn element(self) -> ElementType {
        match self {
            Self::Int => ElementType::Number(DType::I64),
            Self::Uint => ElementType::U64,
            Self::Float => ElementType::Number(DType::F64),
            Self::Bool => ElementType::Bool,
            Self::Text => ElementType::Text,
        }
    }

    /// Appends the cell's value, little-endian; `None` if it is of another type.
    fn write(self, cell: &str, to: &mut Vec<u8>) -> Option<()> {
        match self {
            Self::Int => to.extend(cell.parse::<i64>().ok()?.to_le_bytes()),
            Self::Uint => to.extend(cell.parse::<u64>().ok()?.to_le_bytes()),
            Self::Float => to.extend(cell.parse::<f64>().ok()?.to_le_bytes()),
            Self::Bool => to.push(bool_of(cell)?.into()),
            Self::Text => to.extend(cell.bytes()),
        }
        Some(())
    }
}

fn bool_of(cell: &str) -> Option<bool> {
    match cell {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

/// The types that fit all cells of a column read so far.
#[derive(Clone, Copy)]
struct Seen {
    int: bool,
    uint: bool,
    float: bool,
    bool: bool,
    missing: bool,
    any: bool,
}

impl Seen {
    const NOTHING: Self = Self { int: true, uint: true, float: true, bool: true, missing: false, any: false };

    fn add(&mut self, cell: &str) {
        if cell.is_empty() {
            self.missing = true;
            return;
        }
        self.any = true;
        // The first cell usually leaves one type, so later cells are parsed once.
        self.int = self.int && cell.parse::<i64>().is_ok();
        self.uint = self.uint && cell.parse::<u64>().is_ok();
        self.float = self.float && cell.parse::<f64>().is_ok();
        self.bool = self.bool && bool_of(cell).is_some();
    }

    fn decide(self, nulls: Nulls) -> Type {
        // Only floating-point numbers and texts have a value for a cell that is filled.
        let is_filled = self.missing && nulls == Nulls::Fill;
        match self {
            Self { any: false, .. } => Type::Text,
            Self { int: true, .. } if !is_filled => Type::Int,
            Self { uint: true, .. } if !is_filled => Type::Uint,
            Self { float: true, .. } => Type::Float,
            Self { bool: true, .. } if !is_filled => Type::Bool,
            _ => Type::Text,
        }
    }
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
    /// have the same name, or a row other than the first begins with a byte order mark; names the file, the
    /// byte and the line.
    pub fn open_with(path: impl AsRef<Path>, options: CsvOptions) -> Result<Self> {
        let path = path.as_ref();
        let content = Content::open_unclaimed(path);
        content.and_then(|content| Self::of(path, content, options)).map_err(|error| error.at_path(path))
    }

    pub(crate) fn of(path: &Path, content: Content, options: CsvOptions) -> Result<Self> {
        let delimiter = match options.delimiter {
            Some(delimiter) => delimiter,
            None => delimiter(&content)?.unwrap_or(b','),
        };
        let mut rows = ReaderBuilder::new();
        let mut rows = rows.delimiter(delimiter).has_headers(false).from_reader(content.stream());
        let mut row = ByteRecord::new();
        let (mut starts, mut columns, mut header) = (Vec::new(), Vec::new(), None);
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
                columns = vec![Seen::NOTHING; cells.len()];
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
            columns.iter_mut().zip(&cells).for_each(|(column, cell)| column.add(cell));
        }
        drop(rows);
        content.check_unchanged()?;
        starts.push(content.len());
        let Some(names) = header else { return Err(data("the table has no row: fetch the file again")) };
        let types: Vec<_> = columns.into_iter().map(|seen| seen.decide(options.nulls)).collect();
        let field = |(name, kind): (String, &Type)| match kind {
            Type::Text => SchemaField::variable(name, kind.element()),
            _ => SchemaField::fixed(name, kind.element(), &[]),
        };
        let schema = Schema::new(names.into_iter().zip(&types).map(field));
        schema.check_names()?;
        let state = Fingerprint::new().number(starts.len() as u64).number(delimiter.into());
        let state = content.fingerprint_sampled(state)?;
        let (path, nulls, fingerprint) = (path.to_path_buf(), options.nulls, state.value());
        Ok(Self { path, content, delimiter, starts, schema, types, nulls, fingerprint })
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
    let mut head = vec![0; content.len().min(SNIFFED_BYTES) as usize];
    content.read_at(0, &mut head)?;
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
        let (values, ahead) = values.begin_with_ahead(self.types.len());
        let row = ahead.read(&self.content, start, len)?;
        scratch.cells.resize(len + 1, 0);
        scratch.ends.resize(self.types.len() + 1, 0);
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
        if cells != self.types.len() {
            return Err(damaged(format!("the row has {cells} cells instead of {}", self.types.len())));
        }
        let mut begin = 0;
        for (at, value) in values.iter_mut().enumerate() {
            let cell = &scratch.cells[begin..scratch.ends[at]];
            begin = scratch.ends[at];
            value.bytes.clear();
            let (kind, field) = (self.types[at], &self.schema.fields()[at]);
            let is_missing = cell.is_empty() && kind != Type::Text;
            let written = match self.nulls {
                Nulls::Refuse if is_missing => return Err(missing(&field.name, sample).at_offset(start)),
                Nulls::Fill if is_missing && kind == Type::Float => {
                    value.bytes.extend(f64::NAN.to_le_bytes());
                    Some(())
                }
                _ => std::str::from_utf8(cell).ok().and_then(|cell| kind.write(cell, &mut value.bytes)),
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
