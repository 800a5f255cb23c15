//! Data sets. They are opened, in memory, written in Python, or composed of others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use feedline::dataset::lengths;
use feedline::{Context, Dataset, Error, ErrorKind, InMemory, Mix, compose};
use feedline_core::{Fingerprint, Layout, lengths_with_labels};
use feedline_datasets::{Bounded, ElementType, ImageDataset, Manifest, ManifestOptions, Nulls, OpenOptions, Reader, SchemaField, Split, TableWindows, Tokenized, open_pictures, open_with};
use feedline_images::Transforms;
use feedline_pictures::Decode;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::error::raise;
use crate::interpreter;
use crate::joint::mode_named;
use crate::own::{FieldOf, OwnData, dtype_named, fields_of};
use crate::pictures::{Encoded, decode_named};
use crate::processes::{Processes, ReadBy, Reading};
use crate::table::targets_in;
use crate::transforms::transforms;

/// A data set; see `feedline.Data`.
#[pyclass(frozen, module = "feedline._feedline")]
pub(crate) struct DataSet {
    pub(crate) set: Arc<dyn Dataset>,
    /// The format of the file, or the way the set was made.
    #[pyo3(get)]
    kind: String,
    /// The names of the classes, in the order of their labels.
    #[pyo3(get)]
    classes: Option<Vec<String>>,
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
    /// The costs of packed windows: the number of items, and the squares of the lengths of the documents.
    pub(crate) costs: Option<[Vec<u32>; 2]>,
    /// The processes that read the set, if the set is written in Python.
    read_by: Option<Arc<ReadBy>>,
    /// The windows of time of this set, which can be split by time.
    pub(crate) windows: Option<TableWindows>,
    /// The fields of the data that vary in length and are left out.
    #[pyo3(get)]
    left_out: Vec<String>,
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
            costs: None,
            read_by: None,
            windows: None,
            left_out: Vec::new(),
        }
    }

    /// A set of a reader, with its lengths if they were measured.
    pub(crate) fn ragged(kind: &str, set: Ragged) -> Self {
        let fields = set.spec().fields().iter().map(|field| field.name());
        let known = fields.filter_map(|name| Some((name.to_owned(), set.lengths(name).ok()?.to_vec())));
        let lengths = known.collect();
        let fields = set.spec().fields().iter().map(|field| field.name());
        let counted = fields.filter_map(|name| Some((name.to_owned(), set.before_labels(name)?.to_vec())));
        let before_labels = counted.collect();
        Self { lengths, before_labels, ..Self::new(kind, set) }
    }

    /// This set, with the lengths of its samples in some fields of variable length.
    pub(crate) fn with_lengths(self, lengths: Vec<(String, Vec<u32>)>) -> Self {
        Self { lengths, ..self }
    }

    /// This set, with the names of its classes.
    pub(crate) fn with_classes(self, classes: Option<Vec<String>>) -> Self {
        Self { classes, ..self }
    }

    /// This set, with encoded pictures that lanes of a loader may decode.
    pub(crate) fn with_encoded(self, encoded: Option<Encoded>) -> Self {
        Self { encoded, ..self }
    }

    /// This set, with the names of the fields that it leaves out.
    pub(crate) fn with_left_out(self, left_out: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { left_out: left_out.into_iter().map(Into::into).collect(), ..self }
    }

    /// This set, with the summary of its documents.
    pub(crate) fn with_fate(self, fate: String) -> Self {
        Self { fate: Some(fate), ..self }
    }

    /// This set, with the costs of its windows.
    pub(crate) fn with_costs(self, costs: [Vec<u32>; 2]) -> Self {
        Self { costs: Some(costs), ..self }
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
             decode=\"auto\", or choose samples only (take, skip, subset, split, repeat)"
        );
        Err(raise(Error::new(ErrorKind::Config, why)))
    }
}

/// The fields of a reader whose lengths vary.
fn varying(reader: &dyn Reader) -> impl Iterator<Item = &SchemaField> {
    reader.schema().fields().iter().filter(|field| field.shape.iter().any(Option::is_none))
}

/// Refuses complex numbers. A batch would hold each as two numbers, so the array would have another shape.
fn check_types(reader: &dyn Reader) -> feedline::Result<()> {
    let is_complex =
        |field: &&SchemaField| matches!(field.element, ElementType::Complex64 | ElementType::Complex128);
    let Some(field) = reader.schema().fields().iter().find(is_complex) else { return Ok(()) };
    let why = format!(
        "field {:?} holds {} numbers, which a batch does not have: save real and imaginary parts as numbers, \
         np.stack([x.real, x.imag], axis=-1)",
        field.name,
        field.element.name()
    );
    let error = Error::new(ErrorKind::Data, why);
    Err(reader.path(0).map_or(error.clone(), |path| error.at_path(path)))
}

/// Refuses lists and objects of JSON Lines, which would be the bytes of their JSON. A tokenizer reads that.
fn check_no_json(reader: &dyn Reader, tokenized: Option<&str>) -> feedline::Result<()> {
    if reader.format() != "jsonl" {
        return Ok(());
    }
    let is_json = |&(at, field): &(usize, &SchemaField)| reader.is_json(at) && tokenized != Some(&field.name);
    let fields = reader.schema().fields();
    let Some((_, field)) = fields.iter().enumerate().find(is_json) else { return Ok(()) };
    let name = &field.name;
    let why = format!(
        "key {name:?} has lists of texts, or objects, which batches do not have: leave it out by \
         feedline.table(path, select=), read conversations by feedline.chats, or give types={{{name:?}: \
         \"text\"}} for the text of its JSON"
    );
    let error = Error::new(ErrorKind::Data, why);
    Err(reader.path(0).map_or(error.clone(), |path| error.at_path(path)))
}

/// Runs `work` without the interpreter's lock, because `work` may read.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> feedline::Result<T> + Send,
) -> PyResult<T> {
    interpreter::detached(py, work).map_err(raise)
}

/// The options of `feedline.open` that apply to every format.
pub(crate) fn open_options(
    split: Option<&str>,
    classes: Option<Vec<String>>,
    empty_members: bool,
    fill_nulls: bool,
    memory_limit: Option<u64>,
    types: Vec<(String, String)>,
) -> PyResult<OpenOptions> {
    let split = match split {
        None => None,
        Some("train") => Some(Split::Train),
        Some("test") => Some(Split::Test),
        Some("validation") => Some(Split::Validation),
        Some(other) => {
            let why = format!("split {other:?}: use \"train\", \"validation\" or \"test\"");
            return Err(raise(Error::new(ErrorKind::Config, why)));
        }
    };
    let nulls = if fill_nulls { Nulls::Fill } else { Nulls::Refuse };
    let defaults = OpenOptions::default();
    let memory_limit = memory_limit.unwrap_or(defaults.memory_limit);
    let types = types.into_iter().map(|(column, name)| Ok((column, stated(&name)?)));
    let types = types.collect::<feedline::Result<_>>().map_err(raise)?;
    Ok(OpenOptions { memory_limit, split, classes, empty_members, nulls, types, ..defaults })
}

/// The root and the label's column of a manifest, the class folder of a pattern, and how many seconds a
/// listing of objects is kept.
pub(crate) type Listed = (Option<String>, Option<String>, Option<usize>, u64);

/// The options of a manifest.
pub(crate) fn manifest_options(
    files: Vec<String>,
    root: Option<String>,
    label: Option<String>,
    open: OpenOptions,
) -> ManifestOptions {
    ManifestOptions { root: root.map(Into::into), files, label, open }
}

/// The cell type with this name. `_options.types` lists the names.
fn stated(name: &str) -> feedline::Result<ElementType> {
    match name {
        "u64" => Ok(ElementType::U64),
        "bool" => Ok(ElementType::Bool),
        "text" => Ok(ElementType::Text),
        number => dtype_named(number).map(ElementType::Number),
    }
}

#[pymethods]
impl DataSet {
    /// Opens a file, a folder or a URL. `max_length` has the max items per field of variable length. A field
    /// without an entry gets `default_length`, or the length of its longest value. `tokenizer` has the file,
    /// the field of text, whether special tokens are added, and the max tokens. `manifest` has the columns of
    /// files, the root and the column of the label.
    #[staticmethod]
    #[pyo3(signature = (
        path, split, classes, empty_members, fill_nulls, memory_limit, types, max_length, default_length,
        tokenizer, class_from, manifest, cache_bytes, listing_age, header
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python has the defaults")]
    fn open(
        py: Python<'_>,
        path: &str,
        split: Option<&str>,
        classes: Option<Vec<String>>,
        empty_members: bool,
        fill_nulls: bool,
        memory_limit: Option<u64>,
        types: Vec<(String, String)>,
        max_length: Vec<(String, usize)>,
        default_length: Option<usize>,
        tokenizer: Option<(String, String, bool, Option<usize>)>,
        class_from: Option<usize>,
        manifest: Option<(Vec<String>, Option<String>, Option<String>)>,
        cache_bytes: Option<u64>,
        listing_age: u64,
        header: Option<bool>,
    ) -> PyResult<Self> {
        let options = open_options(split, classes, empty_members, fill_nulls, memory_limit, types)?;
        let cache_bytes = cache_bytes.unwrap_or(options.cache_bytes);
        let listing_age = Duration::from_secs(listing_age);
        let options = OpenOptions { class_from, cache_bytes, listing_age, header, ..options };
        detached(py, || {
            let mut reader: Box<dyn Reader> = match manifest {
                None => open_with(path, &options)?,
                Some((files, root, label)) => {
                    Box::new(Manifest::open(path, &manifest_options(files, root, label, options))?)
                }
            };
            check_types(&*reader)?;
            let tokenized = tokenizer.as_ref().map(|(_, field, ..)| field.as_str());
            check_no_json(&*reader, tokenized)?;
            let (kind, classes) = (reader.format(), reader.classes().map(<[String]>::to_vec));
            if let Some((file, field, special_tokens, max)) = tokenizer {
                let tokens = Tokenized::new(reader, &field, file)?;
                let tokens = if special_tokens { tokens.with_special_tokens() } else { tokens };
                reader = Box::new(if let Some(max) = max { tokens.truncated(max)? } else { tokens });
            }
            if varying(&*reader).next().is_none() {
                if default_length.is_some() || !max_length.is_empty() {
                    let why =
                        "max_length is for fields that vary in length, and here none does: leave it out";
                    return Err(Error::new(ErrorKind::Config, why));
                }
                return Ok(Self { classes, ..Self::new(kind, Bounded::new(reader)?) });
            }
            let names: Vec<_> = varying(&*reader).map(|field| field.name.clone()).collect();
            let is_named = |name: &String| max_length.iter().any(|(named, _)| named == name);
            let set = match default_length {
                Some(max) => Bounded::limited(reader, max)?,
                None if names.iter().all(is_named) => Bounded::limited(reader, 1)?,
                None => Bounded::measured(reader)?,
            };
            let set = max_length.into_iter().try_fold(set, |set, (field, max)| set.limit(&field, max))?;
            Ok(Self { classes, ..Self::ragged(kind, set) })
        })
    }

    /// Opens encoded pictures. They are decoded and transformed in the workers (`cpu`), or in lanes of the
    /// loader (`gpu`, `auto`). See [`Listed`].
    #[staticmethod]
    #[pyo3(signature = (
        path, split, classes, field, steps, channels_first, scaled_decode, decode, listed, mode
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python has the defaults")]
    fn images(
        py: Python<'_>,
        path: &str,
        split: Option<&str>,
        classes: Option<Vec<String>>,
        field: Option<&str>,
        steps: Vec<(String, Bound<'_, PyDict>)>,
        channels_first: bool,
        scaled_decode: bool,
        decode: &str,
        listed: Listed,
        mode: &str,
    ) -> PyResult<Self> {
        let mode = mode_named(mode)?;
        let options = open_options(split, classes, false, false, None, Vec::new())?;
        let (root, label, class_from, seconds) = listed;
        let options = OpenOptions { class_from, listing_age: Duration::from_secs(seconds), ..options };
        let options =
            manifest_options(field.iter().map(|&field| field.to_owned()).collect(), root, label, options);
        let decode = decode_named(decode).map_err(raise)?;
        if decode.is_some() && (field.is_some() || scaled_decode) {
            let why = "field and scaled_decode are for decode=\"cpu\": leave them out";
            return Err(raise(Error::new(ErrorKind::Config, why)));
        }
        let list = transforms(Transforms::new().mode(mode), &steps, channels_first, scaled_decode)?;
        let encoded = match decode {
            Some(decode) => {
                let start = Transforms::new().mode(mode).on_device();
                Some((decode, transforms(start, &steps, channels_first, false)?))
            }
            None => None,
        };
        detached(py, || {
            if let Some((_, list)) = &encoded {
                list.device_part()?;
            }
            // The reader is opened only once, because opening it lists the folder of a store and opens its
            // objects.
            let reader: Arc<dyn Reader> = open_pictures(path, &options)?.into();
            let new = |(decode, list)| Encoded::files(&reader, list, decode);
            let encoded = encoded.map(new).transpose()?;
            let classes = reader.classes().map(<[String]>::to_vec);
            let reader = Box::new(reader);
            let set = match field {
                Some(field) => ImageDataset::with_field(reader, field, list)?,
                None => ImageDataset::new(reader, list)?,
            };
            let left_out = set.left_out().to_vec();
            Ok(Self { classes, encoded, left_out, ..Self::new("images", set) })
        })
    }

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
        Ok(Self { read_by: Some(set.read_by().clone()), ..Self::new("python", set) })
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
        let read_by = self.read_by.clone().unwrap_or_default();
        Reading::begin(py, &read_by, count, new.as_ref().map(|(new, number)| (&**new, *number)))
    }

    /// Whether processes read this set.
    #[getter]
    fn has_processes(&self) -> bool {
        self.read_by.as_ref().is_some_and(|read_by| read_by.has_processes())
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
    #[pyo3(signature = (count, labels, seed))]
    fn folds(&self, count: usize, labels: Option<Vec<u32>>, seed: u64) -> PyResult<Vec<(Self, Self)>> {
        let folds = self.set.clone().folds(count, labels.as_deref(), seed).map_err(raise)?;
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

    #[staticmethod]
    fn concat(parts: Vec<PyRef<'_, Self>>) -> PyResult<Self> {
        parts.iter().try_for_each(|part| part.check_decoded("concat"))?;
        let parts = parts.iter().map(|part| part.set.clone());
        compose::Concat::new(parts).map(|set| Self::new("concat", set)).map_err(raise)
    }

    #[staticmethod]
    fn zip(parts: Vec<PyRef<'_, Self>>, independent: bool) -> PyResult<Self> {
        parts.iter().try_for_each(|part| part.check_decoded("zip"))?;
        let moved = parts.iter().enumerate().filter(|(_, part)| part.set.about().has_random_geometry);
        let moved: Vec<_> = moved.map(|(number, part)| (number, part.set.spec())).collect();
        if let [(one, first), (other, second), ..] = &moved[..]
            && !independent
        {
            let fields = |spec: &feedline::Spec| {
                spec.fields().iter().map(|field| field.name()).collect::<Vec<_>>().join(", ")
            };
            let why = format!(
                "parts {one} ({}) and {other} ({}) of the zip crop, flip or turn pictures at random, each in \
                 its own way, so their pictures would not match: read both by feedline.images(path, \
                 transforms, mask=\"masks\"), whose transforms move both, or give independent=True if they \
                 need not match",
                fields(first),
                fields(second)
            );
            return Err(raise(Error::new(ErrorKind::Config, why)));
        }
        let parts = parts.iter().map(|part| part.set.clone());
        compose::Zip::independent(parts).map(|set| Self::new("zip", set)).map_err(raise)
    }

    #[staticmethod]
    fn mix(
        parts: Vec<(PyRef<'_, Self>, f64)>,
        seed: u64,
        samples: Option<u64>,
        from_epochs: Vec<(u64, Vec<f64>)>,
        from_samples: Vec<(u64, Vec<f64>)>,
    ) -> PyResult<Self> {
        parts.iter().try_for_each(|(part, _)| part.check_decoded("mix"))?;
        let mix = parts
            .iter()
            .fold(Mix::builder(seed), |mix, (part, weight)| mix.dataset(part.set.clone(), *weight));
        let mix = if let Some(samples) = samples { mix.samples(samples) } else { mix };
        let mix =
            from_epochs.iter().fold(mix, |mix, (epoch, weights)| mix.weights_from_epoch(*epoch, weights));
        let mix = from_samples.iter().fold(mix, |mix, (sample, weights)| mix.weights_from(*sample, weights));
        mix.build().map(|set| Self::new("mix", set)).map_err(raise)
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
