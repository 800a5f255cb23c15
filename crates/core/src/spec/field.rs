//! A named part of every sample.

use std::fmt;

use super::{ElementType, Meaning, in_field};
use crate::{DType, Error, ErrorKind, RaggedField, Result, named};

/// A named part of every sample.
#[derive(Clone, Debug, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "super::stored::Field"))]
pub struct Field {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    /// 0 if the field is not closed.
    pub(super) row_bytes: usize,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub(super) ragged: Option<RaggedField>,
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(super) element: ElementType,
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(super) dims: Vec<Option<usize>>,
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(super) meaning: Meaning,
}

/// What the values are makes no difference.
impl PartialEq for Field {
    fn eq(&self, other: &Self) -> bool {
        let of = |field: &Self| (field.dtype, field.element, field.row_bytes, field.ragged);
        (&self.name, &self.shape, &self.dims) == (&other.name, &other.shape, &other.dims)
            && of(self) == of(other)
    }
}

impl Field {
    /// A field, of a shape that fits the address space.
    pub(super) fn new(
        name: &str,
        dtype: DType,
        shape: Vec<usize>,
        ragged: Option<RaggedField>,
    ) -> Result<Self> {
        if name.is_empty() {
            return Err(in_field(name, "a field needs a name"));
        }
        if shape.contains(&0) {
            return Err(in_field(name, &format!("shape {shape:?} has a dimension of zero")));
        }
        if let Some(ragged) = ragged {
            ragged.check().map_err(|why| in_field(name, &why))?;
            ragged.form.check(dtype, &shape).map_err(|why| in_field(name, why))?;
        }
        let items = ragged.map_or(1, |ragged| ragged.per_sample);
        let bytes = shape.iter().chain([&items]).try_fold(dtype.size(), |bytes, &n| bytes.checked_mul(n));
        let Some(row_bytes) = bytes.filter(|&bytes| bytes <= isize::MAX as usize) else {
            let why = format!("shape {shape:?} of {dtype} is larger than the address space");
            return Err(in_field(name, &why));
        };
        let first = ragged.map(|_| None);
        let dims = first.into_iter().chain(shape.iter().copied().map(Some)).collect();
        let (element, meaning) = (dtype.into(), Meaning::Plain);
        Ok(Self { name: name.to_owned(), dtype, shape, row_bytes, ragged, element, dims, meaning })
    }

    /// The field's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape within one sample, without the batch dimension; empty for a scalar. For a ragged field, the
    /// shape of one item.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Elements per sample; for a ragged field, the maximum.
    pub fn elements(&self) -> usize {
        self.row_bytes / self.dtype.size()
    }

    /// Bytes per sample; for a ragged field, the maximum.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// How the field varies in length; `None` if every sample has the same.
    pub fn as_ragged(&self) -> Option<&RaggedField> {
        self.ragged.as_ref()
    }
}

/// # For loaders and readers
///
/// What loaders, bridges and sets that read other sets call. It may change in any release.
impl Field {
    /// A field of a reader, of any type and size: `None` for a dimension that differs between samples.
    /// Batches take it once it is [closed](Self::closed), or has a limit; until then it has no bytes per
    /// sample.
    pub fn open(
        name: impl Into<String>,
        element: ElementType,
        dims: impl IntoIterator<Item = Option<usize>>,
    ) -> Self {
        Self {
            name: name.into(),
            dtype: DType::U8,
            shape: Vec::new(),
            row_bytes: 0,
            ragged: None,
            element,
            dims: dims.into_iter().collect(),
            meaning: Meaning::Plain,
        }
    }

    /// As [`open`](Self::open), for a field that has the shape `shape` in every sample. `[]` is a scalar.
    pub fn fixed(name: impl Into<String>, element: ElementType, shape: &[usize]) -> Self {
        Self::open(name, element, shape.iter().copied().map(Some))
    }

    /// As [`open`](Self::open), for a field with one dimension that varies, such as the bytes of an image.
    pub fn variable(name: impl Into<String>, element: ElementType) -> Self {
        Self::open(name, element, [None])
    }

    /// The same field, under another name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The same field, with what its values are.
    #[must_use]
    pub fn with_meaning(self, meaning: Meaning) -> Self {
        Self { meaning, ..self }
    }

    /// The type of an element, as the file has it.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// The shape in one sample: `None` for a dimension that differs between samples.
    pub fn dims(&self) -> &[Option<usize>] {
        &self.dims
    }

    /// What the values are, beyond their type.
    pub fn meaning(&self) -> Meaning {
        self.meaning
    }

    /// Units per day, if the field holds dates or times.
    pub fn ticks_per_day(&self) -> Option<u64> {
        match self.meaning {
            Meaning::Time { per_day } => Some(per_day),
            _ => None,
        }
    }

    /// The shape of a value of `bytes` bytes, if at most one dimension varies.
    pub fn shape_of(&self, bytes: usize) -> impl Iterator<Item = usize> {
        let item = self.dims.iter().flatten().product::<usize>() * self.element.size();
        self.dims.iter().map(move |dim| dim.unwrap_or(bytes / item.max(1)))
    }

    /// The field of batches: bytes and texts become `u8`. A complex number becomes two floats, in an added
    /// last dimension.
    ///
    /// # Errors
    /// `Config` if a dimension varies, an element is `u64`, or the shape has a zero or is too large. The
    /// error names the field.
    pub fn closed(&self) -> Result<Self> {
        let Some(mut shape) = self.dims.iter().copied().collect::<Option<Vec<usize>>>() else {
            let why = named(
                "varies in size from sample to sample: load it by Bounded::measured, or make it one size",
                "varies in size from sample to sample: open it by feedline.open, or make it one size",
            );
            return Err(Error::new(ErrorKind::Config, format!("field \"{}\" {why}", self.name)));
        };
        let (dtype, parts) = self.batch_type()?;
        shape.extend_from_slice(parts);
        Self::new(&self.name, dtype, shape, None)
    }

    /// The dtype in batches, and the dimensions that it adds. The two parts of a complex number add the
    /// dimension 2.
    ///
    /// # Errors
    /// `Config` for an element that batches do not have. The error names the field.
    pub fn batch_type(&self) -> Result<(DType, &'static [usize])> {
        self.element.batch_type().ok_or_else(|| {
            let why = format!("field \"{}\" is u64, which batches do not have: store it as i64", self.name);
            Error::new(ErrorKind::Config, why)
        })
    }

    /// Bytes of one item of a ragged field; of another field, bytes per sample.
    pub fn item_bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} [", self.name, self.element)?;
        for (index, dim) in self.dims.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            match dim {
                Some(dim) => write!(f, "{separator}{dim}")?,
                None => write!(f, "{separator}?")?,
            }
        }
        f.write_str("]")
    }
}
