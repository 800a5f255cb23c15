//! Random access to the samples of a file. Samples may vary in size.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use feedline_core::{Error, ErrorKind, Prefetched, Result, StridedColumn};

use crate::io::read_ahead::ReadAhead;
use crate::{Decoded, FieldStream, Schema, SchemaField};

/// The callback of [`Reader::visit`]. It gets the index of a field and the field's bytes.
pub type Visit<'a> = dyn FnMut(usize, &[u8]) -> Result<()> + 'a;

/// Samples of a file or a folder, with random access. Each format implements this trait.
///
/// Fields may vary in size. [`Bounded`](crate::Bounded) makes a [`Dataset`](feedline_core::Dataset) of any
/// reader.
pub trait Reader: fmt::Debug + Send + Sync + 'static {
    /// The format's name: `npy`, `webdataset`, ...
    fn format(&self) -> &'static str;

    /// The fields of a sample.
    fn schema(&self) -> &Schema;

    /// Number of samples.
    fn len(&self) -> u64;

    /// Whether there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads sample `sample` into `values`: one value per field of the schema, in order.
    ///
    /// Blocks on the file. Pass the same `values` for each sample, so that its memory is reused.
    ///
    /// # Errors
    /// `Sample` if there is no such sample, `Data` if the file cannot be read or is damaged there. The error
    /// names the file and, if known, the byte, the record and the column.
    fn read(&self, sample: u64, values: &mut Values) -> Result<()>;

    /// Calls `to` with each field of sample `sample` and a slice of its bytes, without a copy. The bytes are
    /// in memory, or in the part of the file that was just read. [`Bounded`](crate::Bounded)
    /// uses this method, so that a sample is copied only once, into the batch.
    ///
    /// The fields come in any order. If one comes twice, the last one counts. The content of `values` is
    /// unspecified afterwards.
    ///
    /// # Errors
    /// As [`read`](Self::read), and those of `to`.
    fn visit(&self, sample: u64, values: &mut Values, to: &mut Visit<'_>) -> Result<()> {
        self.read(sample, values)?;
        values.values.iter().enumerate().try_for_each(|(field, value)| to(field, &value.bytes))
    }

    /// As [`visit`](Self::visit), for the `wanted` fields only. A file without any wanted field is not read.
    ///
    /// # Errors
    /// As [`visit`](Self::visit).
    fn visit_some(
        &self,
        sample: u64,
        wanted: &dyn Fn(usize) -> bool,
        values: &mut Values,
        to: &mut Visit<'_>,
    ) -> Result<()> {
        self.visit(sample, values, &mut |field, bytes| if wanted(field) { to(field, bytes) } else { Ok(()) })
    }

    /// The bytes of field `field` of sample `sample` as a stream, so that a part of a large file can be read.
    /// `None`, the default, if the field can only be read as a whole.
    ///
    /// # Errors
    /// As [`read`](Self::read). Errors of the stream are this project's, inside the `io::Error`.
    fn stream(&self, _sample: u64, _field: usize) -> Result<Option<FieldStream<'_>>> {
        Ok(None)
    }

    /// Field `field` of every sample as a strided column of memory, with the bytes that [`read`](Self::read)
    /// returns. `None` if memory does not hold them in this form.
    fn column(&self, _field: usize) -> Option<StridedColumn<'_>> {
        None
    }

    /// Field `field` of sample `sample`, if memory holds the bytes that [`read`](Self::read) returns. A
    /// sample may have a slice even if there is no [`column`](Self::column).
    fn slice(&self, sample: u64, field: usize) -> Option<&[u8]> {
        self.column(field)?.row(sample)
    }

    /// If reading one sample decodes its neighbours too, the max number of samples that are decoded together.
    /// `None` if samples are read one by one.
    ///
    /// If the groups do not all fit the cache, [`block_shuffle`](Self::block_shuffle) returns the shuffle
    /// that decodes each group once per epoch.
    fn together(&self) -> Option<u64> {
        None
    }

    /// The block and the window for `Sampler::block`, if samples are [decoded together](Self::together) in
    /// groups that do not all fit the cache. As many groups as the cache holds are shuffled at a time. `None`
    /// if the order makes no difference.
    fn block_shuffle(&self) -> Option<(u64, u64)> {
        None
    }

    /// The decoded bytes of all samples, as the files state them, if samples are [decoded
    /// together](Self::together) in groups. 0, the default, if samples are read one by one, or the files do
    /// not state it.
    ///
    /// A plain shuffle of more than 512 MiB uses blocks
    /// ([`About::plain_shuffle`](feedline_core::About::plain_shuffle)).
    fn decoded_bytes(&self) -> u64 {
        0
    }

    /// Calls `to` with the items of field `field` that sample `sample` has and [`read`](Self::read) leaves
    /// out, as [`Dataset::left_out`](feedline_core::Dataset::left_out). Does nothing by default.
    fn left_out(&self, _sample: u64, _field: usize, _to: &mut dyn FnMut(&[u8])) {}

    /// Units per day of field `field`, if it holds dates or times, or lists of them, in a unit that the file
    /// states. Its numbers then count from 1970-01-01, 00:00 UTC. A time of day counts from midnight.
    fn ticks_per_day(&self, _field: usize) -> Option<u64> {
        None
    }

    /// Whether the texts of field `field` are the JSON of lists or objects in the file, such as the messages
    /// of a conversation.
    fn is_json(&self, _field: usize) -> bool {
        false
    }

    /// Sample `sample`, and the neighbours that are [decoded together](Self::together) with it. `None`, the
    /// default, if samples are read one by one. [`Bounded`](crate::Bounded) holds up to
    /// four such groups while it copies the samples of a batch.
    ///
    /// Blocks on the file, unless the group is in a cache.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn decoded(&self, _sample: u64) -> Result<Option<Decoded>> {
        Ok(None)
    }

    /// The samples that are [decoded together](Self::together) with `sample`, including itself. By default,
    /// samples are read one by one, and it is `sample` alone.
    fn neighbours(&self, sample: u64) -> Range<u64> {
        sample..sample.saturating_add(1)
    }

    /// Drops the samples that are decoded together with `sample` from a cache. The caller has a copy of their
    /// rows. Does nothing by default.
    fn forget(&self, _sample: u64) {}

    /// Max bytes that a [`Bounded`](crate::Bounded) of samples of one size may use to hold all rows in
    /// memory, each decoded once. 0, the default, if reading a sample costs no more than a copy.
    fn row_memory(&self) -> u64 {
        0
    }

    /// As [`Dataset::prefetch`](feedline_core::Dataset::prefetch). Decodes one group of samples that are
    /// [decoded together](Self::together), if the cache lacks the group and `samples` has some of its
    /// samples.
    fn prefetch(&self, _samples: &[u64]) -> Prefetched {
        Prefetched::Never
    }

    /// The names of the classes, if the set has them. Label `n` is the class `classes()[n]`.
    ///
    /// Open a validation set with the classes of the training set, so that labels agree. A class without
    /// samples in the validation set does not change the numbers of other classes.
    ///
    /// ```
    /// use feedline_datasets::{OpenOptions, open, open_with};
    ///
    /// # let root = std::env::temp_dir().join(format!("feedline-doc-classes-{}", std::process::id()));
    /// # for name in ["train/ant", "train/bee", "train/cat", "val/ant", "val/cat"] {
    /// #     std::fs::create_dir_all(root.join(name))?;
    /// #     std::fs::write(root.join(name).join("1.jpg"), "")?;
    /// # }
    /// let train = open(root.join("train"))?;
    /// let classes = train.classes().map(<[String]>::to_vec);
    /// let options = OpenOptions { classes, ..Default::default() };
    /// let val = open_with(root.join("val"), &options)?; // has no folder "bee"
    /// assert_eq!(val.classes().unwrap(), ["ant", "bee", "cat"]);
    /// # std::fs::remove_dir_all(&root)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn classes(&self) -> Option<&[String]> {
        None
    }

    /// The name of each column with categories, and the categories in the order of their numbers. None by
    /// default.
    fn categories(&self) -> &[(String, Vec<String>)] {
        &[]
    }

    /// The number of items of each sample, for each field that varies in its first dimension, in order. With
    /// it, [`Bounded::measured`](crate::Bounded::measured) reads no sample. `None`, the default, if only
    /// reading the samples can tell.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn lengths(&self) -> Result<Option<Vec<Vec<u32>>>> {
        Ok(None)
    }

    /// The fields with a label per token, `i64`, where -100 is not learnt. For these,
    /// [`Bounded::measured`](crate::Bounded::measured) also counts the tokens before the first that is learnt
    /// ([`Bounded::before_labels`](crate::Bounded::before_labels)). None by default.
    fn labels(&self) -> &[usize] {
        &[]
    }

    /// The file that holds sample `sample`.
    fn path(&self, sample: u64) -> Option<&Path>;

    /// The file that holds field `field` of sample `sample`, if the fields of a sample are in several files.
    /// Default: [`path`](Self::path).
    fn field_path(&self, sample: u64, _field: usize) -> Option<&Path> {
        self.path(sample)
    }

    /// A number that differs for different data, and is the same for a copy. Of files in memory, it covers
    /// the content. Of other files, it covers the length and a sample of the content, see
    /// [`Fingerprint::file_sampled`](feedline_core::Fingerprint::file_sampled).
    fn fingerprint(&self) -> u64;
}

/// One field of one sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// The elements: little-endian, in row-major order.
    pub bytes: Vec<u8>,
    /// The actual shape.
    pub shape: Vec<usize>,
}

impl Value {
    /// Sets the shape.
    pub fn set_shape(&mut self, shape: impl IntoIterator<Item = usize>) {
        self.shape.clear();
        self.shape.extend(shape);
    }

    /// Resizes to `len` bytes and returns them. They hold bytes of an earlier sample until they are
    /// overwritten.
    pub fn resize(&mut self, len: usize) -> &mut [u8] {
        self.bytes.resize(len, 0);
        &mut self.bytes
    }

    /// Copies `bytes`. The shape has one dimension: the number of bytes.
    pub fn set_bytes(&mut self, bytes: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.set_shape([bytes.len()]);
    }
}

/// One sample. The next sample reuses its buffers.
#[derive(Clone, Debug, Default)]
pub struct Values {
    values: Vec<Value>,
    buffers: Buffers,
}

/// Buffers for reading a sample.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffers {
    /// The part of the file that was read most recently.
    pub(crate) ahead: ReadAhead,
    /// Buffer for a file that is a field of a sample.
    pub(crate) file: Vec<u8>,
    /// Buffer for a value that is joined from several parts.
    #[cfg(any(feature = "table", feature = "tfrecord"))]
    pub(crate) value: Vec<u8>,
    /// Whether each field was visited.
    #[cfg(feature = "tfrecord")]
    pub(crate) visited: Vec<bool>,
}

impl PartialEq for Values {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

impl Eq for Values {}

impl Values {
    /// Makes a sample without values. The first read adds them.
    pub fn new() -> Self {
        Self::default()
    }

    /// The values of the last sample read, one per field.
    pub fn fields(&self) -> &[Value] {
        &self.values
    }

    /// Returns `fields` values to write. A reader calls this first, and then writes all values.
    pub fn begin(&mut self, fields: usize) -> &mut [Value] {
        self.values.resize_with(fields, Value::default);
        &mut self.values
    }

    /// As [`begin`](Self::begin). Also returns the buffer for reading the file.
    #[cfg(feature = "csv")]
    pub(crate) fn begin_with_ahead(&mut self, fields: usize) -> (&mut [Value], &mut ReadAhead) {
        self.values.resize_with(fields, Value::default);
        (&mut self.values, &mut self.buffers.ahead)
    }

    /// The buffers for reading a sample.
    pub(crate) fn buffers(&mut self) -> &mut Buffers {
        &mut self.buffers
    }

    /// Copies the fields that `visit` passes to its callback. It implements [`Reader::read`] for readers with
    /// their own [`Reader::visit`], if no field has two dimensions that vary.
    pub(crate) fn copy_from(
        &mut self,
        schema: &Schema,
        visit: impl FnOnce(&mut Self, &mut Visit<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut copies = std::mem::take(&mut self.values);
        copies.resize_with(schema.fields().len(), Value::default);
        let visited = visit(self, &mut |field, bytes| {
            let (copy, SchemaField { element, shape, .. }) = (&mut copies[field], &schema.fields()[field]);
            copy.set_bytes(bytes);
            let item = shape.iter().flatten().product::<usize>() * element.size();
            copy.set_shape(shape.iter().map(|dim| dim.unwrap_or(bytes.len() / item.max(1))));
            Ok(())
        });
        self.values = copies;
        visited
    }
}

/// Returns an error if there is no sample `sample`.
pub(crate) fn inside(sample: u64, len: u64, path: &Path) -> Result<()> {
    if sample < len { Ok(()) } else { Err(outside(sample, len, path)) }
}

/// The error for a sample that does not exist.
pub(crate) fn outside(sample: u64, len: u64, path: &Path) -> Error {
    Error::new(ErrorKind::Sample, format!("no sample {sample}: there are {len}")).at_path(path)
}

/// Refuses a reader without samples.
pub(crate) fn check_not_empty(reader: &dyn Reader) -> Result<()> {
    if reader.is_empty() {
        let error = Error::new(ErrorKind::Data, "there are no samples: give a file that has some");
        return Err(at_file(reader, 0, error));
    }
    Ok(())
}

/// Implements the methods of `Dataset` for a set with a field `reader`, a method `self.write` that writes a
/// sample, and a `Memory` per worker; `$is_random` says whether its pictures are turned at random.
macro_rules! samples_of_reader {
    ($self:ident => $is_random:expr) => {
        fn len(&self) -> u64 {
            self.reader.len()
        }

        fn spec(&self) -> &feedline_core::Spec {
            &self.spec
        }

        fn read(
            &self,
            id: u64,
            row: &mut feedline_core::Row<'_, '_>,
            context: &mut feedline_core::Context,
        ) -> Result<(), feedline_core::ReadError> {
            let written =
                context.scoped_scratch(|memory: &mut Memory, context| self.write(id, row, memory, context));
            written.map_err(|error| $crate::reader::at_file(&*self.reader, id, error.at_sample(id)).into())
        }

        fn about(&$self) -> feedline_core::About {
            feedline_core::About {
                has_random_geometry: $is_random,
                ..$crate::plain_shuffle::about(&*$self.reader)
            }
        }

        fn prefetch(&self, ids: &[u64], _: &mut feedline_core::Context) -> feedline_core::Prefetched {
            self.reader.prefetch(ids)
        }

        fn path(&self, id: u64) -> Option<&std::path::Path> {
            self.reader.path(id)
        }
    };
}
pub(crate) use samples_of_reader;

/// Adds the file of sample `id` to `error`, unless it names a file.
pub(crate) fn at_file(reader: &dyn Reader, id: u64, error: Error) -> Error {
    match reader.path(id) {
        Some(path) if error.path().is_none() => error.at_path(path),
        _ => error,
    }
}
