//! Fields of variable length: the values of all rows one behind another, and where each row's begin.
//!
//! The region of such a field in a slab is `capacity + 1` offsets of type `u32`, padded to
//! [`ALIGN`](crate::layout::ALIGN), and then the values. Row `i` has the items from offset `i` to offset
//! `i + 1`. An item is the part of a sample that repeats: a token, a point, a byte. A batch has fewer than
//! 2^31 items, so kernels that take `i32` offsets read the same numbers.
//!
//! One worker writes all rows of a batch, in order, so that values are appended and nothing moves. When the
//! last row is written, [`Layout::finish`](crate::Layout::finish) brings the region into the form that the
//! spec asks for.

use crate::Element;

/// The most items of a batch.
pub const MAX_ITEMS: usize = i32::MAX as usize;

/// How much a field of variable length holds, and the form in which a batch has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Ragged {
    pub(crate) per_sample: usize,
    /// `None` for as many as every sample of a full batch may have.
    pub(crate) per_batch: Option<usize>,
    pub(crate) form: Form,
}

/// The form of a ragged field in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Form {
    /// The rows one behind another, with `rows + 1` offsets.
    Rows,
    /// Rows of one width, with the length of each.
    Padded(Pad),
    /// The `u32` values of all rows added up, from 0 on: one more than there are values.
    Cumulative,
}

/// To what width rows are padded.
///
/// ```
/// use feedline_core::Pad;
/// let longest = Pad::longest();
/// assert_eq!((longest.width(13), longest.width(0)), (13, 1));
/// assert_eq!(Pad::multiple_of(8).with(-100i32).width(13), 16);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Pad {
    multiple: usize,
    /// The bytes of one element of padding, and how many of them count; none for zeros.
    element: ([u8; 8], usize),
}

impl Pad {
    /// To the longest row of the batch, with zeros.
    pub const fn longest() -> Self {
        Self { multiple: 1, element: ([0; 8], 0) }
    }

    /// To the smallest multiple of `items` that the longest row of the batch fits, with zeros. 0 counts as 1.
    pub const fn multiple_of(items: usize) -> Self {
        Self { multiple: if items == 0 { 1 } else { items }, element: ([0; 8], 0) }
    }

    /// Pads with `element` instead of zeros; it must have the type of the field.
    pub fn with<T: Element>(self, element: T) -> Self {
        let mut bytes = [0; 8];
        bytes[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&element));
        Self { element: (bytes, size_of::<T>()), ..self }
    }

    /// The width of a batch whose longest row has `longest` items: at least 1.
    pub fn width(self, longest: usize) -> usize {
        longest.max(1).next_multiple_of(self.multiple)
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

/// How much of a ragged field a batch holds; known on the host before the batch has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Items that the batch has, padding included.
    pub items: usize,
    /// Items of padding among them.
    pub padding: usize,
}

impl Ragged {
    /// The most items of a sample.
    pub fn most_per_sample(&self) -> usize {
        self.per_sample
    }

    /// The form of the field in a batch.
    pub fn form(&self) -> Form {
        self.form
    }

    /// The most items that a batch of up to `rows` rows holds, padding included; `None` for more than
    /// [`MAX_ITEMS`].
    pub fn most_per_batch(&self, rows: usize) -> Option<usize> {
        let width = match self.form {
            Form::Padded(pad) => pad.width(self.per_sample),
            Form::Rows | Form::Cumulative => self.per_sample,
        };
        let most = match self.per_batch {
            Some(stated) => stated.min(width.saturating_mul(rows)),
            None => width.checked_mul(rows)?,
        };
        Some(most).filter(|&most| most < MAX_ITEMS)
    }

    /// Items that the region has room for: cumulative values have one more than their rows.
    pub(crate) fn room(&self, rows: usize) -> Option<usize> {
        self.most_per_batch(rows).map(|most| most + usize::from(self.form == Form::Cumulative))
    }
}
