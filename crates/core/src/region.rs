//! The region of a ragged field in a slab, for writing: rows are appended, and brought into their form at the
//! end.

use std::ops::Range;

use crate::ragged::{Extent, Form, MAX_ITEMS, Pad};
use crate::{Error, ErrorKind, Field, Result};

/// Bytes of an offset.
pub(crate) const OFFSET_BYTES: usize = size_of::<u32>();

/// The offset of a row that is not written yet.
const UNWRITTEN: u32 = u32::MAX;

/// The parameters that all regions of a batch share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    /// The byte at which the values begin.
    pub(crate) values_at: usize,
    /// Rows of the batch.
    pub(crate) rows: usize,
}

/// The region of one ragged field, for writing.
pub(crate) struct Region<'r> {
    field: &'r Field,
    /// The offsets of the rows up to the last one that may be written.
    offsets: &'r mut [u8],
    values: &'r mut [u8],
    /// Maximum number of items over all rows.
    max: usize,
}

impl<'r> Region<'r> {
    /// The region in `bytes`; the layout's room for values is at their end.
    pub(crate) fn new(field: &'r Field, bytes: &'r mut [u8], Room { values_at, rows }: Room) -> Self {
        let (offsets, values) = bytes.split_at_mut(values_at);
        // One item is reserved for the last running sum.
        let sum = field.as_ragged().is_some_and(|ragged| ragged.form == Form::Cumulative);
        let max = (values.len() / field.item_bytes()).saturating_sub(usize::from(sum));
        Self { field, offsets: &mut offsets[..(rows + 1) * OFFSET_BYTES], values, max }
    }

    /// Marks every row as unwritten.
    pub(crate) fn clear(&mut self) {
        self.offsets.fill(0xFF);
        self.set(0, 0);
    }

    /// Marks row `row` and the rows after it as unwritten.
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

    /// Space for row `row`: whole items, up to the limit per sample and the space left in the batch.
    pub(crate) fn space(self, row: usize) -> Result<&'r mut [u8]> {
        let start = self.start(row)?;
        let max = self.field.as_ragged().map_or(0, |ragged| ragged.per_sample);
        let (item, items) = (self.field.item_bytes(), max.min(self.max - start));
        Ok(&mut self.values[start * item..][..items * item])
    }

    /// Sets the length of row `row` to `items` items. Returns their bytes, and marks later rows as unwritten.
    pub(crate) fn set_len(mut self, row: usize, items: usize) -> Result<&'r mut [u8]> {
        let start = self.start(row)?;
        let max = self.field.as_ragged().map_or(0, |ragged| ragged.per_sample);
        let name = self.field.name();
        if items > max {
            let why = format!(
                "field \"{name}\" has {items} items in this sample, but at most {max} per sample are \
                 allowed: raise the limit, or shorten the sample"
            );
            return Err(Error::new(ErrorKind::Sample, why));
        }
        if items > self.max - start {
            let why = format!(
                "field \"{name}\": the batch has no room for the {items} items of row {row}: it holds \
                 {start}, and at most {} per batch are allowed; raise that limit, or take a smaller batch",
                self.max
            );
            return Err(Error::new(ErrorKind::Budget, why));
        }
        self.forget(row);
        // At most `self.max`, which is below 2^31.
        self.set(row + 1, (start + items) as u32);
        let item = self.field.item_bytes();
        Ok(&mut self.values[start * item..][..items * item])
    }

    /// The values of row `row`; `None` if it is not written.
    pub(crate) fn written(self, row: usize) -> Option<&'r mut [u8]> {
        let (start, end) = (self.offset(row)?, self.offset(row + 1)?);
        let item = self.field.item_bytes();
        self.values.get_mut(start * item..end * item)
    }

    /// Converts a fully written region to its form. Returns its extent; if padded rows do not fit, the
    /// longest row and the reason.
    pub(crate) fn finish(&mut self) -> Result<Extent, (usize, Error)> {
        let rows = self.offsets.len() / OFFSET_BYTES - 1;
        let total = self.offset(rows).unwrap_or(0);
        match self.field.as_ragged().map(|ragged| ragged.form) {
            Some(Form::Padded(pad)) => self.spread(pad, rows, total),
            Some(Form::Cumulative) => self.add_up(total).map_err(|why| (0, why)),
            Some(Form::Rows) | None => {
                let ends = (0..=rows).map(|row| self.offset(row).unwrap_or(total));
                let lengths = ends.clone().zip(ends.skip(1)).map(|(start, end)| end - start);
                Ok(Extent { items: total, padding: 0, longest: lengths.max().unwrap_or(0) })
            }
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
        let padded = width.saturating_mul(rows);
        if padded > self.max {
            let row = (0..rows).find(|&row| place(self, row).1 == longest).unwrap_or(0);
            let why = format!(
                "field \"{}\": {rows} rows padded to {width} items are {padded}, but at most {} per batch \
                 are allowed: raise that limit, or take a smaller batch",
                self.field.name(),
                self.max
            );
            return Err((row, Error::new(ErrorKind::Budget, why)));
        }
        let item = self.field.item_bytes();
        // The last row moves first, so that no row overwrites one that has not moved yet.
        for row in (0..rows).rev() {
            let (start, len) = place(self, row);
            let (at, places) = (row * width, pad.places(len, width));
            self.values.copy_within(start * item..(start + len) * item, (at + places.start) * item);
            for rest in [0..places.start, places.end..width] {
                pad.fill(&mut self.values[(at + rest.start) * item..(at + rest.end) * item]);
            }
        }
        for row in 0..rows {
            let len = place(self, row).1;
            self.set(row, len as u32);
        }
        Ok(Extent { items: padded, padding: padded - total, longest })
    }

    /// Replaces the values by their sums, with a zero before them.
    fn add_up(&mut self, total: usize) -> Result<Extent> {
        let values = &mut self.values[..(total + 1) * OFFSET_BYTES];
        values.copy_within(..total * OFFSET_BYTES, OFFSET_BYTES);
        let (mut sum, mut longest) = (0u32, 0);
        for (index, value) in values.chunks_exact_mut(OFFSET_BYTES).enumerate() {
            if index > 0 {
                longest = longest.max(read(value, 0) as usize);
                let next = sum.checked_add(read(value, 0)).filter(|&sum| sum as usize <= MAX_ITEMS);
                sum = next.ok_or_else(|| {
                    let why = format!("field \"{}\" adds up to more than 2^31 - 1", self.field.name());
                    Error::new(ErrorKind::Budget, why)
                })?;
            }
            value.copy_from_slice(&sum.to_ne_bytes());
        }
        Ok(Extent { items: total + 1, padding: 0, longest })
    }

    /// The index of the first item of row `row`.
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
