//! Missing values: one rule for all tables.

#[cfg(any(feature = "csv", feature = "jsonl", feature = "table"))]
use crate::error::{data, one_line};

/// What a missing value becomes: a null, an empty cell of a CSV column that is not text, a key that a JSON
/// line lacks.
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
#[cfg(any(feature = "csv", feature = "jsonl", feature = "table"))]
pub(crate) fn missing(column: &str, row: u64) -> feedline_core::Error {
    let column = one_line(column);
    data(format!(
        "column \"{column}\" has a null in row {row}: write a value there, or open the file with Nulls::Fill in \
         its options"
    ))
    .at_sample(row)
}
