//! The fields of a sample, each with a name, a data type and a shape, or a length that varies.

use crate::ragged::{Form, MAX_ITEMS};
use crate::{DType, Error, ErrorKind, Pad, Ragged, Result};

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
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    ragged: Option<Ragged>,
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

    /// The shape within one sample, without the batch dimension; empty for a scalar. For a ragged field, the
    /// shape of one item.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Elements per sample; for a ragged field, the most.
    pub fn elements(&self) -> usize {
        self.row_bytes / self.dtype.size()
    }

    /// Bytes per sample; for a ragged field, the most.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// How the field varies in length; `None` if every sample has the same.
    pub fn as_ragged(&self) -> Option<&Ragged> {
        self.ragged.as_ref()
    }

    /// Bytes of one item of a ragged field; of another field, bytes per sample.
    pub fn item_bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
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
    pub fn field(self, name: &str, dtype: DType, shape: impl Into<Vec<usize>>) -> Result<Self> {
        self.add(name, dtype, shape.into(), None)
    }

    /// Adds a field of variable length: a sample has 0 to `most_per_sample` items of shape `item_shape`, `[]`
    /// for items that are single elements.
    ///
    /// A batch holds the items of all rows one behind another, and `rows + 1` offsets of type `u32`: row `i`
    /// has the items from offset `i` to offset `i + 1`. `read` writes a row by
    /// [`Row::write_ragged`](crate::Row::write_ragged). One worker writes all rows of a batch, in order;
    /// other workers decode other batches meanwhile. Only what is written is copied to the device.
    ///
    /// A slot has room for `most_per_sample` items in each row, or for
    /// [`most_per_batch`](Self::most_per_batch).
    ///
    /// ```
    /// use feedline_core::{DType, Layout, Rows, Spec};
    /// let spec = Spec::new().ragged("text", DType::U8, [], 100)?.field("label", DType::U8, [])?;
    /// let layout = Layout::new(&spec, 2)?;
    /// let mut slab = vec![0u8; layout.bytes()];
    /// let mut rows = Rows::new(&layout, &mut slab, 2);
    /// for (index, line) in ["hello", "you"].into_iter().enumerate() {
    ///     rows.row(index).write_ragged(0, line.as_bytes())?;
    ///     rows.row(index).write(1, &[index as u8]);
    /// }
    /// drop(rows);
    /// assert_eq!(&slab[layout.values(0)][..8], b"helloyou");
    /// assert_eq!(slab[layout.offset(0)..][..12], [0, 5, 8].map(u32::to_ne_bytes).concat());
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`field`](Self::field); also for a limit of 0 or of 2^31 or more.
    pub fn ragged(
        self,
        name: &str,
        dtype: DType,
        item_shape: impl Into<Vec<usize>>,
        most_per_sample: usize,
    ) -> Result<Self> {
        let ragged = Ragged { per_sample: most_per_sample, per_batch: None, form: Form::Rows };
        self.add(name, dtype, item_shape.into(), Some(ragged))
    }

    /// Adds a ragged field of `u32` that a batch has added up: `read` writes lengths, and the values of a
    /// batch are 0 and the sums of all lengths so far, as attention kernels for variable lengths take them.
    ///
    /// # Errors
    /// As for [`ragged`](Self::ragged).
    pub fn cumulative(self, name: &str, most_per_sample: usize) -> Result<Self> {
        let ragged = Ragged { per_sample: most_per_sample, per_batch: None, form: Form::Cumulative };
        self.add(name, DType::U32, Vec::new(), Some(ragged))
    }

    /// States the most items of the ragged field `name` per batch, where not every sample of a batch is as
    /// long as allowed; slots are then smaller. A batch that has more ends the run with an error of kind
    /// [`Budget`](ErrorKind::Budget). The builder of a loader does this; a data set states only the most per
    /// sample.
    ///
    /// # Errors
    /// `Config` for a field that does not exist or is not ragged, and for less than one sample may have.
    pub fn most_per_batch(mut self, name: &str, items: usize) -> Result<Self> {
        let ragged = self.ragged_mut(name)?;
        if items < ragged.per_sample {
            let why = format!(
                "field \"{name}\": {items} items per batch are less than the {} that one sample may have: \
                 raise the one or lower the other",
                ragged.per_sample
            );
            return Err(Error::new(ErrorKind::Config, why));
        }
        ragged.per_batch = Some(items);
        Ok(self)
    }

    /// Pads the rows of the ragged field `name` to one width per batch. A batch then holds
    /// `[rows, width, item...]`, where the width is that of its longest row or a multiple, and the `u32`
    /// length of each row instead of offsets. The builder of a loader does this, not a data set.
    ///
    /// # Errors
    /// `Config` for a field that does not exist, is not ragged or is cumulative, and for padding of another
    /// type than the field.
    pub fn padded(mut self, name: &str, pad: Pad) -> Result<Self> {
        let dtype = self.fields[self.index_of(name)?].dtype;
        let refuse = |why: &str| Err(Error::new(ErrorKind::Config, format!("field \"{name}\": {why}")));
        if pad.element_bytes().is_some_and(|bytes| bytes != dtype.size()) {
            return refuse("the padding has another type than the field");
        }
        let ragged = self.ragged_mut(name)?;
        if ragged.form == Form::Cumulative {
            return refuse("sums cannot be padded");
        }
        ragged.form = Form::Padded(pad);
        Ok(self)
    }

    /// Adds a field of another spec, as it is there.
    ///
    /// # Errors
    /// `Config` for a repeated name, or more than [`MAX_FIELDS`] fields.
    pub fn with(self, field: &Field) -> Result<Self> {
        self.add(&field.name, field.dtype, field.shape.clone(), field.ragged)
    }

    /// Whether a field is ragged.
    pub fn is_ragged(&self) -> bool {
        self.fields.iter().any(|field| field.ragged.is_some())
    }

    fn ragged_mut(&mut self, name: &str) -> Result<&mut Ragged> {
        let index = self.index_of(name)?;
        self.fields[index].ragged.as_mut().ok_or_else(|| {
            let why = format!("field \"{name}\" is not ragged: every sample has the same length");
            Error::new(ErrorKind::Config, why)
        })
    }

    fn add(mut self, name: &str, dtype: DType, shape: Vec<usize>, ragged: Option<Ragged>) -> Result<Self> {
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
        let most = ragged.map_or(1, |ragged| ragged.per_sample);
        if most == 0 || most > MAX_ITEMS {
            return refuse(format!("{most} items per sample: the limit must be from 1 to 2^31 - 1"));
        }
        let bytes = shape.iter().chain([&most]).try_fold(dtype.size(), |bytes, &n| bytes.checked_mul(n));
        let Some(row_bytes) = bytes.filter(|&bytes| bytes <= isize::MAX as usize) else {
            return refuse(format!("shape {shape:?} of {dtype} is larger than the address space"));
        };
        self.fields.push(Field { name: name.to_owned(), dtype, shape, row_bytes, ragged });
        Ok(self)
    }

    /// The fields, in order.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Bytes of one sample, without alignment gaps; with the most of each ragged field.
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
        let ragged = |most| Spec::new().ragged("y", DType::U8, [], most).unwrap();
        for (result, part) in [
            (spec().field("", DType::U8, []), "needs a name"),
            (spec().field("x", DType::U8, []), "the name is taken"),
            (spec().field("y", DType::U8, [3, 0]), "dimension of zero"),
            (spec().field("y", DType::F64, [usize::MAX / 4, 2]), "larger than the address space"),
            (spec().ragged("y", DType::U8, [], 0), "the limit must be from 1"),
            (spec().ragged("y", DType::U8, [], MAX_ITEMS + 1), "the limit must be from 1"),
            (spec().ragged("y", DType::F64, [1 << 40], MAX_ITEMS), "larger than the address space"),
            (spec().most_per_batch("x", 7), "is not ragged"),
            (spec().padded("x", Pad::longest()), "is not ragged"),
            (spec().cumulative("y", 7).unwrap().padded("y", Pad::longest()), "sums cannot be padded"),
            (ragged(7).most_per_batch("y", 6), "less than the 7 that one sample may have"),
            (ragged(7).padded("y", Pad::longest().with(1u32)), "another type"),
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
