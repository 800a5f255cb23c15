//! Data sets as Python has them: opened, in memory, written in Python, or made of others.

use std::collections::HashMap;
use std::sync::Arc;

use feedline::dataset::lengths;
use feedline::{Context, Dataset, Error, ErrorKind, InMemory};
use feedline_core::{Fingerprint, Layout, lengths_with_labels};
use feedline_datasets::{Bounded, TableWindows};
use feedline_pictures::Decode;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::raise;
use crate::interpreter;
use crate::own::{FieldOf, OwnData, dtype_named, fields_of};
use crate::pictures::Encoded;
use crate::processes::{Processes, Reading};
use crate::table::targets_in;

/// A data set; see `feedline.Data`.
#[pyclass(frozen, module = "feedline._feedline")]
pub(crate) struct DataSet {
    pub(crate) set: Arc<dyn Dataset>,
    /// The format of the file, or the way the set was made.
    #[pyo3(get)]
    pub(crate) kind: String,
    /// The names of the classes, in the order of their labels.
    #[pyo3(get)]
    pub(crate) classes: Option<Vec<String>>,
    /// The values of each category of a table, in the order of their numbers.
    #[pyo3(get)]
    pub(crate) categories: Vec<(String, Vec<String>)>,
    /// The same pictures in encoded form, if lanes of the loader may decode them.
    pub(crate) encoded: Option<Encoded>,
    /// A summary of the documents of packed windows, or of the tokens of a stream. It says how many were
    /// used, cut or left out.
    #[pyo3(get)]
    pub(crate) fate: Option<String>,
    /// The measured lengths of the samples, by field.
    pub(crate) lengths: Vec<(String, Vec<u32>)>,
    /// For each field of labels, the tokens of each sample before the first that is learnt, if they were
    /// counted.
    pub(crate) before_labels: Vec<(String, Vec<u32>)>,
    /// The first conversation that is a bad sample, and how many there are, in words.
    pub(crate) bad: Option<(u64, String)>,
    /// The costs of packed windows: the number of items, and the squares of the lengths of the documents.
    pub(crate) costs: Option<[Vec<u32>; 2]>,
    /// The set, if it is written in Python.
    pub(crate) own: Option<Arc<OwnData>>,
    /// The windows of time of this set, which can be split by time.
    pub(crate) windows: Option<TableWindows>,
    /// The fields of the data that vary in length and are left out.
    #[pyo3(get)]
    pub(crate) left_out: Vec<String>,
}

impl DataSet {
    pub(crate) fn new(kind: &str, set: impl Dataset) -> Self {
        Self {
            set: Arc::new(set),
            kind: kind.to_owned(),
            classes: None,
            categories: Vec::new(),
            encoded: None,
            fate: None,
            lengths: Vec::new(),
            before_labels: Vec::new(),
            bad: None,
            costs: None,
            own: None,
            windows: None,
            left_out: Vec::new(),
        }
    }

    fn of_own(set: OwnData) -> Self {
        let own = Arc::new(set);
        Self { own: Some(own.clone()), ..Self::new("python", own) }
    }

    /// A set of a reader, with its lengths if they were measured.
    pub(crate) fn ragged(kind: &str, set: Bounded) -> Self {
        let fields = set.spec().fields().iter().map(|field| field.name());
        let known = fields.filter_map(|name| Some((name.to_owned(), set.lengths(name).ok()?.to_vec())));
        let lengths = known.collect();
        let fields = set.spec().fields().iter().map(|field| field.name());
        let counted = fields.filter_map(|name| Some((name.to_owned(), set.before_labels(name)?.to_vec())));
        let before_labels = counted.collect();
        Self { lengths, before_labels, ..Self::new(kind, set) }
    }

    /// The number of items of each sample in the ragged field `field`.
    pub(crate) fn lengths_of(&self, field: &str) -> feedline::Result<Vec<u32>> {
        match self.lengths.iter().find(|(name, _)| name == field) {
            Some((_, known)) => Ok(known.clone()),
            None => lengths(&*self.set, field),
        }
    }

    /// The lengths in `field`, and the tokens of each sample before the first that `labels` has, if it is
    /// given. They are known, or one pass counts both. `None` if only the lengths are known.
    pub(crate) fn lengths_with_labels(
        &self,
        field: &str,
        labels: Option<&str>,
    ) -> feedline::Result<(Vec<u32>, Option<Vec<u32>>)> {
        match self.lengths.iter().find(|(name, _)| name == field) {
            Some((_, known)) => {
                let before = self.before_labels.iter().find(|(name, _)| Some(name.as_str()) == labels);
                Ok((known.clone(), before.map(|(_, before)| before.clone())))
            }
            None => lengths_with_labels(&*self.set, field, labels),
        }
    }

    /// The set that `choose` makes from this set. It may contain a sample up to `copies` times.
    fn choice<D: Dataset>(
        &self,
        kind: &str,
        copies: usize,
        choose: impl Fn(Arc<dyn Dataset>) -> feedline::Result<D>,
    ) -> PyResult<Self> {
        let chosen = || {
            let encoded = match &self.encoded {
                Some(encoded) => Some(encoded.with(Arc::new(choose(encoded.files.clone())?), copies)),
                None => None,
            };
            Ok(Self { encoded, ..Self::new(kind, choose(self.set.clone())?) })
        };
        chosen().map_err(raise)
    }

    /// Refuses pictures that only lanes of the loader may decode, because `step` needs their pixels.
    pub(crate) fn check_decoded(&self, step: &str) -> PyResult<()> {
        if self.encoded.as_ref().is_none_or(|encoded| encoded.decode != Decode::Gpu) {
            return Ok(());
        }
        let why = format!(
            "{step} needs decoded pictures, and the GPU decodes these on their way to it: use \
             decode=\"auto\", or choose samples only (take, skip, subset, split, repeat, repeated)"
        );
        Err(raise(Error::new(ErrorKind::Config, why)))
    }
}

/// Runs `work` without the interpreter's lock, because `work` may read.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> feedline::Result<T> + Send,
) -> PyResult<T> {
    interpreter::detached(py, work).map_err(raise)
}

#[pymethods]
impl DataSet {
    /// A data set written in Python: a `_own.Reader`. `calls` says whether it reads several samples in one
    /// call, and whether it reads a whole batch in one call. `varies` says whether its samples get random
    /// numbers, and whether the global generators are seeded. It crops at random if the set that it maps
    /// does.
    #[staticmethod]
    #[pyo3(signature = (reader, len, fields, fingerprint, calls, varies, mapped=None))]
    fn own(
        reader: Py<PyAny>,
        len: u64,
        fields: Vec<FieldOf>,
        fingerprint: Option<u64>,
        calls: (bool, bool),
        varies: (bool, bool),
        mapped: Option<PyRef<'_, Self>>,
    ) -> PyResult<Self> {
        let mut set = OwnData::new(reader, len, &fields, fingerprint, calls, varies).map_err(raise)?;
        set.mapped = mapped.map(|mapped| mapped.set.clone());
        Ok(Self::of_own(set))
    }

    /// This set, which is written in Python, with the room of `fields` for samples of varying length. The
    /// same processes read it.
    fn with_room(&self, py: Python<'_>, fields: Vec<FieldOf>) -> PyResult<Self> {
        let own = self.own.as_ref().map(|own| own.with_room(py, &fields)).transpose().map_err(raise)?;
        own.map(Self::of_own).ok_or_else(|| PyTypeError::new_err("this is no set of Python"))
    }

    /// Registers a loader that reads this set, which is written in Python. It reads by `count` processes, or
    /// by threads if `count` is 0. If processes already read the set, the loader uses them. Otherwise it uses
    /// those of `new`, which know the set by the given number.
    #[pyo3(signature = (count, new))]
    fn read_by(
        &self,
        py: Python<'_>,
        count: usize,
        new: Option<(PyRef<'_, Processes>, u32)>,
    ) -> PyResult<Reading> {
        let read_by = self.own.as_ref().map(|own| own.read_by().clone()).unwrap_or_default();
        Reading::begin(py, &read_by, count, new.as_ref().map(|(new, number)| (&**new, *number)))
    }

    /// Whether processes read this set.
    #[getter]
    fn has_processes(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.read_by().has_processes())
    }

    /// A set of arrays in memory. Each array has a name, a dtype, the shape of a row, and its bytes.
    #[staticmethod]
    fn arrays(fields: Vec<(String, String, Vec<usize>, Bound<'_, PyBytes>)>) -> PyResult<Self> {
        let mut set = InMemory::new();
        for (name, dtype, shape, bytes) in fields {
            let dtype = dtype_named(&dtype).map_err(raise)?;
            set = set.field_bytes(&name, dtype, shape, bytes.as_bytes()).map_err(raise)?;
        }
        Ok(Self::new("arrays", set))
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.set.len()).unwrap_or(usize::MAX)
    }

    /// The fields. Each has a name, a dtype, the shape of a row or of an item, and the max items if it is
    /// ragged.
    fn fields(&self) -> Vec<FieldOf> {
        fields_of(self.set.spec())
    }

    #[getter]
    fn fingerprint(&self, py: Python<'_>) -> PyResult<u64> {
        // The fingerprint may read files and objects in a store.
        let fingerprint = || Fingerprint::checked(|| self.set.fingerprint());
        interpreter::detached(py, fingerprint).map_err(raise)
    }

    /// Where lanes of the loader decode: `gpu` or `auto`; `None` if they do not.
    #[getter]
    fn lanes_decode_on(&self) -> Option<&'static str> {
        self.encoded.as_ref().map(|encoded| if encoded.decode == Decode::Gpu { "gpu" } else { "auto" })
    }

    /// The file that holds sample `id`.
    fn path(&self, id: u64) -> Option<String> {
        self.set.path(id).map(|path| path.display().to_string())
    }

    /// The bytes of each field of sample `id`, as they are read in `epoch`.
    fn read<'py>(
        &self,
        py: Python<'py>,
        id: u64,
        epoch: u64,
        seed: u64,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let fields = interpreter::detached(py, || read_one(&*self.set, id, &mut Context::new(seed, epoch)))
            .map_err(|error| {
            let error = match error.downcast::<Error>() {
                Ok(error) => *error,
                Err(error) => Error::new(ErrorKind::Sample, "cannot read a sample").with_source(error),
            };
            raise(error.at_sample(id))
        })?;
        Ok(fields.iter().map(|bytes| PyBytes::new(py, bytes)).collect())
    }

    /// Whether samples depend on the epoch or on random numbers. Reads only the first sample.
    fn varies(&self, py: Python<'_>) -> bool {
        let mut context = Context::new(0, 0);
        interpreter::detached(py, || read_one(&*self.set, 0, &mut context).is_ok() && context.varies())
    }

    /// The number of items of each sample in the ragged field `field`.
    fn lengths(&self, py: Python<'_>, field: &str) -> PyResult<Vec<u32>> {
        detached(py, || self.lengths_of(field))
    }

    /// The cost of each packed window. It is the number of items, or the squares of the lengths of the
    /// documents.
    fn costs(&self, squares: bool) -> PyResult<Vec<u32>> {
        match &self.costs {
            Some(costs) => Ok(costs[usize::from(squares)].clone()),
            None => {
                Err(raise(Error::new(ErrorKind::Config, "costs are of packed documents: call packed first")))
            }
        }
    }

    fn subset(&self, ids: Vec<u64>) -> PyResult<Self> {
        let mut counts = HashMap::new();
        ids.iter().for_each(|id| *counts.entry(*id).or_insert(0) += 1);
        let copies = counts.into_values().max().unwrap_or(1);
        self.choice("subset", copies, |set| set.subset(ids.clone()))
    }

    /// The folds of a cross-validation. Each has a training set and a validation set.
    #[pyo3(signature = (count, labels, groups, seed))]
    fn folds(
        &self,
        count: usize,
        labels: Option<Vec<u32>>,
        groups: Option<Vec<u32>>,
        seed: u64,
    ) -> PyResult<Vec<(Self, Self)>> {
        let set = self.set.clone();
        let folds = match groups {
            Some(groups) => set.folds_of_groups(count, &groups, seed),
            None => set.folds(count, labels.as_deref(), seed),
        };
        let folds = folds.map_err(raise)?;
        folds
            .iter()
            .map(|[train, val]| Ok((self.subset(train.ids().to_vec())?, self.subset(val.ids().to_vec())?)))
            .collect()
    }

    /// This set with negatives. Negatives are items that a sample does not have in `fields`.
    fn negatives(&self, fields: Vec<String>, count: usize, items: u64, seed: u64) -> PyResult<Self> {
        self.check_decoded("negatives")?;
        let fields: Vec<_> = fields.iter().map(String::as_str).collect();
        let set = self.set.clone().negatives(&fields, count, items, seed).map_err(raise)?;
        Ok(Self { lengths: self.lengths.clone(), ..Self::new("negatives", set) })
    }

    /// The windows whose targets have times from `start` to before `end`.
    fn targets_in(&self, start: Option<f64>, end: Option<f64>) -> PyResult<Self> {
        match &self.windows {
            Some(windows) => targets_in(windows, start, end),
            None => Err(raise(Error::new(ErrorKind::Config, "these are no windows of time"))),
        }
    }

    fn take(&self, count: u64) -> PyResult<Self> {
        self.choice("take", 1, |set| {
            <dyn Dataset>::check_nesting("take", 1 + set.about().nesting)?;
            Ok(set.take(count))
        })
    }

    fn skip(&self, count: u64) -> PyResult<Self> {
        self.choice("skip", 1, |set| {
            <dyn Dataset>::check_nesting("skip", 1 + set.about().nesting)?;
            Ok(set.skip(count))
        })
    }

    fn repeat(&self, times: u64) -> PyResult<Self> {
        let copies = usize::try_from(times).unwrap_or(usize::MAX);
        self.choice("repeat", copies, |set| set.repeat(times))
    }

    /// Each sample several times in a row. A loader keeps the copies together.
    fn repeated(&self, copies: u64) -> PyResult<Self> {
        let most = usize::try_from(copies).unwrap_or(usize::MAX);
        self.choice("repeated", most, |set| set.repeated(copies))
    }

    /// The number of copies of a sample that follow each other; 0 or 1 if it is not repeated.
    #[getter]
    fn copies(&self) -> u64 {
        self.set.about().copies
    }

    fn split(&self, fractions: Vec<f64>, seed: u64) -> PyResult<Vec<Self>> {
        fn parts<const N: usize>(
            of: &DataSet,
            fractions: &[f64],
            seed: u64,
        ) -> feedline::Result<Vec<DataSet>> {
            let fractions: [f64; N] = std::array::from_fn(|index| fractions[index]);
            let parts = of.set.clone().split(fractions, seed)?;
            let mut parts: Vec<_> = parts.into_iter().map(|set| DataSet::new("split", set)).collect();
            if let Some(encoded) = &of.encoded {
                let files = encoded.files.clone().split(fractions, seed)?;
                for (part, files) in parts.iter_mut().zip(files) {
                    part.encoded = Some(encoded.with(Arc::new(files), 1));
                }
            }
            Ok(parts)
        }
        let (set, given) = (self, &fractions);
        match fractions.len() {
            1 => parts::<1>(set, given, seed),
            2 => parts::<2>(set, given, seed),
            3 => parts::<3>(set, given, seed),
            4 => parts::<4>(set, given, seed),
            5 => parts::<5>(set, given, seed),
            parts => Err(Error::new(ErrorKind::Config, format!("a split has 1 to 5 parts, not {parts}"))),
        }
        .map_err(raise)
    }

    /// Keeps samples in memory, or in the file `path`.
    fn cached(&self, py: Python<'_>, budget: u64, path: Option<String>) -> PyResult<Self> {
        self.check_decoded("cached")?;
        detached(py, || {
            let set = self.set.clone();
            let set = match path {
                Some(path) => set.cached_in_file(path, budget)?,
                None => set.cached(usize::try_from(budget).unwrap_or(usize::MAX))?,
            };
            Ok(Self::new("cached", set))
        })
    }
}

/// The bytes of each field of one sample.
fn read_one(set: &dyn Dataset, id: u64, context: &mut Context) -> Result<Vec<Vec<u8>>, feedline::ReadError> {
    let layout = Layout::new(set.spec(), 1)?;
    // The elements are `u64`, so that the slab is aligned for every element type.
    let mut slab = vec![0_u64; layout.bytes().div_ceil(8)];
    let slab = &mut bytemuck::cast_slice_mut(&mut slab)[..layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, slab, 1);
    let mut row = rows.row(0);
    context.sample(0, id, |context| row.read_by(|row| set.read(id, row, context)))?;
    drop(rows);
    let bytes = |(index, field): (usize, &feedline::dataset::Field)| match field.as_ragged() {
        Some(_) => layout.row_values(slab, index, 0).to_vec(),
        None => slab[layout.offset(index)..][..field.row_bytes()].to_vec(),
    };
    Ok(set.spec().fields().iter().enumerate().map(bytes).collect())
}
