//! The rows of a batch while they are written: disjoint slices of one slab, split over workers without a copy.

use arrayvec::ArrayVec;

use crate::spec::MAX_FIELDS;
use crate::{Element, Error, ErrorKind, Layout, Result, Spec};

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
        Self { spec: layout.spec(), fields, first: 0, len }
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
            Self { spec: self.spec, fields: left, first: self.first, len: mid },
            Self { spec: self.spec, fields: right, first: self.first + mid, len: self.len - mid },
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

    /// The elements of field `index`.
    ///
    /// # Errors
    /// `Config` when the field is of another type.
    ///
    /// # Panics
    /// When the spec has no such field.
    pub fn field_mut<T: Element>(&mut self, index: usize) -> Result<&mut [T]> {
        let field = &self.rows.spec.fields()[index];
        if field.dtype() != T::DTYPE {
            return Err(Error::new(
                ErrorKind::Config,
                format!("field \"{}\" is {}, not {}", field.name(), field.dtype(), T::DTYPE),
            ));
        }
        // Cannot fail: field offsets are 256-byte aligned in the slab, and rows are whole elements.
        Ok(bytemuck::cast_slice_mut(self.bytes_mut(index)))
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
