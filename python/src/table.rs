//! Tables as training data: the steps of `feedline.table`.

use feedline::{DType, Error, ErrorKind};
use feedline_datasets::{Class, Missing, OpenOptions, Table};
use pyo3::prelude::*;

use crate::dataset::{DataSet, open_options};
use crate::error::raise;
use crate::interpreter::detached;
use crate::own::dtype_named;

/// The steps, as `_table.py` gives them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Steps {
    split: Option<String>,
    memory_limit: Option<u64>,
    cache_bytes: Option<u64>,
    /// Columns, and the stated types of their cells.
    types: Vec<(String, String)>,
    select: Option<Vec<String>>,
    stack: Vec<(String, Vec<String>)>,
    cast: Vec<(String, String)>,
    /// Columns, and their stated lists.
    category: Vec<(String, Option<Vec<Named>>)>,
    unknown: Vec<String>,
    days: Vec<String>,
    seconds: Vec<String>,
    standardize: Vec<String>,
    fill: Vec<(String, Fill)>,
    fill_mean: Vec<String>,
    mask: Vec<String>,
    saved: Option<String>,
    fitted: Option<String>,
}

/// A value in the stated list of a category; a `bool` is also an `int` in Python.
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

/// What a missing value becomes.
#[derive(FromPyObject)]
enum Fill {
    Whole(i128),
    Number(f64),
    Text(String),
}

/// The table at `path`.
#[pyfunction]
pub(crate) fn open_table(py: Python<'_>, path: &str, steps: Steps) -> PyResult<DataSet> {
    let options = open_options(steps.split.as_deref(), None, false, false, steps.memory_limit, steps.types)?;
    let cache_bytes = steps.cache_bytes.unwrap_or(options.cache_bytes);
    let options = OpenOptions { cache_bytes, ..options };
    let casts = steps.cast.iter().map(|(name, dtype)| Ok((name, dtype_named(dtype)?)));
    let casts: Vec<(&String, DType)> = casts.collect::<feedline::Result<_>>().map_err(raise)?;
    if let Some((name, _)) = steps.category.iter().find(|(_, list)| list.as_ref().is_some_and(Vec::is_empty))
    {
        let why = format!("the category \"{name}\" has an empty list: name its values, or give no list");
        return Err(raise(Error::new(ErrorKind::Config, why)));
    }
    let mut table = Table::open_with(path, options);
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
    let table = detached(py, || table.build()).map_err(raise)?;
    let list = |(column, _): &(String, _)| Some((column.clone(), table.classes(column)?.to_vec()));
    let categories = steps.category.iter().filter_map(list).collect();
    let mut set = DataSet::new("table", table);
    set.categories = categories;
    Ok(set)
}
