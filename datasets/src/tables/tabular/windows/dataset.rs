//! Time windows as a data set.

use std::fmt;
use std::ops::{Range, RangeBounds};
use std::path::Path;
use std::sync::Arc;

use feedline_core::compose::Subset;
use feedline_core::{
    About, Context, DType, Dataset, ElementType, Error, ErrorKind, Fingerprint, Prefetched, ReadError,
    Result, Row, RowError, Rows, Sink, Spec, Storage, named,
};

use super::index::{Index, Shape, Unsorted};
use super::{WindowFate, refuse};
use crate::bounded::grouped;
use crate::bounded::row_memory::{self, RowMemory};
use crate::error::{at_file, check_not_empty, data, one_line};
use crate::io::memory::Memory;
use crate::tables::tabular::fit_on::Limits;
use crate::tables::tabular::rows::TableRows;

/// Time windows over a table, as a [`Dataset`]. [`Table::windows`](crate::Table::windows) makes it. Clones
/// share the rows. `read` uses no random numbers.
#[derive(Clone)]
pub struct TableWindows(Arc<Shared>);

struct Shared {
    inner: TableRows,
    spec: Spec,
    /// The indices of the inner set's fields: time, group, inputs, targets.
    places: Places,
    shape: Shape,
    index: Index,
    /// The bytes of the times, in the order of the window index.
    times: Vec<u8>,
    groups: Vec<u8>,
    rows: Option<InMemory>,
    /// The memory of the columns in bytes.
    bytes: u64,
}

/// For each field of the windows, its index in the inner set and in the windows, and its bytes per row.
#[derive(Clone, Copy, Debug)]
struct Places {
    time: usize,
    group: Option<Column>,
    x: Column,
    y: Option<Column>,
    start: Column,
}

#[derive(Clone, Copy, Debug)]
struct Column {
    of: usize,
    to: usize,
    bytes: usize,
}

/// The columns of the windows, in the order of the window index.
struct InMemory {
    x: Memory,
    y: Memory,
    /// The positions of rows that cannot be read, ascending.
    unread: Vec<usize>,
}

impl TableWindows {
    pub(super) fn new(inner: TableRows, group: usize, shape: Shape, budget: u64) -> Result<Self> {
        check_not_empty(&inner)?;
        let fields = inner.spec().fields();
        let ElementType::Number(time) = fields[0].element() else { return Err(no_time(&inner)) };
        if !fields[0].dims().is_empty() {
            return Err(no_time(&inner));
        }
        let closed = inner.spec().closed().map_err(|error| at_file(&inner, 0, error))?;
        let spec = spec(&closed, time, group, shape)?;
        let column = |of: usize, to: &str| -> Result<Column> {
            Ok(Column { of, to: spec.index_of(to)?, bytes: closed.fields()[of].row_bytes() })
        };
        let is_grouped = usize::from(group > 0);
        let places = Places {
            time: 0,
            group: if group > 0 { Some(column(1, "group")?) } else { None },
            x: column(1 + is_grouped, "x")?,
            y: if shape.targets > 0 { Some(column(2 + is_grouped, "y")?) } else { None },
            start: column(0, "start")?,
        };
        let bytes = row_memory::bytes(&inner, &closed);
        let memory = (bytes <= budget).then(|| RowMemory::decoded_now(&inner, &closed));
        let mut unsorted = Unsorted::new(fields[0].element(), inner.len())?;
        let mut times = Memory::new(inner.len() * time.size() as u64)?;
        let mut cells = Cells::new(&inner, places);
        let mut unread = Vec::new();
        for (row, to) in (0..inner.len()).zip(times.bytes_mut().chunks_exact_mut(time.size())) {
            let added = match memory.as_ref().and_then(|memory| Some((memory, memory.row(&inner, row)?))) {
                Some((memory, bytes)) => {
                    let group = places.group.map_or(0..0, |group| memory.field(group.of));
                    to.copy_from_slice(&bytes[memory.field(places.time)]);
                    unsorted.add(to, &bytes[group])
                }
                None => {
                    if cells.read(row)? {
                        unread.push(row);
                    }
                    to.copy_from_slice(&cells.time);
                    unsorted.add(to, &cells.group)
                }
            };
            added.map_err(|error| at_file(&inner, row, error.at_sample(row)))?;
        }
        let named = |numbers: &[i64]| named_group(&inner, numbers);
        let index = unsorted.sorted(shape, named).map_err(|error| at_file(&inner, 0, error))?;
        let sorted =
            index.order.iter().flat_map(|&row| &times.bytes()[row as usize * time.size()..][..time.size()]);
        let times = sorted.copied().collect();
        let groups =
            index.groups.iter().flat_map(|(numbers, _)| numbers).flat_map(|number| number.to_le_bytes());
        let groups = groups.collect();
        let rows = match memory {
            Some(memory) => Some(InMemory::new(&inner, &memory, &index, places, &unread)?),
            None => None,
        };
        let shared = Shared { inner, spec, places, shape, index, times, groups, rows, bytes };
        Ok(Self(Arc::new(shared)))
    }

    /// The number of windows and groups, and how many of them were left out.
    pub fn fate(&self) -> WindowFate {
        self.0.index.fate
    }

    /// The values of a category in the order of their numbers, such as the groups. `None` if the column is
    /// not a category.
    pub fn classes(&self, column: &str) -> Option<&[String]> {
        let found = self.0.inner.about().categories.iter().find(|(name, _)| name == column);
        found.map(|(_, classes)| classes.as_slice())
    }

    /// The windows whose targets all have times within `range`. Windows without targets must have all their
    /// rows within `range`. So windows of `..end` have no row from `end` on. The inputs of `end..` may begin
    /// before `end`.
    ///
    /// ```
    /// # use feedline_core::Dataset;
    /// # fn windows(data: feedline_datasets::TableWindows) -> feedline_core::Result<()> {
    /// let (train, val) = (data.targets_in(..90.0)?, data.targets_in(90.0..)?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Config` for a limit that is NaN, or if no window is in the range. Also if means or deviations come
    /// from all rows: these leak later rows into earlier ones. Use [`fit_on`](crate::Table::fit_on) or
    /// [`fitted`](crate::Table::fitted).
    pub fn targets_in(&self, range: impl RangeBounds<f64>) -> Result<Subset> {
        let (limits, Shape { inputs, targets, .. }) = (Limits::new(&range), self.0.shape);
        if self.0.shape.is_fitted_on_all {
            let why = "means of these windows are made of all rows, also of those to validate on: say which \
                       rows are for training";
            let how = named(
                "by Table::fit_on, or take the numbers of another table by fitted",
                "by fit_on=, or take \
                            the numbers of another table by fitted=",
            );
            return Err(refuse(format!("{why} {how}")));
        }
        let of = if targets > 0 { inputs..inputs + targets } else { 0..inputs };
        let ids = self.0.index.within(of, &limits);
        if limits.is_nan() || ids.is_empty() {
            let why = format!("no window has its targets in {limits}: give times in the unit of \"start\"");
            return Err(refuse(why));
        }
        self.clone().subset(ids)
    }
}

/// The spec of the windows.
fn spec(inner: &Spec, time: DType, group: usize, shape: Shape) -> Result<Spec> {
    let mut spec = Spec::new();
    for (name, rows) in [("x", shape.inputs), ("y", shape.targets)] {
        if rows > 0 {
            let field = &inner.fields()[inner.index_of(name)?];
            spec = spec.field(name, field.dtype(), [&[rows], field.shape()].concat())?;
        }
    }
    match group {
        0 => {}
        1 => spec = spec.field("group", DType::I64, [])?,
        columns => spec = spec.field("group", DType::I64, [columns])?,
    }
    spec.field("start", time, [])
}

fn no_time(inner: &TableRows) -> Error {
    let field = &inner.spec().fields()[0];
    let (name, how) = (one_line(field.name()), named("days or seconds", "days= or seconds="));
    let why = format!(
        "order_by names \"{name}\", which is {} and not one number: make times of it by {how}",
        field.element()
    );
    at_file(inner, 0, refuse(why))
}

/// The values of a group, for an error message.
fn named_group(inner: &TableRows, numbers: &[i64]) -> String {
    let classes = inner.about().categories;
    let names: Vec<_> = match inner.spec().fields().get(1).map(|field| field.name()) {
        Some(name) if numbers.len() == 1 => {
            let list = classes.iter().find(|(column, _)| column == name);
            let value = list.and_then(|(_, list)| list.get(usize::try_from(numbers[0]).ok()?));
            value.map(|value| format!("\"{}\"", one_line(value))).into_iter().collect()
        }
        _ => numbers.iter().map(i64::to_string).collect(),
    };
    if names.is_empty() { String::new() } else { format!(" of group {}", names.join(", ")) }
}

/// Reads the time and the group of each row.
struct Cells<'a> {
    inner: &'a TableRows,
    places: Places,
    context: Context,
    time: Vec<u8>,
    group: Vec<u8>,
}

impl<'a> Cells<'a> {
    fn new(inner: &'a TableRows, places: Places) -> Self {
        Self { inner, places, context: Context::new(0, 0), time: Vec::new(), group: Vec::new() }
    }

    /// Reads a row; returns whether another of its cells is an error, to be reported by the windows with this
    /// row.
    fn read(&mut self, row: u64) -> Result<bool> {
        let Self { inner, places, context, time, group } = self;
        let inner: &dyn Dataset = *inner;
        let of_group = places.group.map(|group| group.of);
        let (mut has_time, mut has_group) = (false, of_group.is_none());
        let mut keep = |field: usize, bytes: &[u8], _: Option<&[usize]>| {
            if field == places.time {
                time.clear();
                time.extend_from_slice(bytes);
                has_time = true;
            } else if Some(field) == of_group {
                group.clear();
                group.extend_from_slice(bytes);
                has_group = true;
            }
            Ok(())
        };
        let visited = inner.visit(row, &mut Sink::new(&mut keep), context);
        match visited {
            Ok(()) => Ok(false),
            Err(_) if has_time && has_group => Ok(true),
            Err(error) => Err(error),
        }
    }
}

impl InMemory {
    fn new(
        inner: &TableRows,
        memory: &RowMemory,
        index: &Index,
        Places { x, y, .. }: Places,
        unread: &[u64],
    ) -> Result<Self> {
        let rows = index.order.len();
        let y_bytes = y.map_or(0, |y| y.bytes);
        let mut in_memory = Self {
            x: Memory::new((rows * x.bytes) as u64)?,
            y: Memory::new((rows * y_bytes).max(1) as u64)?,
            unread: Vec::new(),
        };
        for (place, &row) in index.order.iter().enumerate() {
            match memory.row(inner, row.into()).filter(|_| unread.binary_search(&row.into()).is_err()) {
                Some(bytes) => {
                    in_memory.x.bytes_mut()[place * x.bytes..][..x.bytes]
                        .copy_from_slice(&bytes[memory.field(x.of)]);
                    if let Some(y) = y {
                        let to = &mut in_memory.y.bytes_mut()[place * y.bytes..][..y.bytes];
                        to.copy_from_slice(&bytes[memory.field(y.of)]);
                    }
                }
                None => in_memory.unread.push(place),
            }
        }
        Ok(in_memory)
    }

    /// Whether all rows of `places` are in memory.
    fn has(&self, places: &Range<usize>) -> bool {
        let next = self.unread.partition_point(|&place| place < places.start);
        self.unread.get(next).is_none_or(|&place| place >= places.end)
    }
}

impl Shared {
    /// The positions of a window's rows in the window index.
    fn places_of(&self, id: u64) -> Result<Range<usize>, ReadError> {
        let start = usize::try_from(id).ok().and_then(|id| self.index.starts.get(id));
        let Some(&start) = start else {
            let why = format!("no window {id}: there are {}", self.index.starts.len());
            return Err(Error::new(ErrorKind::Sample, why).into());
        };
        Ok(start as usize..start as usize + self.shape.inputs + self.shape.targets)
    }

    /// Writes the group and the time of a window.
    fn write_place(&self, start: usize, row: &mut Row<'_, '_>) {
        let time = self.places.start;
        row.write(time.to, &self.times[start * time.bytes..][..time.bytes]);
        if let Some(group) = self.places.group {
            row.write(group.to, &self.groups[self.index.group(start) * group.bytes..][..group.bytes]);
        }
    }

    /// The bytes of inputs and targets in memory.
    fn slices<'a>(&self, rows: &'a InMemory, start: usize) -> (&'a [u8], &'a [u8]) {
        let (x, Shape { inputs, targets, .. }) = (self.places.x.bytes, self.shape);
        let y = self.places.y.map_or(0, |y| y.bytes);
        (&rows.x.bytes()[start * x..][..inputs * x], &rows.y.bytes()[(start + inputs) * y..][..targets * y])
    }

    /// Reads the rows of a window from the file.
    fn read_rows(
        &self,
        places: Range<usize>,
        row: &mut Row<'_, '_>,
        context: &mut Context,
    ) -> Result<(), ReadError> {
        let (Places { x, y, .. }, inputs) = (self.places, self.shape.inputs);
        self.write_place(places.start, row);
        for (at, place) in places.enumerate() {
            let sample = u64::from(self.index.order[place]);
            let column = if at < inputs { Some((x, at)) } else { y.map(|y| (y, at - inputs)) };
            let Some((column, at)) = column else { continue };
            let mut write = |field: usize, bytes: &[u8], _: Option<&[usize]>| {
                if field == column.of {
                    let to = &mut row.bytes_mut(column.to)[at * column.bytes..][..column.bytes];
                    if to.len() != bytes.len() {
                        let why = "the file has other columns than when it was opened: open it again";
                        return Err(data(why).at_sample(sample));
                    }
                    to.copy_from_slice(bytes);
                }
                Ok(())
            };
            let inner: &dyn Dataset = &self.inner;
            inner.visit(sample, &mut Sink::new(&mut write), context)?;
        }
        Ok(())
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let places = self.places_of(id)?;
        let Some(rows) = self.rows.as_ref().filter(|rows| rows.has(&places)) else {
            return self.read_rows(places, row, context);
        };
        let (x, y) = self.slices(rows, places.start);
        row.write(self.places.x.to, x);
        self.places.y.iter().for_each(|place| row.write(place.to, y));
        self.write_place(places.start, row);
        Ok(())
    }

    /// Copies the windows `ids` if all are in memory. Returns whether it copied them.
    fn copy(&self, ids: &[u64], rows: &mut Rows<'_>, starts: &mut Vec<usize>) -> bool {
        let Some(memory) = &self.rows else { return false };
        starts.clear();
        let found = ids.iter().map_while(|&id| self.places_of(id).ok().filter(|places| memory.has(places)));
        starts.extend(found.map(|places| places.start));
        if starts.len() < ids.len() {
            return false;
        }
        rows.write(self.places.x.to, starts.iter().map(|&start| self.slices(memory, start).0));
        if let Some(y) = self.places.y {
            rows.write(y.to, starts.iter().map(|&start| self.slices(memory, start).1));
        }
        for (index, &start) in starts.iter().enumerate() {
            self.write_place(start, &mut rows.row(index));
        }
        true
    }
}

/// Buffer of one worker.
#[derive(Default)]
struct Found {
    places: Vec<usize>,
    rows: Vec<u64>,
}

impl Dataset for TableWindows {
    fn len(&self) -> u64 {
        self.0.index.starts.len() as u64
    }

    fn spec(&self) -> &Spec {
        &self.0.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        self.0.read(id, row, context)
    }

    fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, context: &mut Context) -> Result<(), RowError> {
        let Found { places, .. } = context.scratch();
        if self.0.copy(ids, rows, places) {
            return Ok(());
        }
        // Otherwise, windows are read one by one. The inner set reports what is wrong.
        grouped(ids, context, |index, id, context| self.0.read(id, &mut rows.row(index), context))
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    fn about(&self) -> About<'_> {
        About { table_rows: Some((self.0.bytes, self.0.rows.is_some())), ..About::default() }
    }

    fn path(&self, id: u64) -> Option<&Path> {
        let start = self.0.places_of(id).ok()?.start;
        self.0.inner.path(self.0.index.order[start].into())
    }

    fn fingerprint(&self) -> u64 {
        let Shape { inputs, targets, stride, max_gap, .. } = self.0.shape;
        let state = Fingerprint::new().bytes(b"windows").spec(&self.0.spec).number(self.len());
        let state = state.number(self.0.inner.fingerprint());
        let shape =
            [inputs, targets, stride].into_iter().fold(state, |state, rows| state.number(rows as u64));
        shape.number(max_gap.map_or(0, f64::to_bits)).value()
    }
}

impl Storage for TableWindows {
    fn prefetch(&self, ids: &[u64], context: &mut Context) -> Prefetched {
        if self.0.rows.is_some() {
            return Prefetched::Never;
        }
        context.scoped_scratch(|Found { rows, .. }: &mut Found, context| {
            rows.clear();
            let places = ids.iter().filter_map(|&id| self.0.places_of(id).ok());
            rows.extend(places.flatten().map(|place| u64::from(self.0.index.order[place])));
            self.0.inner.storage().prefetch(rows, context)
        })
    }
}

impl fmt::Debug for TableWindows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableWindows({})", self.0.index.fate)
    }
}
