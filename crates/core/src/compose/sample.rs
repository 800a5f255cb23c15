//! One sample, for reading.

use arrayvec::ArrayVec;

use crate::memory::lengthen;
use crate::spec::{FieldId, MAX_FIELDS};
use crate::{Element, Error, ErrorKind, Layout, Result, Spec};

/// One sample of a data set, in memory, for reading: what [`map`](crate::Dataset::map) and
/// [`filter`](crate::Dataset::filter) give to their functions.
#[derive(Debug)]
pub struct Sample<'a> {
    spec: &'a Spec,
    fields: ArrayVec<&'a [u8], MAX_FIELDS>,
}

impl<'a> Sample<'a> {
    /// Row `index` of a slab of batches of `layout`.
    pub(super) fn of(layout: &'a Layout, slab: &'a [u8], index: usize) -> Self {
        let spec = layout.spec();
        let row = |(number, field): (usize, &crate::Field)| match field.as_ragged() {
            Some(_) => layout.row_values(slab, number, index),
            None => &slab[layout.offset(number) + index * field.row_bytes()..][..field.row_bytes()],
        };
        Self { spec, fields: spec.fields().iter().enumerate().map(row).collect() }
    }

    /// The fields.
    pub fn spec(&self) -> &'a Spec {
        self.spec
    }

    /// The bytes of field `index`; of a ragged field, those of the sample's items.
    ///
    /// # Panics
    /// If the spec has no such field.
    pub fn bytes(&self, index: usize) -> &'a [u8] {
        self.fields[index]
    }

    /// The elements of `field`, by its number in the spec or its name. A number needs no look-up.
    ///
    /// # Errors
    /// `Config` when the field has another type, or the spec has no such field.
    pub fn field<T: Element>(&self, field: impl FieldId) -> Result<&'a [T]> {
        let index = field.index_in(self.spec)?;
        let fields = self.spec.fields();
        let Some(field) = fields.get(index) else {
            let why = format!("there is no field {index}: the spec has {}", fields.len());
            return Err(Error::new(ErrorKind::Config, why));
        };
        if !T::is_of(field.dtype()) {
            let why = format!("field \"{}\" is {}, not {}", field.name(), field.dtype(), T::DTYPE);
            return Err(Error::new(ErrorKind::Config, why));
        }
        // Cannot fail: a slab is aligned to eight bytes, fields to more, and rows are whole elements.
        Ok(bytemuck::cast_slice(self.bytes(index)))
    }
}

/// Memory for rows of any spec, kept by a worker.
#[derive(Default)]
pub(super) struct Slab(Vec<u64>);

impl Slab {
    /// `bytes` bytes, aligned for every element type. They still hold the content of earlier uses.
    ///
    /// # Errors
    /// `Budget` if there is no memory for them.
    pub(super) fn bytes_mut(&mut self, bytes: usize) -> Result<&mut [u8]> {
        lengthen(&mut self.0, bytes.div_ceil(size_of::<u64>()))?;
        Ok(&mut bytemuck::cast_slice_mut(&mut self.0)[..bytes])
    }
}
