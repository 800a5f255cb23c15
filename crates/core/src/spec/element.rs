//! The types that files have, of which batches hold some.

use std::fmt;

use crate::DType;

/// The type of one element of a field in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// A type of numbers that batches can hold.
    Number(DType),
    /// One byte: 0 is false, 1 is true. In batches it is `DType::Bool`, and any other byte is refused.
    Bool,
    /// Unsigned 64-bit integer. Batches have no such type.
    U64,
    /// Two `f32`: real and imaginary part.
    Complex64,
    /// Two `f64`: real and imaginary part.
    Complex128,
    /// Raw bytes, such as an encoded image. An element is one byte.
    Bytes,
    /// UTF-8 text. An element is one byte.
    Text,
}

impl ElementType {
    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::Number(dtype) => dtype.size(),
            Self::Bool | Self::Bytes | Self::Text => 1,
            Self::U64 | Self::Complex64 => 8,
            Self::Complex128 => 16,
        }
    }

    /// The name: `u8`, `bool`, `complex64`, `text`, ...
    pub const fn name(self) -> &'static str {
        match self {
            Self::Number(dtype) => dtype.name(),
            Self::Bool => "bool",
            Self::U64 => "u64",
            Self::Complex64 => "complex64",
            Self::Complex128 => "complex128",
            Self::Bytes => "bytes",
            Self::Text => "text",
        }
    }
}

impl From<DType> for ElementType {
    fn from(dtype: DType) -> Self {
        match dtype {
            DType::Bool => Self::Bool,
            dtype => Self::Number(dtype),
        }
    }
}

impl ElementType {
    /// The type with this [`name`](Self::name).
    pub fn of_name(name: &str) -> Option<Self> {
        let others = [Self::U64, Self::Complex64, Self::Complex128, Self::Bytes, Self::Text];
        DType::ALL.map(Self::from).into_iter().chain(others).find(|element| element.name() == name)
    }

    /// The dtype in batches, and the dimensions that it adds. `None` for `U64`.
    pub(super) fn batch_type(self) -> Option<(DType, &'static [usize])> {
        Some(match self {
            Self::Number(dtype) => (dtype, &[]),
            Self::Bool => (DType::Bool, &[]),
            Self::Bytes | Self::Text => (DType::U8, &[]),
            Self::Complex64 => (DType::F32, &[2]),
            Self::Complex128 => (DType::F64, &[2]),
            Self::U64 => return None,
        })
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the values of a field are, beyond their type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Meaning {
    /// Nothing else.
    #[default]
    Plain,
    /// The texts are the JSON of lists or objects in the file, such as the messages of a conversation.
    Json,
    /// The numbers, or the items of the lists, are dates or times in a unit that the file states. They count
    /// from 1970-01-01, 00:00 UTC; a time of day counts from midnight.
    Time {
        /// Units per day.
        per_day: u64,
    },
    /// The items are labels of the tokens of the field before, where -100 is not learnt. A set that measures
    /// its samples also counts the tokens before the first that is learnt.
    Labels,
}
