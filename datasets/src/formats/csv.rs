//! Tables of comma-separated values. Their columns are typed.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use csv_core::ReadRecordResult;
use feedline_core::{About, Context, Dataset, ElementType, Error, ErrorKind, ReadError, Result, Row, Spec};

use crate::bounded::row_memory::CACHE_BYTES;
use crate::error::{data, inside, one_line};
use crate::formats::column_type::{ByName, ColumnType};
use crate::io::at_once::at_once;
use crate::io::bytes::Content;
use crate::io::of_one_file;
use crate::io::read_ahead::ReadAhead;
use crate::tables::nulls::missing;
use crate::{Buffers, Nulls};

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
    /// Whether the first row names the columns. `None` decides by its cells: they are names if all differ,
    /// and none is empty or a number. The way in which pandas writes an index is recognised too: the first
    /// cells are empty (`,a,b`), and the others may be 0, 1 and so on. A column without a name is called by
    /// its position: `c0`, `c1` and so on.
    ///
    /// A first row that may be either is refused: texts above numbers with a name twice, an empty cell or a
    /// number among them; years and places (`0,1,2`) above other numbers; and in a table of texts, a text
    /// that occurs again in its column.
    pub header: Option<bool>,
    /// The columns to read, in the file's order; `None` reads all.
    pub columns: Option<Vec<String>>,
    /// Types for single columns instead of the inferred ones: `i64`, `u64`, `f64`, `bool` or `text`. A cell
    /// that does not fit is an error.
    pub types: Vec<(String, ElementType)>,
    /// Columns that may lack values. The field `NAME.present` (`bool`) follows each of them. An empty cell is
    /// read as zero or an empty text, and its `NAME.present` is false. This also applies to text columns. A
    /// column without any value is `f64`.
    pub masks: Vec<String>,
    /// How an empty cell of another column is read, unless the column is text.
    pub nulls: Nulls,
    /// Columns of codes, such as the categories of a `Table`. If a whole number in such a column has leading
    /// zeros or a plus sign, the column is text, so that `007`, `+7` and `7` differ. In other columns, all
    /// three are 7.
    pub codes: Vec<String>,
    /// Max bytes of rows in memory. If all fields have one size and the rows fit, each row is decoded once.
    /// Otherwise rows are read from the file.
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
    /// What the options say of single columns.
    fn by_name(&self) -> ByName<'_> {
        ByName::new(self.columns.as_deref(), &self.types, &self.masks, &self.codes, self.nulls)
    }
}

/// The rows of a table, plain or gzip. Each column is a field.
///
/// A column has the first of these types that fits all of its cells: `i64`, `u64`, `f64`, `bool` (`true`,
/// `True`, `TRUE` and so on), `text`. If `f64` would round a whole number of its column, the column is
/// refused: for example 9007199254740993 beside 0.5. A number beyond `f64`, such as 1e999, is text. An empty
/// cell of a text column is an empty text. In other columns it is a missing value, see [`Nulls`].
///
/// All rows have the same number of cells. Quotes follow RFC 4180. A quote that never closes is refused. A
/// byte order mark at the start of the file is skipped. A blank line is skipped too, even in a table of one
/// column. There, a missing value is `""`.
///
/// A plain file stays on disk. It takes 8 bytes of memory per row.
#[derive(Debug)]
pub struct Csv {
    path: PathBuf,
    content: Content,
    delimiter: u8,
    /// The start of each row, and the end of the last row.
    starts: Vec<u64>,
    /// Cells per row.
    cells: usize,
    schema: Spec,
    columns: Vec<Column>,
    nulls: Nulls,
    cache_bytes: u64,
    fingerprint: u64,
}

/// A column that is read.
#[derive(Clone, Copy, Debug)]
struct Column {
    /// The index of the column's cell in a row of the file.
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
    /// closes, two columns have the same name, or a row other than the first begins with a byte order mark.
    /// Also if cells do not fit a stated type, or `f64` does not hold the whole numbers of its column.
    /// `Config` if a column of the options does not exist. The error names the file and, if known, the byte
    /// and the line.
    pub fn open_with(path: impl AsRef<Path>, options: CsvOptions) -> Result<Self> {
        let path = path.as_ref();
        let content = Content::open_unclaimed(path).map_err(|error| error.at_path(path))?;
        Self::of_content(path, content, &options).map_err(|error| error.at_path(path))
    }

    pub(crate) fn of_content(path: &Path, content: Content, options: &CsvOptions) -> Result<Self> {
        let scan = Scan::of_content(path, content, options)?;
        let (names, seen, by_name) = (scan.names.clone(), scan.seen.clone(), options.by_name());
        scan.check_exact(&names, &seen, &by_name)?;
        scan.into_table(&names, &seen, (&by_name, options.cache_bytes))
    }

    /// Opens the shards of one set. A column has the first type that fits its cells in all shards, as if they
    /// were one file. The shards may order their columns differently.
    pub(crate) fn of_shards(shards: Vec<(PathBuf, Content)>, options: &CsvOptions) -> Result<Vec<Self>> {
        let scans = at_once(shards, |(path, content)| {
            Scan::of_content(&path, content, options).map_err(|error| error.at_path(&path))
        })?;
        let Some(first) = scans.first() else { return Ok(Vec::new()) };
        let (names, mut all) = (first.names.clone(), first.seen.clone());
        let known: HashSet<&String> = names.iter().collect();
        for scan in &scans[1..] {
            for (name, all) in names.iter().zip(&mut all) {
                *all = all.and(scan.seen_of(name)?);
            }
            if let Some(more) = scan.names.iter().find(|name| !known.contains(name)) {
                let why = format!("the shards differ: only this one has the column \"{}\"", one_line(more));
                return Err(data(why + ", the first shard lacks it").at_path(&scan.path));
            }
        }
        let by_name = options.by_name();
        for scan in &scans {
            scan.check_exact(&names, &all, &by_name).map_err(|error| error.at_path(&scan.path))?;
        }
        scans.into_iter().map(|scan| scan.into_table(&names, &all, (&by_name, options.cache_bytes))).collect()
    }
}

/// Buffers of one worker: a parser with its delimiter, the cells of a row without quotes, and the end of each
/// cell.
#[derive(Default)]
struct Scratch {
    /// The parser is kept, because building it takes longer than parsing a row.
    parser: Option<(u8, csv_core::Reader)>,
    cells: Vec<u8>,
    ends: Vec<usize>,
    /// The value of each field.
    fields: Vec<Vec<u8>>,
}

impl Csv {
    fn fill(&self, sample: u64, scratch: &mut Scratch, ahead: &mut ReadAhead) -> Result<()> {
        let (start, end) = (self.starts[sample as usize], self.starts[sample as usize + 1]);
        let damaged = |why: String| Error::new(ErrorKind::Data, why).at_offset(start);
        let len =
            usize::try_from(end - start).map_err(|_| damaged("the row is larger than the memory".into()))?;
        let text = ahead.read(&self.content, start, len)?;
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
                parser.read_record(&text[read..], &mut scratch.cells[written..], &mut scratch.ends[cells..]);
            (read, written, cells) = (read + taken, written + put, cells + ended);
            match result {
                // One more call with an empty input ends the row.
                ReadRecordResult::InputEmpty if read == len && taken > 0 => {}
                ReadRecordResult::InputEmpty if read < len => {}
                _ => break,
            }
        }
        if cells != self.cells {
            return Err(damaged(format!("the row has {cells} cells instead of {}", self.cells)));
        }
        scratch.fields.resize_with(self.schema.fields().len(), Vec::new);
        let mut fields = scratch.fields.iter_mut().zip(self.schema.fields());
        for &Column { cell, kind, marked } in &self.columns {
            let Some((value, field)) = fields.next() else { break };
            let begin = if cell == 0 { 0 } else { scratch.ends[cell - 1] };
            let cell = &scratch.cells[begin..scratch.ends[cell]];
            value.clear();
            let is_missing = cell.is_empty() && (marked || kind != ColumnType::Text);
            if marked && let Some((present, _)) = fields.next() {
                present.clear();
                present.push((!is_missing).into());
            }
            let written = match self.nulls {
                _ if is_missing && marked => {
                    value.extend(kind.blank());
                    Some(())
                }
                Nulls::Refuse if is_missing => return Err(missing(field.name(), sample).at_offset(start)),
                Nulls::Fill if is_missing && kind == ColumnType::Float => {
                    value.extend(f64::NAN.to_le_bytes());
                    Some(())
                }
                _ => std::str::from_utf8(cell).ok().and_then(|cell| types::write(kind, cell, value)),
            };
            written.ok_or_else(|| {
                damaged(format!("column \"{}\" is not {}", one_line(field.name()), field.element()))
            })?;
        }
        Ok(())
    }
}

impl Dataset for Csv {
    of_one_file! { self => self.schema, self.path;
        /// Covers the content of a gzip file. Of a plain file, covers its length and a sample of its content.
    }

    fn len(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        inside(sample, self.len(), &self.path)?;
        context.scoped_scratch(|scratch: &mut Scratch, context| {
            let filled = self.fill(sample, scratch, &mut context.scratch::<Buffers>().ahead);
            filled.map_err(|error| error.at_path(&self.path).at_sample(sample))?;
            let mut fields = scratch.fields.iter().enumerate();
            Ok(fields.try_for_each(|(field, value)| row.put(field, value))?)
        })
    }

    fn about(&self) -> About<'_> {
        About { format: "csv", row_memory: self.cache_bytes, ..About::default() }
    }
}
