//! Write access to the rows of a batch: disjoint slices of one slab, which can be split over workers without
//! a copy.

use arrayvec::ArrayVec;

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
    fields: ArrayVec<&'a mut [u8], MAX_FIELDS>,
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
        let mut fields = ArrayVec::new();
        let mut rest = slab;
        let mut start = 0;
        for (index, field) in layout.spec().fields().iter().enumerate() {
            let (_, from_field) = rest.split_at_mut(layout.offset(index) - start);
            let (bytes, after) = from_field.split_at_mut(field.row_bytes() * len);
            start = layout.offset(index) + bytes.len();
            fields.push(bytes);
            rest = after;
        }
        Self { spec: layout.spec(), fields, first: 0, len, copy: copy_plainly }
    }

    /// Rows `first..first + len` of a batch, from one column of bytes per field of `spec`.
    ///
    /// # Panics
    /// If there is not exactly one column per field, of exactly `len` rows.
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
        Self { spec, fields, first, len, copy: copy_plainly }
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
        }
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
    /// If `mid` is larger than [`len`](Self::len).
    #[doc(hidden)] // For the workers.
    pub fn split_at(self, mid: usize) -> (Self, Self) {
        assert!(mid <= self.len, "split at {mid} of {} rows", self.len);
        let (mut left, mut right) = (ArrayVec::new(), ArrayVec::new());
        for (bytes, field) in self.fields.into_iter().zip(self.spec.fields()) {
            let (l, r) = bytes.split_at_mut(mid * field.row_bytes());
            left.push(l);
            right.push(r);
        }
        (
            Self { fields: left, len: mid, ..self },
            Self { fields: right, first: self.first + mid, len: self.len - mid, ..self },
        )
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
    /// [`row_bytes`](crate::Field::row_bytes) long.
    pub fn write<'b>(&mut self, index: usize, rows: impl IntoIterator<Item = &'b [u8]>) {
        let field = &self.spec.fields()[index];
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

    /// All bytes of field `index`, row after row; for data sets that read many rows at once.
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

impl Row<'_, '_> {
    /// The bytes of field `index` of the spec; exactly [`row_bytes`](crate::Field::row_bytes) long.
    ///
    /// # Panics
    /// If the spec has no such field.
    pub fn bytes_mut(&mut self, index: usize) -> &mut [u8] {
        let bytes = self.rows.spec.fields()[index].row_bytes();
        &mut self.rows.fields[index][self.index * bytes..][..bytes]
    }

    /// Copies `bytes` into field `index`, by the fastest copy for this machine.
    ///
    /// # Panics
    /// If the spec has no such field, or `bytes` is not exactly [`row_bytes`](crate::Field::row_bytes) long.
    pub fn write(&mut self, index: usize, bytes: &[u8]) {
        assert_fills(&self.rows.spec.fields()[index], bytes);
        (self.rows.copy)(self.bytes_mut(index), &[bytes]);
    }

    /// The elements of field `index`.
    ///
    /// # Errors
    /// `Config` when the field has another type, or the spec has no such field.
    pub fn field_mut<T: Element>(&mut self, index: usize) -> Result<&mut [T]> {
        field_of::<T>(self.rows.spec, index)?;
        // Cannot fail: field offsets are 256-byte aligned in the slab, and rows are whole elements.
        Ok(bytemuck::cast_slice_mut(self.bytes_mut(index)))
    }

    /// All fields of the row, so that several can be borrowed at once.
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
            let bytes = field.row_bytes();
            &mut column[self.index * bytes..][..bytes]
        });
        RowFields { spec, fields: std::array::from_fn(|_| rows.next()) }
    }

    /// Like [`Rows::poison`], for this row.
    #[doc(hidden)] // For the workers.
    pub fn poison(&mut self) {
        if cfg!(debug_assertions) {
            for index in 0..self.rows.spec.fields().len() {
                self.bytes_mut(index).fill(POISON);
            }
        }
    }

    /// Sets every byte of the row to zero.
    pub fn clear(&mut self) {
        for index in 0..self.rows.spec.fields().len() {
            self.bytes_mut(index).fill(0);
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
    /// `Config` when the field has another type or was taken before, or the spec has no such field.
    pub fn take<T: Element>(&mut self, index: usize) -> Result<&'r mut [T]> {
        let field = field_of::<T>(self.spec, index)?;
        let Some(bytes) = self.fields[index].take() else {
            let why = format!("field \"{}\" was taken before: take each field once", field.name());
            return Err(Error::new(ErrorKind::Config, why));
        };
        // Cannot fail, as in `Row::field_mut`.
        Ok(bytemuck::cast_slice_mut(bytes))
    }
}

/// Field `index` of `spec`, if its elements are of type `T`.
fn field_of<T: Element>(spec: &Spec, index: usize) -> Result<&Field> {
    let fields = spec.fields();
    let Some(field) = fields.get(index) else {
        let why = format!("there is no field {index}: the spec has {}", fields.len());
        return Err(Error::new(ErrorKind::Config, why));
    };
    if field.dtype() != T::DTYPE {
        let why = format!("field \"{}\" is {}, not {}", field.name(), field.dtype(), T::DTYPE);
        return Err(Error::new(ErrorKind::Config, why));
    }
    Ok(field)
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
    use crate::DType;

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
