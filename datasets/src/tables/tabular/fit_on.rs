//! The rows from which means, deviations and categories are computed.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Bound, Range, RangeBounds};

use feedline_core::{Fingerprint, Result};

use super::cast::Number;
use super::refuse;

/// The rows from which [`Table::fit_on`](super::Table::fit_on) computes means, deviations and lists of
/// categories.
///
/// ```
/// use feedline_datasets::FitOn;
///
/// let _first = FitOn::from(0..1000);
/// let _listed = FitOn::from(vec![0, 2, 5]); // such as the ids of a fold
/// let _before = FitOn::between("day", ..90.0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FitOn(Chosen);

#[derive(Clone, Debug, PartialEq)]
enum Chosen {
    Range(Range<u64>),
    /// Row numbers, sorted.
    Listed(Vec<u64>),
    Between(String, Limits),
}

/// A range of `f64`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limits {
    from: Bound<f64>,
    to: Bound<f64>,
}

impl FitOn {
    /// The rows whose value in `column` is within `range`. Dates and times count in the unit of the column.
    /// After [`Table::days`](super::Table::days) or [`Table::seconds`](super::Table::seconds), they count in
    /// days or seconds.
    pub fn between(column: &str, range: impl RangeBounds<f64>) -> Self {
        Self(Chosen::Between(column.to_owned(), Limits::new(&range)))
    }

    /// The column of [`between`](Self::between).
    pub(super) fn column(&self) -> Option<&str> {
        match &self.0 {
            Chosen::Between(column, _) => Some(column),
            Chosen::Range(_) | Chosen::Listed(_) => None,
        }
    }

    /// Refuses an empty selection, rows that a table of `len` rows does not have, and limits that are NaN.
    pub(super) fn check(&self, len: u64) -> Result<()> {
        let why = match &self.0 {
            Chosen::Range(rows) if rows.is_empty() => "no rows".into(),
            Chosen::Listed(rows) if rows.is_empty() => "no rows".into(),
            Chosen::Range(rows) if rows.end > len => format!("row {}, and the table has {len}", rows.end - 1),
            Chosen::Listed(rows) if rows.last().is_some_and(|&row| row >= len) => {
                format!("row {}, and the table has {len}", rows[rows.len() - 1])
            }
            Chosen::Between(_, limits) if limits.is_nan() => "a limit that is NaN".into(),
            _ => return Ok(()),
        };
        Err(refuse(format!("fit_on names {why}: name the rows of the training set")))
    }

    /// Whether row `row` is selected. `value` returns its value in [`column`](Self::column).
    pub(super) fn has(&self, row: u64, value: impl FnOnce() -> Option<Number>) -> bool {
        match &self.0 {
            Chosen::Range(rows) => rows.contains(&row),
            Chosen::Listed(rows) => rows.binary_search(&row).is_ok(),
            Chosen::Between(_, limits) => value().is_some_and(|value| limits.has(value)),
        }
    }
}

impl From<Range<u64>> for FitOn {
    fn from(rows: Range<u64>) -> Self {
        Self(Chosen::Range(rows))
    }
}

impl From<Vec<u64>> for FitOn {
    fn from(mut rows: Vec<u64>) -> Self {
        rows.sort_unstable();
        rows.dedup();
        Self(Chosen::Listed(rows))
    }
}

impl From<&[u64]> for FitOn {
    fn from(rows: &[u64]) -> Self {
        rows.to_vec().into()
    }
}

/// The text in the saved table. It differs for different rows.
impl fmt::Display for FitOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Chosen::Range(rows) => write!(f, "rows {}..{}", rows.start, rows.end),
            Chosen::Listed(rows) => {
                let state = rows.iter().fold(Fingerprint::new(), |state, &row| state.number(row));
                write!(f, "{} listed rows ({:016x})", rows.len(), state.value())
            }
            Chosen::Between(column, limits) => write!(f, "rows with {column:?} in {limits}"),
        }
    }
}

impl Limits {
    pub(super) fn new(range: &impl RangeBounds<f64>) -> Self {
        Self { from: range.start_bound().cloned(), to: range.end_bound().cloned() }
    }

    pub(super) fn is_nan(&self) -> bool {
        [self.from, self.to].iter().any(|bound| match bound {
            Bound::Included(limit) | Bound::Excluded(limit) => limit.is_nan(),
            Bound::Unbounded => false,
        })
    }

    /// Whether a number is within the limits. False for NaN.
    pub(super) fn has(&self, number: Number) -> bool {
        let from = match self.from {
            Bound::Unbounded => true,
            Bound::Included(limit) => compare(number, limit).is_some_and(Ordering::is_ge),
            Bound::Excluded(limit) => compare(number, limit).is_some_and(Ordering::is_gt),
        };
        let to = match self.to {
            Bound::Unbounded => true,
            Bound::Included(limit) => compare(number, limit).is_some_and(Ordering::is_le),
            Bound::Excluded(limit) => compare(number, limit).is_some_and(Ordering::is_lt),
        };
        from && to && !matches!(number, Number::Float(float) if float.is_nan())
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from {
            Bound::Unbounded => {}
            Bound::Included(limit) => write!(f, "{limit:?}")?,
            Bound::Excluded(limit) => write!(f, "after {limit:?}")?,
        }
        match self.to {
            Bound::Unbounded => f.write_str(".."),
            Bound::Included(limit) => write!(f, "..={limit:?}"),
            Bound::Excluded(limit) => write!(f, "..{limit:?}"),
        }
    }
}

/// Compares a number with a limit. This is exact, even beyond 2^53. `None` if one of them is NaN.
fn compare(number: Number, limit: f64) -> Option<Ordering> {
    match number {
        Number::Float(float) => float.partial_cmp(&limit),
        Number::Whole(_) if limit.is_nan() => None,
        Number::Whole(whole) => {
            let floor = limit.floor();
            let order = whole.cmp(&(floor as i128));
            Some(if order.is_eq() && limit > floor { Ordering::Less } else { order })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_compared_with_limits_to_the_last_digit() {
        let big = (1i128 << 53) + 1;
        let limits = |range: Range<f64>| Limits::new(&range);
        assert!(!limits(0.0..(1u64 << 53) as f64).has(Number::Whole(big - 1)));
        assert!(!Limits::new(&(..=(1u64 << 53) as f64)).has(Number::Whole(big)));
        assert!(Limits::new(&(..=2.5)).has(Number::Whole(2)) && !Limits::new(&(..2.5)).has(Number::Whole(3)));
        assert!(Limits::new(&(2.5..)).has(Number::Whole(3)) && !Limits::new(&(2.5..)).has(Number::Whole(2)));
        assert!(Limits::new(&(f64::NEG_INFINITY..f64::INFINITY)).has(Number::Whole(i128::from(i64::MAX))));
        assert!(!Limits::new(&(..)).has(Number::Float(f64::NAN)));
        assert!(limits(-1.5..2.0).has(Number::Float(-1.5)) && !limits(-1.5..2.0).has(Number::Float(2.0)));
    }

    #[test]
    fn rows_that_a_table_lacks_are_refused() {
        for (rows, why) in [
            (FitOn::from(0..11), "row 10, and the table has 10"),
            (FitOn::from(3..3), "no rows"),
            (FitOn::from(vec![]), "no rows"),
            (FitOn::from(vec![12, 3]), "row 12, and the table has 10"),
            (FitOn::between("t", f64::NAN..), "a limit that is NaN"),
        ] {
            let error = rows.check(10).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        FitOn::from(0..10).check(10).unwrap();
        FitOn::from(vec![9, 9, 0]).check(10).unwrap();
    }
}
