//! The fields of a sample, each with a name, a data type and a shape.

use crate::{DType, Error, ErrorKind, Result};

/// The most fields a spec can have. The bound lets rows be split over workers without an allocation.
pub const MAX_FIELDS: usize = 16;

/// A named part of every sample.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Field {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    row_bytes: usize,
}

impl Field {
    /// The field's name, by which views are requested.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape within one sample, without the batch dimension; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Elements per sample.
    pub fn elements(&self) -> usize {
        self.row_bytes / self.dtype.size()
    }

    /// Bytes per sample.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }
}

/// The fields of a sample, in the order of their columns in a batch.
///
/// ```
/// use feedline_core::{DType, Spec};
/// let spec = Spec::new().field("image", DType::U8, [28, 28])?.field("label", DType::U8, [])?;
/// assert_eq!(spec.sample_bytes(), 785);
/// assert_eq!(spec.index_of("label")?, 1);
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Spec {
    fields: Vec<Field>,
}

impl Spec {
    /// A spec without fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field; `shape` is its shape within one sample, `[]` for a scalar.
    ///
    /// # Errors
    /// `Config` for an empty or repeated name, a dimension of zero, a size beyond the address space,
    /// or more than [`MAX_FIELDS`] fields.
    pub fn field(mut self, name: &str, dtype: DType, shape: impl Into<Vec<usize>>) -> Result<Self> {
        let shape = shape.into();
        let refuse = |why: String| Err(Error::new(ErrorKind::Config, format!("field \"{name}\": {why}")));
        if name.is_empty() {
            return refuse("a field needs a name".into());
        }
        if self.fields.iter().any(|f| f.name == name) {
            return refuse("the name is taken: use a different name for each field".into());
        }
        if self.fields.len() == MAX_FIELDS {
            return refuse(format!("a sample has at most {MAX_FIELDS} fields: join some fields"));
        }
        if shape.contains(&0) {
            return refuse(format!("shape {shape:?} has a dimension of zero"));
        }
        let bytes = shape.iter().try_fold(dtype.size(), |bytes, &n| bytes.checked_mul(n));
        let Some(row_bytes) = bytes.filter(|&bytes| bytes <= isize::MAX as usize) else {
            return refuse(format!("shape {shape:?} of {dtype} is larger than the address space"));
        };
        self.fields.push(Field { name: name.to_owned(), dtype, shape, row_bytes });
        Ok(self)
    }

    /// The fields, in order.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Bytes of one sample, without alignment gaps.
    pub fn sample_bytes(&self) -> usize {
        self.fields.iter().map(Field::row_bytes).fold(0, usize::saturating_add)
    }

    /// The index of the field called `name`.
    ///
    /// # Errors
    /// `Config` when there is none; the message lists the existing names.
    pub fn index_of(&self, name: &str) -> Result<usize> {
        self.fields.iter().position(|f| f.name == name).ok_or_else(|| {
            let names: Vec<_> = self.fields.iter().map(Field::name).collect();
            Error::new(ErrorKind::Config, format!("no field \"{name}\"; the fields are {names:?}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_fields_are_rejected_by_name() {
        let spec = || Spec::new().field("x", DType::F32, [2]).unwrap();
        for (result, part) in [
            (spec().field("", DType::U8, []), "needs a name"),
            (spec().field("x", DType::U8, []), "the name is taken"),
            (spec().field("y", DType::U8, [3, 0]), "dimension of zero"),
            (spec().field("y", DType::F64, [usize::MAX / 4, 2]), "larger than the address space"),
        ] {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn the_error_for_an_unknown_name_lists_the_known_ones() {
        let error = Spec::new().field("x", DType::U8, []).unwrap().index_of("z").unwrap_err();
        assert_eq!(error.to_string(), "no field \"z\"; the fields are [\"x\"]");
    }
}
