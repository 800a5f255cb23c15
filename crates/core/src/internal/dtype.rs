//! The bytes that are valid for a type.

use crate::DType;

/// Whether every byte is valid for this type: 0 or 1 for `Bool`.
pub fn accepts(dtype: DType, bytes: &[u8]) -> bool {
    dtype.accepts(bytes)
}
