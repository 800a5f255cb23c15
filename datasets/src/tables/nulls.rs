//! Missing values. One rule applies to all tables.

#[cfg(feature = "tabular")]
use std::collections::HashSet;

#[cfg(any(feature = "csv", feature = "jsonl", feature = "table"))]
use feedline_core::{ElementType, Field};
#[cfg(feature = "tabular")]
use feedline_core::{Error, ErrorKind, named};

#[cfg(feature = "tabular")]
use crate::error::data;
use crate::error::one_line;

/// How a missing value is read. Missing values are a null, an empty cell of a CSV column that is not text,
/// and a key that a JSON line lacks. NaN is a number, and not missing.
///
/// This rule applies to all columns of a file. For single columns,
/// [`OpenOptions::masks`](crate::OpenOptions::masks) marks missing values, and `Table::missing` (feature
/// `tabular`) replaces them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nulls {
    /// Reading the row is an error. The error names the column and the row.
    #[default]
    Refuse,
    /// NaN for floating-point numbers, zero for other numbers, and nothing if the size varies.
    ///
    /// CSV and JSON Lines have no types of their own. So a column of whole numbers with missing values
    /// becomes `f64` with NaN. A column of `true` and `false` with missing values becomes text.
    Fill,
}

/// The error for a missing value of `column`.
#[cfg(feature = "tabular")]
pub(crate) fn missing(column: &str, row: u64) -> Error {
    let column = one_line(column);
    data(format!(
        "column \"{column}\" has a null in row {row}: write a value there, {}",
        named(
            "or open the file with Nulls::Fill in its options, or say what it becomes by Table::missing",
            "or open the data by feedline.open(..., nulls=\"fill\"), or say what it becomes by \
             feedline.table(..., fill=), fill_mean= or mask="
        )
    ))
    .at_sample(row)
}

/// Max columns that an error names.
const NAMED: usize = 20;

/// The error for requested columns that do not exist. It lists them, and the columns that exist.
#[cfg(feature = "tabular")]
pub(crate) fn no_columns<'a>(
    asked: impl IntoIterator<Item = &'a str>,
    all: impl IntoIterator<Item = &'a str>,
) -> Option<Error> {
    let all: Vec<_> = all.into_iter().collect();
    let (known, mut seen) = (HashSet::<&str>::from_iter(all.iter().copied()), HashSet::new());
    let asked = asked.into_iter().filter(|name| !known.contains(name) && seen.insert(*name));
    let missing: Vec<&str> = asked.collect();
    let is_one = match missing[..] {
        [] => return None,
        [_] => true,
        _ => false,
    };
    let (what, which) = (if is_one { "is no column" } else { "are no columns" }, quoted(&missing));
    let why = format!("there {what} {which} to read; the columns are {}", quoted(&all));
    Some(Error::new(ErrorKind::Config, why))
}

/// The first of `names`, in quotes.
pub(crate) fn quoted(names: &[&str]) -> String {
    let shown: Vec<_> = names.iter().take(NAMED).map(|name| format!("\"{}\"", one_line(name))).collect();
    let more = names.len().saturating_sub(NAMED);
    shown.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

/// The field that says whether a row has a value of `column`.
#[cfg(any(feature = "csv", feature = "jsonl", feature = "table"))]
pub(crate) fn present(column: &str) -> Field {
    Field::fixed(format!("{column}.present"), ElementType::Bool, &[])
}
