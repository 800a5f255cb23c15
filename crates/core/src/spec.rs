//! The fields of a sample, each with a name, a data type and a shape, or a length that varies.

use crate::ragged::Form;
use crate::{DType, Error, ErrorKind, Pad, RaggedField, Result, named};

mod element;
mod open;
mod widened;

pub use element::{ElementType, Meaning};

/// Maximum number of fields of a spec. The bound lets rows be split over workers without an allocation.
pub const MAX_FIELDS: usize = 16;

/// A named part of every sample.
#[derive(Clone, Debug, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "stored::Field"))]
pub struct Field {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    /// 0 if the field is not closed.
    row_bytes: usize,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    ragged: Option<RaggedField>,
    #[cfg_attr(feature = "serde", serde(skip))]
    element: ElementType,
    #[cfg_attr(feature = "serde", serde(skip))]
    dims: Vec<Option<usize>>,
    #[cfg_attr(feature = "serde", serde(skip))]
    meaning: Meaning,
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
    fn new(name: &str, dtype: DType, shape: Vec<usize>, ragged: Option<RaggedField>) -> Result<Self> {
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
#[cfg_attr(feature = "serde", serde(try_from = "stored::Spec"))]
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
        self.add(Field::new(name, dtype, shape.into(), None)?)
    }

    /// Adds a field of variable length: a sample has 0 to `max_per_sample` items of shape `item_shape`, `[]`
    /// for items that are single elements.
    ///
    /// A batch holds the concatenated items of all rows, and `rows + 1` offsets of type `u32`: row `i` has
    /// the items from offset `i` to offset `i + 1`. `read` writes a row by
    /// [`Row::write_ragged`](crate::Row::write_ragged). One worker writes all rows of a batch, in order;
    /// other workers decode other batches meanwhile. Only written items are copied to the device.
    ///
    /// A slot has room for `max_per_sample` items in each row, or for
    /// as many per batch as the loader's `max_per_batch` says.
    ///
    /// ```
    /// use feedline_core::{DType, Dataset, Spec, from_fn};
    /// let spec = Spec::new().ragged("text", DType::U8, [], 100)?.field("label", DType::U8, [])?;
    /// let data = from_fn(2, spec, |id, row, _| {
    ///     row.write_ragged(0, ["hello", "you"][id as usize].as_bytes())?;
    ///     row.write(1, &[id as u8]);
    ///     Ok(())
    /// });
    /// let short = data.filter(|sample| sample.bytes(0).len() < 4)?;
    /// assert_eq!(short.ids(), [1]);
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
        max_per_sample: usize,
    ) -> Result<Self> {
        let ragged = RaggedField { per_sample: max_per_sample, per_batch: None, form: Form::Rows };
        self.add(Field::new(name, dtype, item_shape.into(), Some(ragged))?)
    }

    /// Adds a ragged field of `u32` whose values become running sums: `read` writes lengths, and a batch has
    /// 0 and then the running sum of all lengths, the input of attention kernels for variable lengths.
    ///
    /// # Errors
    /// As for [`ragged`](Self::ragged).
    pub fn cumulative(self, name: &str, max_per_sample: usize) -> Result<Self> {
        let ragged = RaggedField { per_sample: max_per_sample, per_batch: None, form: Form::Cumulative };
        self.add(Field::new(name, DType::U32, Vec::new(), Some(ragged))?)
    }

    /// Adds a field of another spec unchanged.
    ///
    /// # Errors
    /// `Config` for a repeated name, or more than [`MAX_FIELDS`] fields.
    pub fn with(self, field: &Field) -> Result<Self> {
        self.add(field.clone())
    }

    fn ragged_mut(&mut self, name: &str) -> Result<&mut RaggedField> {
        let index = self.index_of(name)?;
        self.fields[index].ragged.as_mut().ok_or_else(|| {
            let why = format!("field \"{name}\" is not ragged: every sample has the same length");
            Error::new(ErrorKind::Config, why)
        })
    }

    fn add(mut self, field: Field) -> Result<Self> {
        if self.fields.iter().any(|other| other.name() == field.name()) {
            return Err(in_field(field.name(), "the name is taken: use a different name for each field"));
        }
        if self.fields.len() == MAX_FIELDS {
            let join = named(
                "join some fields, columns of a table by Table::stack",
                "join some fields, columns of a table by feedline.table(path, stack={\"x\": [...]}), which \
                 also chooses columns by select=",
            );
            let why = format!("a sample has at most {MAX_FIELDS} fields: {join}");
            return Err(in_field(field.name(), &why));
        }
        self.fields.push(field);
        Ok(self)
    }

    /// The fields, in order.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Bytes of one sample, without alignment gaps; for a ragged field, its maximum.
    pub fn sample_bytes(&self) -> usize {
        self.fields.iter().map(Field::row_bytes).fold(0, usize::saturating_add)
    }

    /// The index of the field called `name`.
    ///
    /// # Errors
    /// `Config` when there is none; the message lists the existing names.
    pub fn index_of(&self, name: &str) -> Result<usize> {
        self.fields.iter().position(|field| field.name() == name).ok_or_else(|| {
            let names: Vec<_> = self.fields.iter().map(Field::name).collect();
            Error::new(ErrorKind::Config, format!("no field \"{name}\"; the fields are {names:?}"))
        })
    }
}

/// # For loaders and readers
///
/// What loaders, bridges and sets that read other sets call. It may change in any release.
impl Spec {
    /// Sets the maximum number of items of the ragged field `name` per batch. Slots are smaller if samples
    /// are rarely as long as allowed. A batch with more items ends the run with an error of kind
    /// [`Budget`](ErrorKind::Budget). Set it in the builder of a loader; a data set states only the maximum
    /// per sample.
    ///
    /// # Errors
    /// `Config` for a field that does not exist or is not ragged, and for a maximum below that of one sample.
    pub fn max_per_batch(mut self, name: &str, items: usize) -> Result<Self> {
        let ragged = self.ragged_mut(name)?;
        let stated = RaggedField { per_batch: Some(items), ..*ragged };
        stated.check().map_err(|why| in_field(name, &why))?;
        *ragged = stated;
        Ok(self)
    }

    /// Pads the rows of the ragged field `name` to one width per batch. A batch then holds `[rows, width,
    /// item...]`, where the width is the length of its longest row, or a multiple, and the `u32` length of
    /// each row instead of offsets; [`Pad::left`] says at which end the items are. The builder of a loader
    /// does this, not a data set.
    ///
    /// # Errors
    /// `Config` for a field that does not exist, is not ragged or is cumulative, and for padding of another
    /// type than the field.
    pub fn padded(mut self, name: &str, pad: Pad) -> Result<Self> {
        let dtype = self.fields[self.index_of(name)?].dtype();
        let ragged = self.ragged_mut(name)?;
        if ragged.form == Form::Cumulative {
            return Err(in_field(name, "sums cannot be padded"));
        }
        let form = Form::Padded(pad);
        form.check(dtype, &[]).map_err(|why| in_field(name, why))?;
        ragged.form = form;
        Ok(self)
    }

    /// Whether a field is ragged.
    pub fn is_ragged(&self) -> bool {
        self.fields.iter().any(|field| field.as_ragged().is_some())
    }
}

mod sealed {
    use super::{Result, Spec};

    pub trait Sealed {
        fn index_in(self, spec: &Spec) -> Result<usize>;
    }
}

/// A field of a row or a sample: its number in the spec, or its name, which is looked up. Sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name a field",
    note = "give the field's number in the spec (`usize`) or its name (`&str`)"
)]
pub trait FieldId: sealed::Sealed {}

impl FieldId for usize {}

impl sealed::Sealed for usize {
    fn index_in(self, _: &Spec) -> Result<usize> {
        Ok(self)
    }
}

impl FieldId for &str {}

impl sealed::Sealed for &str {
    fn index_in(self, spec: &Spec) -> Result<usize> {
        spec.index_of(self)
    }
}

fn in_field(name: &str, why: &str) -> Error {
    Error::new(ErrorKind::Config, format!("field \"{name}\": {why}"))
}

/// The serialized form, which passes the checks of [`Spec::field`] and the other methods again.
#[cfg(feature = "serde")]
mod stored {
    use crate::{DType, Error, RaggedField, Result};

    #[derive(serde::Deserialize)]
    pub(super) struct Field {
        name: String,
        dtype: DType,
        shape: Vec<usize>,
        row_bytes: usize,
        #[serde(default)]
        ragged: Option<RaggedField>,
    }

    #[derive(serde::Deserialize)]
    pub(super) struct Spec {
        fields: Vec<super::Field>,
    }

    impl TryFrom<Field> for super::Field {
        type Error = Error;

        fn try_from(stored: Field) -> Result<Self> {
            let Field { name, dtype, shape, row_bytes, ragged } = stored;
            let field = Self::new(&name, dtype, shape, ragged)?;
            if field.row_bytes() != row_bytes {
                let why = format!("{row_bytes} bytes per sample, but its shape has {}", field.row_bytes());
                return Err(super::in_field(&name, &why));
            }
            Ok(field)
        }
    }

    impl TryFrom<Spec> for super::Spec {
        type Error = Error;

        fn try_from(stored: Spec) -> Result<Self> {
            stored.fields.iter().try_fold(Self::new(), Self::with)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ragged::MAX_ITEMS;

    #[test]
    fn invalid_fields_are_rejected_by_name() {
        let spec = || Spec::new().field("x", DType::F32, [2]).unwrap();
        let ragged = |max| Spec::new().ragged("y", DType::U8, [], max).unwrap();
        let bools = Spec::new().ragged("z", DType::Bool, [], 7).unwrap();
        for (result, part) in [
            (spec().field("", DType::U8, []), "needs a name"),
            (spec().field("x", DType::U8, []), "the name is taken"),
            (spec().field("y", DType::U8, [3, 0]), "dimension of zero"),
            (spec().field("y", DType::F64, [usize::MAX / 4, 2]), "larger than the address space"),
            (spec().ragged("y", DType::U8, [], 0), "the limit must be from 1"),
            (spec().ragged("y", DType::U8, [], MAX_ITEMS + 1), "the limit must be from 1"),
            (spec().ragged("y", DType::F64, [1 << 40], MAX_ITEMS), "larger than the address space"),
            (spec().max_per_batch("x", 7), "is not ragged"),
            (spec().padded("x", Pad::longest()), "is not ragged"),
            (spec().cumulative("y", 7).unwrap().padded("y", Pad::longest()), "sums cannot be padded"),
            (ragged(7).max_per_batch("y", 6), "less than the 7 that one sample may have"),
            (ragged(7).padded("y", Pad::longest().fill_value(1u32)), "another type"),
            (bools.padded("z", Pad::longest().fill_value(2u8)), "neither 0 nor 1"),
        ] {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    /// A spec of a ragged and a fixed field, as JSON.
    #[cfg(feature = "serde")]
    fn stored() -> (Spec, serde_json::Value) {
        let pad = Pad::multiple_of(8).fill_value(7_u16).left();
        let spec = Spec::new().field("x", DType::F32, [2]).unwrap().ragged("y", DType::U16, [3], 5).unwrap();
        let spec = spec.max_per_batch("y", 9).unwrap().padded("y", pad).unwrap();
        let spec = spec.cumulative("z", 4).unwrap();
        let value = serde_json::to_value(&spec).unwrap();
        (spec, value)
    }

    #[test]
    #[cfg(feature = "serde")]
    fn a_stored_spec_passes_the_checks_of_its_constructors_again() {
        let (spec, value) = stored();
        assert_eq!(serde_json::from_value::<Spec>(value.clone()).unwrap(), spec);
        let mut earlier = value;
        earlier.pointer_mut("/fields/1/ragged/form/Padded").unwrap().as_object_mut().unwrap().remove("left");
        let right = Pad::multiple_of(8).fill_value(7_u16);
        assert_eq!(serde_json::from_value::<Spec>(earlier).unwrap(), spec.padded("y", right).unwrap());
        let changed = |at: &str, to: serde_json::Value| {
            let mut value = stored().1;
            *value.pointer_mut(at).unwrap() = to;
            serde_json::from_value::<Spec>(value).unwrap_err().to_string()
        };
        let field = stored().1["fields"][0].clone();
        for (at, to, part) in [
            ("/fields/0/row_bytes", 4.into(), "field \"x\": 4 bytes per sample, but its shape has 8"),
            ("/fields/0/shape/0", 1000.into(), "8 bytes per sample, but its shape has 4000"),
            ("/fields/0/shape/0", 0.into(), "dimension of zero"),
            ("/fields/0/shape/0", (1_u64 << 63).into(), "larger than the address space"),
            ("/fields/0/name", "".into(), "needs a name"),
            ("/fields/0/name", "y".into(), "the name is taken"),
            ("/fields/0/dtype", "i64".into(), "8 bytes per sample, but its shape has 16"),
            ("/fields", vec![field; 2].into(), "the name is taken"),
            ("/fields/1/row_bytes", 6.into(), "6 bytes per sample, but its shape has 30"),
            ("/fields/1/ragged/per_sample", 0.into(), "the limit must be from 1"),
            ("/fields/1/ragged/per_sample", (1_u64 << 40).into(), "the limit must be from 1"),
            ("/fields/1/ragged/per_batch", 4.into(), "less than the 5 that one sample may have"),
            ("/fields/1/ragged/form/Padded/multiple", 0.into(), "a multiple of 0"),
            ("/fields/1/ragged/form/Padded/element/1", 4.into(), "another type"),
            ("/fields/1/ragged/form/Padded/element/1", 3.into(), "not an element"),
            ("/fields/1/ragged/form/Padded/element/1", 9.into(), "not an element"),
            ("/fields/1/ragged/form/Padded/element/0/5", 1.into(), "not an element"),
            ("/fields/1/ragged/form", "Cumulative".into(), "sums are single u32"),
            ("/fields/2/dtype", "f32".into(), "sums are single u32"),
        ] {
            let error = changed(at, to);
            assert!(error.contains(part), "no {part:?} in: {error}");
        }
    }

    #[test]
    fn fields_of_files_are_closed_before_batches_have_them() {
        let of = |element| Spec::of_fields([Field::fixed("x", element, &[2])]);
        let closed = of(ElementType::Complex64).closed().unwrap();
        assert_eq!(closed, Spec::new().field("x", DType::F32, [2, 2]).unwrap());
        for (open, part) in [
            (of(ElementType::Bytes), "no batch has"),
            (of(ElementType::U64), "u64, which batches do not have"),
            (Spec::of_fields([Field::variable("x", ElementType::Text)]), "varies in size"),
        ] {
            let error = crate::Layout::new(&open, 1).unwrap_err();
            assert!(error.kind() == ErrorKind::Config && error.to_string().contains(part), "{error}");
        }
        let ragged = Spec::new().ragged("x", DType::U8, [], 3).unwrap();
        assert_eq!(ragged.closed().unwrap(), ragged, "a closed field stays as it is");
        // What values mean makes no other field.
        let times = Field::fixed("x", ElementType::Bytes, &[2]).with_meaning(Meaning::Time { per_day: 1 });
        assert_eq!(Spec::of_fields([times]), of(ElementType::Bytes));
    }

    #[test]
    fn the_error_for_an_unknown_name_lists_the_known_ones() {
        let error = Spec::new().field("x", DType::U8, []).unwrap().index_of("z").unwrap_err();
        assert_eq!(error.to_string(), "no field \"z\"; the fields are [\"x\"]");
    }
}
