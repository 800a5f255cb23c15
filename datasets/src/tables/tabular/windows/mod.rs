//! Time windows over a table. A window has consecutive rows of a group, in the order of a column.

use std::fmt;

use feedline_core::{DType, Result};

use super::steps::ByName;
use super::{Category, Missing, Source, Table, refuse};
use crate::bounded::row_memory::CACHE_BYTES;
use crate::error::one_line;

mod dataset;
mod index;

pub use dataset::TableWindows;

/// The fields of the windows. `x` and `y` are stacks of the table.
const FIELDS: [&str; 4] = ["x", "y", "group", "start"];

/// Options for time windows over the rows of a [`Table`]. [`Table::windows`] makes them.
///
/// A sample has the fields
///
/// | field | type | what |
/// | --- | --- | --- |
/// | `x` | `f32 [inputs, F]` | the columns [`x`](Self::x) of consecutive rows |
/// | `y` | `f32 [targets, G]` | the columns [`y`](Self::y) of the rows after them |
/// | `group` | `i64`, or `i64 [n]` of `n` columns | the index in the sorted list of all groups |
/// | `start` | that of the column | the time of the first row |
///
/// [`TableWindows::classes`] lists the groups. Without targets, there is no field `y`. Without
/// [`group`](Self::group), there is no field `group`.
///
/// Rows are sorted by group and time. The file may have them in any order. Two rows with the same group and
/// time are an error. The windows of a group begin at its rows 0, `stride`, `2 * stride` and so on. Windows
/// are ordered by group, then by time. No window has rows of two groups. Without [`max_gap`](Self::max_gap),
/// any time may lie between neighbouring rows.
///
/// The steps of the table apply to its columns: [`standardize`](Table::standardize),
/// [`missing`](Table::missing) (not [`Missing::Mask`]), [`category`](Table::category),
/// [`seconds`](Table::seconds) and so on. `.cast("x", DType::F64)` sets another dtype.
/// [`fit_on`](Table::fit_on) selects the rows for means and deviations.
///
/// ```
/// use feedline_core::Dataset;
/// use feedline_datasets::{FitOn, Table};
///
/// # let dir = std::env::temp_dir().join(format!("feedline-doc-windows-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// # #[cfg(feature = "csv")] {
/// let rows = "shop,day,sold\nB,1,5\nA,3,3\nA,1,1\nA,2,2\nB,2,6\nB,3,7\n";
/// std::fs::write(dir.join("sales.csv"), rows)?;
/// let data = Table::open(dir.join("sales.csv"))
///     .standardize("sold")
///     .fit_on(FitOn::between("day", ..3.0))
///     .windows(1, 1, 1) // one row, and the row after it
///     .group("shop")
///     .order_by("day")
///     .x(["sold"])
///     .y(["sold"])
///     .build()?;
/// let (train, val) = (data.targets_in(..3.0)?, data.targets_in(3.0..)?);
/// assert_eq!((data.len(), train.ids(), val.ids()), (4, &[0, 2][..], &[1, 3][..]));
/// # }
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct Windows {
    table: Table,
    inputs: usize,
    targets: usize,
    stride: usize,
    group: Vec<String>,
    order_by: Option<String>,
    x: Vec<String>,
    y: Vec<String>,
    max_gap: Option<f64>,
}

/// Counts of windows and groups, and of those left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WindowFate {
    /// Windows.
    pub windows: u64,
    /// Windows left out because of a gap between two of their rows.
    pub over_gaps: u64,
    /// Groups.
    pub groups: u64,
    /// Groups with fewer rows than a window.
    pub short_groups: u64,
}

impl fmt::Display for WindowFate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { windows, over_gaps, groups, short_groups } = self;
        write!(f, "{windows} windows of {groups} groups; {over_gaps} over gaps are left out, ")?;
        write!(f, "and {short_groups} groups are shorter than a window")
    }
}

impl Windows {
    pub(super) fn new(table: Table, inputs: usize, targets: usize, stride: usize) -> Self {
        let (group, x, y) = (Vec::new(), Vec::new(), Vec::new());
        Self { table, inputs, targets, stride, group, order_by: None, x, y, max_gap: None }
    }

    /// Groups rows by a column of texts, whole numbers or `bool`. All rows of a window have the same value.
    /// Several calls name several columns. The lists of groups cover all rows, even with
    /// [`fit_on`](Table::fit_on).
    pub fn group(mut self, column: &str) -> Self {
        self.group.push(column.to_owned());
        self
    }

    /// The column of times: numbers, or dates and times in the unit of the file. [`Table::days`] and
    /// [`Table::seconds`] make times from texts.
    pub fn order_by(mut self, column: &str) -> Self {
        self.order_by = Some(column.to_owned());
        self
    }

    /// The columns of the inputs. Each is a number or a category.
    pub fn x<S: Into<String>>(mut self, columns: impl IntoIterator<Item = S>) -> Self {
        self.x = columns.into_iter().map(Into::into).collect();
        self
    }

    /// The columns of the targets.
    pub fn y<S: Into<String>>(mut self, columns: impl IntoIterator<Item = S>) -> Self {
        self.y = columns.into_iter().map(Into::into).collect();
        self
    }

    /// The max time between two neighbouring rows, such as one and a half steps. A longer time is a gap.
    /// Windows over a gap are left out and counted ([`TableWindows::fate`]).
    pub fn max_gap(mut self, time: f64) -> Self {
        self.max_gap = Some(time);
        self
    }

    /// Opens the table, sorts its rows and finds the windows. Blocks for one pass over the table, or for two
    /// if a step needs a pass.
    ///
    /// The columns of the windows may take up to
    /// [`OpenOptions::cache_bytes`](crate::OpenOptions::cache_bytes), and twice that while they are sorted.
    /// If they fit, all cores decode them once, and reading a window is one copy of `x` and one of `y`.
    /// Otherwise the rows of a window are read from the file one by one. In both cases, each window takes 4
    /// bytes of memory, and each row 4 bytes and the size of its time.
    ///
    /// # Errors
    /// As [`Table::rows`]. `Config` if a window has no rows, columns or times, if times are no numbers, and
    /// for steps that windows do not have. `Data` for a time that is not finite, two rows of one group and
    /// time, a window that is longer than every group, and more than 2^32 rows. The error names the rows and
    /// the column.
    pub fn build(mut self) -> Result<TableWindows> {
        let time = self.order_by.take();
        let time =
            time.ok_or_else(|| refuse("windows need the column of times: name it by order_by".into()))?;
        self.check()?;
        self.check_time(&time)?;
        self.add_steps(time);
        let Self { table, inputs, targets, stride, group, max_gap, .. } = self;
        let steps = &table.steps;
        let is_fitted_on_all = steps.has_means() && steps.fit_on.is_none() && table.fitted.is_none();
        let budget = match &table.source {
            Source::Path(_, options) => options.cache_bytes,
            Source::Reader(_) => CACHE_BYTES,
        };
        let shape = index::Shape { inputs, targets, stride, max_gap, is_fitted_on_all };
        TableWindows::new(table.table_rows()?, group.len(), shape, budget)
    }

    /// Refuses windows without rows or columns, and steps that windows do not have.
    fn check(&self) -> Result<()> {
        let Self { inputs, targets, stride, x, y, .. } = self;
        if *inputs == 0 || *stride == 0 {
            let what = if *inputs == 0 { "inputs" } else { "stride" };
            return Err(refuse(format!("windows with {what} of 0: use 1 or more")));
        }
        if inputs.checked_add(*targets).is_none_or(|rows| u32::try_from(rows).is_err()) {
            return Err(refuse(format!("windows of {inputs} and {targets} rows: use fewer")));
        }
        if x.is_empty() {
            return Err(refuse("windows have no columns of inputs: name them by x".into()));
        }
        if y.is_empty() != (*targets == 0) {
            let why = "windows have targets and no columns of them, or the reverse";
            return Err(refuse(format!("{why}: name columns by y, or use 0 targets")));
        }
        if self.max_gap.is_some_and(|gap| gap.is_nan() || gap <= 0.0) {
            return Err(refuse("max_gap is not above 0: give the longest time between two rows".into()));
        }
        let steps = &self.table.steps;
        if steps.select.is_some() || !steps.stacks.is_empty() {
            return Err(refuse("windows choose their columns by x and y: leave out select and stack".into()));
        }
        if let Some((column, _)) = steps.missing.iter().find(|(_, missing)| *missing == Missing::Mask) {
            let why =
                format!("column \"{}\" is masked, and windows have no field for that", one_line(column));
            return Err(refuse(why + ": fill it with a number or the mean"));
        }
        match self.group.iter().find(|column| steps.unknown.contains(column)) {
            Some(column) => {
                let column = one_line(column);
                let why = format!("group names \"{column}\", and its unknown values would be one group");
                Err(refuse(why + ": leave it out of unknown"))
            }
            None => Ok(()),
        }
    }

    /// Refuses a time column that a step changes, and columns with the name of a field.
    fn check_time(&self, time: &String) -> Result<()> {
        let (steps, shown) = (&self.table.steps, one_line(time));
        if self.group.contains(time) {
            return Err(refuse(format!("order_by names \"{shown}\", a column of the group: name times")));
        }
        let (by_name, time_of) = (ByName::new(steps), time.as_str());
        let is_changed = by_name.standardized.contains(time_of) || by_name.categories.contains_key(time_of);
        if is_changed || by_name.missing.contains_key(time_of) || by_name.casts.contains_key(time_of) {
            return Err(refuse(format!(
                "order_by names \"{shown}\", which a step changes: times are taken as they are, so leave it \
                 out of other steps than days and seconds"
            )));
        }
        let several = self.group.len() > 1;
        let is_taken = |name: &&String| matches!(name.as_str(), "x" | "y") || several && *name == "group";
        let alone = self.group.iter().filter(|_| !several);
        match std::iter::once(time).chain(alone).find(is_taken) {
            Some(name) => {
                let all = FIELDS.join(", ");
                let why = format!("column \"{name}\" has the name of a field of windows ({all})");
                Err(refuse(why + ": rename it"))
            }
            None => Ok(()),
        }
    }

    /// Adds the steps that make the time, the group, the inputs and the targets from a row.
    fn add_steps(&mut self, time: String) {
        let (steps, group) = (&mut self.table.steps, &self.group);
        for column in group {
            if !steps.categories.iter().any(|category| category.column == *column) {
                steps.categories.push(Category::new(column, None));
            }
        }
        let groups = steps.categories.iter_mut().filter(|category| group.contains(&category.column));
        groups.for_each(|category| category.is_of_all_rows = true);
        let mut select = vec![time];
        match group.len() {
            0 => {}
            1 => select.extend(group.iter().cloned()),
            _ => {
                steps.stacks.push(("group".into(), group.clone()));
                steps.casts.push(("group".into(), DType::I64));
                select.push("group".into());
            }
        }
        for (name, columns) in [("x", &self.x), ("y", &self.y)] {
            if !columns.is_empty() {
                // Time and group of a row are read before an error in another cell is reported.
                steps.cells.extend(columns.iter().cloned());
                steps.stacks.push((name.into(), columns.clone()));
                select.push(name.into());
            }
        }
        steps.select = Some(select);
    }
}
