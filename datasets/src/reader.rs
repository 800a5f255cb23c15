//! Random access to the samples of a file, whatever their sizes.

use std::fmt;
use std::path::Path;

use feedline_core::{Error, ErrorKind, Result, StridedColumn};

use crate::Schema;
use crate::ahead::Ahead;

/// Samples of a file or a folder, with random access; each format implements it.
///
/// Unlike a [`Dataset`](feedline_core::Dataset) it may have fields that vary in size. Readers of fixed sizes
/// become a data set by [`Fixed`](crate::Fixed).
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

    /// Reads sample `sample` into `values`: one value per field of the schema, in its order.
    ///
    /// Blocks on the file. `values` keeps its memory from sample to sample.
    ///
    /// # Errors
    /// `Sample` for a sample beyond the last one, `Data` when the file cannot be read or is damaged there;
    /// names the file and, where known, the byte, the record and the column.
    fn read(&self, sample: u64, values: &mut Values) -> Result<()>;

    /// Field `field` of every sample, where the bytes that [`read`](Self::read) gives lie ready in memory.
    fn column(&self, _field: usize) -> Option<StridedColumn<'_>> {
        None
    }

    /// Field `field` of sample `sample`, where the bytes that [`read`](Self::read) gives lie ready in memory:
    /// also where those of different samples lie in different places, and there is no column.
    fn slice(&self, sample: u64, field: usize) -> Option<&[u8]> {
        self.column(field)?.row(sample)
    }

    /// Samples that are read together: where one of so many neighbours is read, the others are decoded too.
    ///
    /// Shuffle blocks of this many samples (`Sampler::block`), so that each is decoded once per epoch. None
    /// where samples are read one by one.
    fn together(&self) -> Option<u64> {
        None
    }

    /// The file that holds sample `sample`.
    fn path(&self, sample: u64) -> Option<&Path>;

    /// A number that tells this data from other data: content that is held in memory, or names, sizes and
    /// times of the last write.
    fn fingerprint(&self) -> u64;
}

/// One field of one sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// The elements: little-endian, the last dimension changing fastest.
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

    /// Makes room for `len` bytes and returns them; they hold an earlier sample's until they are written.
    pub fn resize(&mut self, len: usize) -> &mut [u8] {
        self.bytes.resize(len, 0);
        &mut self.bytes
    }

    /// Takes a copy of `bytes`, with one dimension: their number.
    pub fn set_bytes(&mut self, bytes: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.set_shape([bytes.len()]);
    }
}

/// One sample, in buffers that are used again for the next one.
#[derive(Clone, Debug, Default)]
pub struct Values {
    values: Vec<Value>,
    /// What was read of the file beside this sample.
    ahead: Ahead,
}

impl PartialEq for Values {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

impl Eq for Values {}

impl Values {
    /// No values; they are made by the first read.
    pub fn new() -> Self {
        Self::default()
    }

    /// The values of the sample read last, one per field.
    pub fn fields(&self) -> &[Value] {
        &self.values
    }

    /// `fields` values to write; a reader calls this first and writes them all.
    pub fn begin(&mut self, fields: usize) -> &mut [Value] {
        self.values.resize_with(fields, Value::default);
        &mut self.values
    }

    /// As [`begin`](Self::begin), and what the bytes of the sample are read with.
    pub(crate) fn begin_with_ahead(&mut self, fields: usize) -> (&mut [Value], &mut Ahead) {
        self.values.resize_with(fields, Value::default);
        (&mut self.values, &mut self.ahead)
    }

    /// What bytes are read with.
    pub(crate) fn ahead(&mut self) -> &mut Ahead {
        &mut self.ahead
    }
}

/// The error for a sample that is not there.
pub(crate) fn outside(sample: u64, len: u64, path: &Path) -> Error {
    Error::new(ErrorKind::Sample, format!("no sample {sample}: there are {len}")).at_path(path)
}
