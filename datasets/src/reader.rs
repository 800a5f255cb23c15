//! Random access to the samples of a file. Samples may vary in size.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;

use feedline_core::{About, Error, ErrorKind, Fingerprint, Result, Spec};

use crate::error::{data, one_line};
use crate::io::read_ahead::ReadAhead;
use crate::storage::{OneByOne, Storage};

/// Samples of a file or a folder, with random access. Each format implements this trait.
///
/// Fields may vary in size. [`Bounded`](crate::Bounded) makes a [`Dataset`](feedline_core::Dataset) of any
/// reader.
///
/// ```
/// use feedline_core::{ElementType, Field, Result, Spec};
/// use feedline_datasets::{Buffers, Reader, Sink, Values};
///
/// #[derive(Debug)]
/// struct Words(Spec, [&'static str; 2]);
///
/// impl Reader for Words {
///     fn schema(&self) -> &Spec { &self.0 }
///     fn len(&self) -> u64 { 2 }
///     fn visit(&self, sample: u64, row: &mut Sink<'_>, _: &mut Buffers) -> Result<()> {
///         row.put(0, self.1[sample as usize].as_bytes())
///     }
/// }
///
/// let schema = Spec::of_fields([Field::variable("word", ElementType::Text)]);
/// let (words, mut values) = (Words(schema, ["to", "be"]), Values::new());
/// words.read(1, &mut values)?;
/// assert_eq!(values.fields()[0].bytes, b"be");
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub trait Reader: fmt::Debug + Send + Sync + 'static {
    /// The fields of a sample.
    fn schema(&self) -> &Spec;

    /// Number of samples.
    fn len(&self) -> u64;

    /// Whether there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts the fields of sample `sample` into `row`: each that it [wants](Sink::wants), in any order. If one
    /// comes twice, the last one counts. The bytes are in memory, or in the part of the file that was just
    /// read into `buffers`, so that [`Bounded`](crate::Bounded) copies a sample only once, into the batch. A
    /// file without any wanted field is not read.
    ///
    /// Blocks on the file. Pass the same `buffers` for each sample, so that their memory is reused.
    ///
    /// # Errors
    /// `Sample` if there is no such sample, `Data` if the file cannot be read or is damaged there. The error
    /// names the file and, if known, the byte, the record and the column. Also those of `row`.
    fn visit(&self, sample: u64, row: &mut Sink<'_>, buffers: &mut Buffers) -> Result<()>;

    /// Copies sample `sample` into `values`: one value per field of the schema, in order.
    ///
    /// # Errors
    /// As [`visit`](Self::visit); `Sample` if `visit` puts fewer fields than the schema has.
    fn read(&self, sample: u64, values: &mut Values) -> Result<()> {
        let (fields, Values { values, buffers }) = (self.schema().fields(), values);
        values.resize_with(fields.len(), Value::default);
        let mut given = 0;
        let mut copy = |field: usize, bytes: &[u8], shape: Option<&[usize]>| {
            let (Some(value), Some(field)) = (values.get_mut(field), fields.get(field)) else {
                return Ok(());
            };
            given += 1;
            value.bytes.clear();
            value.bytes.extend_from_slice(bytes);
            value.shape.clear();
            match shape {
                Some(shape) => value.shape.extend_from_slice(shape),
                None => value.shape.extend(field.shape_of(bytes.len())),
            }
            Ok(())
        };
        self.visit(sample, &mut Sink::new(&mut copy), buffers)?;
        check_whole(sample, given, fields.len())
    }

    /// What the samples are: their format, their classes, and how they are decoded. No read depends on it.
    fn about(&self) -> About<'_> {
        About::default()
    }

    /// How the samples lie, and what can be had without reading them one by one.
    fn storage(&self) -> &dyn Storage {
        &OneByOne
    }

    /// The file that holds sample `sample`.
    fn path(&self, _sample: u64) -> Option<&Path> {
        None
    }

    /// A number that differs for different data, and is the same for a copy. Of files in memory, it covers
    /// the content. Of other files, it covers the length and a sample of the content, see
    /// [`Fingerprint::file_sampled`](feedline_core::Fingerprint::file_sampled). The default covers only the
    /// length and the fields.
    fn fingerprint(&self) -> u64 {
        Fingerprint::new().number(self.len()).bytes(self.schema().to_string().as_bytes()).value()
    }
}

/// Takes the fields of one sample, or those of them that are wanted: the receiver of [`Reader::visit`].
pub struct Sink<'a> {
    wanted: Option<&'a dyn Fn(usize) -> bool>,
    to: &'a mut Put<'a>,
}

/// Gets the index of a field, its bytes, and its shape if the bytes alone do not determine it.
type Put<'a> = dyn FnMut(usize, &[u8], Option<&[usize]>) -> Result<()> + 'a;

impl<'a> Sink<'a> {
    /// Calls `to` with each field: its index, its bytes, and its shape where the bytes alone do not determine
    /// it. `to` copies the bytes, or uses them at once.
    pub fn new(to: &'a mut Put<'a>) -> Self {
        Self { wanted: None, to }
    }

    /// As [`new`](Self::new), for the fields that are `wanted`.
    pub fn some(wanted: &'a dyn Fn(usize) -> bool, to: &'a mut Put<'a>) -> Self {
        Self { wanted: Some(wanted), to }
    }

    /// Whether field `field` is wanted. A reader that has to read a file for a field asks first.
    pub fn wants(&self, field: usize) -> bool {
        self.wanted.is_none_or(|wanted| wanted(field))
    }

    /// Takes field `field`: its elements, little-endian, in row-major order. Ignores it if it is not wanted.
    ///
    /// # Errors
    /// Those of the receiver, such as a batch that has no room for the field.
    pub fn put(&mut self, field: usize, bytes: &[u8]) -> Result<()> {
        self.pass_on(field, bytes, None)
    }

    /// As [`put`](Self::put), for a field of which several dimensions vary. `shape` is its shape in this
    /// sample.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_shaped(&mut self, field: usize, bytes: &[u8], shape: &[usize]) -> Result<()> {
        self.pass_on(field, bytes, Some(shape))
    }

    /// Takes what another sink was given.
    pub(crate) fn pass_on(&mut self, field: usize, bytes: &[u8], shape: Option<&[usize]>) -> Result<()> {
        if self.wants(field) { (self.to)(field, bytes, shape) } else { Ok(()) }
    }
}

impl fmt::Debug for Sink<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("is_partial", &self.wanted.is_some()).finish_non_exhaustive()
    }
}

/// Refuses sample `sample` of a reader that gave fewer fields than its schema has: the others would be those
/// of an earlier sample.
pub(crate) fn check_whole(sample: u64, given: usize, fields: usize) -> Result<()> {
    if given >= fields {
        return Ok(());
    }
    let why =
        format!("the reader gave {given} of the {fields} fields of its schema: give all in each sample");
    Err(Error::new(ErrorKind::Sample, why).at_sample(sample))
}

/// One field of one sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// The elements: little-endian, in row-major order.
    pub bytes: Vec<u8>,
    /// The actual shape.
    pub shape: Vec<usize>,
}

/// One sample. The next sample reuses its buffers.
#[derive(Clone, Debug, Default)]
pub struct Values {
    values: Vec<Value>,
    buffers: Buffers,
}

/// Buffers for reading samples, which one thread keeps from sample to sample.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    /// The part of the file that was read most recently.
    pub(crate) ahead: ReadAhead,
    /// Buffer for a file that is a field of a sample.
    pub(crate) file: Vec<u8>,
    /// Buffer for a value that is made or joined from several parts.
    pub(crate) value: Vec<u8>,
    /// Whether each field was visited.
    #[cfg(feature = "tfrecord")]
    pub(crate) visited: Vec<bool>,
    /// The values of a sample that another reader reads.
    #[cfg(feature = "tokenizers")]
    lent: Vec<Value>,
}

#[cfg(feature = "tokenizers")]
impl Buffers {
    /// Calls `work` with a sample that has these buffers.
    pub(crate) fn lend<T>(&mut self, work: impl FnOnce(&mut Values) -> T) -> T {
        let mut values = Values { values: std::mem::take(&mut self.lent), buffers: std::mem::take(self) };
        let done = work(&mut values);
        *self = Self { lent: values.values, ..values.buffers };
        done
    }
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

    /// The buffers for reading a sample.
    pub(crate) fn buffers(&mut self) -> &mut Buffers {
        &mut self.buffers
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

/// What `reader` says of itself, and the plain shuffle of its samples, which depends only on its files.
pub(crate) fn about(reader: &dyn Reader) -> About<'_> {
    let about = reader.about();
    About { plain_shuffle: about.groups.and_then(|groups| groups.plain_shuffle(reader.len())), ..about }
}

/// Refuses two fields of one name: one would hide the other.
pub(crate) fn check_names(spec: &Spec) -> Result<()> {
    let mut names = HashSet::new();
    match spec.fields().iter().find(|field| !names.insert(field.name())) {
        None => Ok(()),
        Some(field) => {
            let name = one_line(field.name());
            Err(data(format!("there are two columns or arrays \"{name}\": rename one of them")))
        }
    }
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

        fn about(&$self) -> feedline_core::About<'_> {
            feedline_core::About {
                has_random_geometry: $is_random,
                ..$crate::reader::about(&*$self.reader)
            }
        }

        fn prefetch(&self, ids: &[u64], _: &mut feedline_core::Context) -> feedline_core::Prefetched {
            self.reader.storage().prefetch(ids)
        }

        fn path(&self, id: u64) -> Option<&std::path::Path> {
            self.reader.path(id)
        }
    };
}
pub(crate) use samples_of_reader;

/// The file that holds field `field` of sample `id`.
#[cfg(any(feature = "images", feature = "audio"))]
pub(crate) fn field_path(reader: &dyn Reader, id: u64, field: usize) -> Option<&Path> {
    reader.storage().field_path(id, field).or_else(|| reader.path(id))
}

/// Adds the file of sample `id` to `error`, unless it names a file.
pub(crate) fn at_file(reader: &dyn Reader, id: u64, error: Error) -> Error {
    match reader.path(id) {
        Some(path) if error.path().is_none() => error.at_path(path),
        _ => error,
    }
}
