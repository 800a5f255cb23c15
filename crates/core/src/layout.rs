//! The memory layout of a batch: one slab with every field at an aligned offset.
//!
//! One slab needs one copy per batch, and one more for each ragged field after the first. 256-byte alignment
//! suits every GPU load width and is best for cuBLAS.

use std::ops::Range;

use arrayvec::ArrayVec;

use crate::ragged::Extent;
use crate::region::{OFFSET_BYTES, Region, Room, read};
use crate::spec::MAX_FIELDS;
use crate::{Error, ErrorKind, Field, Result, Spec};

/// Alignment of every field, in bytes.
pub const ALIGN: usize = 256;

/// The offsets of a batch's fields in a slab of [`bytes`](Self::bytes) bytes.
///
/// Fields of one size come first, in the order of the spec, then ragged fields, each with its offsets before
/// its values. So a batch is one copy, and one more for each ragged field after the first.
///
/// ```
/// use feedline_core::{DType, Layout, Spec};
/// let spec = Spec::new().field("image", DType::U8, [28, 28])?.field("label", DType::U8, [])?;
/// let layout = Layout::new(&spec, 128)?;
/// assert_eq!((layout.offset(0), layout.offset(1), layout.bytes()), (0, 100_352, 100_608));
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    spec: Spec,
    capacity: usize,
    offsets: Vec<usize>,
    bytes: usize,
    /// The indices of the ragged fields.
    ragged: ArrayVec<usize, MAX_FIELDS>,
    /// The last field of fixed size.
    last: Option<usize>,
}

impl Layout {
    /// The layout of batches of up to `capacity` samples of `spec`.
    ///
    /// # Errors
    /// `Config` for a spec without fields, a capacity of zero, a batch larger than the address space, or a
    /// ragged field whose batch may have 2^31 items or more.
    pub fn new(spec: &Spec, capacity: usize) -> Result<Self> {
        if spec.fields().is_empty() {
            return Err(Error::new(ErrorKind::Config, "the spec has no fields: add at least one"));
        }
        spec.check_closed()?;
        if capacity == 0 {
            return Err(Error::new(ErrorKind::Config, "batch size is 0: it must be at least 1"));
        }
        let (ragged, fixed): (Vec<usize>, Vec<usize>) =
            (0..spec.fields().len()).partition(|&index| spec.fields()[index].as_ragged().is_some());
        let mut offsets = vec![0; spec.fields().len()];
        let mut end = 0usize;
        for &index in fixed.iter().chain(&ragged) {
            offsets[index] = end;
            end = region_bytes(&spec.fields()[index], capacity)?
                .and_then(|bytes| bytes.checked_add(end))
                .and_then(|end| end.checked_next_multiple_of(ALIGN))
                .filter(|&end| end <= isize::MAX as usize)
                .ok_or_else(|| too_large(&spec.fields()[index], capacity))?;
        }
        let (ragged, last) = (ragged.into_iter().collect(), fixed.last().copied());
        Ok(Self { spec: spec.clone(), capacity, offsets, bytes: end, ragged, last })
    }

    /// The fields.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Maximum number of samples in a batch.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes of the slab, a multiple of [`ALIGN`].
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Byte offset of field `index` in the slab; for a ragged field, of its offsets or lengths.
    pub fn offset(&self, index: usize) -> usize {
        self.offsets[index]
    }

    /// The number of leading bytes of the slab that the fields of fixed size use in a batch of `rows`
    /// samples, and that must be copied.
    ///
    /// # Panics
    /// If `rows` is larger than [`capacity`](Self::capacity).
    pub fn used_bytes(&self, rows: usize) -> usize {
        assert!(rows <= self.capacity, "{rows} rows in a layout of {}", self.capacity);
        self.last.map_or(0, |last| self.offsets[last] + self.spec.fields()[last].row_bytes() * rows)
    }

    /// Whether a field is ragged.
    pub fn is_ragged(&self) -> bool {
        !self.ragged.is_empty()
    }

    /// The index of field `index` among the ragged fields, which is also the index of its [`Extent`].
    pub fn ragged_place(&self, index: usize) -> Option<usize> {
        self.ragged.iter().position(|&ragged| ragged == index)
    }

    /// The bytes of the slab that hold the values of ragged field `index`.
    ///
    /// # Panics
    /// If there is no such field, or it is not ragged.
    pub fn values(&self, index: usize) -> Range<usize> {
        let field = &self.spec.fields()[index];
        let room = field.as_ragged().and_then(|ragged| ragged.room(self.capacity));
        let Some(room) = room else { panic!("field \"{}\" is not ragged", field.name()) };
        let first = self.offsets[index] + offsets_bytes(self.capacity);
        first..first + room * field.item_bytes()
    }

    /// The bytes of row `row` of ragged field `index` in `slab`, as `read` wrote them: before
    /// [`finish`](Self::finish), or after it if the form is [`Form::Rows`](crate::ragged::Form::Rows).
    ///
    /// # Panics
    /// If there is no such row or field, the field is not ragged, or the row is not written.
    pub fn row_values<'s>(&self, slab: &'s [u8], index: usize, row: usize) -> &'s [u8] {
        let offsets = &slab[self.offsets[index]..][..offsets_bytes(self.capacity)];
        let item = self.spec.fields()[index].item_bytes();
        let [start, end] = [row, row + 1].map(|row| read(offsets, row) as usize * item);
        &slab[self.values(index)][start..end]
    }

    /// Converts the ragged fields of a batch to their forms, once all `rows` rows are written, and replaces
    /// `extents` by the extent of each. Without ragged fields it only clears `extents`.
    ///
    /// # Errors
    /// `Budget` for rows that do not fit once they are padded, with the row.
    ///
    /// # Panics
    /// If `rows` is larger than [`capacity`](Self::capacity), or `slab` smaller than the layout.
    pub fn finish(
        &self,
        slab: &mut [u8],
        rows: usize,
        extents: &mut Vec<Extent>,
    ) -> Result<(), (usize, Error)> {
        extents.clear();
        for &index in &self.ragged {
            let place = self.offsets[index]..self.values(index).end;
            let mut region = Region::new(&self.spec.fields()[index], &mut slab[place], self.room(rows));
            extents.push(region.finish()?);
        }
        Ok(())
    }

    /// The parts of the slab that hold a batch of `rows` samples, which must be copied; `extents` are the
    /// result of [`finish`](Self::finish).
    ///
    /// # Panics
    /// If `rows` is larger than [`capacity`](Self::capacity).
    pub fn used(&self, rows: usize, extents: &[Extent]) -> ArrayVec<Range<usize>, MAX_FIELDS> {
        let mut parts = ArrayVec::new();
        let mut first = 0;
        for (&index, extent) in self.ragged.iter().zip(extents) {
            let values = self.values(index);
            let end = values.start + extent.items * self.spec.fields()[index].item_bytes();
            // The first ragged field is copied with the fields of fixed size, which lie before it.
            parts.push(first..end.min(values.end));
            first = self.ragged.get(parts.len()).map_or(self.bytes, |&next| self.offsets[next]);
        }
        if parts.is_empty() {
            parts.push(0..self.used_bytes(rows));
        }
        parts
    }

    /// The parameters that all regions of a batch of `rows` rows share.
    pub(crate) fn room(&self, rows: usize) -> Room {
        Room { values_at: offsets_bytes(self.capacity), rows }
    }

    /// The fields in the order of their offsets in the slab, each with its bytes.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let fixed = (0..self.offsets.len()).filter(|index| !self.ragged.contains(index));
        let fixed = fixed.map(|index| (index, self.spec.fields()[index].row_bytes() * self.capacity));
        let bytes = |&index: &usize| (index, self.values(index).end - self.offsets[index]);
        fixed.chain(self.ragged.iter().map(bytes))
    }
}

/// Bytes of the offsets of `rows` rows, with their padding.
fn offsets_bytes(rows: usize) -> usize {
    ((rows + 1) * OFFSET_BYTES).next_multiple_of(ALIGN)
}

/// Bytes of a field in a batch of `capacity` samples; `None` for more than the address space.
fn region_bytes(field: &Field, capacity: usize) -> Result<Option<usize>> {
    let Some(ragged) = field.as_ragged() else { return Ok(field.row_bytes().checked_mul(capacity)) };
    let Some(room) = ragged.room(capacity) else {
        let why = format!(
            "field \"{}\": a batch of {capacity} samples of up to {} items may have 2^31 or more: take a \
             smaller batch, or state fewer by max_per_batch",
            field.name(),
            ragged.max_per_sample()
        );
        return Err(Error::new(ErrorKind::Config, why));
    };
    let offsets = capacity.checked_add(1).and_then(|rows| rows.checked_mul(2 * OFFSET_BYTES));
    let values = field.item_bytes().checked_mul(room);
    // Not summed here if the product alone is too large.
    Ok(offsets.and(values).and_then(|values| values.checked_add(offsets_bytes(capacity))))
}

fn too_large(field: &Field, capacity: usize) -> Error {
    let why = format!(
        "a batch of {capacity} samples is larger than the address space at field \"{}\" ({} bytes per \
         sample): take a smaller batch",
        field.name(),
        field.row_bytes()
    );
    Error::new(ErrorKind::Config, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn fields_are_aligned_and_do_not_overlap() {
        let spec = Spec::new()
            .field("a", DType::U8, [3])
            .unwrap()
            .field("b", DType::F64, [7])
            .unwrap()
            .field("c", DType::BF16, [])
            .unwrap();
        for capacity in [1, 2, 85, 86, 1000] {
            let layout = Layout::new(&spec, capacity).unwrap();
            let mut end = 0;
            for (index, field) in spec.fields().iter().enumerate() {
                assert_eq!(layout.offset(index) % ALIGN, 0);
                assert!(layout.offset(index) >= end);
                end = layout.offset(index) + field.row_bytes() * capacity;
            }
            assert!(layout.bytes() >= end && layout.used_bytes(capacity) == end);
        }
    }

    /// Overflow is an error in release builds too.
    #[test]
    #[should_panic(expected = "rows in a layout of 3")]
    fn used_bytes_panics_on_more_rows_than_fit() {
        let spec = Spec::new().field("a", DType::F64, [4]).unwrap();
        Layout::new(&spec, 3).unwrap().used_bytes(1 << 60);
    }

    #[test]
    fn invalid_batches_are_rejected() {
        let spec = Spec::new().field("a", DType::F64, [1 << 40]).unwrap();
        for (capacity, part) in [(0, "batch size is 0"), (1 << 30, "take a smaller batch")] {
            let error = Layout::new(&spec, capacity).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
        assert!(Layout::new(&Spec::new(), 1).is_err());
    }
}
