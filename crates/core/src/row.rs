//! Write access to the rows of a batch: disjoint slices of one slab, which can be split over workers without
//! a copy.

use std::ops::Range;

use arrayvec::ArrayVec;

use crate::region::{Region, Room};
use crate::spec::MAX_FIELDS;
use crate::{Element, Error, ErrorKind, Field, Layout, Result, Spec};

/// A function that copies `rows` into `to`, one after the other. Together they are exactly as long as `to`.
pub type CopyRows = fn(to: &mut [u8], rows: &[&[u8]]);

/// Fills rows before a read, in debug builds.
const POISON: u8 = 0xFF;

/// The most rows that one call of a [`CopyRows`] copies.
const AT_ONCE: usize = 32;

/// Consecutive rows of a slab, for writing.
///
/// Split them to give parts to workers; no two parts overlap.
///
/// ```
/// use feedline_core::{DType, Layout, Rows, Spec};
/// let layout = Layout::new(&Spec::new().field("x", DType::U16, [2])?, 3)?;
/// let mut slab = vec![0u8; layout.bytes()];
/// let rows = Rows::new(&layout, &mut slab, 3);
/// let (mut left, mut right) = rows.split_at(1);
/// left.row(0).field_mut::<u16>(0)?.copy_from_slice(&[1, 2]);
/// right.row(1).bytes_mut(0).copy_from_slice(&[5, 0, 6, 0]);
/// drop((left, right));
/// assert_eq!(slab[..12], [1, 0, 2, 0, 0, 0, 0, 0, 5, 0, 6, 0]);
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Rows<'a> {
    spec: &'a Spec,
    /// Empty for ragged fields.
    fields: ArrayVec<&'a mut [u8], MAX_FIELDS>,
    /// The regions of ragged fields, for all rows of the batch; empty for the others. None at all where no
    /// field is ragged.
    regions: ArrayVec<&'a mut [u8], MAX_FIELDS>,
    /// What is the same for all regions.
    room: Room,
    first: usize,
    len: usize,
    copy: CopyRows,
}

impl<'a> Rows<'a> {
    /// The first `len` rows of `slab`.
    ///
    /// # Panics
    /// If `slab` is smaller than the layout, or `len` exceeds the layout's capacity.
    pub fn new(layout: &'a Layout, slab: &'a mut [u8], len: usize) -> Self {
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
                Region::new(field, bytes, layout.room(len)).clear();
                regions[index] = bytes;
            } else {
                fields[index] = &mut bytes[..field.row_bytes() * len];
            }
        }
        let (room, copy) = (layout.room(len), copy_plainly as CopyRows);
        Self { spec, fields, regions, room, first: 0, len, copy }
    }

    /// Rows `first..first + len` of a batch, from one column of bytes per field of `spec`.
    ///
    /// # Panics
    /// If there is not exactly one column per field, of exactly `len` rows, or a field is ragged.
    #[doc(hidden)] // For the workers.
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
        Self { spec, fields, regions: ArrayVec::new(), room: Room::default(), first, len, copy: copy_plainly }
    }

    /// Makes [`write`](Self::write) copy by `copy`, such as a function that bypasses the caches.
    #[doc(hidden)] // For the workers.
    pub fn copied_by(self, copy: CopyRows) -> Self {
        Self { copy, ..self }
    }

    /// In debug builds, sets every byte to 0xFF: NaN in every float type, -1 in every signed integer type.
    /// Does nothing in release builds.
    ///
    /// Rows are reused: bytes that [`read`](crate::Dataset::read) does not write would be those of an earlier
    /// sample. Poisoned bytes show in tests; [`check_dataset`](crate::check_dataset) finds them in any build.
    #[doc(hidden)] // For the workers.
    pub fn poison(&mut self) {
        if cfg!(debug_assertions) {
            self.fields.iter_mut().for_each(|bytes| bytes.fill(POISON));
            let values = self.regions.iter_mut().filter(|bytes| !bytes.is_empty());
            values.for_each(|bytes| bytes[self.room.values_at..].fill(POISON));
        }
    }

    /// Checks that every row of every ragged field was written.
    ///
    /// # Errors
    /// `Sample` for the first row that was not, with the row.
    pub fn check_written(&mut self) -> Result<(), (usize, Error)> {
        self.check_rows(0..self.len)
    }

    fn check_rows(&mut self, rows: Range<usize>) -> Result<(), (usize, Error)> {
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

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The index in the batch of the first row.
    #[doc(hidden)] // For the workers.
    pub fn first(&self) -> usize {
        self.first
    }

    /// Splits off the first `mid` rows.
    ///
    /// # Panics
    /// If `mid` is larger than [`len`](Self::len), or a field is ragged: such rows are written in order.
    #[doc(hidden)] // For the workers.
    pub fn split_at(self, mid: usize) -> (Self, Self) {
        assert!(mid <= self.len, "split at {mid} of {} rows", self.len);
        assert!(self.regions.is_empty(), "rows with a ragged field cannot be split: write them in order");
        let (mut left, mut right) = (ArrayVec::new(), ArrayVec::new());
        for (bytes, field) in self.fields.into_iter().zip(self.spec.fields()) {
            let (l, r) = bytes.split_at_mut(mid * field.row_bytes());
            left.push(l);
            right.push(r);
        }
        (
            Self { fields: left, len: mid, regions: ArrayVec::new(), ..self },
            Self {
                fields: right,
                regions: ArrayVec::new(),
                first: self.first + mid,
                len: self.len - mid,
                ..self
            },
        )
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
            fields: fields.collect(),
            regions: self.regions.iter_mut().map(|bytes| &mut **bytes).collect(),
            room: self.room,
            first: self.first + range.start,
            len: range.end - range.start,
            copy: self.copy,
        }
    }

    /// The fields `range` of every row, under the names of `spec`: for a reader that writes only those.
    ///
    /// # Panics
    /// If there are no such fields, or `spec` has other sizes.
    pub fn part_of_fields<'b>(&'b mut self, range: Range<usize>, spec: &'b Spec) -> Rows<'b> {
        // The loader may have stated another form, or another limit of a batch.
        let size = |field: &Field| (field.row_bytes(), field.as_ragged().is_some());
        let given = self.spec.fields()[range.clone()].iter().map(size);
        assert!(
            given.eq(spec.fields().iter().map(size)),
            "fields {range:?} have other sizes than those of the reader"
        );
        let regions = if self.regions.is_empty() { &mut [][..] } else { &mut self.regions[range.clone()] };
        Rows {
            spec,
            fields: self.fields[range].iter_mut().map(|bytes| &mut **bytes).collect(),
            regions: regions.iter_mut().map(|bytes| &mut **bytes).collect(),
            room: self.room,
            first: self.first,
            len: self.len,
            copy: self.copy,
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

/// The row of one sample in a slab, for writing.
#[derive(Debug)]
pub struct Row<'r, 'a> {
    rows: &'r mut Rows<'a>,
    index: usize,
}

impl<'a> Row<'_, 'a> {
    /// The bytes of field `index` of the spec; exactly [`row_bytes`](crate::Field::row_bytes) long.
    ///
    /// # Panics
    /// If the spec has no such field, or it is ragged.
    pub fn bytes_mut(&mut self, index: usize) -> &mut [u8] {
        let field = &self.rows.spec.fields()[index];
        let at = self.index * field.row_bytes();
        match self.rows.fields[index].get_mut(at..at + field.row_bytes()) {
            Some(bytes) => bytes,
            None => panic!("{}", not_fixed(field).message()),
        }
    }

    /// This row as the only one of its rows, to take a part of its fields.
    pub fn as_rows(&mut self) -> Rows<'_> {
        self.rows.part(self.index..self.index + 1)
    }

    /// Copies `bytes` into field `index`, by the fastest copy for this machine.
    ///
    /// # Panics
    /// If the spec has no such field, it is ragged, or `bytes` is not exactly
    /// [`row_bytes`](crate::Field::row_bytes) long.
    pub fn write(&mut self, index: usize, bytes: &[u8]) {
        assert_fills(&self.rows.spec.fields()[index], bytes);
        (self.rows.copy)(self.bytes_mut(index), &[bytes]);
    }

    /// The elements of field `index`.
    ///
    /// # Errors
    /// `Config` when the field has another type or is ragged, or the spec has no such field.
    pub fn field_mut<T: Element>(&mut self, index: usize) -> Result<&mut [T]> {
        let field = typed::<T>(self.rows.spec, index)?;
        let at = self.index * field.row_bytes();
        let bytes = self.rows.fields[index].get_mut(at..at + field.row_bytes());
        // The cast cannot fail: field offsets are 256-byte aligned in the slab, and rows are whole elements.
        bytes.map(bytemuck::cast_slice_mut).ok_or_else(|| not_fixed(field))
    }

    /// All fields of a fixed size of the row, so that several can be borrowed at once.
    ///
    /// ```
    /// use feedline_core::{DType, Layout, Rows, Spec};
    /// let spec = Spec::new().field("image", DType::U8, [4])?.field("label", DType::I64, [])?;
    /// let layout = Layout::new(&spec, 1)?;
    /// let mut slab = vec![0u8; layout.bytes()];
    /// let mut rows = Rows::new(&layout, &mut slab, 1);
    /// let mut row = rows.row(0);
    /// let mut fields = row.split();
    /// let (image, label) = (fields.take::<u8>(0)?, fields.take::<i64>(1)?);
    /// image.fill(3);
    /// label[0] = image.iter().map(|&pixel| i64::from(pixel)).sum();
    /// assert_eq!(row.field_mut::<i64>(1)?, [12]);
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    pub fn split(&mut self) -> RowFields<'_> {
        let spec = self.rows.spec;
        let mut rows = self.rows.fields.iter_mut().zip(spec.fields()).map(|(column, field)| {
            let at = self.index * field.row_bytes();
            column.get_mut(at..at + field.row_bytes())
        });
        RowFields { spec, fields: std::array::from_fn(|_| rows.next().flatten()) }
    }

    /// Writes the row of ragged field `index`: whole items, one behind another.
    ///
    /// Rows are written in order. A row that is written again is replaced, and the rows after it count as not
    /// written.
    ///
    /// # Errors
    /// `Sample` for more items than a sample may have, `Budget` for more than the batch has room for; both
    /// name the field and the limit. `Config` when the field has another type or is not ragged, the spec has
    /// no such field, `values` are not whole items, or the row before is not written.
    pub fn write_ragged<T: Element>(&mut self, index: usize, values: &[T]) -> Result<()> {
        typed::<T>(self.rows.spec, index)?;
        self.write_ragged_bytes(index, bytemuck::cast_slice(values))
    }

    /// Like [`write_ragged`](Self::write_ragged), with the bytes of the elements.
    ///
    /// # Errors
    /// As for [`write_ragged`](Self::write_ragged).
    pub fn write_ragged_bytes(&mut self, index: usize, bytes: &[u8]) -> Result<()> {
        let row = self.rows.first + self.index;
        let field = field_of(self.rows.spec, index)?;
        let item = field.item_bytes();
        if !bytes.len().is_multiple_of(item) {
            let why =
                format!("field \"{}\": {} bytes are not whole items of {item}", field.name(), bytes.len());
            return Err(Error::new(ErrorKind::Config, why));
        }
        let region = self.rows.region(index).ok_or_else(|| not_ragged(field))?;
        region.set_len(row, bytes.len() / item)?.copy_from_slice(bytes);
        Ok(())
    }

    /// Room for the row of ragged field `index`, to decode into without knowing its length: as many whole
    /// items as a sample may have, or as the batch has left. Then [`set_ragged_len`](Self::set_ragged_len)
    /// says how many were written, from the beginning.
    ///
    /// The room may be shorter for the last rows of a batch. What is written must not depend on that: a
    /// sample that does not fit passes the length that it needs, and gets the error.
    ///
    /// ```
    /// # use feedline_core::{DType, Layout, Rows, Spec};
    /// # let layout = Layout::new(&Spec::new().ragged("x", DType::U8, [], 8)?, 1)?;
    /// # let mut slab = vec![0u8; layout.bytes()];
    /// # let mut rows = Rows::new(&layout, &mut slab, 1);
    /// let mut row = rows.row(0);
    /// let room = row.ragged_mut::<u8>(0)?;
    /// room[..3].copy_from_slice(b"abc"); // a decoder writes here
    /// row.set_ragged_len(0, 3)?;
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` when the field has another type or is not ragged, the spec has no such field, or the row
    /// before is not written.
    pub fn ragged_mut<T: Element>(&mut self, index: usize) -> Result<&mut [T]> {
        let row = self.rows.first + self.index;
        let field = typed::<T>(self.rows.spec, index)?;
        let space = self.rows.region(index).ok_or_else(|| not_ragged(field))?.space(row)?;
        // The cast cannot fail, as in `field_mut`.
        Ok(bytemuck::cast_slice_mut(space))
    }

    /// The row of ragged field `index` has the first `items` items of [`ragged_mut`](Self::ragged_mut).
    ///
    /// # Errors
    /// As for [`write_ragged`](Self::write_ragged).
    pub fn set_ragged_len(&mut self, index: usize, items: usize) -> Result<()> {
        let row = self.rows.first + self.index;
        let field = field_of(self.rows.spec, index)?;
        self.rows.region(index).ok_or_else(|| not_ragged(field))?.set_len(row, items).map(drop)
    }

    /// Like [`Rows::check_written`], for this row.
    ///
    /// # Errors
    /// `Sample` when a ragged field was not written.
    pub fn check_written(&mut self) -> Result<()> {
        self.rows.check_rows(self.index..self.index + 1).map_err(|(_, error)| error)
    }

    /// Like [`Rows::poison`], for this row. In any build, its ragged fields then count as not written.
    #[doc(hidden)] // For the workers.
    pub fn poison(&mut self) {
        for index in 0..self.rows.spec.fields().len() {
            let row = self.rows.first + self.index;
            if let Some(mut region) = self.rows.region(index) {
                region.forget(row);
            } else if cfg!(debug_assertions) {
                self.bytes_mut(index).fill(POISON);
            }
        }
    }

    /// Sets every byte of the row to zero; a ragged field gets no items.
    pub fn clear(&mut self) {
        for index in 0..self.rows.spec.fields().len() {
            let row = self.rows.first + self.index;
            match self.rows.region(index) {
                // Fails where the row before is not written, which is found later.
                Some(region) => drop(region.set_len(row, 0)),
                None => self.bytes_mut(index).fill(0),
            }
        }
    }

    /// The fields of a sample.
    pub fn spec(&self) -> &Spec {
        self.rows.spec
    }
}

/// The fields of one row, each to be taken once; created by [`Row::split`].
#[derive(Debug)]
pub struct RowFields<'r> {
    spec: &'r Spec,
    /// `None` for a field that was taken. An array, not an `ArrayVec`, whose drop would prolong the borrow.
    fields: [Option<&'r mut [u8]>; MAX_FIELDS],
}

impl<'r> RowFields<'r> {
    /// The elements of field `index`.
    ///
    /// # Errors
    /// `Config` when the field has another type, is ragged or was taken before, or the spec has no such
    /// field.
    pub fn take<T: Element>(&mut self, index: usize) -> Result<&'r mut [T]> {
        let field = typed::<T>(self.spec, index)?;
        if field.as_ragged().is_some() {
            return Err(not_fixed(field));
        }
        let Some(bytes) = self.fields[index].take() else {
            let why = format!("field \"{}\" was taken before: take each field once", field.name());
            return Err(Error::new(ErrorKind::Config, why));
        };
        // Cannot fail, as in `Row::field_mut`.
        Ok(bytemuck::cast_slice_mut(bytes))
    }
}

/// Field `index` of `spec`.
fn field_of(spec: &Spec, index: usize) -> Result<&Field> {
    let fields = spec.fields();
    fields.get(index).ok_or_else(|| {
        let why = format!("there is no field {index}: the spec has {}", fields.len());
        Error::new(ErrorKind::Config, why)
    })
}

/// Field `index` of `spec`, if its elements are of type `T`.
fn typed<T: Element>(spec: &Spec, index: usize) -> Result<&Field> {
    let field = field_of(spec, index)?;
    if field.dtype() == T::DTYPE {
        return Ok(field);
    }
    let why = format!("field \"{}\" is {}, not {}", field.name(), field.dtype(), T::DTYPE);
    Err(Error::new(ErrorKind::Config, why))
}

/// The error for a ragged field where one of a fixed size is needed.
#[cold]
fn not_fixed(field: &Field) -> Error {
    let why = format!("field \"{}\" is ragged: write it by write_ragged", field.name());
    Error::new(ErrorKind::Config, why)
}

/// The error for a field of a fixed size where a ragged one is needed.
#[cold]
fn not_ragged(field: &Field) -> Error {
    let why = format!("field \"{}\" is not ragged: write it by field_mut or write", field.name());
    Error::new(ErrorKind::Config, why)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ragged::Extent;
    use crate::{DType, Pad};

    /// Two ragged fields around one of a fixed size, for four rows.
    fn ragged() -> Layout {
        let spec = Spec::new().ragged("a", DType::U16, [2], 3).unwrap().field("b", DType::U8, []).unwrap();
        let spec = spec.ragged("c", DType::U8, [], 100).unwrap();
        Layout::new(&spec.most_per_batch("c", 100).unwrap(), 4).unwrap()
    }

    #[test]
    fn ragged_rows_lie_one_behind_another() {
        let layout = ragged();
        let mut slab = vec![0xC5; layout.bytes()];
        let mut rows = Rows::new(&layout, &mut slab, 3);
        rows.poison();
        for index in 0..3 {
            let mut row = rows.row(index);
            row.write_ragged::<u16>(0, &[7 + index as u16; 6][..2 * index]).unwrap();
            row.field_mut::<u8>(1).unwrap()[0] = index as u8;
            row.ragged_mut::<u8>(2).unwrap()[..2].copy_from_slice(&[index as u8; 2]);
            row.set_ragged_len(2, 2).unwrap();
        }
        assert!(rows.check_written().is_ok());
        drop(rows);
        let offsets =
            |index: usize| slab[layout.offset(index)..].chunks(4).take(4).map(|at| at[0]).collect::<Vec<_>>();
        assert_eq!((offsets(0), offsets(2)), (vec![0, 0, 1, 3], vec![0, 2, 4, 6]));
        let values = [8u16, 8, 9, 9, 9, 9].map(u16::to_ne_bytes).concat();
        assert_eq!((layout.offset(1), &slab[layout.values(0)][..12]), (0, &values[..]));
        assert_eq!((&slab[layout.values(2)][..6], &slab[..3]), (&[0, 0, 1, 1, 2, 2][..], &[0, 1, 2][..]));
        assert_eq!(layout.row_values(&slab, 2, 1), [1, 1]);

        let mut extents = Vec::new();
        layout.finish(&mut slab, 3, &mut extents).unwrap();
        assert_eq!(extents, [(3, 0), (6, 0)].map(|(items, padding)| Extent { items, padding }));
        let (first, second) = (layout.values(0).start + 12, layout.values(2).start + 6);
        assert_eq!(layout.used(3, &extents)[..], [0..first, layout.offset(2)..second]);
        assert!(layout.bytes() >= layout.values(2).end);
    }

    #[test]
    fn ragged_rows_are_written_in_order_and_may_be_written_again() {
        let layout = ragged();
        let mut slab = vec![0; layout.bytes()];
        let mut rows = Rows::new(&layout, &mut slab, 4);
        let error = rows.row(1).write_ragged(2, &[1u8]).unwrap_err();
        assert!(error.message().contains("row 1 cannot be written before row 0"), "{error}");
        for index in 0..3 {
            rows.row(index).write_ragged(2, &[index as u8; 30]).unwrap();
        }
        rows.row(1).write_ragged(2, &[9u8; 3]).unwrap();
        assert!(rows.row(3).write_ragged(2, &[3u8]).is_err(), "row 2 is to be written again");
        rows.row(2).write_ragged(2, &[8u8]).unwrap();
        let unwritten =
            |rows: &mut Rows<'_>| rows.check_written().map_err(|(row, error)| (row, error.to_string()));
        let not = |row, name: &str| {
            Err((row, format!("ragged field \"{name}\" was not written, not even as empty")))
        };
        assert_eq!(unwritten(&mut rows), not(0, "a"));
        (0..4).for_each(|index| rows.row(index).write_ragged::<u16>(0, &[]).unwrap());
        assert_eq!(unwritten(&mut rows), not(3, "c"));
        assert!(rows.row(2).check_written().is_ok() && rows.row(3).check_written().is_err());
        rows.row(2).poison();
        assert_eq!(unwritten(&mut rows), not(2, "a"), "in any build");
        rows.row(2).clear();
        rows.row(3).clear();
        assert_eq!(unwritten(&mut rows), Ok(()));
        drop(rows);
        assert_eq!(slab[layout.values(2)][..33], [vec![0; 30], vec![9; 3]].concat());
    }

    #[test]
    fn items_beyond_a_limit_are_refused_with_field_and_limit() {
        let layout = ragged();
        let mut slab = vec![0; layout.bytes()];
        let mut rows = Rows::new(&layout, &mut slab, 4);
        let error = rows.row(0).write_ragged(0, &[0u16; 8]).unwrap_err();
        let message = error.message();
        assert_eq!(error.kind(), ErrorKind::Sample);
        assert!(message.contains("\"a\" has 4 items") && message.contains("at most 3 per sample"), "{error}");
        rows.row(0).write_ragged(2, &[0u8; 60]).unwrap();
        assert_eq!(rows.row(1).ragged_mut::<u8>(2).unwrap().len(), 40, "what the batch has left");
        let error = rows.row(1).write_ragged(2, &[0u8; 41]).unwrap_err();
        let message = error.message();
        assert_eq!(error.kind(), ErrorKind::Budget);
        assert!(message.contains("\"c\"") && message.contains("at most 100 per batch"), "{error}");
        rows.row(1).write_ragged(2, &[0u8; 40]).unwrap();

        let mut row = rows.row(0);
        for error in [
            row.write_ragged(0, &[0u16; 3]).unwrap_err(),
            row.write_ragged(0, &[0u8; 4]).unwrap_err(),
            row.write_ragged(1, &[0u8]).unwrap_err(),
            row.write_ragged(3, &[0u8]).unwrap_err(),
            row.field_mut::<u16>(0).map(drop).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        }
    }

    #[test]
    #[should_panic(expected = "field \"a\" is ragged")]
    fn a_ragged_field_has_no_bytes_of_a_fixed_size() {
        let layout = ragged();
        Rows::new(&layout, &mut vec![0; layout.bytes()], 1).row(0).bytes_mut(0);
    }

    #[test]
    fn padded_rows_have_one_width_and_their_lengths() {
        let spec = |pad| Spec::new().ragged("x", DType::U16, [], 5).unwrap().padded("x", pad).unwrap();
        for (pad, width, rest) in
            [(Pad::longest(), 4, 0), (Pad::multiple_of(3), 6, 0), (Pad::multiple_of(8).with(9u16), 8, 9)]
        {
            let layout = Layout::new(&spec(pad), 4).unwrap();
            let mut slab = vec![0xC5; layout.bytes()];
            let mut rows = Rows::new(&layout, &mut slab, 3);
            let lengths = [2, 0, 4];
            for (index, &len) in lengths.iter().enumerate() {
                rows.row(index).write_ragged(0, &[1u16, 2, 3, 4][..len]).unwrap();
            }
            drop(rows);
            let mut extents = Vec::new();
            layout.finish(&mut slab, 3, &mut extents).unwrap();
            assert_eq!(extents, [Extent { items: 3 * width, padding: 3 * width - 6 }]);
            let got: Vec<u16> =
                slab[layout.values(0)].chunks(2).map(|at| u16::from_ne_bytes([at[0], at[1]])).collect();
            for (row, len) in got.chunks(width).zip(lengths) {
                let want: Vec<u16> =
                    (0..width).map(|at| if at < len { at as u16 + 1 } else { rest }).collect();
                assert_eq!(row, want);
            }
            assert_eq!(slab[..12], [2u32, 0, 4].map(u32::to_ne_bytes).concat());
        }
    }

    #[test]
    fn padded_rows_beyond_the_batch_are_refused_with_the_longest_row() {
        let spec = Spec::new().ragged("x", DType::U8, [], 5).unwrap();
        let spec = spec.padded("x", Pad::longest()).unwrap().most_per_batch("x", 7).unwrap();
        let layout = Layout::new(&spec, 4).unwrap();
        let mut slab = vec![0; layout.bytes()];
        let mut rows = Rows::new(&layout, &mut slab, 2);
        rows.row(0).write_ragged(0, &[0u8; 1]).unwrap();
        rows.row(1).write_ragged(0, &[0u8; 4]).unwrap();
        drop(rows);
        let (row, error) = layout.finish(&mut slab, 2, &mut Vec::new()).unwrap_err();
        assert_eq!((row, error.kind()), (1, ErrorKind::Budget));
        assert!(error.message().contains("2 rows padded to 4 items are 8, but at most 7"), "{error}");
    }

    #[test]
    fn cumulative_values_are_the_sums_of_all_rows() {
        let layout = Layout::new(&Spec::new().cumulative("x", 2).unwrap(), 2).unwrap();
        let finish = |lengths: [&[u32]; 2]| {
            let mut slab = vec![0; layout.bytes()];
            let mut rows = Rows::new(&layout, &mut slab, 2);
            lengths.iter().enumerate().for_each(|(row, lengths)| {
                rows.row(row).write_ragged(0, lengths).unwrap();
            });
            drop(rows);
            let mut extents = Vec::new();
            layout.finish(&mut slab, 2, &mut extents).map_err(|(_, error)| error.kind())?;
            let values = &slab[layout.values(0)][..4 * extents[0].items];
            Ok(values.chunks(4).map(|at| u32::from_ne_bytes(at.try_into().unwrap())).collect::<Vec<_>>())
        };
        assert_eq!(finish([&[3, 4], &[5, 6]]), Ok(vec![0, 3, 7, 12, 18]));
        assert_eq!(finish([&[], &[]]), Ok(vec![0]));
        assert_eq!(finish([&[1 << 30], &[1 << 30]]), Err(ErrorKind::Budget));
    }

    fn layout() -> Layout {
        let spec = Spec::new().field("a", DType::U8, [3]).unwrap().field("b", DType::U8, []).unwrap();
        Layout::new(&spec, 100).unwrap()
    }

    #[test]
    fn write_copies_any_number_of_rows_to_their_places() {
        let layout = layout();
        for len in [0, 1, AT_ONCE - 1, AT_ONCE, AT_ONCE + 1, 100] {
            let mut slab = vec![0xC5; layout.bytes()];
            let bytes: Vec<u8> = (0..3 * len as u32).map(|at| at as u8).collect();
            let (_, mut rows) = Rows::new(&layout, &mut slab, 100).split_at(100 - len);
            rows.write(0, bytes.chunks_exact(3));
            assert_eq!(rows.column_mut(0), bytes);
            drop(rows);
            assert!(slab[..3 * (100 - len)].iter().chain(&slab[300..]).all(|&byte| byte == 0xC5));
        }
    }

    #[test]
    fn every_part_of_a_batch_uses_the_chosen_copy() {
        fn backwards(to: &mut [u8], rows: &[&[u8]]) {
            to.copy_from_slice(&rows.concat());
            to.reverse();
        }
        let layout = layout();
        let mut slab = vec![0; layout.bytes()];
        let (mut left, mut right) = Rows::new(&layout, &mut slab, 2).copied_by(backwards).split_at(1);
        left.row(0).write(0, &[1, 2, 3]);
        right.write(0, [&[4, 5, 6][..]]);
        drop((left, right));
        assert_eq!(slab[..6], [3, 2, 1, 6, 5, 4]);
    }

    #[test]
    #[should_panic(expected = "wrong row length")]
    fn write_of_rows_panics_on_a_wrong_length() {
        let layout = layout();
        Rows::new(&layout, &mut vec![0; layout.bytes()], 2).write(0, [&[1, 2][..], &[3, 4, 5, 6][..]]);
    }

    #[test]
    #[should_panic(expected = "field \"a\" has 3 bytes per row, but the row has 2")]
    fn write_of_a_row_panics_on_too_few_bytes() {
        let layout = layout();
        Rows::new(&layout, &mut vec![0; layout.bytes()], 2).row(0).write(0, &[1, 2]);
    }

    #[test]
    #[should_panic(expected = "field \"a\" has 3 bytes per row, but the row has 4")]
    fn write_of_a_row_panics_on_too_many_bytes() {
        let layout = layout();
        Rows::new(&layout, &mut vec![0; layout.bytes()], 2).row(0).write(0, &[1, 2, 3, 4]);
    }

    #[test]
    fn split_gives_every_field_of_the_row_once() {
        let layout = layout();
        let mut slab = vec![0; layout.bytes()];
        let mut rows = Rows::new(&layout, &mut slab, 3);
        let mut row = rows.row(1);
        let mut fields = row.split();
        let (b, a) = (fields.take::<u8>(1).unwrap(), fields.take::<u8>(0).unwrap());
        a.copy_from_slice(&[1, 2, 3]);
        b[0] = a[2] + 1;
        let error = fields.take::<u8>(0).unwrap_err();
        assert_eq!(error.message(), "field \"a\" was taken before: take each field once");
        assert_eq!(fields.take::<u8>(2).unwrap_err().message(), "there is no field 2: the spec has 2");
        assert_eq!(fields.take::<i8>(1).unwrap_err().message(), "field \"b\" is u8, not i8");
        drop(rows);
        assert_eq!((&slab[..9], &slab[512..515]), (&[0, 0, 0, 1, 2, 3, 0, 0, 0][..], &[0, 4, 0][..]));
    }

    #[test]
    fn field_mut_rejects_a_missing_field_and_a_wrong_type() {
        let layout = layout();
        let mut slab = vec![0; layout.bytes()];
        let mut rows = Rows::new(&layout, &mut slab, 2);
        let error = rows.row(0).field_mut::<u8>(2).unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::Config, "there is no field 2: the spec has 2")
        );
        let error = rows.row(0).field_mut::<i8>(1).unwrap_err();
        assert_eq!(error.message(), "field \"b\" is u8, not i8");
    }
}
