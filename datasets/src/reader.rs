//! Random access to the samples of a file, whatever their sizes.

use std::fmt;
use std::path::Path;

use feedline_core::{Error, ErrorKind, Result, StridedColumn};

use crate::read_ahead::ReadAhead;
use crate::{Decoded, Schema, SchemaField};

/// What [`Reader::visit`] calls with the number of a field and its bytes.
pub type Visit<'a> = dyn FnMut(usize, &[u8]) -> Result<()> + 'a;

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

    /// Calls `to` with each field of sample `sample` and its bytes, where they lie: in memory, or in what was
    /// just read of the file. [`Fixed`](crate::Fixed) and [`Ragged`](crate::Ragged) read by this, so that a
    /// sample is copied once more only, into the batch.
    ///
    /// The fields come in any order. Where one comes twice, the last one counts. What `values` holds
    /// afterwards is of no use.
    ///
    /// # Errors
    /// As [`read`](Self::read), and those of `to`.
    fn visit(&self, sample: u64, values: &mut Values, to: &mut Visit<'_>) -> Result<()> {
        self.read(sample, values)?;
        values.values.iter().enumerate().try_for_each(|(field, value)| to(field, &value.bytes))
    }

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

    /// Sample `sample` and its neighbours, where they are [decoded together](Self::together);
    /// [`Fixed`](crate::Fixed) and [`Ragged`](crate::Ragged) hold up to four of them while they copy a
    /// batch's samples. None, which is the default, where samples are read one by one.
    ///
    /// Blocks on the file, unless a cache has them.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn decoded(&self, _sample: u64) -> Result<Option<Decoded>> {
        Ok(None)
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
    buffers: Buffers,
}

/// What a sample is read with, beside its values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffers {
    /// What was read of the file.
    pub(crate) ahead: ReadAhead,
    /// A value that lies nowhere in one piece.
    #[cfg(any(feature = "table", feature = "tfrecord"))]
    pub(crate) value: Vec<u8>,
    /// The fields that were visited.
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
    #[cfg(feature = "csv")]
    pub(crate) fn begin_with_ahead(&mut self, fields: usize) -> (&mut [Value], &mut ReadAhead) {
        self.values.resize_with(fields, Value::default);
        (&mut self.values, &mut self.buffers.ahead)
    }

    /// What a sample is read with.
    pub(crate) fn buffers(&mut self) -> &mut Buffers {
        &mut self.buffers
    }

    /// Takes copies of what `visit` calls its second argument with: [`Reader::read`] of a reader that has a
    /// [`Reader::visit`] of its own, and no field of which two dimensions vary.
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

/// An error for a sample beyond the last one.
pub(crate) fn inside(sample: u64, len: u64, path: &Path) -> Result<()> {
    if sample < len { Ok(()) } else { Err(outside(sample, len, path)) }
}

/// The error for a sample that is not there.
pub(crate) fn outside(sample: u64, len: u64, path: &Path) -> Error {
    Error::new(ErrorKind::Sample, format!("no sample {sample}: there are {len}")).at_path(path)
}
