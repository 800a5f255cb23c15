//! The fields of a file's samples: their names, element types and shapes. Dimensions may vary.

use std::collections::HashSet;
use std::fmt;

use feedline_core::{DType, Error, ErrorKind, Result, Spec, named};

use crate::error::{data, one_line};

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

#[cfg(any(feature = "tabular", feature = "zarr"))]
impl ElementType {
    /// The type with this [`name`](Self::name).
    pub(crate) fn named(name: &str) -> Option<Self> {
        let others = [Self::U64, Self::Complex64, Self::Complex128, Self::Bytes, Self::Text];
        DType::ALL.map(Self::from).into_iter().chain(others).find(|element| element.name() == name)
    }
}

/// Whether the type is so small that `f64` holds all of its whole numbers.
#[cfg(any(feature = "csv", feature = "jsonl"))]
pub(crate) fn is_small(number: i64) -> bool {
    number.unsigned_abs() <= 1 << 53
}

/// Whether `f64` holds the number in `text` exactly, if it is a whole number. The number may have any size.
#[cfg(any(feature = "csv", feature = "jsonl"))]
pub(crate) fn is_exact(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return true;
    }
    match digits.parse::<u64>() {
        Ok(whole) => whole as f64 as u128 == u128::from(whole),
        // All digits of the nearest `f64`, or `inf`.
        Err(_) => {
            digits.parse::<f64>().is_ok_and(|float| format!("{float:.0}") == digits.trim_start_matches('0'))
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the values of a field are, beyond their type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
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
    /// The items are labels of the tokens of the field before, where -100 is not learnt.
    /// [`Bounded::measured`](crate::Bounded::measured) also counts the tokens before the first that is learnt
    /// ([`Bounded::before_labels`](crate::Bounded::before_labels)).
    Labels,
}

/// One named field of every sample. Two fields are equal if their names, types and shapes are.
#[derive(Clone, Debug, Eq)]
pub struct SchemaField {
    /// The name of the column or array, or the extension of the member.
    pub name: String,
    /// The type of an element.
    pub element: ElementType,
    /// The shape of the field in one sample. `None` for a dimension that differs between samples.
    pub shape: Vec<Option<usize>>,
    /// What its values are.
    pub meaning: Meaning,
}

impl PartialEq for SchemaField {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.element, &self.shape) == (&other.name, other.element, &other.shape)
    }
}

impl SchemaField {
    /// A field of any shape: `None` for a dimension that differs between samples.
    pub fn new(
        name: impl Into<String>,
        element: ElementType,
        shape: impl IntoIterator<Item = Option<usize>>,
    ) -> Self {
        Self { name: name.into(), element, shape: shape.into_iter().collect(), meaning: Meaning::Plain }
    }

    /// A field that has the shape `shape` in every sample. `[]` is a scalar.
    pub fn fixed(name: impl Into<String>, element: ElementType, shape: &[usize]) -> Self {
        Self::new(name, element, shape.iter().copied().map(Some))
    }

    /// A field with one dimension that varies, such as the bytes of an image.
    pub fn variable(name: impl Into<String>, element: ElementType) -> Self {
        Self::new(name, element, [None])
    }

    /// The same field, with what its values are.
    #[must_use]
    pub fn meaning(self, meaning: Meaning) -> Self {
        Self { meaning, ..self }
    }

    /// Units per day, if the field holds dates or times.
    pub fn ticks_per_day(&self) -> Option<u64> {
        match self.meaning {
            Meaning::Time { per_day } => Some(per_day),
            _ => None,
        }
    }

    /// The shape of a value of `bytes` bytes, if at most one dimension varies.
    pub(crate) fn shape_of(&self, bytes: usize) -> impl Iterator<Item = usize> {
        let item = self.shape.iter().flatten().product::<usize>() * self.element.size();
        self.shape.iter().map(move |dim| dim.unwrap_or(bytes / item.max(1)))
    }

    /// The dtype in batches, and the dimensions that it adds. The two parts of a complex number add the
    /// dimension 2.
    pub(crate) fn batch_type(&self) -> Result<(DType, &'static [usize])> {
        Ok(match self.element {
            ElementType::Number(dtype) => (dtype, &[]),
            ElementType::Bool => (DType::Bool, &[]),
            ElementType::Bytes | ElementType::Text => (DType::U8, &[]),
            ElementType::Complex64 => (DType::F32, &[2]),
            ElementType::Complex128 => (DType::F64, &[2]),
            ElementType::U64 => {
                let why =
                    format!("field \"{}\" is u64, which batches do not have: store it as i64", self.name);
                return Err(Error::new(ErrorKind::Config, why));
            }
        })
    }
}

impl fmt::Display for SchemaField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} [", self.name, self.element)?;
        for (index, dim) in self.shape.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            match dim {
                Some(dim) => write!(f, "{separator}{dim}")?,
                None => write!(f, "{separator}?")?,
            }
        }
        f.write_str("]")
    }
}

/// The fields of a file's samples, in order.
///
/// ```
/// use feedline_core::DType;
/// use feedline_datasets::{ElementType, Schema, SchemaField};
///
/// let label = SchemaField::fixed("label", ElementType::Number(DType::I64), &[]);
/// let schema = Schema::new([SchemaField::variable("jpg", ElementType::Bytes), label]);
/// assert_eq!(schema.to_string(), "jpg bytes [?], label i64 []");
/// assert!(schema.spec().unwrap_err().to_string().contains("\"jpg\""));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    fields: Vec<SchemaField>,
}

impl Schema {
    /// A schema of these fields.
    pub fn new(fields: impl IntoIterator<Item = SchemaField>) -> Self {
        Self { fields: fields.into_iter().collect() }
    }

    /// The fields, in order.
    pub fn fields(&self) -> &[SchemaField] {
        &self.fields
    }

    /// Refuses two fields of one name: one would hide the other.
    pub(crate) fn check_names(&self) -> Result<()> {
        let mut names = HashSet::new();
        match self.fields.iter().find(|field| !names.insert(&field.name)) {
            None => Ok(()),
            Some(field) => {
                let name = one_line(&field.name);
                Err(data(format!("there are two columns or arrays \"{name}\": rename one of them")))
            }
        }
    }

    /// The spec of batches of these samples. Bytes become `u8`. A complex number becomes two floats, in an
    /// added last dimension.
    ///
    /// # Errors
    /// `Config` if a dimension varies, an element is `u64`, or [`Spec::field`] refuses a field. The error
    /// names the field.
    pub fn spec(&self) -> Result<Spec> {
        self.fields.iter().try_fold(Spec::new(), |spec, field| {
            let refuse = |why| Err(Error::new(ErrorKind::Config, format!("field \"{}\" {why}", field.name)));
            let shape: Option<Vec<usize>> = field.shape.iter().copied().collect();
            let Some(mut shape) = shape else {
                return refuse(named(
                    "varies in size from sample to sample: load it by Bounded::measured, or make it one size",
                    "varies in size from sample to sample: open it by feedline.open, or make it one size",
                ));
            };
            let (dtype, parts) = field.batch_type()?;
            shape.extend_from_slice(parts);
            spec.field(&field.name, dtype, shape)
        })
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, field) in self.fields.iter().enumerate() {
            write!(f, "{}{field}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
