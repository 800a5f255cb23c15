//! Tables of comma-separated values, with the types of their columns.

use std::path::{Path, PathBuf};

use csv_core::ReadRecordResult;
use feedline_core::{Error, ErrorKind, Result};

use crate::at_once::at_once;
use crate::bytes::Content;
use crate::column_type::ColumnType;
use crate::error::{data, one_line};
use crate::nulls::missing;
use crate::reader::inside;
use crate::row_memory::CACHE_BYTES;
use crate::{ElementType, Nulls, Reader, Schema, Values};

mod quotes;
mod scan;
mod sniff;
mod types;

use scan::Scan;
pub(crate) use sniff::is_table;

/// The byte order mark of UTF-8.
const BOM: char = '\u{FEFF}';

/// How to read a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvOptions {
    /// The byte between cells. `None` tries comma, tab, semicolon and vertical bar.
    pub delimiter: Option<u8>,
    /// Whether the first row names the columns. `None` decides by its cells: they are names if all differ and
    /// none is empty or a number. pandas' way to write an index is recognised too: the first cells are empty
    /// (`,a,b`), and the others may be 0, 1 and so on. Columns without names are called by their places:
    /// `c0`, `c1` and so on.
    pub header: Option<bool>,
    /// The columns to read, in the file's order; `None` reads all.
    pub columns: Option<Vec<String>>,
    /// Types for single columns instead of the inferred ones: `i64`, `u64`, `f64`, `bool` or `text`. Cells
    /// that do not fit are an error.
    pub types: Vec<(String, ElementType)>,
    /// Columns that may lack values: each is followed by the field `NAME.present` (`bool`). An empty cell, of
    /// a text column too, is read as zero or an empty text, and `NAME.present` is false. A column without any
    /// value is `f64`.
    pub masks: Vec<String>,
    /// What an empty cell of another column becomes, unless the column is text.
    pub nulls: Nulls,
    /// Columns of codes, such as categories of a `Table`. Such a column is text if one of its whole numbers
    /// has leading zeros or a plus sign, so that `007`, `+7` and `7` differ. In other columns all three are
    /// 7.
    pub codes: Vec<String>,
    /// Max bytes of the rows in memory, decoded once, if all fields have one size. A table with more is read
    /// from its file.
    pub cache_bytes: u64,
}

impl Default for CsvOptions {
    /// All columns, the types of their values, and 512 MiB for rows.
    fn default() -> Self {
        let (columns, types, masks, nulls, codes) = Default::default();
        Self { delimiter: None, header: None, columns, types, masks, nulls, codes, cache_bytes: CACHE_BYTES }
    }
}

impl CsvOptions {
    /// Whether a column is read.
    fn reads(&self, name: &String) -> bool {
        self.columns.as_ref().is_none_or(|columns| columns.contains(name))
    }
}

/// The rows of a table, plain or gzip: a field per column.
///
/// A column has the first of these types that fits all of its cells: `i64`, `u64`, `f64`, `bool` (`true`,
/// `True`, `TRUE` and so on), `text`. A column that would be `f64` is refused if `f64` would round one of its
/// whole numbers, such as 9007199254740993 beside 0.5. A number beyond `f64`, such as 1e999, is text. An
/// empty cell of a text column is an empty text; in other columns a value is missing, see [`Nulls`]. All rows
/// have the same number of cells; quotes follow RFC 4180, and one that never closes is refused. A byte order
/// mark at the start of the file is skipped, and so is a blank line, also in a table of one column: a missing
/// value is `""` there.
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
    cache_bytes: u64,
    fingerprint: u64,
}

/// A column that is read.
#[derive(Clone, Copy, Debug)]
struct Column {
    /// The column's place in a row of the file.
    cell: usize,
    kind: ColumnType,
    /// Whether the next field is the column's mask.
    marked: bool,
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
    /// `Data` if the file is missing, empty or not UTF-8, rows differ in their number of cells, a quote never
    /// closes, two columns have the same name, a row other than the first begins with a byte order mark,
    /// cells do not fit a stated type, or `f64` does not hold whole numbers of its column; `Config` if a
    /// column of the options does not exist. Names the file, and where known the byte and the line.
    pub fn open_with(path: impl AsRef<Path>, options: CsvOptions) -> Result<Self> {
        let path = path.as_ref();
        let content = Content::open_unclaimed(path).map_err(|error| error.at_path(path))?;
        Self::of_content(path, content, &options).map_err(|error| error.at_path(path))
    }

    pub(crate) fn of_content(path: &Path, content: Content, options: &CsvOptions) -> Result<Self> {
        let scan = Scan::of_content(path, content, options)?;
        let (names, seen) = (scan.names.clone(), scan.seen.clone());
        scan.check_exact(&names, &seen, options)?;
        scan.into_table(&names, &seen, options)
    }

    /// Opens the shards of one set. A column has the first type that fits its cells in all shards, as if they
    /// were one file. The shards may order their columns differently.
    pub(crate) fn of_shards(shards: Vec<(PathBuf, Content)>, options: &CsvOptions) -> Result<Vec<Self>> {
        let scans = at_once(shards, |(path, content)| {
            Scan::of_content(&path, content, options).map_err(|error| error.at_path(&path))
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
        for scan in &scans {
            scan.check_exact(&names, &all, options).map_err(|error| error.at_path(&scan.path))?;
        }
        scans.into_iter().map(|scan| scan.into_table(&names, &all, options)).collect()
    }
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

    fn row_memory(&self) -> u64 {
        self.cache_bytes
    }

    fn path(&self, _: u64) -> Option<&Path> {
        Some(&self.path)
    }

    /// Covers the content of a gzip file, and of a plain one its length and a sample of its content.
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}
