//! Finds the delimiter of a table and the names of its columns.

use std::collections::HashSet;
use std::path::Path;

use csv::{ByteRecord, ReaderBuilder};
use feedline_core::{Result, named};

use super::quotes::Quotes;
use super::types::Seen;
use crate::error::{data, one_line};
use crate::io::bytes::Content;

/// Delimiters that are tried, in this order.
const DELIMITERS: [u8; 4] = [b',', b'\t', b';', b'|'];
/// Rows that are read to find the delimiter.
const SNIFFED_ROWS: usize = 100;
/// Bytes that are read to find the delimiter.
const SNIFFED_BYTES: u64 = 64 << 10;

/// Whether the file's extension states that tabs separate its cells.
pub(super) fn is_tab(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    name.ends_with(".tsv") || name.ends_with(".tsv.gz")
}

/// Whether a delimiter splits each of the first rows of a text into the same number of cells, and into at
/// least two.
pub(crate) fn is_table(content: &Content) -> Result<bool> {
    Ok(delimiter_of(content, false)?.is_some())
}

/// The delimiter that splits each of the first rows into the same number of cells, and into at least two.
/// `None` if there is no such delimiter.
pub(super) fn delimiter(content: &Content) -> Result<Option<u8>> {
    delimiter_of(content, true)
}

/// As `delimiter`. If a quote never closes, `is_table` decides. If it is true, only the rows before the
/// quote are tried. If it is false, the text is prose and has no delimiter.
fn delimiter_of(content: &Content, is_table: bool) -> Result<Option<u8>> {
    let mut head = content.read(0, content.len().min(SNIFFED_BYTES) as usize)?;
    if content.len() > SNIFFED_BYTES {
        // Drop the last row, as it may be cut.
        head.truncate(row_before(&head, head.len()));
    }
    let cells = |delimiter: u8| {
        let mut quotes = Quotes::new(delimiter);
        if is_table {
            quotes.see(&head);
        }
        let open = quotes.fault().map(|fault| fault.offset as usize);
        let head = &head[..open.map_or(head.len(), |open| row_before(&head, open))];
        let mut rows = ReaderBuilder::new();
        let mut rows = rows.delimiter(delimiter).has_headers(false).from_reader(head);
        let (mut row, mut cells) = (ByteRecord::new(), None);
        for number in 0..SNIFFED_ROWS {
            match rows.read_byte_record(&mut row) {
                Ok(true) => cells = Some(row.len()),
                // A single row may be any text with a comma.
                Ok(false) if number < 2 && open.is_none() => return None,
                Ok(false) => break,
                Err(_) => return None,
            }
        }
        cells.filter(|&cells| cells > 1)
    };
    let possible = DELIMITERS.into_iter().filter_map(|one| Some((cells(one)?, one)));
    // If several delimiters fit, take the one with the most cells per row. In a tie, take the first one.
    Ok(possible.rev().max_by_key(|(cells, _)| *cells).map(|(_, delimiter)| delimiter))
}

/// The end of the last row that ends before byte `at`.
fn row_before(text: &[u8], at: usize) -> usize {
    text[..at].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1)
}

/// The first row of a table: the names of the columns, or values.
pub(super) struct FirstRow {
    cells: Vec<String>,
    /// Whether it is taken for the names of the columns.
    pub(super) is_header: bool,
    is_stated: bool,
    /// Whether a text of the row occurs below in its column, as values do and names do not.
    recurs: bool,
    /// The columns whose cells are years, here and below.
    years: Vec<usize>,
}

impl FirstRow {
    pub(super) fn new(cells: &[&str], stated: Option<bool>) -> Self {
        let years = (0..cells.len()).filter(|&at| is_year(cells[at])).collect();
        let is_header = stated.unwrap_or_else(|| is_header(cells));
        let cells = cells.iter().map(|&cell| cell.to_owned()).collect();
        Self { cells, is_header, is_stated: stated.is_some(), recurs: false, years }
    }

    /// Compares a later row with this one. `seen` has the types of the later rows.
    pub(super) fn compare(&mut self, row: &[&str], seen: &[Seen]) {
        if !self.recurs && !self.is_stated {
            let mut all = seen.iter().zip(row).zip(&self.cells);
            self.recurs = all.any(|((seen, cell), own)| !seen.is_typed() && !own.is_empty() && cell == own);
        }
        self.years.retain(|&at| is_year(row[at]));
    }

    /// The names of the columns.
    pub(super) fn names(&self) -> Vec<String> {
        let name = |(at, cell): (usize, &String)| match cell.as_str() {
            name if self.is_header && !name.is_empty() => name.to_owned(),
            _ => format!("c{at}"),
        };
        self.cells.iter().enumerate().map(name).collect()
    }

    /// The types of all rows, if this one is values. `rest` has those of the later rows.
    pub(super) fn and(&self, rest: &[Seen]) -> Vec<Seen> {
        rest.iter().zip(&self.cells).map(|(rest, cell)| rest.and(Seen::of(cell))).collect()
    }

    /// Refuses a row that may be the names of the columns as well as values. `rest` has the types of the
    /// later rows.
    pub(super) fn check(&self, rest: &[Seen]) -> Result<()> {
        let numbers: Vec<f64> = self.cells.iter().filter_map(|cell| cell.parse().ok()).collect();
        let is_name = |cell: &str| !cell.is_empty() && cell.parse::<f64>().is_err();
        // A text above numbers is a name.
        let is_above = self.cells.iter().zip(rest).any(|(cell, rest)| is_name(cell) && !rest.takes(cell));
        let are_texts = numbers.is_empty() && !rest.iter().any(Seen::is_typed);
        let why = match self.is_header {
            _ if self.is_stated => return Ok(()),
            true if are_texts && self.recurs => "has a text that a later row has in the same column".into(),
            true => return Ok(()),
            false if is_above || are_texts && !self.recurs => self.no_names(is_name),
            false if !self.recurs && (are_places(&numbers) || self.has_years(rest)) => {
                "has numbers that may be names, places or years".into()
            }
            false => return Ok(()),
        };
        Err(data(format!(
            "the first row {why}: give {} if it names the columns, {} if it is values, or write distinct \
             names above the values",
            named("OpenOptions::header Some(true)", "header=True"),
            named("Some(false)", "header=False"),
        ))
        .at_offset(0))
    }

    /// Why the row does not name the columns.
    fn no_names(&self, is_name: impl Fn(&str) -> bool) -> String {
        let mut names = HashSet::new();
        let twice = self.cells.iter().find(|cell| is_name(cell) && !names.insert(*cell));
        match (twice, self.cells.iter().find(|cell| !is_name(cell))) {
            (Some(name), _) => format!("has \"{}\" twice", one_line(name)),
            (None, Some(number)) if !number.is_empty() => format!("has texts and the number {number}"),
            _ => "has texts and an empty cell".into(),
        }
    }

    /// Whether the numbers of the row are years, above other numbers.
    fn has_years(&self, rest: &[Seen]) -> bool {
        let numbers: Vec<_> = self.cells.iter().filter(|cell| cell.parse::<f64>().is_ok()).collect();
        let are_above = self.years.is_empty() || !rest.iter().any(Seen::has_any);
        let are_years = !numbers.is_empty() && numbers.iter().all(|cell| is_year(cell));
        are_years && are_above && numbers.iter().collect::<HashSet<_>>().len() == numbers.len()
    }
}

/// Whether a cell may be a year that names a column.
fn is_year(cell: &str) -> bool {
    cell.len() == 4 && cell.parse().is_ok_and(|year: u16| (1800..2200).contains(&year))
}

/// Whether numbers are 0, 1 and so on, the names that pandas gives to columns without names.
fn are_places(numbers: &[f64]) -> bool {
    numbers.len() > 1 && (0..).zip(numbers).all(|(at, &number)| number == f64::from(at))
}

/// Whether the first row names the columns. pandas leaves the names of an index empty. It calls columns
/// without names 0, 1 and so on.
fn is_header(cells: &[&str]) -> bool {
    let names = &cells[cells.iter().take_while(|cell| cell.is_empty()).count()..];
    let is_name = |cell: &&str| !cell.is_empty() && cell.parse::<f64>().is_err();
    let are_names = names.iter().all(is_name) && names.iter().collect::<HashSet<_>>().len() == names.len();
    let are_places = names.len() < cells.len() && (0..).zip(names).all(|(at, name)| *name == at.to_string());
    !names.is_empty() && (are_names || are_places)
}
