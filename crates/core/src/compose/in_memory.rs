//! Vectors and arrays as a set.

use std::fmt;

use crate::compose::{check_id, check_len, config};
use crate::{
    Context, DType, Dataset, Element, Fingerprint, ReadError, Result, Row, RowError, Rows, Spec, Storage,
    StridedColumn,
};

/// The unit in which a device registers memory.
const PAGE: usize = 4096;

/// Vectors and arrays as a set: one per field. Every field of one size has a column, so a device can read it
/// itself.
///
/// ```
/// use feedline_core::Dataset;
/// use feedline_core::compose::InMemory;
///
/// let images = vec![0.5_f32; 3 * 28 * 28];
/// let data = InMemory::new().field("image", [28, 28], images)?.field("label", [], [4_u8, 2, 7])?;
/// assert_eq!((data.len(), data.spec().sample_bytes()), (3, 28 * 28 * 4 + 1));
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Default)]
pub struct InMemory {
    spec: Spec,
    len: u64,
    fields: Vec<Values>,
    fingerprint: Fingerprint,
}

/// The values of a field.
enum Values {
    /// The bytes of all rows of a field of one size.
    Fixed(Pages),
    /// The bytes of all rows of a ragged field, and the end of each row.
    Ragged { bytes: Vec<u8>, ends: Vec<usize> },
}

/// Bytes in whole pages of their own, so that a device can register them without touching other data.
struct Pages {
    memory: Vec<u8>,
    first: usize,
    len: usize,
}

impl Pages {
    fn copy(bytes: &[u8]) -> Self {
        let mut memory = vec![0; bytes.len().next_multiple_of(PAGE) + PAGE];
        // `align_offset` may return `usize::MAX`, as it does under Miri. Any offset works there.
        let first = memory.as_ptr().align_offset(PAGE).min(PAGE);
        memory[first..first + bytes.len()].copy_from_slice(bytes);
        Self { memory, first, len: bytes.len() }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.first..self.first + self.len]
    }
}

impl InMemory {
    /// A set without fields; add at least one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field; `shape` is its shape within one sample, `[]` for a scalar. The elements of sample 0 come
    /// first in `values`, the last dimension changing fastest. They are copied.
    ///
    /// # Errors
    /// `Config` if the values are not whole samples, or give another number of samples than the fields
    /// before; otherwise as [`Spec::field`].
    pub fn field<T: Element>(
        self,
        name: &str,
        shape: impl Into<Vec<usize>>,
        values: impl AsRef<[T]>,
    ) -> Result<Self> {
        self.field_bytes(name, T::DTYPE, shape, bytemuck::cast_slice(values.as_ref()))
    }

    /// As [`field`](Self::field), for elements of any type: their bytes in the order of the machine.
    ///
    /// ```
    /// use feedline_core::{DType, InMemory};
    /// let data = InMemory::new().field_bytes("mask", DType::Bool, [2], &[1, 0, 1, 1])?;
    /// assert!(InMemory::new().field_bytes("mask", DType::Bool, [2], &[1, 2]).is_err());
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`field`](Self::field); also `Config` for a `Bool` field with a byte other than 0 and 1.
    pub fn field_bytes(
        mut self,
        name: &str,
        dtype: DType,
        shape: impl Into<Vec<usize>>,
        bytes: &[u8],
    ) -> Result<Self> {
        self.spec = self.spec.field(name, dtype, shape)?;
        let row = self.spec.fields().last().map_or(1, crate::Field::row_bytes);
        let (len, surplus) = ((bytes.len() / row) as u64, bytes.len() % row);
        if surplus > 0 {
            let (have, each) = (bytes.len() / dtype.size(), row / dtype.size());
            return Err(config(format!(
                "field \"{name}\" has {have} values, which are not whole samples of {each}"
            )));
        }
        if !dtype.accepts(bytes) {
            return Err(config(format!("field \"{name}\" is bool, and has a byte other than 0 and 1")));
        }
        self.set_len(name, len)?;
        self.fingerprint = self.fingerprint.bytes(bytes);
        self.fields.push(Values::Fixed(Pages::copy(bytes)));
        Ok(self)
    }

    /// Adds a field of variable length. Each sample has one of `rows`, with 0 to `max_per_sample` items of
    /// shape `item_shape`; `[]` if an item is a single element. The rows are copied.
    ///
    /// ```
    /// use feedline_core::{Dataset, InMemory};
    ///
    /// let words: [&[u8]; 3] = [b"hello", b"", b"you"];
    /// let data = InMemory::new().ragged("word", [], 8, words)?.field("label", [], [4_u8, 2, 7])?;
    /// assert_eq!(data.len(), 3);
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` if a row has more items or is not whole items, or if there are more or fewer rows than
    /// samples of the fields before; otherwise as [`Spec::ragged`].
    pub fn ragged<T: Element>(
        mut self,
        name: &str,
        item_shape: impl Into<Vec<usize>>,
        max_per_sample: usize,
        rows: impl IntoIterator<Item = impl AsRef<[T]>>,
    ) -> Result<Self> {
        self.spec = self.spec.ragged(name, T::DTYPE, item_shape, max_per_sample)?;
        let (item, max) =
            self.spec.fields().last().map_or((1, 0), |field| (field.item_bytes(), field.row_bytes()));
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for row in rows {
            let row: &[u8] = bytemuck::cast_slice(row.as_ref());
            if row.len() > max || !row.len().is_multiple_of(item) {
                let (sample, have, each) = (ends.len(), row.len() / size_of::<T>(), item / size_of::<T>());
                return Err(config(format!(
                    "field \"{name}\" has {have} values in sample {sample}, which are not up to \
                     {max_per_sample} items of {each}"
                )));
            }
            bytes.extend_from_slice(row);
            ends.push(bytes.len());
        }
        self.set_len(name, ends.len() as u64)?;
        let covered = self.fingerprint.bytes(&bytes);
        self.fingerprint = ends.iter().fold(covered, |covered, &end| covered.number(end as u64));
        self.fields.push(Values::Ragged { bytes, ends });
        Ok(self)
    }

    /// Sets the number of samples; checks that field `name` has as many as the fields before it.
    fn set_len(&mut self, name: &str, len: u64) -> Result<()> {
        if !self.fields.is_empty() && len != self.len {
            let want = self.len;
            return Err(config(format!("field \"{name}\" has {len} samples, the fields before have {want}")));
        }
        self.len = check_len("set", Some(len))?;
        Ok(())
    }

    /// The bytes of field `field` of sample `id`, which must exist.
    fn row(&self, field: usize, id: u64) -> &[u8] {
        let id = id as usize;
        match &self.fields[field] {
            Values::Fixed(pages) => {
                let bytes = self.spec.fields()[field].row_bytes();
                &pages.bytes()[id * bytes..][..bytes]
            }
            Values::Ragged { bytes, ends } => {
                &bytes[id.checked_sub(1).map_or(0, |before| ends[before])..ends[id]]
            }
        }
    }
}

impl Dataset for InMemory {
    fn len(&self) -> u64 {
        self.len
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        check_id(id, self.len)?;
        Ok((0..self.fields.len()).try_for_each(|field| row.put(field, self.row(field, id)))?)
    }

    // Copies field by field: one bounds check and one copy per row.
    fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, context: &mut Context) -> Result<(), RowError> {
        if self.spec.is_ragged() {
            // Row by row: if the batch lacks room for a row, the rows before it must be complete.
            return ids.iter().enumerate().try_for_each(|(index, &id)| {
                self.read(id, &mut rows.row(index), context).map_err(|error| (index, error))
            });
        }
        let good = ids.iter().position(|&id| id >= self.len).unwrap_or(ids.len());
        for field in 0..self.fields.len() {
            rows.write(field, ids[..good].iter().map(|&id| self.row(field, id)));
        }
        ids.get(good).map_or(Ok(()), |&id| check_id(id, self.len).map_err(|error| (good, error)))
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    /// Covers every byte.
    fn fingerprint(&self) -> u64 {
        self.fingerprint.spec(&self.spec).number(self.len).value()
    }
}

impl Storage for InMemory {
    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        let Values::Fixed(pages) = self.fields.get(field)? else { return None };
        let row = self.spec.fields().get(field)?.row_bytes();
        StridedColumn::new(pages.bytes(), 0, row, self.len as usize, row).ok()
    }
}

impl fmt::Debug for InMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InMemory({} samples of {} fields)", self.len, self.fields.len())
    }
}
