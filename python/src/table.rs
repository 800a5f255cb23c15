//! Tables as training data: the steps of `feedline.table`, and windows of time.

use std::ops::Bound;

use feedline::{DType, Dataset, Error, ErrorKind};
use feedline_datasets::{Class, FitOn, Missing, Table, TableWindows};
use pyo3::prelude::*;

use crate::dataset::{DataSet, detached};
use crate::error::raise;
use crate::opening::Opening;
use crate::own::dtype_named;

/// The steps of a table, from `_table.py`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Steps {
    select: Option<Vec<String>>,
    stack: Vec<(String, Vec<String>)>,
    cast: Vec<(String, String)>,
    /// The columns of categories, and their stated lists.
    category: Vec<(String, Option<Vec<Named>>)>,
    unknown: Vec<String>,
    share: Vec<Vec<String>>,
    /// The columns of lists, and the number of items to keep.
    max: Vec<(String, usize)>,
    last: Vec<(String, usize)>,
    days: Vec<String>,
    seconds: Vec<String>,
    standardize: Vec<String>,
    fill: Vec<(String, Fill)>,
    fill_mean: Vec<String>,
    mask: Vec<String>,
    saved: Option<String>,
    fitted: Option<String>,
    fit_on: Option<Fit>,
}

/// The rows from which means and categories are computed.
#[derive(FromPyObject)]
enum Fit {
    Between(String, Option<f64>, Option<f64>),
    Range(u64, u64),
    Listed(Vec<u64>),
}

impl From<Fit> for FitOn {
    fn from(fit: Fit) -> Self {
        match fit {
            Fit::Between(column, start, end) => Self::between(&column, limits(start, end)),
            Fit::Range(start, end) => (start..end).into(),
            Fit::Listed(rows) => rows.into(),
        }
    }
}

/// The range from `start` to before `end`.
fn limits(start: Option<f64>, end: Option<f64>) -> (Bound<f64>, Bound<f64>) {
    (start.map_or(Bound::Unbounded, Bound::Included), end.map_or(Bound::Unbounded, Bound::Excluded))
}

/// The options of windows of time.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Window {
    inputs: usize,
    targets: usize,
    stride: usize,
    order_by: String,
    group: Vec<String>,
    x: Vec<String>,
    y: Vec<String>,
    max_gap: Option<f64>,
}

/// A value in the stated list of a category. In Python, a `bool` is also an `int`.
#[derive(FromPyObject)]
enum Named {
    Bool(bool),
    Whole(i128),
    Text(String),
}

impl Named {
    fn class(&self) -> Class {
        match self {
            Self::Bool(bool) => Class::Bool(*bool),
            Self::Whole(whole) => Class::Whole(*whole),
            Self::Text(text) => text.into(),
        }
    }
}

/// The replacement for a missing value.
#[derive(FromPyObject)]
enum Fill {
    Whole(i128),
    Number(f64),
    Text(String),
}

/// A table.
#[pyfunction]
pub(crate) fn open_table(py: Python<'_>, opening: Opening, steps: Steps) -> PyResult<DataSet> {
    let categories: Vec<_> = steps.category.iter().map(|(column, _)| column.clone()).collect();
    let table = table(opening, steps)?;
    let table = detached(py, || table.build())?;
    let list = |column: String| Some((column.clone(), table.classes(&column)?.to_vec()));
    let categories = categories.into_iter().filter_map(list).collect();
    let fields = table.spec().fields().iter().map(|field| field.name().to_owned());
    let lengths =
        fields.filter_map(|name| Some((name.clone(), table.lengths(&name).ok()?.to_vec()))).collect();
    Ok(DataSet { categories, lengths, ..DataSet::new("table", table) })
}

/// The windows of a table.
#[pyfunction]
pub(crate) fn open_windows(
    py: Python<'_>,
    opening: Opening,
    steps: Steps,
    window: Window,
) -> PyResult<DataSet> {
    let categories = steps.category.iter().map(|(column, _)| column).chain(&window.group);
    let mut categories: Vec<_> = categories.cloned().collect();
    let Window { inputs, targets, stride, order_by, group, x, y, max_gap } = window;
    let windows = table(opening, steps)?.windows(inputs, targets, stride).order_by(&order_by).x(x).y(y);
    let windows = group.iter().fold(windows, |windows, column| windows.group(column));
    let windows = max_gap.into_iter().fold(windows, |windows, gap| windows.max_gap(gap));
    let windows = detached(py, || windows.build())?;
    categories.sort();
    categories.dedup();
    let list = |column: String| Some((column.clone(), windows.classes(&column)?.to_vec()));
    let categories = categories.into_iter().filter_map(list).collect();
    let (set, fate) = (DataSet::new("windows", windows.clone()), Some(windows.fate().to_string()));
    Ok(DataSet { categories, fate, windows: Some(windows), ..set })
}

/// The windows whose targets have times from `start` to before `end`.
pub(crate) fn targets_in(windows: &TableWindows, start: Option<f64>, end: Option<f64>) -> PyResult<DataSet> {
    Ok(DataSet::new("subset", windows.targets_in(limits(start, end)).map_err(raise)?))
}

/// The table with its steps. It is not opened yet.
fn table(opening: Opening, steps: Steps) -> PyResult<Table> {
    let (from, options) = opening.options()?;
    let casts = steps.cast.iter().map(|(name, dtype)| Ok((name, dtype_named(dtype)?)));
    let casts: Vec<(&String, DType)> = casts.collect::<feedline::Result<_>>().map_err(raise)?;
    if let Some((name, _)) = steps.category.iter().find(|(_, list)| list.as_ref().is_some_and(Vec::is_empty))
    {
        let why = format!("the category \"{name}\" has an empty list: name its values, or give no list");
        return Err(raise(Error::new(ErrorKind::Config, why)));
    }
    let mut table = Table::open_with(from, options.open);
    if let Some(fields) = steps.select {
        table = table.select(fields);
    }
    for (field, columns) in steps.stack {
        table = table.stack(&field, columns);
    }
    for (name, dtype) in casts {
        table = table.cast(name, dtype);
    }
    for (column, list) in &steps.category {
        table = match list {
            Some(list) => table.category_of(column, list.iter().map(Named::class)),
            None => table.category(column),
        };
    }
    table = steps.unknown.iter().fold(table, |table, column| table.unknown(column));
    table = steps.share.into_iter().fold(table, Table::share);
    table = steps.max.iter().fold(table, |table, (column, items)| table.max(column, *items));
    table = steps.last.iter().fold(table, |table, (column, items)| table.last(column, *items));
    table = steps.days.iter().fold(table, |table, column| table.days(column));
    table = steps.seconds.iter().fold(table, |table, column| table.seconds(column));
    table = steps.standardize.iter().fold(table, |table, name| table.standardize(name));
    for (name, value) in steps.fill {
        let value = match value {
            Fill::Whole(number) => Missing::Whole(number),
            Fill::Number(number) => Missing::Number(number),
            Fill::Text(text) => Missing::Text(text),
        };
        table = table.missing(&name, value);
    }
    table = steps.fill_mean.iter().fold(table, |table, name| table.missing(name, Missing::Mean));
    table = steps.mask.iter().fold(table, |table, name| table.missing(name, Missing::Mask));
    if let Some(path) = steps.saved {
        table = table.saved(path);
    }
    if let Some(path) = steps.fitted {
        table = table.fitted(path);
    }
    if let Some(fit) = steps.fit_on {
        table = table.fit_on(fit);
    }
    Ok(table)
}
