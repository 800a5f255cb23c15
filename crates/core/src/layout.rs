//! The memory layout of a batch: one slab with every field at an aligned offset.
//!
//! One slab needs one copy per batch. 256-byte alignment suits every GPU load width and is best for cuBLAS.

use crate::{Error, ErrorKind, Result, Spec};

/// Alignment of every field, in bytes.
pub const ALIGN: usize = 256;

/// The offsets of a batch's fields in a slab of [`bytes`](Self::bytes) bytes.
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
}

impl Layout {
    /// The layout of batches of up to `capacity` samples of `spec`.
    ///
    /// # Errors
    /// `Config` for a spec without fields, a capacity of zero, or a batch larger than the address space.
    pub fn new(spec: &Spec, capacity: usize) -> Result<Self> {
        if spec.fields().is_empty() {
            return Err(Error::new(ErrorKind::Config, "the spec has no fields: add at least one"));
        }
        if capacity == 0 {
            return Err(Error::new(ErrorKind::Config, "batch size is 0: it must be at least 1"));
        }
        let mut offsets = Vec::with_capacity(spec.fields().len());
        let mut end = 0usize;
        for field in spec.fields() {
            offsets.push(end);
            end = field
                .row_bytes()
                .checked_mul(capacity)
                .and_then(|bytes| bytes.checked_add(end))
                .and_then(|end| end.checked_next_multiple_of(ALIGN))
                .filter(|&end| end <= isize::MAX as usize)
                .ok_or_else(|| {
                    Error::new(
                        ErrorKind::Config,
                        format!(
                            "a batch of {capacity} samples is larger than the address space at field \"{}\" \
                             ({} bytes per sample): take a smaller batch",
                            field.name(),
                            field.row_bytes()
                        ),
                    )
                })?;
        }
        Ok(Self { spec: spec.clone(), capacity, offsets, bytes: end })
    }

    /// The fields.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The most samples that fit.
    #[doc(hidden)] // For the loader.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes of the slab, a multiple of [`ALIGN`].
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Byte offset of field `index` in the slab.
    pub fn offset(&self, index: usize) -> usize {
        self.offsets[index]
    }

    /// The leading bytes of the slab that a batch of `rows` samples uses, which must be copied.
    ///
    /// # Panics
    /// If `rows` is larger than [`capacity`](Self::capacity).
    #[doc(hidden)] // For the loader.
    pub fn used_bytes(&self, rows: usize) -> usize {
        assert!(rows <= self.capacity, "{rows} rows in a layout of {}", self.capacity);
        let last = self.offsets.len() - 1;
        self.offsets[last] + self.spec.fields()[last].row_bytes() * rows
    }
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

    /// Also in release builds, where the product would wrap.
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
