//! The element types of fields.

use half::{bf16, f16};

/// The type of one element of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum DType {
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 16-bit integer.
    U16,
    /// Signed 16-bit integer.
    I16,
    /// Unsigned 32-bit integer.
    U32,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// IEEE 754 half precision.
    F16,
    /// bfloat16: the upper half of an `f32`.
    BF16,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
    /// True or false: one byte, 1 or 0. Its Rust type is `u8`; a sample with another byte is refused.
    Bool,
}

impl DType {
    /// Every type.
    pub const ALL: [Self; 12] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::I64,
        Self::F16,
        Self::BF16,
        Self::F32,
        Self::F64,
        Self::Bool,
    ];

    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::BF16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::I64 | Self::F64 => 8,
        }
    }

    /// The type's name: `u8`, `bf16`, ...
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Bool => "bool",
        }
    }
}

/// # For loaders and readers
///
/// What loaders, bridges and sets that read other sets call. It may change in any release.
impl DType {
    /// Whether every byte is valid for this type: 0 or 1 for `Bool`.
    pub fn accepts(self, bytes: &[u8]) -> bool {
        self != Self::Bool || bytes.iter().fold(0, |all, &byte| all | byte) <= 1
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type for the elements of a field: one per [`DType`], and `u8` also for [`DType::Bool`]. Sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the type of the elements of a field",
    label = "not an element type",
    note = "use one of u8, i8, u16, i16, u32, i32, i64, f16, bf16, f32 and f64; a field of `DType::Bool` is \
            read and written as u8: 1 or 0"
)]
pub trait Element: bytemuck::Pod + Send + Sync + std::fmt::Debug + sealed::Sealed {
    /// The data type of this Rust type.
    const DTYPE: DType;

    /// Whether fields of `dtype` are read and written as this Rust type.
    fn is_of(dtype: DType) -> bool {
        dtype == Self::DTYPE || (dtype == DType::Bool && Self::DTYPE == DType::U8)
    }
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

elements! {
    u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, i64 => I64,
    f16 => F16, bf16 => BF16, f32 => F32, f64 => F64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_u8_is_of_two_types() {
        fn types<T: Element>() -> Vec<DType> {
            DType::ALL.into_iter().filter(|&dtype| T::is_of(dtype)).collect()
        }
        assert_eq!(types::<u8>(), [DType::U8, DType::Bool]);
        assert_eq!((types::<i8>(), types::<f32>()), (vec![DType::I8], vec![DType::F32]));
    }

    #[test]
    fn sizes_match_the_rust_types() {
        fn check<T: Element>() {
            assert_eq!(T::DTYPE.size(), std::mem::size_of::<T>(), "{}", T::DTYPE);
        }
        check::<u8>();
        check::<i8>();
        check::<u16>();
        check::<i16>();
        check::<u32>();
        check::<i32>();
        check::<i64>();
        check::<f16>();
        check::<bf16>();
        check::<f32>();
        check::<f64>();
    }
}
