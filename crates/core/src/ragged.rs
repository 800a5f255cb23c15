//! Fields of variable length: the concatenated values of all rows, and the offset of each row.
//!
//! The region of such a field in a slab is `capacity + 1` offsets of type `u32`, padded to
//! [`ALIGN`](crate::layout::ALIGN), and then the values. Row `i` has the items from offset `i` to offset
//! `i + 1`. An item is the part of a sample that repeats: a token, a point, a byte. A batch has fewer than
//! 2^31 items, so kernels that take `i32` offsets read the same numbers.
//!
//! One worker writes all rows of a batch, in order, so that values are appended and nothing moves. When the
//! last row is written, [`Layout::finish`](crate::Layout::finish) brings the region into the form that the
//! spec asks for.

use std::ops::Range;

use crate::{DType, Element};

/// Maximum number of items in a batch.
pub const MAX_ITEMS: usize = i32::MAX as usize;

/// The limits of a field of variable length, and its form in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "stored::RaggedField"))]
pub struct RaggedField {
    pub(crate) per_sample: usize,
    /// `None` if every row of a full batch may have `per_sample` items.
    pub(crate) per_batch: Option<usize>,
    pub(crate) form: Form,
}

/// The form of a ragged field in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Form {
    /// Concatenated rows, with `rows + 1` offsets.
    Rows,
    /// Rows of one width, and the length of each row.
    Padded(Pad),
    /// 0, followed by the running sum of the `u32` values of all rows: one number more than there are values.
    Cumulative,
}

/// How rows are padded to one width.
///
/// ```
/// use feedline_core::Pad;
/// let longest = Pad::longest();
/// let multiple = Pad::multiple_of(8).fill_value(-100i32);
/// let prompts = Pad::multiple_of(64).left(); // for generation
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "stored::Pad"))]
pub struct Pad {
    multiple: usize,
    /// The bytes of one padding element, and their number; none for zeros.
    element: ([u8; 8], usize),
    /// Whether the padding comes before the items of a row.
    left: bool,
}

impl Pad {
    /// Pads rows with zeros to the longest row of the batch.
    pub const fn longest() -> Self {
        Self::multiple_of(1)
    }

    /// Pads rows with zeros to the smallest multiple of `items` that the longest row of the batch fits. 0
    /// counts as 1.
    pub const fn multiple_of(items: usize) -> Self {
        Self { multiple: if items == 0 { 1 } else { items }, element: ([0; 8], 0), left: false }
    }

    /// Pads rows before their items instead of behind them, so that all rows end in one column: for
    /// generation, which continues each row at its end.
    pub const fn left(self) -> Self {
        Self { left: true, ..self }
    }

    /// Pads with `element` instead of zeros; it must have the type of the field.
    pub fn fill_value<T: Element>(self, element: T) -> Self {
        let mut bytes = [0; 8];
        bytes[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&element));
        Self { element: (bytes, size_of::<T>()), ..self }
    }

    /// The size of the element to pad with; `None` for zeros.
    pub(crate) fn element_bytes(self) -> Option<usize> {
        Some(self.element.1).filter(|&bytes| bytes > 0)
    }

    /// Fills `bytes` with padding.
    pub(crate) fn fill(self, bytes: &mut [u8]) {
        match &self.element.0[..self.element.1] {
            [] => bytes.fill(0),
            element => bytes.chunks_exact_mut(element.len()).for_each(|at| at.copy_from_slice(element)),
        }
    }
}

/// # For loaders and readers
///
/// What loaders, bridges and sets that read other sets call. It may change in any release.
impl Pad {
    /// The width of a batch whose longest row has `longest` items: at least 1.
    pub fn width(self, longest: usize) -> usize {
        longest.max(1).checked_next_multiple_of(self.multiple).unwrap_or(usize::MAX)
    }

    /// The places of the `items` items of a row in a row of `width`.
    pub fn places(self, items: usize, width: usize) -> Range<usize> {
        let before = if self.left { width - items } else { 0 };
        before..before + items
    }

    /// Whether the padding comes before the items of a row.
    pub fn is_left(self) -> bool {
        self.left
    }

    /// The multiple, and the bytes of the element to pad with; none for zeros.
    pub fn parts(&self) -> (usize, &[u8]) {
        (self.multiple, &self.element.0[..self.element.1])
    }

    /// The padding of these [`parts`](Self::parts), behind the items.
    pub fn from_parts(items: usize, element: &[u8]) -> Self {
        let mut bytes = [0; 8];
        let len = element.len().min(8);
        bytes[..len].copy_from_slice(&element[..len]);
        Self { element: (bytes, len), ..Self::multiple_of(items) }
    }
}

/// The extent of a ragged field in a batch; known on the host before the batch has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Items in the batch, padding included.
    pub items: usize,
    /// Items of padding.
    pub padding: usize,
    /// Items of the longest row; for running sums, the largest summand, such as the longest sequence in
    /// `cu_seqlens`.
    pub longest: usize,
}

impl Form {
    /// Whether a field of items of type `dtype` and shape `item` can have this form.
    pub(crate) fn check(self, dtype: DType, item: &[usize]) -> Result<(), &'static str> {
        match self {
            Self::Padded(pad) if pad.element_bytes().is_some_and(|bytes| bytes != dtype.size()) => {
                Err("the padding has another type than the field")
            }
            Self::Padded(pad) if !dtype.accepts(&pad.element.0[..pad.element.1]) => {
                Err("the padding is neither 0 nor 1, and the field is bool")
            }
            Self::Cumulative if dtype != DType::U32 || !item.is_empty() => Err("sums are single u32"),
            _ => Ok(()),
        }
    }
}

impl RaggedField {
    /// Whether the limits are possible.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { per_sample, per_batch, .. } = *self;
        if per_sample == 0 || per_sample > MAX_ITEMS {
            return Err(format!("{per_sample} items per sample: the limit must be from 1 to 2^31 - 1"));
        }
        match per_batch {
            Some(items) if items < per_sample => Err(format!(
                "{items} items per batch are less than the {per_sample} that one sample may have: raise the \
                 one or lower the other"
            )),
            _ => Ok(()),
        }
    }

    /// Maximum number of items in a sample.
    pub fn max_per_sample(&self) -> usize {
        self.per_sample
    }

    /// The form of the field in a batch.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Maximum number of items in a batch of `rows` rows, padding included; `None` if it exceeds
    /// [`MAX_ITEMS`].
    pub fn max_per_batch(&self, rows: usize) -> Option<usize> {
        let width = match self.form {
            Form::Padded(pad) => pad.width(self.per_sample),
            Form::Rows | Form::Cumulative => self.per_sample,
        };
        let max = match self.per_batch {
            Some(stated) => stated.min(width.saturating_mul(rows)),
            None => width.checked_mul(rows)?,
        };
        Some(max).filter(|&max| max < MAX_ITEMS)
    }

    /// Items that the region has room for; cumulative fields have one more.
    pub(crate) fn room(&self, rows: usize) -> Option<usize> {
        self.max_per_batch(rows).map(|max| max + usize::from(self.form == Form::Cumulative))
    }
}

/// # For loaders and readers
///
/// What loaders, bridges and sets that read other sets call. It may change in any release.
impl RaggedField {
    /// The stated limit per batch, if any.
    pub fn stated_per_batch(&self) -> Option<usize> {
        self.per_batch
    }
}

/// The serialized forms, with the checks of the constructors.
#[cfg(feature = "serde")]
mod stored {
    use super::Form;

    #[derive(serde::Deserialize)]
    pub(super) struct RaggedField {
        per_sample: usize,
        per_batch: Option<usize>,
        form: Form,
    }

    #[derive(serde::Deserialize)]
    pub(super) struct Pad {
        multiple: usize,
        element: ([u8; 8], usize),
        /// Earlier versions padded behind the items only.
        #[serde(default)]
        left: bool,
    }

    impl TryFrom<RaggedField> for super::RaggedField {
        type Error = String;

        fn try_from(RaggedField { per_sample, per_batch, form }: RaggedField) -> Result<Self, String> {
            let ragged = Self { per_sample, per_batch, form };
            ragged.check().map(|()| ragged)
        }
    }

    impl TryFrom<Pad> for super::Pad {
        type Error = String;

        fn try_from(Pad { multiple, element, left }: Pad) -> Result<Self, String> {
            let (bytes, len) = element;
            if multiple == 0 {
                return Err("padding to a multiple of 0 items: it must be at least 1".to_owned());
            }
            if !matches!(len, 0 | 1 | 2 | 4 | 8) || bytes[len..] != [0; 8][len..] {
                return Err(format!("padding with the {len} bytes of {bytes:?}, which is not an element"));
            }
            Ok(Self { multiple, element, left })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_width_beyond_the_address_space_does_not_wrap() {
        assert_eq!(Pad::multiple_of(8).width(usize::MAX), usize::MAX);
        assert_eq!(Pad::multiple_of(usize::MAX).width(3), usize::MAX);
    }
}
