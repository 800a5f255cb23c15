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

use std::ops::Range;

use crate::{Element, Error, ErrorKind, Field, Result};

/// The most items of a batch.
pub const MAX_ITEMS: usize = i32::MAX as usize;

/// Bytes of an offset.
pub(crate) const OFFSET_BYTES: usize = size_of::<u32>();

/// The offset of a row that is not written yet.
const UNWRITTEN: u32 = u32::MAX;

/// How much a field of variable length holds, and the form in which a batch has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ragged {
    pub(crate) per_sample: usize,
    /// `None` for as many as every sample of a full batch may have.
    pub(crate) per_batch: Option<usize>,
    pub(crate) form: Form,
}

/// The form of a ragged field in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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

    fn fill(self, bytes: &mut [u8]) {
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

/// Bytes of the offsets of `rows` rows, with their padding.
pub(crate) fn offsets_bytes(rows: usize) -> usize {
    ((rows + 1) * OFFSET_BYTES).next_multiple_of(crate::layout::ALIGN)
}

/// The region of one ragged field, for writing.
pub(crate) struct Region<'r> {
    field: &'r Field,
    /// The offsets of the rows up to the last one that may be written.
    offsets: &'r mut [u8],
    values: &'r mut [u8],
    /// The most items that the rows may have together.
    most: usize,
}

impl<'r> Region<'r> {
    /// The region in `bytes`, of a layout for `capacity` rows, of which `rows` are in use.
    pub(crate) fn new(field: &'r Field, bytes: &'r mut [u8], capacity: usize, rows: usize) -> Self {
        let (offsets, values) = bytes.split_at_mut(offsets_bytes(capacity));
        let most = field.as_ragged().and_then(|ragged| ragged.most_per_batch(capacity)).unwrap_or(0);
        Self { field, offsets: &mut offsets[..(rows + 1) * OFFSET_BYTES], values, most }
    }

    /// Forgets what an earlier batch has written.
    pub(crate) fn clear(&mut self) {
        self.offsets.fill(0xFF);
        self.set(0, 0);
    }

    /// From now on row `row` and the rows after it are not written.
    pub(crate) fn forget(&mut self, row: usize) {
        for later in row + 1..self.offsets.len() / OFFSET_BYTES {
            if self.offset(later).is_none() {
                return;
            }
            self.set(later, UNWRITTEN);
        }
    }

    /// The first of `rows` that is not written.
    pub(crate) fn first_unwritten(&self, rows: Range<usize>) -> Option<usize> {
        rows.into_iter().find(|row| self.offset(row + 1).is_none())
    }

    /// The room for the values of row `row`: as many whole items as a sample may have and the batch has left.
    pub(crate) fn space(self, row: usize) -> Result<&'r mut [u8]> {
        let start = self.start(row)?;
        let most = self.field.as_ragged().map_or(0, |ragged| ragged.per_sample);
        let (item, items) = (self.field.item_bytes(), most.min(self.most - start));
        Ok(&mut self.values[start * item..][..items * item])
    }

    /// Row `row` has `items` items. Returns their bytes, and forgets the rows after it.
    pub(crate) fn set_len(mut self, row: usize, items: usize) -> Result<&'r mut [u8]> {
        let start = self.start(row)?;
        let most = self.field.as_ragged().map_or(0, |ragged| ragged.per_sample);
        let name = self.field.name();
        if items > most {
            let why = format!(
                "field \"{name}\" has {items} items in this sample, but at most {most} per sample are \
                 allowed: raise the limit, or shorten the sample"
            );
            return Err(Error::new(ErrorKind::Sample, why));
        }
        if items > self.most - start {
            let why = format!(
                "field \"{name}\": the batch has no room for the {items} items of row {row}: it holds \
                 {start}, and at most {} per batch are allowed; raise that limit, or take a smaller batch",
                self.most
            );
            return Err(Error::new(ErrorKind::Budget, why));
        }
        self.forget(row);
        // At most `most`, which is below 2^31.
        self.set(row + 1, (start + items) as u32);
        let item = self.field.item_bytes();
        Ok(&mut self.values[start * item..][..items * item])
    }

    /// Brings a region whose rows are all written into its form. Returns what it holds; for rows that do
    /// not fit once they are padded, the longest row and why.
    pub(crate) fn finish(&mut self) -> Result<Extent, (usize, Error)> {
        let rows = self.offsets.len() / OFFSET_BYTES - 1;
        let total = self.offset(rows).unwrap_or(0);
        match self.field.as_ragged().map(|ragged| ragged.form) {
            Some(Form::Padded(pad)) => self.spread(pad, rows, total),
            Some(Form::Cumulative) => self.add_up(total).map_err(|why| (0, why)),
            Some(Form::Rows) | None => Ok(Extent { items: total, padding: 0 }),
        }
    }

    /// Moves the rows to their places in rows of one width, and turns the offsets into lengths.
    fn spread(&mut self, pad: Pad, rows: usize, total: usize) -> Result<Extent, (usize, Error)> {
        let place = |at: &Self, row: usize| {
            let start = at.offset(row).unwrap_or(total);
            (start, at.offset(row + 1).unwrap_or(total) - start)
        };
        let longest = (0..rows).map(|row| place(self, row).1).max().unwrap_or(0);
        let width = pad.width(longest);
        if width * rows > self.most {
            let row = (0..rows).find(|&row| place(self, row).1 == longest).unwrap_or(0);
            let why = format!(
                "field \"{}\": {rows} rows padded to {width} items are {}, but at most {} per batch are \
                 allowed: raise that limit, or take a smaller batch",
                self.field.name(),
                width * rows,
                self.most
            );
            return Err((row, Error::new(ErrorKind::Budget, why)));
        }
        let item = self.field.item_bytes();
        // From the last row on: a row never moves forward over one that is still in its old place.
        for row in (0..rows).rev() {
            let (start, len) = place(self, row);
            self.values.copy_within(start * item..(start + len) * item, row * width * item);
            pad.fill(&mut self.values[(row * width + len) * item..(row + 1) * width * item]);
        }
        for row in 0..rows {
            let len = place(self, row).1;
            self.set(row, len as u32);
        }
        Ok(Extent { items: width * rows, padding: width * rows - total })
    }

    /// Replaces the values by their sums, with a zero before them.
    fn add_up(&mut self, total: usize) -> Result<Extent> {
        let values = &mut self.values[..(total + 1) * OFFSET_BYTES];
        values.copy_within(..total * OFFSET_BYTES, OFFSET_BYTES);
        let mut sum = 0u32;
        for (index, value) in values.chunks_exact_mut(OFFSET_BYTES).enumerate() {
            if index > 0 {
                let next = sum.checked_add(read(value, 0)).filter(|&sum| sum as usize <= MAX_ITEMS);
                sum = next.ok_or_else(|| {
                    let why = format!("field \"{}\" adds up to more than 2^31 - 1", self.field.name());
                    Error::new(ErrorKind::Budget, why)
                })?;
            }
            value.copy_from_slice(&sum.to_ne_bytes());
        }
        Ok(Extent { items: total + 1, padding: 0 })
    }

    /// The item at which row `row` begins.
    fn start(&self, row: usize) -> Result<usize> {
        self.offset(row).ok_or_else(|| {
            let why = format!(
                "field \"{}\": row {row} cannot be written before row {}: write a ragged field row by row, \
                 in order",
                self.field.name(),
                row.saturating_sub(1)
            );
            Error::new(ErrorKind::Config, why)
        })
    }

    fn offset(&self, row: usize) -> Option<usize> {
        let offset = read(self.offsets, row);
        (offset != UNWRITTEN).then_some(offset as usize)
    }

    fn set(&mut self, row: usize, offset: u32) {
        self.offsets[row * OFFSET_BYTES..][..OFFSET_BYTES].copy_from_slice(&offset.to_ne_bytes());
    }
}

/// Number `index` of the `u32` in `bytes`, which need not be aligned.
pub(crate) fn read(bytes: &[u8], index: usize) -> u32 {
    let mut word = [0; OFFSET_BYTES];
    word.copy_from_slice(&bytes[index * OFFSET_BYTES..][..OFFSET_BYTES]);
    u32::from_ne_bytes(word)
}
