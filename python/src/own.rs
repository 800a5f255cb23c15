//! Data sets and hooks written in Python, called by the worker threads.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use feedline::batch::FilledBatch;
use feedline::dataset::{RowError, Rows};
use feedline::{Context, DType, Dataset, Error, ErrorKind, ReadError, Row, Spec};
use feedline_core::{About, Fingerprint, Storage, TakeItems};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::error::Raised;
use crate::interpreter::{attach, is_worker, may_go_on};
use crate::placed::{Placed, Whole};
use crate::processes::{Processes, ReadBy, Reading};
use crate::room::Longer;
use crate::turn::{ALONE, ALONE_IN_THREADS, Turn};

/// A field: its name, its dtype, the shape of a row or of an item, and the max items if it is ragged.
pub(crate) type FieldOf = (String, String, Vec<usize>, Option<usize>);

/// The spec of `fields`.
pub(crate) fn spec(fields: &[FieldOf]) -> feedline::Result<Spec> {
    fields.iter().try_fold(Spec::new(), |spec, (name, dtype, shape, max)| {
        let dtype = dtype_named(dtype)?;
        match max {
            Some(max) => spec.ragged(name, dtype, shape.clone(), *max),
            None => spec.field(name, dtype, shape.clone()),
        }
    })
}

/// The fields of a spec.
pub(crate) fn fields_of(spec: &Spec) -> Vec<FieldOf> {
    let of = |field: &feedline::dataset::Field| {
        let max = field.as_ragged().map(|ragged| ragged.max_per_sample());
        (field.name().to_owned(), field.dtype().name().to_owned(), field.shape().to_vec(), max)
    };
    spec.fields().iter().map(of).collect()
}

pub(crate) fn dtype_named(name: &str) -> feedline::Result<DType> {
    let found = DType::ALL.into_iter().find(|dtype| dtype.name() == name);
    found.ok_or_else(|| Error::new(ErrorKind::Config, format!("batches have no elements of type {name}")))
}

/// A data set written in Python. It is a `_own.Reader`, which stacks the samples of several ids field by
/// field.
pub(crate) struct OwnData {
    reader: Py<PyAny>,
    len: u64,
    spec: Spec,
    fingerprint: Option<u64>,
    /// Whether the set reads several samples in one call.
    is_batched: bool,
    /// Whether the set reads all samples of a batch in one call, as a `collate_fn` requires.
    is_whole: bool,
    /// Whether samples depend on the epoch and on random numbers.
    varies: bool,
    /// The set that it maps.
    pub(crate) mapped: Option<Arc<dyn Dataset>>,
    /// Whether the global random generators are seeded before each sample.
    is_seeded: bool,
    /// How threads read the set. The first call is alone in threads, and shows whether the set fills the
    /// memory of its samples anew.
    how: AtomicU8,
    /// The processes that read the set instead of this process.
    read_by: Arc<ReadBy>,
}

/// Max bytes of samples per call. They are few enough to stay in a cache of the processor until they are
/// copied, and enough to make the call cheap.
const AT_ONCE: usize = 4 << 20;

/// The result of `_own.Reader.read_many`. It has the number of samples, their fields, and the error that
/// ended the read.
struct Stacked {
    count: usize,
    fields: Vec<Column>,
    error: Option<ReadError>,
    /// Whether the set draws random numbers.
    is_random: bool,
    /// How it is read from now on; and these samples again, if there are none.
    how: u8,
    /// The right to read, until the rows are copied.
    _turn: Option<Turn>,
}

/// The rows of a field. They are concatenated, with the length of each row in items if lengths vary, or they
/// stay in place and have addresses. A `bytes` object is immutable, so it is copied without the interpreter's
/// lock.
#[derive(FromPyObject)]
enum Column {
    Fixed(PyBackedBytes),
    Ragged(PyBackedBytes, Vec<usize>),
    Placed(Placed),
}

/// What `read_many` returns.
type Read<'py> = (usize, Vec<Column>, Option<Bound<'py, PyAny>>, bool, u8);

impl OwnData {
    pub(crate) fn new(
        reader: Py<PyAny>,
        len: u64,
        fields: &[FieldOf],
        fingerprint: Option<u64>,
        (is_batched, is_whole): (bool, bool),
        (varies, is_seeded): (bool, bool),
    ) -> feedline::Result<Self> {
        let (spec, mapped, read_by) = (spec(fields)?, None, Arc::default());
        let set = Self {
            reader,
            len,
            spec,
            fingerprint,
            is_batched,
            is_whole,
            varies,
            mapped,
            is_seeded,
            how: AtomicU8::new(ALONE_IN_THREADS),
            read_by,
        };
        Ok(set)
    }

    /// This set with the room of `fields`, for samples that are longer than those before.
    pub(crate) fn with_room(&self, py: Python<'_>, fields: &[FieldOf]) -> feedline::Result<Self> {
        Ok(Self {
            reader: self.reader.clone_ref(py),
            spec: spec(fields)?,
            mapped: self.mapped.clone(),
            how: AtomicU8::new(self.how.load(Ordering::Relaxed)),
            read_by: self.read_by.clone(),
            ..*self
        })
    }

    pub(crate) fn read_by(&self) -> &Arc<ReadBy> {
        &self.read_by
    }

    /// Whether the generators are seeded, and whether all samples of a batch are read in one call.
    fn calls(&self) -> (bool, bool) {
        (self.is_seeded, self.is_whole)
    }

    /// The seed for the current sample's random numbers. It is used in this process or in another.
    fn key(&self, context: &mut Context) -> u64 {
        if !self.varies {
            return context.key();
        }
        context.epoch();
        context.random().below(u64::MAX)
    }

    /// Reads the samples `ids`, stacked. `keys` has a key of random numbers for each sample.
    fn stacked(&self, ids: &[u64], keys: &[u64], context: &Context) -> Result<Stacked, ReadError> {
        let epoch = context.key_epoch();
        let draws: Option<Vec<_>> = self.varies.then(|| keys.iter().map(|&key| (epoch, key)).collect());
        let inside = InSample::enter();
        let keys = (self.is_seeded && is_worker() && inside.is_outermost).then(|| keys.to_vec());
        let mut how = self.how.load(Ordering::Relaxed);
        loop {
            let turn = keys.is_some().then(|| Turn::new(how, context)).transpose()?;
            let mut stacked = attach(|py| {
                let raised = |error| -> ReadError { Raised::new(py, error).into() };
                let arguments = (ids.to_vec(), draws.clone(), keys.clone(), how);
                let read = self.reader.bind(py).call_method1(intern!(py, "read_many"), arguments);
                let (count, fields, error, is_random, how): Read<'_> =
                    read.and_then(|read| read.extract()).map_err(raised)?;
                let error = error.map(|error| raised(PyErr::from_value(error)));
                Ok(Stacked { count, fields, error, is_random, how, _turn: None })
            })?;
            if stacked.count > 0 || stacked.error.is_some() || stacked.how <= how {
                if keys.is_some() {
                    self.how.store(stacked.how, Ordering::Relaxed);
                }
                stacked._turn = turn;
                return Ok(stacked);
            }
            how = stacked.how;
        }
    }

    /// Reads the first of `ids` into the first rows of `rows`, for a few milliseconds. Returns the number of
    /// samples read, which is at least one.
    ///
    /// # Errors
    /// The index of the sample that cannot be read. The samples before it are written.
    fn read_first(
        &self,
        ids: &[u64],
        mut rows: Rows<'_>,
        keys: &[u64],
        context: &Context,
    ) -> Result<usize, RowError> {
        let stacked = self.stacked(ids, keys, context).map_err(|error| (0, error))?;
        let Stacked { count, fields, mut error, is_random, _turn, .. } = stacked;
        if is_random {
            // Marks the sample as dependent on the epoch, so that it is not cached.
            context.epoch();
        }
        let wrong = |why: &str| (0, Error::new(ErrorKind::Sample, why).into());
        if count > ids.len() || fields.len() != self.spec.fields().len() {
            return Err(wrong("the reader gave other samples or fields than it was asked for"));
        }
        // The rows before the first error, of which all fields are written.
        let mut written = count;
        for (index, (values, field)) in fields.iter().zip(self.spec.fields()).enumerate() {
            match values {
                Column::Fixed(bytes) => {
                    let column = rows.column_mut(index).get_mut(..count * field.row_bytes());
                    let column = column.filter(|column| column.len() == bytes.len());
                    let column = column.ok_or_else(|| wrong("the reader gave rows of another size"))?;
                    column.copy_from_slice(bytes);
                }
                Column::Placed(placed) => {
                    if field.as_ragged().is_some() || !placed.copy(&mut rows, index, count) {
                        return Err(wrong("the reader gave rows of another size"));
                    }
                }
                Column::Ragged(bytes, lengths) => {
                    let mut rest: &[u8] = bytes;
                    for (row, &items) in lengths.iter().take(written).enumerate() {
                        let bytes = items.saturating_mul(field.item_bytes());
                        let (values, after) =
                            rest.split_at_checked(bytes).ok_or_else(|| wrong("a row is cut off"))?;
                        let has_room = Longer::check(field, items);
                        let put = has_room.and_then(|()| rows.row(row).write_ragged_bytes(index, values));
                        if let Err(why) = put {
                            (written, error) = (row, Some(why.into()));
                            break;
                        }
                        rest = after;
                    }
                }
            }
        }
        match error {
            Some(error) => Err((written, error)),
            None if count == 0 => Err(wrong("the reader gave no sample")),
            None => Ok(count),
        }
    }
}

impl Dataset for OwnData {
    fn len(&self) -> u64 {
        self.len
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn about(&self) -> About<'_> {
        let mapped = self.mapped.as_ref().map(|mapped| mapped.about()).unwrap_or_default();
        About {
            has_random_geometry: mapped.has_random_geometry,
            is_whole: self.is_whole,
            copies: mapped.copies,
            ..About::default()
        }
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        may_go_on(context)?;
        let keys = [self.key(context)];
        let mut rows = row.as_rows_mut();
        let read = self.read_by.read((&[id], &keys), &mut rows, context, self.calls());
        let read = read.unwrap_or_else(|| self.read_first(&[id], rows, &keys, context).map(drop));
        read.map_err(|(_, error)| error)
    }

    fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, context: &mut Context) -> Result<(), RowError> {
        // Each sample is begun once, in order. This does not depend on the number of samples per call, or on
        // the process that reads the sample.
        let key = |(index, &id)| context.sample(index, id, |context| self.key(context));
        let keys: Vec<_> = ids.iter().enumerate().map(key).collect();
        if let Some(&first) = ids.first() {
            context.mark(0, first);
        }
        if let Some(read) = self.read_by.read((ids, &keys), rows, context, self.calls()) {
            return read;
        }
        let most =
            if self.is_batched { ids.len() } else { (AT_ONCE / self.spec.sample_bytes().max(1)).max(1) };
        let (mut at, start) = (0, Instant::now());
        while at < ids.len() {
            may_go_on(context).map_err(|error| (at, error))?;
            let part = at..ids.len().min(at + most);
            context.mark(at, ids[at]);
            let read = self.read_first(&ids[part.clone()], rows.part(part.clone()), &keys[part], context);
            at += read.map_err(|(index, error)| (at + index, error))?;
        }
        // A call (the lock, a check of the generators) costs far more than a small sample. So batches are
        // split into pieces as long as those for other processes.
        context.add_elsewhere((start.elapsed().as_nanos() as u64).max(1));
        Ok(())
    }

    fn fingerprint(&self) -> u64 {
        let state = Fingerprint::new().spec(&self.spec).number(self.len);
        self.fingerprint.map_or(state, |own| state.number(own)).value()
    }

    fn storage(&self) -> &dyn Storage {
        self
    }
}

impl Storage for OwnData {
    fn left_out(&self, id: u64, field: usize, epoch: u64, _to: TakeItems<'_>) -> Result<(), ReadError> {
        let Some(mapped) = self.mapped.as_deref().filter(|mapped| id < (**mapped).len()) else {
            return Ok(());
        };
        let name = self.spec.fields().get(field).map_or("", |field| field.name());
        mapped.check_whole(name, id, epoch)
    }
}

thread_local! {
    /// Whether Python code is reading a sample on this thread.
    static IN_SAMPLE: Cell<bool> = const { Cell::new(false) };
}

/// Marks that Python code reads a sample, until it is dropped. A nested set does not seed the generators
/// again.
struct InSample {
    is_outermost: bool,
}

impl InSample {
    fn enter() -> Self {
        Self { is_outermost: !IN_SAMPLE.replace(true) }
    }
}

impl Drop for InSample {
    fn drop(&mut self) {
        IN_SAMPLE.set(!self.is_outermost);
    }
}

/// A function of a batch, written in Python: a `_own.Hook`.
#[pyclass(frozen, module = "feedline._feedline")]
pub(crate) struct MapBatch {
    hook: Py<PyAny>,
    /// How threads call it. Nothing is known of it before its first call.
    how: AtomicU8,
    /// The processes that call the function instead of this process.
    read_by: Arc<ReadBy>,
}

#[pymethods]
impl MapBatch {
    #[new]
    fn new(hook: Py<PyAny>) -> Self {
        Self { hook, how: AtomicU8::new(ALONE), read_by: Arc::default() }
    }

    /// Registers a loader whose function is called by `count` of the `new` processes. These processes know
    /// the function by the given number.
    fn read_by(&self, py: Python<'_>, count: usize, new: (PyRef<'_, Processes>, u32)) -> PyResult<Reading> {
        Reading::begin(py, &self.read_by, count, Some((&new.0, new.1)))
    }
}

impl MapBatch {
    /// Calls the function on a filled batch. The function gets a copy of each field that is not ragged, and
    /// returns an array for each of these fields.
    pub(crate) fn call(&self, batch: &mut FilledBatch<'_>, context: &Context) -> Result<(), ReadError> {
        let key = context.key();
        if let Some(done) = self.read_by.map(key, batch.rows()) {
            return done;
        }
        let fixed: Vec<usize> = {
            let fields = batch.rows().spec().fields().iter().enumerate();
            fields.filter(|(_, field)| field.as_ragged().is_none()).map(|(index, _)| index).collect()
        };
        let rows = batch.len();
        let mut how = self.how.load(Ordering::Relaxed);
        // The turn lasts until the arrays are copied.
        let (changed, _turn) = loop {
            let turn = Turn::new(how, context)?;
            let (changed, next): (Option<Vec<Whole>>, u8) = attach(|py| {
                let raised = |error| -> ReadError { Raised::new(py, error).into() };
                let columns: Vec<_> =
                    fixed.iter().map(|&index| PyBytes::new(py, batch.rows().column_mut(index))).collect();
                let changed = self.hook.bind(py).call1((columns, rows, key, how)).map_err(raised)?;
                changed.extract().map_err(raised)
            })?;
            if let Some(changed) = changed {
                self.how.store(next, Ordering::Relaxed);
                break (changed, turn);
            }
            how = next;
        };
        for (&index, array) in fixed.iter().zip(&changed) {
            if !array.copy(batch.rows().column_mut(index)) {
                return Err(
                    Error::new(ErrorKind::Sample, "the hook returned an array of another size").into()
                );
            }
        }
        Ok(())
    }
}
