//! Write access to the row of one sample.

use super::{POISON, Rows, assert_fills};
use crate::spec::{FieldId, MAX_FIELDS};
use crate::{Element, Error, ErrorKind, Field, ReadError, Result, Sink, Spec};

/// The row of one sample in a slab, for writing.
#[derive(Debug)]
pub struct Row<'r, 'a> {
    pub(super) rows: &'r mut Rows<'a>,
    pub(super) index: usize,
}

impl<'a> Row<'_, 'a> {
    /// The bytes of field `index` of the spec; exactly [`row_bytes`](crate::Field::row_bytes) long.
    ///
    /// # Panics
    /// If the spec has no such field, or it is ragged.
    pub fn bytes_mut(&mut self, index: usize) -> &mut [u8] {
        let field = &self.rows.spec.fields()[index];
        let at = self.index * field.row_bytes();
        let column = self.rows.fields.get_mut(index);
        match column.and_then(|column| column.get_mut(at..at + field.row_bytes())) {
            Some(bytes) => bytes,
            None => panic!("{}", not_fixed(field).message()),
        }
    }

    /// Writes field `index`, of any kind: its elements, little-endian, in row-major order. If a field is put
    /// twice, the last one counts.
    ///
    /// This is the only way to write a field of an open spec, which has no limit. Its row may be that of a
    /// batch, which has one, or be read by a tool.
    ///
    /// # Errors
    /// `Sample` for another number of bytes than the field has; as [`write_ragged`](Self::write_ragged).
    pub fn put(&mut self, index: usize, bytes: &[u8]) -> Result<()> {
        if let Some(sink) = &mut self.rows.sink {
            return sink.put(index, bytes, None);
        }
        let Some((sample, given)) = self.rows.given else { return self.put_in_place(index, bytes) };
        if index >= self.rows.spec.fields().len() {
            // As a sink ignores a field that it did not ask for.
            return Ok(());
        }
        self.rows.given = Some((sample, given + 1));
        self.put_in_place(index, bytes).map_err(|error| error.at_sample(sample))
    }

    fn put_in_place(&mut self, index: usize, bytes: &[u8]) -> Result<()> {
        let field = field_of(self.rows.spec, index)?;
        if field.as_ragged().is_some() {
            return self.write_ragged_bytes(index, bytes);
        }
        if bytes.len() != field.row_bytes() {
            let (name, given, size) = (field.name(), bytes.len(), field.row_bytes());
            let why = format!("field \"{name}\" has {given} bytes instead of {size}");
            return Err(Error::new(ErrorKind::Sample, why));
        }
        (self.rows.copy)(self.bytes_mut(index), &[bytes]);
        Ok(())
    }

    /// As [`put`](Self::put), for a field of an open spec of which several dimensions vary. `shape` is its
    /// shape in this sample; `None` if the bytes alone determine it.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_shaped(&mut self, index: usize, bytes: &[u8], shape: Option<&[usize]>) -> Result<()> {
        match &mut self.rows.sink {
            Some(sink) => sink.put(index, bytes, shape),
            None => self.put(index, bytes),
        }
    }

    /// Whether field `index` is wanted. All fields of a batch are. A set that has to read a file for a field
    /// asks first.
    pub fn wants(&self, index: usize) -> bool {
        self.rows.sink.as_ref().is_none_or(|sink| sink.wants(index))
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

    /// The elements of `field`, by its number in the spec or its name. A number needs no look-up.
    ///
    /// # Errors
    /// `Config` when the field has another type or is ragged, or the spec has no such field.
    pub fn field_mut<T: Element>(&mut self, field: impl FieldId) -> Result<&mut [T]> {
        let index = field.index_in(self.rows.spec)?;
        let field = typed::<T>(self.rows.spec, index)?;
        let at = self.index * field.row_bytes();
        let column = self.rows.fields.get_mut(index);
        let bytes = column.and_then(|column| column.get_mut(at..at + field.row_bytes()));
        // The cast cannot fail: field offsets are 256-byte aligned in the slab, and rows are whole elements.
        bytes.map(bytemuck::cast_slice_mut).ok_or_else(|| not_fixed(field))
    }

    /// All fields of a fixed size of the row, so that several can be borrowed at once.
    ///
    /// ```
    /// use feedline_core::{DType, Dataset, Spec, from_fn};
    /// let spec = Spec::new().field("image", DType::U8, [4])?.field("label", DType::I64, [])?;
    /// let data = from_fn(10, spec, |id, row, _| {
    ///     let mut fields = row.split();
    ///     let (image, label) = (fields.take::<u8>(0)?, fields.take::<i64>(1)?);
    ///     image.fill(id as u8);
    ///     label[0] = image.iter().map(|&pixel| i64::from(pixel)).sum();
    ///     Ok(())
    /// });
    /// let twelve = data.filter(|sample| sample.field::<i64>(1).is_ok_and(|label| label == [12]))?;
    /// assert_eq!(twelve.ids(), [3]);
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    pub fn split(&mut self) -> RowFields<'_> {
        let spec = self.rows.spec;
        let mut rows = self.rows.fields.iter_mut().zip(spec.fields()).map(|(column, field)| {
            let at = self.index * field.row_bytes();
            column.get_mut(at..at + field.row_bytes())
        });
        RowFields {
            spec,
            is_in_batch: self.rows.sink.is_none(),
            fields: std::array::from_fn(|_| rows.next().flatten()),
        }
    }

    /// Writes the row of the ragged field `field`, given by number or name: whole items, concatenated.
    ///
    /// Rows are written in order. A row that is written again is replaced, and the rows after it count as not
    /// written.
    ///
    /// # Errors
    /// `Sample` for more items than a sample may have, `Budget` for more than the batch has room for; both
    /// name the field and the limit. `Config` when the field has another type or is not ragged, the spec has
    /// no such field, `values` are not whole items, or the row before is not written.
    pub fn write_ragged<T: Element>(&mut self, field: impl FieldId, values: &[T]) -> Result<()> {
        let index = field.index_in(self.rows.spec)?;
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

    /// Space for the row of the ragged field `field`, given by number or name, to decode into before its
    /// length is known: whole items, up to the limit per sample and the space left in the batch. Then call
    /// [`set_ragged_len`](Self::set_ragged_len) with the number of items written.
    ///
    /// The space may be shorter for the last rows of a batch. The output must not depend on that: for a
    /// sample that does not fit, pass the length that it needs, and the call returns the error.
    ///
    /// ```
    /// use feedline_core::{DType, Dataset, Spec, from_fn};
    /// let spec = Spec::new().ragged("x", DType::U8, [], 8)?;
    /// let data = from_fn(1, spec, |_, row, _| {
    ///     let room = row.ragged_mut::<u8>(0)?;
    ///     room[..3].copy_from_slice(b"abc"); // a decoder writes here
    ///     Ok(row.set_ragged_len(0, 3)?)
    /// });
    /// assert_eq!(data.filter(|sample| sample.bytes(0) == b"abc")?.len(), 1);
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` when the field has another type or is not ragged, the spec has no such field, or the row
    /// before is not written.
    pub fn ragged_mut<T: Element>(&mut self, field: impl FieldId) -> Result<&mut [T]> {
        let index = field.index_in(self.rows.spec)?;
        let row = self.rows.first + self.index;
        let field = typed::<T>(self.rows.spec, index)?;
        let space = self.rows.region(index).ok_or_else(|| not_ragged(field))?.space(row)?;
        // The cast cannot fail, as in `field_mut`.
        Ok(bytemuck::cast_slice_mut(space))
    }

    /// Sets the length of the row of the ragged field `field`, given by number or name, to the first `items`
    /// items of [`ragged_mut`](Self::ragged_mut).
    ///
    /// # Errors
    /// As for [`write_ragged`](Self::write_ragged).
    pub fn set_ragged_len(&mut self, field: impl FieldId, items: usize) -> Result<()> {
        let index = field.index_in(self.rows.spec)?;
        let row = self.rows.first + self.index;
        let field = field_of(self.rows.spec, index)?;
        self.rows.region(index).ok_or_else(|| not_ragged(field))?.set_len(row, items).map(drop)
    }

    /// The receiver of a row that is in no batch.
    pub(crate) fn sink(&mut self) -> Option<&mut Sink<'a>> {
        self.rows.sink.as_mut()
    }

    /// The bytes of the items written to the row of ragged field `index`.
    ///
    /// # Errors
    /// `Config` when the field is not ragged, the spec has no such field, or the row is not written.
    pub(crate) fn written_bytes_mut(&mut self, index: usize) -> Result<&mut [u8]> {
        self.rows.written_bytes_mut(self.index, index)
    }

    /// Like [`Rows::check_written`], for this row.
    ///
    /// # Errors
    /// `Sample` when a ragged field was not written.
    pub(crate) fn check_written(&mut self) -> Result<()> {
        self.rows.check_rows(self.index..self.index + 1).map_err(|(_, error)| error)
    }

    /// Sets every byte of the row to zero; a ragged field gets no items.
    pub fn clear(&mut self) {
        if self.rows.sink.is_some() {
            return;
        }
        for index in 0..self.rows.spec.fields().len() {
            let row = self.rows.first + self.index;
            match self.rows.region(index) {
                // Fails if the previous row is unwritten; `check_written` reports it.
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

/// # For loaders and readers
///
/// What loaders, bridges and sets that read other sets call. It may change in any release.
impl<'a> Row<'_, 'a> {
    /// A one-row view of this row, for splitting fields.
    pub fn as_rows_mut(&mut self) -> Rows<'_> {
        self.rows.part(self.index..self.index + 1)
    }

    /// Like [`Rows::read_by`], for this row.
    ///
    /// # Errors
    /// As [`Rows::read_by`].
    pub fn read_by(
        &mut self,
        read: impl FnOnce(&mut Row<'_, 'a>) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        read(self)?;
        Ok(self.check_written()?)
    }

    /// Like [`Rows::poison`], for this row. In any build, its ragged fields then count as not written.
    pub fn poison(&mut self) {
        if self.rows.sink.is_some() {
            return;
        }
        for index in 0..self.rows.spec.fields().len() {
            let row = self.rows.first + self.index;
            if let Some(mut region) = self.rows.region(index) {
                region.forget(row);
            } else if cfg!(debug_assertions) {
                self.bytes_mut(index).fill(POISON);
            }
        }
    }
}

/// The fields of one row, each to be taken once; created by [`Row::split`].
#[derive(Debug)]
pub struct RowFields<'r> {
    spec: &'r Spec,
    is_in_batch: bool,
    /// `None` for a field that was taken. An array, not an `ArrayVec`, whose drop would prolong the borrow.
    fields: [Option<&'r mut [u8]>; MAX_FIELDS],
}

impl<'r> RowFields<'r> {
    /// The elements of `field`, by its number in the spec or its name.
    ///
    /// # Errors
    /// `Config` when the field has another type, is ragged or was taken before, or the spec has no such
    /// field.
    pub fn take<T: Element>(&mut self, field: impl FieldId) -> Result<&'r mut [T]> {
        let index = field.index_in(self.spec)?;
        let field = typed::<T>(self.spec, index)?;
        if field.as_ragged().is_some() || !self.is_in_batch {
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
pub(super) fn field_of(spec: &Spec, index: usize) -> Result<&Field> {
    let fields = spec.fields();
    fields.get(index).ok_or_else(|| {
        let why = format!("there is no field {index}: the spec has {}", fields.len());
        Error::new(ErrorKind::Config, why)
    })
}

/// Field `index` of `spec`, if its elements are of type `T`.
fn typed<T: Element>(spec: &Spec, index: usize) -> Result<&Field> {
    let field = field_of(spec, index)?;
    if T::is_of(field.dtype()) {
        return Ok(field);
    }
    let why = format!("field \"{}\" is {}, not {}", field.name(), field.dtype(), T::DTYPE);
    Err(Error::new(ErrorKind::Config, why))
}

/// The error for a ragged field where one of a fixed size is needed.
#[cold]
pub(super) fn not_fixed(field: &Field) -> Error {
    let how = if field.as_ragged().is_some() {
        "is ragged: write it by write_ragged"
    } else {
        "is in no batch: write it by put"
    };
    let why = format!("field \"{}\" {how}", field.name());
    Error::new(ErrorKind::Config, why)
}

/// The error for a field of a fixed size where a ragged one is needed.
#[cold]
pub(super) fn not_ragged(field: &Field) -> Error {
    let how = if field.row_bytes() > 0 {
        "is not ragged: write it by field_mut or write"
    } else {
        "is in no batch: write it by put"
    };
    let why = format!("field \"{}\" {how}", field.name());
    Error::new(ErrorKind::Config, why)
}
