//! Numbers of any type as `f32`.

use feedline_core::{DType, ElementType, Field, Result};

use crate::error::data;

/// Whether boxes or points can have elements of this type.
pub(super) fn are_numbers(element: ElementType) -> bool {
    match element {
        ElementType::Number(dtype) => dtype != DType::F16 && dtype != DType::BF16,
        ElementType::U64 => true,
        _ => false,
    }
}

/// Whether elements of this type are whole numbers.
pub(super) fn is_whole_number(element: ElementType) -> bool {
    are_numbers(element) && !matches!(element, ElementType::Number(DType::F32 | DType::F64))
}

/// Reads the numbers in `bytes`, the value of `field`. They are rounded to `f32`.
pub(super) fn read(field: &Field, bytes: &[u8], to: &mut Vec<f32>) -> Result<()> {
    macro_rules! extend {
        ($type:ty) => {
            extend(bytes, to, |bytes| <$type>::from_le_bytes(bytes) as f32)
        };
    }
    let is_whole = match field.element() {
        ElementType::Number(DType::F32) => extend!(f32),
        ElementType::Number(DType::F64) => extend!(f64),
        ElementType::Number(DType::U8) => extend!(u8),
        ElementType::Number(DType::U16) => extend!(u16),
        ElementType::Number(DType::U32) => extend!(u32),
        ElementType::Number(DType::I8) => extend!(i8),
        ElementType::Number(DType::I16) => extend!(i16),
        ElementType::Number(DType::I32) => extend!(i32),
        ElementType::Number(DType::I64) => extend!(i64),
        ElementType::U64 => extend!(u64),
        _ => false,
    };
    if is_whole {
        return Ok(());
    }
    Err(data(format!(
        "field \"{}\" has {} bytes, which are not whole numbers of its type",
        field.name(),
        bytes.len()
    )))
}

/// Replaces `to` by the numbers in `bytes`. Returns whether `bytes` is a whole number of elements.
fn extend<const N: usize>(bytes: &[u8], to: &mut Vec<f32>, number: impl Fn([u8; N]) -> f32) -> bool {
    let (numbers, rest) = bytes.as_chunks::<N>();
    to.clear();
    to.extend(numbers.iter().map(|bytes| number(*bytes)));
    rest.is_empty()
}
