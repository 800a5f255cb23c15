//! Finds the delimiter of a table and the names of its columns.

use std::collections::HashSet;
use std::path::Path;

use csv::{ByteRecord, ReaderBuilder};
use feedline_core::Result;

use super::quotes::Quotes;
use crate::bytes::Content;

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

/// Whether the first row names the columns. pandas leaves the names of an index empty. It calls columns
/// without names 0, 1 and so on.
pub(super) fn is_header(cells: &[&str]) -> bool {
    let names = &cells[cells.iter().take_while(|cell| cell.is_empty()).count()..];
    let is_name = |cell: &&str| !cell.is_empty() && cell.parse::<f64>().is_err();
    let are_names = names.iter().all(is_name) && names.iter().collect::<HashSet<_>>().len() == names.len();
    let are_places = names.len() < cells.len() && (0..).zip(names).all(|(at, name)| *name == at.to_string());
    !names.is_empty() && (are_names || are_places)
}

/// The names of the columns. If the first row `cells` is a header, it has the names.
pub(super) fn names(cells: &[&str], is_header: bool) -> Vec<String> {
    let name = |(at, cell): (usize, &&str)| match *cell {
        name if is_header && !name.is_empty() => name.to_owned(),
        _ => format!("c{at}"),
    };
    cells.iter().enumerate().map(name).collect()
}
