//! Tables of comma-separated values, with the types of their columns.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use csv::{ByteRecord, ErrorKind as CsvError, ReaderBuilder};
use csv_core::ReadRecordResult;
use feedline_core::{DType, Error, ErrorKind, Fingerprint, Result};

use crate::bytes::Content;
use crate::error::{data, one_line};
use crate::reader::inside;
use crate::{ElementType, Reader, Schema, SchemaField, Values};

/// What may lie between the cells of a row.
const DELIMITERS: [u8; 4] = [b',', b'\t', b';', b'|'];
/// Rows that are looked at to find the delimiter.
const TRIED: usize = 100;
/// Bytes that are looked at.
const HEAD: u64 = 64 << 10;
/// The most columns: more are no table.
const MOST_COLUMNS: usize = 1 << 16;

/// How a table is written; what is not given is found out from its first rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CsvOptions {
    /// The byte between cells: a comma, a tab, a semicolon or a bar, where none is given.
    pub delimiter: Option<u8>,
    /// Whether the first row names the columns. Where this is not given, it does when its cells are all
    /// different, and none is empty or a number. Columns without names are called `c0`, `c1` and so on.
    pub header: Option<bool>,
}

/// The rows of a table, plain or gzip: a field per column.
///
/// A column is the first of these types that all of its cells have: `i64`, `u64`, `f64`, `bool` (`true`,
/// `True`, `TRUE` and so on), `text`. An empty cell is missing: a column of numbers becomes `f64`, with a NaN
/// there. Rows have equally many cells; quotes are as in RFC 4180.
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
    fingerprint: u64,
}

/// What the cells of a column are.
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

    /// The cell's value, little-endian; none when it is of another type.
    fn write(self, cell: &str, to: &mut Vec<u8>) -> Option<()> {
        match self {
            Self::Int => to.extend(cell.parse::<i64>().ok()?.to_le_bytes()),
            Self::Uint => to.extend(cell.parse::<u64>().ok()?.to_le_bytes()),
            Self::Float if cell.is_empty() => to.extend(f64::NAN.to_le_bytes()),
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

/// The types that all cells of a column so far have.
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
        // Most columns are decided by their first cell: the others are not parsed then.
        self.int = self.int && cell.parse::<i64>().is_ok();
        self.uint = self.uint && cell.parse::<u64>().is_ok();
        self.float = self.float && cell.parse::<f64>().is_ok();
        self.bool = self.bool && bool_of(cell).is_some();
    }

    fn decide(self) -> Type {
        match self {
            Self { any: false, .. } => Type::Text,
            Self { int: true, missing: false, .. } => Type::Int,
            Self { uint: true, missing: false, .. } => Type::Uint,
            Self { float: true, .. } => Type::Float,
            Self { bool: true, missing: false, .. } => Type::Bool,
            _ => Type::Text,
        }
    }
}

impl Csv {
    /// Opens a table, and reads it once: to find its rows and the types of its columns.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, CsvOptions::default())
    }

    /// As [`open`](Self::open), with what is known of the table.
    ///
    /// # Errors
    /// `Data` for a file that is missing, empty, not UTF-8, or whose rows differ in their number of cells;
    /// names the file, the byte and the row.
    pub fn open_with(path: impl AsRef<Path>, options: CsvOptions) -> Result<Self> {
        let path = path.as_ref();
        let content = Content::open_unclaimed(path);
        content.and_then(|content| Self::of(path, content, options)).map_err(|error| error.at_path(path))
    }

    fn of(path: &Path, content: Content, options: CsvOptions) -> Result<Self> {
        let delimiter = match options.delimiter {
            Some(delimiter) => delimiter,
            None => delimiter(&content)?.unwrap_or(b','),
        };
        let mut rows = ReaderBuilder::new();
        let mut rows = rows.delimiter(delimiter).has_headers(false).from_reader(content.cursor());
        let mut row = ByteRecord::new();
        let (mut starts, mut columns, mut header) = (Vec::new(), Vec::new(), None);
        while rows.read_byte_record(&mut row).map_err(|error| damaged(&error))? {
            let start = row.position().map_or(0, csv::Position::byte);
            let cells = cells(&row).map_err(|error| error.at_offset(start))?;
            if header.is_none() {
                if cells.len() > MOST_COLUMNS {
                    return Err(data(format!("{} columns are no table", cells.len())));
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
        let types: Vec<_> = columns.into_iter().map(Seen::decide).collect();
        let field = |(name, kind): (String, &Type)| match kind {
            Type::Text => SchemaField::variable(name, kind.element()),
            _ => SchemaField::fixed(name, kind.element(), &[]),
        };
        let schema = Schema::new(names.into_iter().zip(&types).map(field));
        let state = Fingerprint::new().number(starts.len() as u64).number(delimiter.into());
        let state = match content.bytes() {
            Some(bytes) => state.bytes(bytes),
            None => state.file(path)?,
        };
        let (path, fingerprint) = (path.to_path_buf(), state.value());
        Ok(Self { path, content, delimiter, starts, schema, types, fingerprint })
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

/// The delimiter that cuts the first rows of a text into equally many cells, at least two; `None` if there is
/// none.
pub(crate) fn delimiter(content: &Content) -> Result<Option<u8>> {
    let mut head = vec![0; content.len().min(HEAD) as usize];
    content.read_at(0, &mut head)?;
    if content.len() > HEAD {
        // The last row may go on.
        head.truncate(head.iter().rposition(|&byte| byte == b'\n').unwrap_or_default());
    }
    let cells = |delimiter: u8| {
        let mut rows = ReaderBuilder::new();
        let mut rows = rows.delimiter(delimiter).has_headers(false).from_reader(head.as_slice());
        let (mut row, mut cells) = (ByteRecord::new(), None);
        for number in 0..TRIED {
            match rows.read_byte_record(&mut row) {
                Ok(true) => cells = Some(row.len()),
                // One row is any text with a comma in it.
                Ok(false) if number < 2 => return None,
                Ok(false) => break,
                Err(_) => return None,
            }
        }
        cells.filter(|&cells| cells > 1)
    };
    let possible = DELIMITERS.into_iter().filter_map(|one| Some((cells(one)?, one)));
    // Of two that fit, the first.
    Ok(possible.rev().max_by_key(|(cells, _)| *cells).map(|(_, delimiter)| delimiter))
}

fn damaged(error: &csv::Error) -> Error {
    let offset = error.position().map(csv::Position::byte);
    let error = match error.kind() {
        CsvError::UnequalLengths { expected_len, len, pos } => {
            let row = pos.as_ref().map_or(0, csv::Position::line);
            data(format!("line {row} has {len} cells, the first row has {expected_len}: repair the file"))
        }
        _ => data("the table cannot be read").caused_by(one_line(error)),
    };
    offset.map_or(error.clone(), |offset| error.at_offset(offset))
}

/// Memory of one worker: a parser with its delimiter, a row's cells without quotes, and their ends.
#[derive(Default)]
struct Scratch {
    /// Building one takes longer than parsing a row.
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
                // An empty input says that the row is at its end.
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
            let written =
                std::str::from_utf8(cell).ok().and_then(|cell| self.types[at].write(cell, &mut value.bytes));
            let field = &self.schema.fields()[at];
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

    /// Covers the content of a gzip file; of a plain one its name, size and time of the last write.
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}
