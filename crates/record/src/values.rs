//! The fields of a batch as bytes, for any element types.

use std::ops::Range;

use bytemuck::cast_slice;
use feedline::{DType, HostBatch, Result};
use feedline_core::ragged::Form;
use half::{bf16, f16};

/// A field of a batch. It has the elements of all rows, little-endian.
#[derive(Clone, Debug)]
pub struct FieldValues<'a> {
    /// The name.
    pub name: &'a str,
    /// The type of an element.
    pub dtype: DType,
    /// The shape of a row; for a ragged field, of an item.
    pub shape: &'a [usize],
    /// The bytes of all rows.
    pub bytes: &'a [u8],
    /// For a ragged field, the offsets of the rows in items, or the length of each row if it is padded; and
    /// its form.
    pub numbers: Option<(&'a [u32], Form)>,
    rows: usize,
}

/// The fields of `batch`, in the order of its spec.
///
/// # Errors
/// The loss of the device.
pub fn field_values(batch: &HostBatch) -> Result<Vec<FieldValues<'_>>> {
    let fields = batch.spec().fields().iter();
    fields
        .map(|field| {
            let name = field.name();
            macro_rules! read {
                ($type:ty) => {
                    match field.as_ragged().map(|ragged| ragged.form()) {
                        None => (cast_slice(batch.field::<$type>(name)?), None),
                        Some(form @ Form::Padded(_)) => {
                            let (values, lengths) = batch.padded::<$type>(name)?;
                            (cast_slice(values), Some((lengths, form)))
                        }
                        Some(form) => {
                            let (values, offsets) = batch.ragged::<$type>(name)?;
                            (cast_slice(values), Some((offsets, form)))
                        }
                    }
                };
            }
            let (bytes, numbers): (&[u8], _) = match field.dtype() {
                DType::U8 | DType::Bool => read!(u8),
                DType::I8 => read!(i8),
                DType::U16 => read!(u16),
                DType::I16 => read!(i16),
                DType::U32 => read!(u32),
                DType::I32 => read!(i32),
                DType::I64 => read!(i64),
                DType::F16 => read!(f16),
                DType::BF16 => read!(bf16),
                DType::F32 => read!(f32),
                DType::F64 => read!(f64),
            };
            let (dtype, shape, rows) = (field.dtype(), field.shape(), batch.len());
            Ok(FieldValues { name, dtype, shape, bytes, numbers, rows })
        })
        .collect()
}

impl FieldValues<'_> {
    /// The bytes of a row, without padding.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, row: usize) -> &[u8] {
        &self.bytes[self.range(row)]
    }

    fn range(&self, row: usize) -> Range<usize> {
        let item = self.item_bytes();
        match self.numbers {
            None => row * item..(row + 1) * item,
            Some((lengths, Form::Padded(pad))) => {
                let width = self.bytes.len() / self.rows;
                let places = pad.places(lengths[row] as usize, width / item);
                row * width + places.start * item..row * width + places.end * item
            }
            Some((offsets, _)) => offsets[row] as usize * item..offsets[row + 1] as usize * item,
        }
    }

    /// Bytes of a row of fixed size, or of an item.
    pub(crate) fn item_bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }

    /// Whether rows differ in length.
    pub(crate) fn is_ragged(&self) -> bool {
        self.numbers.is_some()
    }

    /// The first `max` elements of a row as numbers.
    pub(crate) fn numbers_of(&self, row: usize, max: usize) -> Vec<f64> {
        let elements = self.row(row).chunks_exact(self.dtype.size()).take(max);
        elements.map(|element| number(self.dtype, element)).collect()
    }
}

/// A little-endian element as a number.
fn number(dtype: DType, bytes: &[u8]) -> f64 {
    macro_rules! read {
        ($type:ty) => {
            bytes.first_chunk().map_or(<$type>::default(), |bytes| <$type>::from_le_bytes(*bytes))
        };
    }
    match dtype {
        DType::U8 | DType::Bool => read!(u8).into(),
        DType::I8 => read!(i8).into(),
        DType::U16 => read!(u16).into(),
        DType::I16 => read!(i16).into(),
        DType::U32 => read!(u32).into(),
        DType::I32 => read!(i32).into(),
        DType::I64 => read!(i64) as f64,
        DType::F16 => read!(f16).into(),
        DType::BF16 => read!(bf16).into(),
        DType::F32 => read!(f32).into(),
        DType::F64 => read!(f64),
    }
}
