//! Missing values: one rule for all tables.

#[cfg(feature = "tabular")]
use feedline_core::{Error, ErrorKind};

#[cfg(feature = "tabular")]
use crate::error::{data, one_line};
#[cfg(any(feature = "csv", feature = "jsonl", feature = "table"))]
use crate::{ElementType, SchemaField};

/// What a missing value becomes: a null, an empty cell of a CSV column that is not text, a key that a JSON
/// line lacks. NaN is a number, and not missing.
///
/// It is the rule for all columns. [`OpenOptions::masks`](crate::OpenOptions::masks) marks the missing values
/// of single columns, and `Table::missing` (feature `tabular`) says for a column what they become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nulls {
    /// An error that names the column and the row, when that row is read.
    #[default]
    Refuse,
    /// NaN among floating-point numbers, zero among others, nothing where the size varies.
    ///
    /// CSV and JSON Lines have no types of their own: a column of whole numbers with missing values becomes
    /// `f64` with NaN, one of `true` and `false` becomes text.
    Fill,
}

/// The error for a missing value of `column`.
#[cfg(feature = "tabular")]
pub(crate) fn missing(column: &str, row: u64) -> Error {
    let column = one_line(column);
    data(format!(
        "column \"{column}\" has a null in row {row}: write a value there, or open the file with Nulls::Fill \
         in its options, or say what it becomes by Table::missing"
    ))
    .at_sample(row)
}

/// The error for a column of the options that the file lacks.
#[cfg(any(feature = "csv", feature = "jsonl", feature = "table"))]
pub(crate) fn no_column(name: &str) -> Error {
    Error::new(ErrorKind::Config, format!("there is no column \"{}\" to read", one_line(name)))
}

/// The field that says whether a row has a value of `column`.
#[cfg(any(feature = "csv", feature = "jsonl", feature = "table"))]
pub(crate) fn present(column: &str) -> SchemaField {
    SchemaField::fixed(format!("{column}.present"), ElementType::Bool, &[])
}
