//! Write access to the rows of a batch: disjoint slices of one slab, which can be split over workers without
//! a copy.

use std::ops::Range;

use arrayvec::ArrayVec;

use crate::region::{Region, Room};
use crate::spec::MAX_FIELDS;
use crate::{DType, Error, ErrorKind, Field, Layout, ReadError, Result, RowError, Sink, Spec};

mod row;
#[cfg(test)]
mod tests;

pub use row::{Row, RowFields};
use row::{field_of, not_fixed, not_ragged};

/// Fills rows before a read, in debug builds.
const POISON: u8 = 0xFF;

/// Maximum number of rows per call of the function that copies them.
const AT_ONCE: usize = 32;

/// Consecutive rows of a slab, for writing.
///
/// Split them to give parts to workers; no two parts overlap. A read cannot put rows of other memory in the
/// place of those that it is given: none have their lifetime, so it does not compile.
///
/// ```
/// use feedline_core::{CheckOptions, Context, DType, Dataset, ReadError, Row, RowError, Rows, Spec};
/// use feedline_core::check_dataset;
///
/// struct Pairs(Spec);
///
/// impl Dataset for Pairs {
///     fn len(&self) -> u64 { 100 }
///     fn spec(&self) -> &Spec { &self.0 }
///     fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
///         Ok(row.field_mut::<i64>(0)?.copy_from_slice(&[id as i64, 2 * id as i64]))
///     }
///     // Reads several samples by one call, where that is faster.
///     fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, context: &mut Context) -> Result<(), RowError> {
///         for (index, &id) in ids.iter().enumerate() {
///             self.read(id, &mut rows.row(index), context).map_err(|error| (index, error))?;
///         }
///         Ok(())
///     }
/// }
///
/// let data = Pairs(Spec::new().field("pair", DType::I64, [2])?);
/// assert!(check_dataset(&data, &CheckOptions::default())?.is_clean());
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Rows<'a> {
    spec: &'a Spec,
    /// Takes the fields of a row that is in no batch. There are no `fields` and `regions` then. It also makes
    /// `'a` invariant, so that no other rows can be put in the place of these.
    sink: Option<Sink<'a>>,
    /// Empty for ragged fields.
    fields: ArrayVec<&'a mut [u8], MAX_FIELDS>,
    /// The regions of ragged fields, for all rows of the batch; empty for other fields. The whole list is
    /// empty if no field is ragged.
    regions: ArrayVec<&'a mut [u8], MAX_FIELDS>,
    /// The parameters that all regions share.
    room: Room,
    first: usize,
    len: usize,
    /// See [`copied_by`](Self::copied_by).
    copy: fn(to: &mut [u8], rows: &[&[u8]]),
    /// The sample that is read by [`give`](Self::give), and how many of its fields were put.
    given: Option<(u64, usize)>,
}

#[expect(clippy::len_without_is_empty, reason = "a batch has rows")]
impl<'a> Rows<'a> {
    fn check_rows(&mut self, rows: Range<usize>) -> Result<(), (usize, Error)> {
        if self.sink.is_some() {
            return Ok(());
        }
        let unwritten = self.check_lengths(rows.clone());
        let end = unwritten.as_ref().err().map_or(rows.end, |(row, _)| *row);
        let written = rows.start..end;
        self.check_bools(written).and(unwritten)
    }

    /// Checks the bytes of `Bool` fields.
    fn check_bools(&mut self, rows: Range<usize>) -> Result<(), (usize, Error)> {
        for (index, field) in self.spec.fields().iter().enumerate() {
            if field.dtype() != DType::Bool {
                continue;
            }
            for row in rows.clone() {
                let bytes = match field.as_ragged() {
                    Some(_) => self.written_bytes_mut(row, index).map_err(|error| (row, error))?,
                    None => &mut self.fields[index][row * field.row_bytes()..][..field.row_bytes()],
                };
                if !DType::Bool.accepts(bytes) {
                    let why =
                        format!("field \"{}\" is bool, and has a byte other than 0 and 1", field.name());
                    return Err((row, Error::new(ErrorKind::Sample, why)));
                }
            }
        }
        Ok(())
    }

    fn check_lengths(&mut self, rows: Range<usize>) -> Result<(), (usize, Error)> {
        let rows = self.first + rows.start..self.first + rows.end;
        let mut first: Option<(usize, usize)> = None;
        for index in 0..self.regions.len() {
            let unwritten = self.region(index).and_then(|region| region.first_unwritten(rows.clone()));
            first = first.into_iter().chain(unwritten.map(|row| (row, index))).min();
        }
        let Some((row, index)) = first else { return Ok(()) };
        let name = self.spec.fields()[index].name();
        let why = format!("ragged field \"{name}\" was not written, not even as empty");
        Err((row - self.first, Error::new(ErrorKind::Sample, why)))
    }

    /// The region of field `index`, if it is ragged.
    fn region(&mut self, index: usize) -> Option<Region<'_>> {
        let bytes = self.regions.get_mut(index).filter(|bytes| !bytes.is_empty())?;
        Some(Region::new(&self.spec.fields()[index], bytes, self.room))
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Splits off the first `mid` rows.
    ///
    /// # Panics
    /// If `mid` is larger than [`len`](Self::len), or a field is ragged: such rows are written in order.
    pub(crate) fn split_at(self, mid: usize) -> (Self, Self) {
        assert!(mid <= self.len, "split at {mid} of {} rows", self.len);
        assert!(self.regions.is_empty(), "rows with a ragged field cannot be split: write them in order");
        let (mut left, mut right) = (ArrayVec::new(), ArrayVec::new());
        for (bytes, field) in self.fields.into_iter().zip(self.spec.fields()) {
            let (l, r) = bytes.split_at_mut(mid * field.row_bytes());
            left.push(l);
            right.push(r);
        }
        (
            Self { fields: left, len: mid, regions: ArrayVec::new(), sink: None, ..self },
            Self {
                fields: right,
                sink: None,
                regions: ArrayVec::new(),
                first: self.first + mid,
                len: self.len - mid,
                ..self
            },
        )
    }

    /// The fields `range` of every row, under the names of `spec`: for a reader that writes only those.
    ///
    /// # Panics
    /// If there are no such fields, or `spec` has other sizes or larger limits.
    pub(crate) fn part_of_fields<'b>(&'b mut self, range: Range<usize>, spec: &'b Spec) -> Rows<'b> {
        // The loader may use another form, or another max per batch; a set of several parts has the largest
        // of their limits.
        let size = |field: &Field| (field.item_bytes(), field.as_ragged().is_some());
        let given = self.spec.fields()[range.clone()].iter();
        assert!(
            given.clone().map(size).eq(spec.fields().iter().map(size))
                && given.zip(spec.fields()).all(|(given, field)| given.row_bytes() >= field.row_bytes()),
            "fields {range:?} have other sizes than those of the reader"
        );
        let regions = if self.regions.is_empty() { &mut [][..] } else { &mut self.regions[range.clone()] };
        let sink = self.sink.as_mut().map(|sink| sink.part(range.start));
        let fields = if sink.is_some() { &mut [][..] } else { &mut self.fields[range] };
        Rows {
            spec,
            sink,
            fields: fields.iter_mut().map(|bytes| &mut **bytes).collect(),
            regions: regions.iter_mut().map(|bytes| &mut **bytes).collect(),
            room: self.room,
            first: self.first,
            len: self.len,
            copy: self.copy,
            given: None,
        }
    }

    /// Row `index` of these rows.
    ///
    /// # Panics
    /// If `index` is not below [`len`](Self::len).
    pub fn row(&mut self, index: usize) -> Row<'_, 'a> {
        assert!(index < self.len, "row {index} of {}", self.len);
        Row { rows: self, index }
    }

    /// Copies `rows` into field `index` of the first rows, one item per row.
    ///
    /// The fastest way to copy in a [`read_many`](crate::Dataset::read_many): it prefetches the next rows,
    /// and long rows can bypass the caches.
    ///
    /// # Panics
    /// If the spec has no such field, there are more items than rows, or an item is not exactly
    /// [`row_bytes`](crate::Field::row_bytes) long; for a ragged field.
    pub fn write<'b>(&mut self, index: usize, rows: impl IntoIterator<Item = &'b [u8]>) {
        let field = &self.spec.fields()[index];
        assert!(field.as_ragged().is_none(), "{}", not_fixed(field).message());
        let bytes = field.row_bytes();
        let mut rest = &mut *self.fields[index];
        let mut rows = rows.into_iter().inspect(|row| assert_fills(field, row));
        loop {
            let next: ArrayVec<&[u8], AT_ONCE> = rows.by_ref().take(AT_ONCE).collect();
            if next.is_empty() {
                return;
            }
            let (place, after) = rest.split_at_mut(next.len() * bytes);
            (self.copy)(place, &next);
            rest = after;
        }
    }

    /// All bytes of field `index`, row after row; for data sets that read many rows at once. Empty for a
    /// ragged field.
    ///
    /// # Panics
    /// If the spec has no such field.
    pub fn column_mut(&mut self, index: usize) -> &mut [u8] {
        self.fields[index]
    }

    /// The fields of a sample.
    pub fn spec(&self) -> &'a Spec {
        self.spec
    }
}

/// # For loaders and readers
///
/// What loaders, bridges and sets that read other sets call. It may change in any release.
impl<'a> Rows<'a> {
    /// The first `len` rows of `slab`. Rows of ragged fields count as not written.
    ///
    /// # Panics
    /// If `slab` is smaller than the layout, or `len` exceeds the layout's capacity.
    pub fn new(layout: &'a Layout, slab: &'a mut [u8], len: usize) -> Self {
        let mut rows = Self::filled(layout, slab, len);
        for index in 0..rows.regions.len() {
            if let Some(mut region) = rows.region(index) {
                region.clear();
            }
        }
        rows
    }

    /// Like [`new`](Self::new), for a slab whose rows are written but not yet in their form.
    ///
    /// # Panics
    /// As for [`new`](Self::new).
    pub fn filled(layout: &'a Layout, slab: &'a mut [u8], len: usize) -> Self {
        assert!(len <= layout.capacity(), "{len} rows in a layout of {}", layout.capacity());
        assert!(slab.len() >= layout.bytes(), "slab of {} bytes, layout of {}", slab.len(), layout.bytes());
        let spec = layout.spec();
        let mut fields: ArrayVec<&mut [u8], MAX_FIELDS> =
            spec.fields().iter().map(|_| Default::default()).collect();
        let mut regions = ArrayVec::new();
        if layout.is_ragged() {
            regions.extend(spec.fields().iter().map(|_| Default::default()));
        }
        let mut rest = slab;
        let mut start = 0;
        for (index, bytes) in layout.in_order() {
            let (_, from_field) = rest.split_at_mut(layout.offset(index) - start);
            let (bytes, after) = from_field.split_at_mut(bytes);
            start = layout.offset(index) + bytes.len();
            rest = after;
            let field = &spec.fields()[index];
            if field.as_ragged().is_some() {
                regions[index] = bytes;
            } else {
                fields[index] = &mut bytes[..field.row_bytes() * len];
            }
        }
        let room = layout.room(len);
        Self { spec, sink: None, fields, regions, room, first: 0, len, copy: copy_plainly, given: None }
    }

    /// Rows `first..first + len` of a batch, from one column of bytes per field of `spec`.
    ///
    /// # Panics
    /// If there is not exactly one column per field, of exactly `len` rows, or a field is ragged.
    pub fn from_columns(
        spec: &'a Spec,
        columns: impl IntoIterator<Item = &'a mut [u8]>,
        first: usize,
        len: usize,
    ) -> Self {
        let fields: ArrayVec<_, MAX_FIELDS> = columns.into_iter().collect();
        let bytes = spec.fields().iter().map(|field| field.row_bytes() * len);
        assert!(
            fields.iter().map(|column| column.len()).eq(bytes),
            "each field needs a column of {len} rows"
        );
        assert!(!spec.is_ragged(), "a ragged field has no column");
        let (regions, room) = (ArrayVec::new(), Room::default());
        Self { spec, sink: None, fields, regions, room, first, len, copy: copy_plainly, given: None }
    }

    /// A row with the fields of `spec`, which may be open, that goes to `sink` and into no batch.
    pub fn into_sink(spec: &'a Spec, sink: Sink<'a>) -> Self {
        let (fields, regions, room) = (ArrayVec::new(), ArrayVec::new(), Room::default());
        Self {
            spec,
            sink: Some(sink),
            fields,
            regions,
            room,
            first: 0,
            len: 1,
            copy: copy_plainly,
            given: None,
        }
    }

    /// Makes [`write`](Self::write) copy by `copy`, such as a function that bypasses the caches.
    ///
    /// `copy` gets a place and the rows for it, which are together exactly as long.
    pub fn copied_by(self, copy: fn(to: &mut [u8], rows: &[&[u8]])) -> Self {
        Self { copy, ..self }
    }

    /// In debug builds, sets every byte to 0xFF: NaN in every float type, -1 in every signed integer type.
    /// Does nothing in release builds.
    ///
    /// Rows are reused: bytes that [`read`](crate::Dataset::read) does not write would be those of an earlier
    /// sample. Poisoned bytes show in tests; [`check_dataset`](crate::check_dataset) finds them in any build.
    pub fn poison(&mut self) {
        if cfg!(debug_assertions) {
            self.fields.iter_mut().for_each(|bytes| bytes.fill(POISON));
            let values = self.regions.iter_mut().filter(|bytes| !bytes.is_empty());
            values.for_each(|bytes| bytes[self.room.values_at..].fill(POISON));
        }
    }

    /// Checks that every row of every ragged field was written, and that `Bool` fields have no byte but 0
    /// and 1.
    ///
    /// # Errors
    /// `Sample` for the first row that violates this, with the row.
    pub fn check_written(&mut self) -> Result<(), (usize, Error)> {
        self.check_rows(0..self.len)
    }

    /// Calls `read` with these rows, and checks that it has written every ragged row before an error.
    ///
    /// # Errors
    /// As `read`; `Sample` for a row that was not written. All with the row.
    pub fn read_by(
        &mut self,
        read: impl FnOnce(&mut Rows<'_>) -> Result<(), RowError>,
    ) -> Result<(), RowError> {
        match (read(self), self.check_written()) {
            (Ok(()), Ok(())) => Ok(()),
            // An unwritten row makes the next ragged row fail.
            (Err((bad, _)), Err((row, error))) if row < bad => Err((row, error.into())),
            (Err(bad), _) => Err(bad),
            (Ok(()), Err((row, error))) => Err((row, error.into())),
        }
    }

    /// Calls `read` with row `index`, into which it [puts](Row::put) the fields of sample `id`. Returns how
    /// many it has put.
    ///
    /// # Errors
    /// As `read`. Those of `put` name the sample.
    pub fn give(
        &mut self,
        index: usize,
        id: u64,
        read: impl FnOnce(&mut Row<'_, 'a>) -> Result<(), ReadError>,
    ) -> Result<usize, ReadError> {
        self.given = Some((id, 0));
        let read = read(&mut self.row(index));
        let given = self.given.take().map_or(0, |(_, given)| given);
        read.map(|()| given)
    }

    /// The index in the batch of the first row.
    pub fn first(&self) -> usize {
        self.first
    }

    /// The rows `range`, for another reader.
    ///
    /// # Panics
    /// If the range is not inside the rows.
    pub fn part(&mut self, range: Range<usize>) -> Rows<'_> {
        let fields = self.fields.iter_mut().zip(self.spec.fields());
        let fields = fields.map(|(bytes, field)| {
            let row = field.row_bytes();
            // Empty for a ragged field.
            if bytes.is_empty() { &mut [] } else { &mut bytes[range.start * row..range.end * row] }
        });
        Rows {
            spec: self.spec,
            sink: self.sink.as_mut().map(|sink| sink.part(0)),
            fields: fields.collect(),
            regions: self.regions.iter_mut().map(|bytes| &mut **bytes).collect(),
            room: self.room,
            first: self.first + range.start,
            len: range.end - range.start,
            copy: self.copy,
            given: None,
        }
    }

    /// As `Row::written_bytes_mut` for row `row`, with a longer lifetime.
    pub fn written_bytes_mut(&mut self, row: usize, index: usize) -> Result<&mut [u8]> {
        assert!(row < self.len, "row {row} of {}", self.len);
        let field = field_of(self.spec, index)?;
        let row = self.first + row;
        let written = self.region(index).ok_or_else(|| not_ragged(field))?.written(row);
        written.ok_or_else(|| {
            let why = format!("field \"{}\": row {row} is not written yet", field.name());
            Error::new(ErrorKind::Config, why)
        })
    }
}

/// Panics unless `bytes` is exactly one row of `field`.
fn assert_fills(field: &Field, bytes: &[u8]) {
    let (wanted, given) = (field.row_bytes(), bytes.len());
    assert!(
        given == wanted,
        "wrong row length: field \"{}\" has {wanted} bytes per row, but the row has {given}",
        field.name()
    );
}

fn copy_plainly(to: &mut [u8], rows: &[&[u8]]) {
    let mut rest = to;
    for row in rows {
        let (place, after) = std::mem::take(&mut rest).split_at_mut(row.len());
        place.copy_from_slice(row);
        rest = after;
    }
    assert!(rest.is_empty(), "the destination is {} bytes longer than the rows", rest.len());
}
