//! A data set over a reader whose samples vary in size.

use std::fmt;
use std::path::Path;

use feedline_core::{
    About, Context, DType, Dataset, Error, ErrorKind, Field, Fingerprint, Prefetched, ReadError, Result, Row,
    Rows, Spec, StridedColumn,
};

use crate::fixed::{check_whole, grouped};
use crate::io::decoded::{Decoded, runs, slice};
use crate::lengths::{self, Lengths};
use crate::plain_shuffle::about;
use crate::reader::check_not_empty;
use crate::{Reader, Schema, SchemaField, Value, Values};

/// Makes a [`Reader`] a [`Dataset`]. Fields of varying size become ragged.
///
/// | field of the reader | field of the data set |
/// | --- | --- |
/// | one size, as `[28, 28]` | the same as with [`Fixed`](crate::Fixed) |
/// | the first dimension varies, as `[?]` or `[?, 3]` | ragged; an item is `[]` or `[3]` |
/// | others vary, as `[?, ?, 3]` | ragged, of single elements; and `NAME.shape` (`i64`, one per dimension) |
///
/// Text and bytes are `u8`.
///
/// ```
/// use feedline_core::{Dataset, lengths};
/// use feedline_datasets::{Ragged, open};
///
/// # let path = std::env::temp_dir().join(format!("feedline-doc-ragged-{}.txt", std::process::id()));
/// std::fs::write(&path, "To be, or not to be,\nthat is\n\nthe question:\n")?;
/// let lines = Ragged::new(open(&path)?, 100)?; // lines of up to 100 bytes
/// assert_eq!(lengths(&lines, "text")?, [20, 7, 0, 13]);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`measured`](Self::measured) finds the limits itself. It makes one pass over all samples, and keeps the
/// result in the user's cache.
pub struct Ragged {
    reader: Box<dyn Reader>,
    max_per_sample: usize,
    /// For single fields, the max number of items per sample.
    limits: Vec<(String, usize)>,
    spec: Spec,
    fields: Vec<Kind>,
    /// The items of each sample, for each field of the reader. Empty if the samples are not measured.
    lengths: Lengths,
    /// Whether any field is of kind `Shaped`.
    is_shaped: bool,
}

/// How a field of the reader is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Fixed,
    Ragged,
    /// Ragged, and followed by a field for the shape. The shape has this many dimensions.
    Shaped(usize),
}

impl Ragged {
    /// The data set of `reader`. In each ragged field, a sample has at most `max_per_sample` items.
    ///
    /// # Errors
    /// `Config` for an element type that batches do not have, for too many fields, and for a limit of 0.
    /// `Data` if there are no samples.
    pub fn new(reader: Box<dyn Reader>, max_per_sample: usize) -> Result<Self> {
        check_not_empty(&*reader)?;
        let (spec, fields, lengths) = (Spec::new(), Vec::new(), Lengths::new());
        Self { reader, max_per_sample, limits: Vec::new(), spec, fields, lengths, is_shaped: false }
            .laid_out()
    }

    /// The data set of `reader`. The longest samples set its limits. [`lengths`](Self::lengths) returns the
    /// length of each sample.
    ///
    /// The first time, this blocks while all cores read every sample. It writes the lengths to a file in the
    /// [user's cache](feedline_core::user_cache), in the folder `lengths`. The next time, it reads them from
    /// there, unless the path or the [fingerprint](Reader::fingerprint) has changed. For files in a store, or
    /// if there is no writable cache, each call reads all samples. Nothing is written beside the data.
    ///
    /// ```
    /// use feedline_core::Sampler;
    /// use feedline_datasets::{Ragged, open};
    ///
    /// # let path = std::env::temp_dir().join(format!("feedline-doc-measured-{}.txt", std::process::id()));
    /// std::fs::write(&path, "To be, or not to be,\nthat is\n\nthe question:\n")?;
    /// let lines = Ragged::measured(open(&path)?)?;
    /// assert_eq!(lines.lengths("text")?, [20, 7, 0, 13]);
    /// let sampler = Sampler::bucketed(lines.lengths("text")?, 2, 1)?;
    /// # drop(sampler);
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new), and those of [`Reader::visit`].
    pub fn measured(reader: Box<dyn Reader>) -> Result<Self> {
        Self::measure(reader, None)
    }

    /// As [`measured`](Self::measured), for any reader. The file of lengths is `cache`.
    ///
    /// # Errors
    /// As [`measured`](Self::measured); `Data` if the file cannot be written.
    pub fn measured_at(reader: Box<dyn Reader>, cache: impl AsRef<Path>) -> Result<Self> {
        Self::measure(reader, Some(cache.as_ref()))
    }

    fn measure(reader: Box<dyn Reader>, cache: Option<&Path>) -> Result<Self> {
        let mut data = Self::new(reader, 1)?;
        let fields = data.reader.schema().fields();
        let items = data.fields.iter().enumerate().map(|(at, kind)| {
            let item = data.spec.fields()[data.place(at)].item_bytes();
            (*kind != Kind::Fixed).then_some(item)
        });
        data.lengths = lengths::counted(&*data.reader, &items.collect::<Vec<_>>(), cache)?;
        for (field, lengths) in fields.iter().zip(&data.lengths) {
            let max = lengths.iter().flat_map(|lengths| lengths.iter()).max();
            // A limit is at least 1, even if all samples are empty.
            data.limits.extend(max.map(|&max| (field.name.clone(), max.max(1) as usize)));
        }
        data.laid_out()
    }

    /// The data set's index of field `field` of the reader.
    fn place(&self, field: usize) -> usize {
        field + self.fields[..field].iter().filter(|kind| matches!(kind, Kind::Shaped(_))).count()
    }

    /// The number of items of each sample in the ragged field `field`.
    /// [`Sampler::bucketed`](feedline_core::Sampler::bucketed) and [`Packed`](feedline_core::Packed) take it.
    ///
    /// # Errors
    /// `Config` for a field that does not exist or is not ragged, or a data set that is not
    /// [measured](Self::measured).
    pub fn lengths(&self, field: &str) -> Result<&[u32]> {
        self.check_ragged(field)?;
        let at = self.reader.schema().fields().iter().position(|of| of.name == field);
        at.and_then(|at| self.lengths.get(at)?.as_deref()).ok_or_else(|| {
            let why = "the lengths are not known: make the data set by Ragged::measured";
            Error::new(ErrorKind::Config, why)
        })
    }

    /// For [conversations](crate::Chats) that were [measured](Self::measured), the number of tokens of each
    /// sample before the first that is learnt, by the field of labels `field`: the first whose label is not
    /// -100, apart from the first token, which nothing predicts. All of its tokens if none is. `None` for
    /// other fields.
    ///
    /// A sample whose number is its [length](Self::lengths) teaches nothing, nor does one that is
    /// [cut](feedline_core::Long::Cut) to fewer tokens than its number.
    pub fn before_labels(&self, field: &str) -> Option<&[u32]> {
        let fields = self.reader.schema().fields();
        let at = self.reader.labels().iter().position(|&at| fields[at].name == field)?;
        self.lengths.get(fields.len() + at)?.as_deref()
    }

    /// The max number of items of the ragged field `field` in any batch of `rows` samples, for
    /// `LoaderBuilder::max_per_batch`. It is the sum of the `rows` largest lengths. It is too small for
    /// padded fields: they take `rows` times the longest sample.
    ///
    /// # Errors
    /// As [`lengths`](Self::lengths).
    pub fn max_per_batch(&self, field: &str, rows: usize) -> Result<usize> {
        let mut lengths = self.lengths(field)?.to_vec();
        lengths.sort_unstable_by_key(|&length| std::cmp::Reverse(length));
        Ok(lengths.iter().take(rows).map(|&length| length as usize).sum::<usize>().max(1))
    }

    fn check_ragged(&self, field: &str) -> Result<()> {
        if self.spec.fields()[self.spec.index_of(field)?].as_ragged().is_none() {
            let why = format!("field \"{field}\" is not ragged: every sample has the same length");
            return Err(Error::new(ErrorKind::Config, why));
        }
        Ok(())
    }

    /// Sets another max number of items per sample for the ragged field `field`.
    ///
    /// # Errors
    /// `Config` for a field that does not exist or is not ragged, and for a limit of 0.
    pub fn limit(mut self, field: &str, max_per_sample: usize) -> Result<Self> {
        self.check_ragged(field)?;
        self.limits.push((field.to_owned(), max_per_sample));
        self.laid_out()
    }

    /// The reader.
    pub fn reader(&self) -> &dyn Reader {
        &*self.reader
    }

    /// Derives the spec from the reader's schema and the limits.
    fn laid_out(self) -> Result<Self> {
        let limit = |name: &str| {
            let own = self.limits.iter().rev().find(|(field, _)| field == name);
            own.map_or(self.max_per_sample, |(_, max)| *max)
        };
        let (mut spec, mut fields) = (Spec::new(), Vec::new());
        for field in self.reader.schema().fields() {
            let kind;
            (spec, kind) = add(spec, field, limit(&field.name))?;
            fields.push(kind);
        }
        let is_shaped = fields.iter().any(|kind| matches!(kind, Kind::Shaped(_)));
        Ok(Self { spec, fields, is_shaped, ..self })
    }
}

/// Adds the fields of the data set for `field` of the reader.
fn add(spec: Spec, field: &SchemaField, max: usize) -> Result<(Spec, Kind)> {
    let Some(first) = field.shape.iter().position(Option::is_none) else {
        let fixed = Schema::new([field.clone()]).spec()?;
        return Ok((
            spec.field(&field.name, fixed.fields()[0].dtype(), fixed.fields()[0].shape())?,
            Kind::Fixed,
        ));
    };
    let (dtype, parts) = field.batch_type()?;
    let rest: Option<Vec<usize>> = field.shape.iter().skip(1).copied().collect();
    match rest {
        Some(mut item) if first == 0 => {
            item.extend_from_slice(parts);
            Ok((spec.ragged(&field.name, dtype, item, max)?, Kind::Ragged))
        }
        _ => {
            let dims = field.shape.len();
            let spec = spec.ragged(&field.name, dtype, parts, max)?;
            Ok((spec.field(&format!("{}.shape", field.name), DType::I64, [dims])?, Kind::Shaped(dims)))
        }
    }
}

impl Ragged {
    /// Writes field `index` of the row. The field is not of kind `Shaped`.
    fn write(&self, index: usize, bytes: &[u8], row: &mut Row<'_, '_>) -> Result<()> {
        let field = &self.spec.fields()[index];
        if field.as_ragged().is_some() {
            return row.write_ragged_bytes(index, bytes);
        }
        if bytes.len() != field.row_bytes() {
            let why = format!("has {} bytes instead of {}", bytes.len(), field.row_bytes());
            return Err(refuse(field, &why));
        }
        row.write(index, bytes);
        Ok(())
    }

    /// Writes `value` of the reader to field `index` of the row, and returns the index of the next one.
    fn write_value(&self, kind: Kind, index: usize, value: &Value, row: &mut Row<'_, '_>) -> Result<usize> {
        self.write(index, &value.bytes, row)?;
        let Kind::Shaped(dims) = kind else { return Ok(index + 1) };
        if value.shape.len() != dims {
            let why = format!("has {} dimensions instead of {dims}", value.shape.len());
            return Err(refuse(&self.spec.fields()[index], &why));
        }
        let to = row.field_mut::<i64>(index + 1)?;
        to.iter_mut().zip(&value.shape).for_each(|(to, &dim)| *to = dim as i64);
        Ok(index + 2)
    }

    /// If all fields of sample `id` are contiguous in a decoded part, writes the row. Returns whether it did.
    fn write_decoded(&self, id: u64, row: &mut Row<'_, '_>, held: &[Decoded]) -> Result<bool> {
        if self.is_shaped || held.is_empty() {
            return Ok(false);
        }
        for (index, field) in self.spec.fields().iter().enumerate() {
            let slice = slice(held, id, index);
            // If the value is of another form, the reader reports the error.
            let Some(bytes) = slice.filter(|bytes| bytes.len().is_multiple_of(field.item_bytes())) else {
                return Ok(false);
            };
            self.write(index, bytes, row).map_err(|error| error.at_sample(id))?;
        }
        Ok(true)
    }

    fn read_with(&self, id: u64, row: &mut Row<'_, '_>, values: &mut Values) -> Result<(), ReadError> {
        if !self.is_shaped {
            // The reader and the data set have the same field indices here.
            let mut written = 0;
            self.reader.visit(id, values, &mut |index, bytes| {
                if index >= self.fields.len() {
                    return Ok(());
                }
                written += 1;
                self.write(index, bytes, row).map_err(|error| error.at_sample(id))
            })?;
            return Ok(check_whole(id, written, self.fields.len())?);
        }
        self.reader.read(id, values)?;
        check_whole(id, values.fields().len(), self.fields.len())?;
        let mut index = 0;
        for (&kind, value) in self.fields.iter().zip(values.fields()) {
            index = self.write_value(kind, index, value, row).map_err(|error| error.at_sample(id))?;
        }
        Ok(())
    }
}

fn refuse(field: &Field, why: &str) -> Error {
    Error::new(ErrorKind::Sample, format!("field \"{}\" {why}", field.name()))
}

impl Dataset for Ragged {
    fn len(&self) -> u64 {
        self.reader.len()
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        self.read_with(id, row, context.scratch())
    }

    fn read_many(
        &self,
        ids: &[u64],
        rows: &mut Rows<'_>,
        context: &mut Context,
    ) -> Result<(), (usize, ReadError)> {
        runs(&*self.reader, ids, |from, ids, held| {
            let rows = &mut rows.part(from..from + ids.len());
            grouped(ids, context, |index, id, values| {
                let row = &mut rows.row(index);
                if self.write_decoded(id, row, held)? { Ok(()) } else { self.read_with(id, row, values) }
            })
        })
    }

    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        // If every field has one size, the reader and the data set have the same field indices.
        self.fields.iter().all(|&kind| kind == Kind::Fixed).then(|| self.reader.column(field))?
    }

    fn left_out(
        &self,
        id: u64,
        field: usize,
        _epoch: u64,
        to: &mut dyn FnMut(&[u8]),
    ) -> Result<(), ReadError> {
        if let Some(field) = (0..self.fields.len()).find(|&of| self.place(of) == field) {
            self.reader.left_out(id, field, to);
        }
        Ok(())
    }

    fn about(&self) -> About {
        about(&*self.reader)
    }

    fn prefetch(&self, ids: &[u64], _: &mut Context) -> Prefetched {
        self.reader.prefetch(ids)
    }

    fn path(&self, id: u64) -> Option<&Path> {
        self.reader.path(id)
    }

    fn fingerprint(&self) -> u64 {
        Fingerprint::new().spec(&self.spec).number(self.len()).number(self.reader.fingerprint()).value()
    }
}

impl fmt::Debug for Ragged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ragged({:?})", self.reader)
    }
}
