//! The rows of a batch while they are written: disjoint slices of one slab, split over workers without a copy.

use arrayvec::ArrayVec;

use crate::spec::MAX_FIELDS;
use crate::{Element, Error, ErrorKind, Field, Layout, Result, Spec};

/// Copies rows to a place, one after the other; as long as the place, all together.
pub type CopyRows = fn(to: &mut [u8], rows: &[&[u8]]);

/// What rows are filled with before a read, in debug builds.
const POISON: u8 = 0xFF;

/// How many rows are given to a [`CopyRows`] at once, at most.
const AT_ONCE: usize = 32;

/// A run of neighbouring rows of a slab, open for writing.
///
/// Split it to hand parts to workers; no two parts share a byte.
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
    /// When `slab` is smaller than the layout or `len` larger than its capacity.
    pub fn new(layout: &'a Layout, slab: &'a mut [u8], len: usize) -> Self {
        assert!(len <= layout.capacity(), "{len} rows in a layout of {}", layout.capacity());
        assert!(slab.len() >= layout.bytes(), "slab of {} bytes for {}", slab.len(), layout.bytes());
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

    /// `len` rows of a batch, from row `first` on, given as one column of bytes for each field of `spec`.
    ///
    /// # Panics
    /// When the columns are not exactly `len` rows of each field.
    pub fn from_columns(
        spec: &'a Spec,
        columns: impl IntoIterator<Item = &'a mut [u8]>,
        first: usize,
        len: usize,
    ) -> Self {
        let fields: ArrayVec<_, MAX_FIELDS> = columns.into_iter().collect();
        let bytes = spec.fields().iter().map(|field| field.row_bytes() * len);
        assert!(fields.iter().map(|column| column.len()).eq(bytes), "a column of {len} rows for each field");
        Self { spec, fields, first, len, copy: copy_plainly }
    }

    /// With another way for [`write`](Self::write) to copy, such as one that goes past the caches.
    pub fn copied_by(self, copy: CopyRows) -> Self {
        Self { copy, ..self }
    }

    /// In debug builds sets every byte to 0xFF, which is NaN in every float type and -1 in every signed one;
    /// in release builds does nothing.
    ///
    /// Rows are recycled: a part that [`read`](crate::Dataset::read) leaves out would hold bytes of an older
    /// sample. With this it shows in tests; [`check_dataset`](crate::check_dataset) finds it in any build.
    pub fn poison(&mut self) {
        if cfg!(debug_assertions) {
            self.fields.iter_mut().for_each(|bytes| bytes.fill(POISON));
        }
    }

    /// Rows in this run.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the run is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The position in the batch of this run's first row.
    pub fn first(&self) -> usize {
        self.first
    }

    /// Two runs: the first `mid` rows, and the others.
    ///
    /// # Panics
    /// When `mid` is larger than [`len`](Self::len).
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

    /// Row `index` of this run.
    ///
    /// # Panics
    /// When `index` is not below [`len`](Self::len).
    pub fn row(&mut self, index: usize) -> Row<'_, 'a> {
        assert!(index < self.len, "row {index} of {}", self.len);
        Row { rows: self, index }
    }

    /// Fills field `index` of the first rows of this run with bytes that lie ready, one item a row.
    ///
    /// The fastest way for a [`read_many`](crate::Dataset::read_many) that copies: what comes next is fetched meanwhile, and
    /// long rows do not go through the caches.
    ///
    /// # Panics
    /// When the spec has no such field, there are more items than rows, or one is not exactly
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

    /// All bytes of field `index` of this run, rows one after the other; for data sets that read many rows at once.
    pub fn column_mut(&mut self, index: usize) -> &mut [u8] {
        self.fields[index]
    }

    /// What a sample is.
    pub fn spec(&self) -> &'a Spec {
        self.spec
    }
}

/// The place of one sample in a slab.
#[derive(Debug)]
pub struct Row<'r, 'a> {
    rows: &'r mut Rows<'a>,
    index: usize,
}

impl Row<'_, '_> {
    /// The bytes of field `index`, in the order of the spec; exactly [`row_bytes`](crate::Field::row_bytes) long.
    ///
    /// # Panics
    /// When the spec has no such field.
    pub fn bytes_mut(&mut self, index: usize) -> &mut [u8] {
        let bytes = self.rows.spec.fields()[index].row_bytes();
        &mut self.rows.fields[index][self.index * bytes..][..bytes]
    }

    /// Fills field `index` with `bytes` that lie ready, by the fastest copy this machine has.
    ///
    /// # Panics
    /// When the spec has no such field, or `bytes` are not exactly [`row_bytes`](crate::Field::row_bytes) long.
    pub fn write(&mut self, index: usize, bytes: &[u8]) {
        assert_fills(&self.rows.spec.fields()[index], bytes);
        (self.rows.copy)(self.bytes_mut(index), &[bytes]);
    }

    /// The elements of field `index`.
    ///
    /// # Errors
    /// `Config` when the field is of another type, or the spec has no such field.
    pub fn field_mut<T: Element>(&mut self, index: usize) -> Result<&mut [T]> {
        let fields = self.rows.spec.fields();
        let Some(field) = fields.get(index) else {
            let why = format!("there is no field {index}: the spec has {}", fields.len());
            return Err(Error::new(ErrorKind::Config, why));
        };
        if field.dtype() != T::DTYPE {
            return Err(Error::new(
                ErrorKind::Config,
                format!("field \"{}\" is {}, not {}", field.name(), field.dtype(), T::DTYPE),
            ));
        }
        // Cannot fail: field offsets are 256-byte aligned in the slab, and rows are whole elements.
        Ok(bytemuck::cast_slice_mut(self.bytes_mut(index)))
    }

    /// Does what [`Rows::poison`] does, to this row.
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

    /// What a sample is.
    pub fn spec(&self) -> &Spec {
        self.rows.spec
    }
}

/// Refuses bytes that are not exactly one row of `field`.
fn assert_fills(field: &Field, bytes: &[u8]) {
    let (wanted, given) = (field.row_bytes(), bytes.len());
    assert!(
        given == wanted,
        "bytes of a row: field \"{}\" has {wanted} bytes per row, {given} were given",
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
    assert!(rest.is_empty(), "{} bytes more than the rows have", rest.len());
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
    fn rows_are_written_where_they_belong_by_any_number_at_once() {
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
    fn every_part_of_a_batch_copies_by_what_was_asked_for() {
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
    #[should_panic(expected = "bytes of a row")]
    fn a_row_of_another_length_is_refused() {
        let layout = layout();
        Rows::new(&layout, &mut vec![0; layout.bytes()], 2).write(0, [&[1, 2][..], &[3, 4, 5, 6][..]]);
    }

    #[test]
    #[should_panic(expected = "field \"a\" has 3 bytes per row, 2 were given")]
    fn bytes_that_do_not_fill_their_row_are_refused() {
        let layout = layout();
        Rows::new(&layout, &mut vec![0; layout.bytes()], 2).row(0).write(0, &[1, 2]);
    }

    #[test]
    #[should_panic(expected = "field \"a\" has 3 bytes per row, 4 were given")]
    fn bytes_that_are_too_many_for_their_row_are_refused() {
        let layout = layout();
        Rows::new(&layout, &mut vec![0; layout.bytes()], 2).row(0).write(0, &[1, 2, 3, 4]);
    }

    #[test]
    fn elements_of_a_field_that_does_not_exist_are_an_error() {
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
