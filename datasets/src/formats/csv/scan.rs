//! One pass over a table: finds its rows and the types that fit its columns.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use csv::{ByteRecord, ErrorKind as CsvError, ReaderBuilder};
use feedline_core::{ElementType, Error, Field, Fingerprint, Result, Spec};

use super::quotes::Watched;
use super::sniff::FirstRow;
use super::types::{self, Seen};
use super::{BOM, Column, Csv, CsvOptions, sniff};
use crate::error::{check_names, data, of_stream, one_line};
use crate::formats::column_type::{ByName, ColumnType, Rounded};
use crate::io::bytes::Content;
use crate::tables::nulls::present;

/// Max columns of a table.
const MAX_COLUMNS: usize = 1 << 16;

/// A scanned file: its rows, and the types that fit its columns.
pub(super) struct Scan {
    pub(super) path: PathBuf,
    content: Content,
    delimiter: u8,
    starts: Vec<u64>,
    pub(super) names: Vec<String>,
    /// The index of each name; of the first one, if a name is there twice.
    places: HashMap<String, usize>,
    pub(super) seen: Vec<Seen>,
}

impl Scan {
    pub(super) fn of_content(path: &Path, content: Content, options: &CsvOptions) -> Result<Self> {
        let delimiter = match options.delimiter {
            Some(delimiter) => delimiter,
            None if sniff::is_tab(path) => b'\t',
            None => sniff::delimiter(&content)?.unwrap_or(b','),
        };
        let mut rows = rows(Watched::new(content.stream(), delimiter), delimiter);
        let mut row = ByteRecord::new();
        let (mut starts, mut seen, mut first) = (Vec::new(), Vec::<Seen>::new(), None::<FirstRow>);
        loop {
            match rows.read_byte_record(&mut row) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    // A row with another number of cells may be several rows, if a quote opens in its first
                    // row.
                    let from = error.position().map_or(0, csv::Position::byte);
                    let within = |offset: u64| (from..rows.position().byte()).contains(&offset);
                    let fault = rows.get_ref().quotes.fault().filter(|fault| within(fault.offset));
                    return Err(fault.map_or_else(|| Ok(damaged(error)), |fault| fault.error(&content))?);
                }
            }
            let start = row.position().map_or(0, csv::Position::byte);
            let cells = cells(&row).map_err(|error| error.at_offset(start))?;
            if cells.first().is_some_and(|cell| cell.starts_with(BOM)) {
                // The parser of a single row would skip this mark.
                let line = row.position().map_or(0, csv::Position::line);
                let why = format!("line {line} begins with a byte order mark, as if files were joined");
                return Err(data(why + ": remove it").at_offset(start));
            }
            if let Some(first) = &mut first {
                seen.iter_mut().zip(&cells).for_each(|(column, cell)| column.add(cell));
                first.compare(&cells, &seen);
            } else {
                if cells.len() > MAX_COLUMNS {
                    let why = format!("{} columns, more than the max of {MAX_COLUMNS}", cells.len());
                    return Err(data(format!("the first row has {why}: this is not a table")));
                }
                seen = vec![Seen::NOTHING; cells.len()];
                if first.insert(FirstRow::new(&cells, options.header)).is_header {
                    continue;
                }
            }
            starts.push(start);
        }
        let fault = rows.get_ref().quotes.fault();
        drop(rows);
        content.check_unchanged()?;
        if let Some(fault) = fault {
            return Err(fault.error(&content)?);
        }
        starts.push(content.len());
        let Some(first) = first else { return Err(data("the table has no row: fetch the file again")) };
        first.check(&seen)?;
        let names = first.names();
        if !first.is_header {
            seen = first.and(&seen);
        }
        let places = names.iter().cloned().enumerate().rev().map(|(at, name)| (name, at)).collect();
        let scan = Self { path: path.to_path_buf(), content, delimiter, starts, names, places, seen };
        scan.check_types(options).map(|()| scan)
    }

    fn check_types(&self, options: &CsvOptions) -> Result<()> {
        for (name, element) in &options.types {
            if let Some(&cell) = self.places.get(name) {
                let at_line = |error: Error| match self.first_unfit(cell, *element) {
                    Some((line, byte, text)) => {
                        let why = format!("{}: line {line} has \"{}\"", error.message(), one_line(text));
                        Error::new(error.kind(), why).at_offset(byte)
                    }
                    None => error,
                };
                self.seen[cell].check(name, *element).map_err(at_line)?;
            }
        }
        Ok(())
    }

    fn place(&self, name: &str) -> Result<usize> {
        self.places.get(name).copied().ok_or_else(|| {
            let why = format!("the shards differ: this one lacks the column \"{}\"", one_line(name));
            data(why).at_path(&self.path)
        })
    }

    pub(super) fn seen_of(&self, name: &str) -> Result<Seen> {
        Ok(self.seen[self.place(name)?])
    }

    /// Refuses a column if `f64` would round its values. `all` has the types that fit the columns `names` in
    /// all shards.
    pub(super) fn check_exact(&self, names: &[String], all: &[Seen], options: &ByName<'_>) -> Result<()> {
        for (name, all) in names.iter().zip(all) {
            let is_stated = options.stated(name).is_some();
            let own = self.seen_of(name)?;
            let is_rounded = own.is_rounded_as(all.decide(options, name));
            if is_stated || !options.reads(name) || !is_rounded {
                continue;
            }
            let float = ColumnType::Float.element();
            let first = self
                .first_unfit(self.place(name)?, float)
                .map(|(line, byte, text)| (format!("{} of line {line}", one_line(text)), byte));
            let (first, byte) = first.unwrap_or_default();
            let (is_whole, is_filled) = (own.is_whole(), all.is_whole());
            let rounded = Rounded { what: "column", name, first, is_whole, is_filled };
            return Err(rounded.error().at_offset(byte));
        }
        Ok(())
    }

    /// The line, the byte and the text of the first cell that does not fit the type.
    fn first_unfit(&self, cell: usize, element: ElementType) -> Option<(u64, u64, String)> {
        let mut rows = rows(self.content.stream(), self.delimiter);
        let mut row = ByteRecord::new();
        while let Ok(true) = rows.read_byte_record(&mut row) {
            let place = row.position().filter(|place| self.starts.first() <= Some(&place.byte()));
            let text = row.get(cell).and_then(|cell| std::str::from_utf8(cell).ok());
            let (Some(place), Some(text)) = (place, text.filter(|text| !text.is_empty())) else { continue };
            if !types::fits(element, text) {
                return Some((place.line(), place.byte(), text.to_owned()));
            }
        }
        None
    }

    /// The table with the columns `names`. `seen` has the types of their cells.
    pub(super) fn into_table(
        self,
        names: &[String],
        seen: &[Seen],
        (options, cache_bytes): (&ByName<'_>, u64),
    ) -> Result<Csv> {
        let at = |error: Error| error.at_path(&self.path);
        options.check(names).map_err(at)?;
        let (mut columns, mut fields) = (Vec::new(), Vec::new());
        for (name, seen) in names.iter().zip(seen) {
            if !options.reads(name) {
                continue;
            }
            let marked = options.is_marked(name);
            let kind = match options.stated(name) {
                Some(element) => seen.check(name, element).map_err(at)?,
                None => seen.decide(options, name),
            };
            fields.push(match kind {
                ColumnType::Text => Field::variable(name, kind.element()),
                _ => Field::fixed(name, kind.element(), &[]),
            });
            fields.extend(marked.then(|| present(name)));
            columns.push(Column { cell: self.place(name)?, kind, marked });
        }
        let schema = Spec::of_fields(fields);
        check_names(&schema).map_err(at)?;
        let Self { path, content, delimiter, starts, names, .. } = self;
        let state = Fingerprint::new().number(starts.len() as u64).number(delimiter.into());
        let fingerprint = content.fingerprint_sampled(state)?.value();
        let (cells, nulls) = (names.len(), options.nulls);
        Ok(Csv { path, content, delimiter, starts, cells, schema, columns, nulls, cache_bytes, fingerprint })
    }
}

/// The rows of a stream without a header.
fn rows<R: Read>(stream: R, delimiter: u8) -> csv::Reader<R> {
    ReaderBuilder::new().delimiter(delimiter).has_headers(false).from_reader(stream)
}

/// The cells of a row. A cell that is not UTF-8 is an error.
fn cells(row: &ByteRecord) -> Result<Vec<&str>> {
    let cell = |(at, cell)| {
        std::str::from_utf8(cell)
            .map_err(|_| data(format!("column {at} of the row is not UTF-8: convert the file first")))
    };
    row.iter().enumerate().map(cell).collect()
}

fn damaged(error: csv::Error) -> Error {
    let (offset, text) = (error.position().map(csv::Position::byte), one_line(&error));
    let error = match error.into_kind() {
        // A read error names its own position.
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
