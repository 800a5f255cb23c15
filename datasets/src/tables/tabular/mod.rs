//! Tables as training data. Columns are selected, stacked, cast, numbered, filled and standardized.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use feedline_core::{DType, Dataset, ElementType, Error, ErrorKind, Field, Result};

use crate::error::at_file;
use crate::open::{check_used, open_any};
use crate::{Bounded, OpenOptions, PathOrTable};

mod cast;
mod cell;
mod class;
mod column;
mod description;
mod double;
mod fit;
mod fit_on;
mod moments;
mod plan;
mod rows;
mod steps;
mod times;
mod vocabulary;
mod windows;

pub use class::Class;
use description::Description;
pub use fit_on::FitOn;
use plan::Plan;
use rows::{Made, TableRows};
use steps::{Category, Cut, Steps};
use times::Time;
pub use windows::{TableWindows, WindowFate, Windows};

/// A table, and the steps that make the fields of a data set from its columns. Every format of
/// [`open`](crate::open) has the same steps.
///
/// By default, the fields are the stacks, and after them the other columns in the order of the file.
/// [`select`](Self::select) selects fields. Other methods take the name of a column, or the name of a stack
/// for all of its columns.
///
/// | column | becomes |
/// | --- | --- |
/// | number, `bool` | the same type |
/// | date, time | its number in the file; [`days`](Self::days) or [`seconds`](Self::seconds) since 1970 |
/// | [`category`](Self::category) | `i64`, a list `i64 [?]`: the index in the sorted list of all values |
/// | `u64` | `i64`; a number beyond that is an error of its row |
/// | [`standardize`](Self::standardize) | `f32`: less the mean, divided by the standard deviation |
/// | [`stack`](Self::stack) of `n` columns | `f32 [n]` |
/// | text, bytes, lists | as they are |
///
/// [`cast`](Self::cast) sets another dtype. No cast loses a whole number. A number is an error of its row if
/// it is outside the range of the dtype, or beyond 2^53 in `f64` or 2^24 in `f32`. A fraction as a whole
/// number is an error too. Fractions are rounded to the nearest value of a smaller floating-point type.
///
/// A missing value is an error of its row, unless [`missing`](Self::missing) replaces it. NaN is a number.
/// One pass over the table computes the means, the standard deviations and the lists of categories. They
/// cover the values that are there, and not those that are filled in, unlike after `fillna` of pandas.
/// [`saved`](Self::saved) keeps the result in a file. [`fitted`](Self::fitted) uses this file for the
/// validation set, so that both sets have the same numbers.
///
/// ```
/// use feedline_core::Dataset;
/// use feedline_datasets::{Missing, Table};
///
/// # let dir = std::env::temp_dir().join(format!("feedline-doc-table-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// # #[cfg(feature = "csv")] {
/// std::fs::write(dir.join("train.csv"), "age,income,city\n30,1.5,Rome\n50,,Oslo\n40,2.5,Rome\n")?;
/// std::fs::write(dir.join("val.csv"), "age,income,city\n45,2.0,Rome\n")?;
/// let table = |name: &str| {
///     Table::open(dir.join(name))
///         .stack("x", ["age", "income"])
///         .category("city")
///         .missing("income", Missing::Mean)
///         .standardize("x")
/// };
/// let saved = dir.join("train.table.json");
/// let train = table("train.csv").saved(&saved).build()?;
/// let val = table("val.csv").fitted(&saved).build()?;
/// assert_eq!(train.classes("city").unwrap(), ["Oslo", "Rome"]);
/// assert_eq!((train.spec(), val.len()), (val.spec(), 1));
/// # }
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct Table {
    source: Source,
    steps: Steps,
    /// The file that keeps the description of this table, and the file with the description of another table.
    saved: Option<PathBuf>,
    fitted: Option<PathBuf>,
}

/// The source of the rows.
#[derive(Debug)]
enum Source {
    /// A path or URL, or a table in memory. It is opened when the needed columns are known.
    Path(PathOrTable, OpenOptions),
    Reader(Arc<dyn Dataset>),
}

/// The replacement for a missing value of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Missing {
    /// This number.
    Number(f64),
    /// This whole number. It is exact, even beyond 2^53.
    Whole(i128),
    /// This text. In a category, it is the value of this name.
    Text(String),
    /// The mean of the column's values.
    Mean,
    /// Zero (also after standardizing), or an empty value if the size varies. The field `NAME.present`
    /// (`bool`) is then 0 in that row.
    Mask,
}

impl Table {
    /// The table at a path or URL, in any format that [`open`](crate::open) reads. [`build`](Self::build)
    /// opens the file, and decodes only the columns that are used.
    pub fn open(path: impl AsRef<Path>) -> Self {
        Self::open_with(path, OpenOptions::default())
    }

    /// As [`open`](Self::open), with options. The table itself sets their `columns` and `masks`. Also takes
    /// a table in memory, an `ArrowTable`.
    pub fn open_with(from: impl Into<PathOrTable>, options: OpenOptions) -> Self {
        Self::of_source(Source::Path(from.into(), options))
    }

    /// The fields of `inner` as columns. Its fields `NAME.present` mark missing values.
    pub fn new(inner: Arc<dyn Dataset>) -> Self {
        Self::of_source(Source::Reader(inner))
    }

    fn of_source(source: Source) -> Self {
        Self { source, steps: Steps::default(), saved: None, fitted: None }
    }

    /// Keeps these columns and stacks as fields, in this order. Other columns are not decoded.
    pub fn select<S: Into<String>>(mut self, fields: impl IntoIterator<Item = S>) -> Self {
        self.steps.select = Some(fields.into_iter().map(Into::into).collect());
        self
    }

    /// Makes one field, `f32 [n]`, of scalar columns in this order. These columns are not fields of their
    /// own, unless they are [selected](Self::select).
    pub fn stack<S: Into<String>>(mut self, field: &str, columns: impl IntoIterator<Item = S>) -> Self {
        self.steps.stacks.push((field.to_owned(), columns.into_iter().map(Into::into).collect()));
        self
    }

    /// Sets another dtype for a column or a stack.
    pub fn cast(mut self, name: &str, dtype: DType) -> Self {
        self.steps.casts.push((name.to_owned(), dtype));
        self
    }

    /// Replaces the values of a column of texts, whole numbers or `bool` by numbers: their indices in the
    /// sorted list of all values. [`Bounded::classes`] returns the list. A value that the list lacks is
    /// an error of its row. The error names the column and the value.
    ///
    /// In CSV, an empty cell is a missing value. A column with a cell such as `007` is text, so that `007`
    /// and `7` differ.
    ///
    /// A list of texts, whole numbers or `bool` (Arrow, Parquet) becomes a list of numbers, `i64 [?]`.
    /// [`max`](Self::max) and [`last`](Self::last) keep some of its items.
    pub fn category(mut self, column: &str) -> Self {
        self.steps.categories.push(Category::new(column, None));
        self
    }

    /// As [`category`](Self::category), with a stated list. It has distinct texts, whole numbers or `bool`s,
    /// of the column's type.
    pub fn category_of<C: Into<Class>>(mut self, column: &str, classes: impl IntoIterator<Item = C>) -> Self {
        let classes = Some(classes.into_iter().map(Into::into).collect());
        self.steps.categories.push(Category::new(column, classes));
        self
    }

    /// Numbers all values that the list of a category lacks with one number: the length of the list.
    pub fn unknown(mut self, column: &str) -> Self {
        self.steps.unknown.push(column.to_owned());
        self
    }

    /// Makes categories share one list, with the values of all these columns. So a value has the same number
    /// in each column: for example home and away teams, or a user's past items and the next item. The columns
    /// must have one type.
    pub fn share<S: Into<String>>(mut self, columns: impl IntoIterator<Item = S>) -> Self {
        self.steps.shared.push(columns.into_iter().map(Into::into).collect());
        self
    }

    /// Keeps the first `items` items of each list in a column. The items are numbers or categories.
    pub fn max(mut self, column: &str, items: usize) -> Self {
        self.steps.cuts.push((column.to_owned(), Cut { max: items, is_last: false }));
        self
    }

    /// As [`max`](Self::max), but keeps the last items, such as the most recent.
    pub fn last(mut self, column: &str, items: usize) -> Self {
        self.steps.cuts.push((column.to_owned(), Cut { max: items, is_last: true }));
        self
    }

    /// Replaces dates or times by the number of days since 1970-01-01, as `i32`. A time of day is dropped.
    /// Texts must be dates such as `2024-02-29`, or times such as `2024-02-29T13:45:10.25Z`. A time without
    /// an offset is UTC.
    pub fn days(mut self, column: &str) -> Self {
        self.steps.times.push((column.to_owned(), Time::Days));
        self
    }

    /// As [`days`](Self::days), in seconds since 1970-01-01, 00:00 UTC: `f64`.
    pub fn seconds(mut self, column: &str) -> Self {
        self.steps.times.push((column.to_owned(), Time::Seconds));
        self
    }

    /// Subtracts the mean of a column, and divides by its standard deviation. The deviation is that of the
    /// population, as in scikit-learn. A deviation of 0 counts as 1. A stack is standardized column by
    /// column. The computation has twice the digits of `f64`, and rounds once.
    pub fn standardize(mut self, name: &str) -> Self {
        self.steps.standardized.push(name.to_owned());
        self
    }

    /// Replaces the missing values of a column. The replacements are standardized like other values. The mean
    /// and the deviation do not cover them.
    pub fn missing(mut self, name: &str, becomes: Missing) -> Self {
        self.steps.missing.push((name.to_owned(), becomes));
        self
    }

    /// Keeps the means, deviations and lists of categories of this table in a JSON file. If the file exists,
    /// there is no pass over the table. The file must then belong to this data and the same steps: the number
    /// of rows and the fingerprint are compared
    /// ([`Dataset::fingerprint`](feedline_core::Dataset::fingerprint), which covers a sample of a large
    /// file). If the file does not exist, the pass reads this table and writes the file.
    ///
    /// For the validation set, pass the file to [`fitted`](Self::fitted). Remove the file when the training
    /// data has changed.
    pub fn saved(mut self, path: impl AsRef<Path>) -> Self {
        self.saved = Some(path.as_ref().to_path_buf());
        self
    }

    /// Reads means, deviations and lists of categories from a file that another table, the training set, has
    /// [`saved`](Self::saved). So both tables use the same numbers. The file must exist. Its steps and the
    /// kinds and units of its columns must be the same.
    pub fn fitted(mut self, path: impl AsRef<Path>) -> Self {
        self.fitted = Some(path.as_ref().to_path_buf());
        self
    }

    /// Computes means, deviations and lists of categories from the given rows only, the training rows. The
    /// data set still has all rows. With [`saved`](Self::saved), the file names the rows, so that another
    /// fold is refused. With [`fitted`](Self::fitted), the file must be of the same rows of this table.
    ///
    /// ```
    /// use feedline_core::Dataset;
    /// use feedline_datasets::Table;
    ///
    /// # let dir = std::env::temp_dir().join(format!("feedline-doc-fit-on-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir)?;
    /// # #[cfg(feature = "csv")] {
    /// # let path = dir.join("a.csv");
    /// std::fs::write(&path, "x\n1\n3\n1000\n")?;
    /// let [train, _] = Table::open(&path).build()?.split([0.67, 0.33], 7)?;
    /// let data = Table::open(&path).standardize("x").fit_on(train.ids()).build()?;
    /// let train = data.subset(train.ids())?;
    /// # assert_eq!(train.len(), 2);
    /// # }
    /// # std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fit_on(mut self, rows: impl Into<FitOn>) -> Self {
        self.steps.fit_on = Some(rows.into());
        self
    }

    /// Time windows. A window has `inputs` rows, and `targets` rows after them. In each group, a window
    /// begins every `stride` rows.
    pub fn windows(self, inputs: usize, targets: usize, stride: usize) -> Windows {
        Windows::new(self, inputs, targets, stride)
    }

    /// Opens the table as a data set. If a pass is needed, blocks until it ends. Lists that vary in length
    /// are ragged fields. Their lengths are measured as by [`Bounded::measured`](crate::Bounded::measured).
    ///
    /// # Errors
    /// As [`rows`](Self::rows). `Config` for a text: leave it out, make it a category, or load
    /// [`rows`](Self::rows) by [`Bounded`](crate::Bounded).
    pub fn build(self) -> Result<Bounded> {
        let table: Arc<dyn Dataset> = Arc::new(self.table_rows()?);
        let is_text = |field: &Field| {
            field.dims().contains(&None) && matches!(field.element(), ElementType::Text | ElementType::Bytes)
        };
        // The length of a text is not measured: a text in a batch is likely an oversight.
        let has_texts = table.spec().fields().iter().any(is_text);
        if has_texts { Bounded::new(table) } else { Bounded::measured(table) }
    }

    /// Opens the table as a data set, for [`Bounded`](crate::Bounded) and `pack`. Blocks as
    /// [`build`](Self::build) does.
    ///
    /// # Errors
    /// `Config` for a column that does not exist, and for steps that contradict each other or the type of a
    /// column. `Data` for a file that cannot be read, and for a saved description of other data, steps,
    /// columns or units. In the pass, also `Data` for a missing value, a value that is not finite, or a mean
    /// or deviation that `f64` does not hold. The error names the file, the row and the column.
    pub fn rows(self) -> Result<Arc<dyn Dataset>> {
        Ok(Arc::new(self.table_rows()?))
    }

    fn table_rows(self) -> Result<TableRows> {
        let Self { source, mut steps, saved, fitted } = self;
        steps.check()?;
        let mut found = match (&saved, &fitted) {
            (Some(_), Some(_)) => {
                let why =
                    "a table has the numbers of its own pass, or those of another: give saved or fitted";
                return Err(refuse(why.into()));
            }
            (None, Some(path)) => Some(Description::read(path, &steps)?.ok_or_else(|| none_saved(path))?),
            (Some(path), None) => Description::read(path, &steps)?,
            (None, None) => None,
        };
        let inner = match source {
            Source::Reader(inner) => inner,
            Source::Path(from, mut options) => {
                let given = options.clone();
                options.columns = steps.columns();
                options.masks = steps.masks();
                options.codes = steps.codes();
                // The texts of the validation set may all be digits, even if those of the training set are
                // not.
                options.types.extend(found.iter().flat_map(Description::texts));
                options.types.extend(steps.texts());
                let inner = open_any(&from, &options)?;
                check_used(&*inner, &given).map_err(|error| from.at(error))?;
                inner
            }
        };
        let at = |error: Error| at_file(&*inner, 0, error);
        if let (Some(path), Some(found)) = (&saved, &found) {
            let checked = found.check_data(&*inner).and_then(|()| found.check_fit_on(steps.fit_on.as_ref()));
            checked.map_err(|error| error.at_path(path))?;
        }
        if let (Some(path), Some(found), Some(on)) = (&fitted, &found, &steps.fit_on) {
            let is_of = match found.is_of(&*inner)? {
                true => Ok(()),
                false => Err(crate::error::data(
                    "the saved table was made of other data: fit_on names rows of the training data, and so \
                     it is for that; leave it out for other data",
                )),
            };
            found.check_fit_on(Some(on)).and(is_of).map_err(|error| error.at_path(path))?;
        }
        let plan = Plan::new(&steps, &*inner, found.as_ref()).map_err(at)?;
        if found.is_none() {
            found = Some(fit::fit(&*inner, &plan, steps.fit_on.as_ref()).map_err(at)?);
            if let (Some(path), Some(found)) = (&saved, &found) {
                found.write(path, &steps)?;
            }
        }
        let found = found.unwrap_or_default();
        let made = Made::new(inner.spec(), &plan, &found).map_err(at)?;
        TableRows::new(inner, made, &found.text(&steps))
    }
}

/// The error for a description file that does not exist.
fn none_saved(path: &Path) -> Error {
    let why = "there is no saved table: build the training set first, with `saved` in place of `fitted`";
    refuse(why.into()).at_path(path)
}

fn refuse(why: String) -> Error {
    Error::new(ErrorKind::Config, why)
}
