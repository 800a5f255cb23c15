//! Memory that shows which bytes a read wrote.

use crate::layout::ALIGN;
use crate::memory::lengthen;
use crate::{Layout, Result, Rows};

/// Rows to read into, with unused bytes before and after them, all filled with one background byte.
pub(super) struct Slab {
    layout: Layout,
    rows: usize,
    /// Unused rows before the others; ragged rows begin with the first.
    before: usize,
    background: u8,
    block: Vec<u8>,
    start: usize,
}

impl Slab {
    /// A slab of `rows` rows; `layout` must have capacity for two more.
    ///
    /// # Errors
    /// `Budget` if there is no memory for it.
    pub(super) fn new(layout: &Layout, rows: usize, background: u8) -> Result<Self> {
        let mut block = Vec::new();
        lengthen(&mut block, layout.bytes() + 3 * ALIGN)?;
        block.fill(background);
        // The slab is aligned, with a margin of at least ALIGN on both sides.
        let address = block.as_ptr() as usize;
        let start = (address + ALIGN).next_multiple_of(ALIGN) - address;
        let before = if layout.is_ragged() { 0 } else { 1 };
        Ok(Self { layout: layout.clone(), rows, before, background, block, start })
    }

    pub(super) fn rows(&mut self) -> Rows<'_> {
        let slab = &mut self.block[self.start..][..self.layout.bytes()];
        if self.before == 0 {
            return Rows::new(&self.layout, slab, self.rows);
        }
        let (_, rest) = Rows::new(&self.layout, slab, self.rows + 2).split_at(self.before);
        rest.split_at(self.rows).0
    }

    /// The range of a field's rows in the block; for a ragged field, the whole writable range.
    pub(super) fn place(&self, field: usize) -> std::ops::Range<usize> {
        let first = self.start + self.layout.offset(field);
        if self.is_ragged(field) {
            return first..self.start + self.layout.values(field).end;
        }
        let bytes = self.layout.spec().fields()[field].row_bytes();
        first + bytes * self.before..first + bytes * (self.before + self.rows)
    }

    /// The bytes of one field of one row.
    pub(super) fn field(&self, row: usize, field: usize) -> &[u8] {
        if self.is_ragged(field) {
            return self.layout.row_values(&self.block[self.start..], field, row);
        }
        let bytes = self.layout.spec().fields()[field].row_bytes();
        &self.block[self.place(field)][row * bytes..][..bytes]
    }

    pub(super) fn is_ragged(&self, field: usize) -> bool {
        self.layout.spec().fields()[field].as_ragged().is_some()
    }

    pub(super) fn is_touched_outside(&self) -> bool {
        let is_touched = |bytes: &[u8]| bytes.iter().any(|&byte| byte != self.background);
        let mut end = 0;
        for (field, _) in self.layout.in_order() {
            let place = self.place(field);
            if is_touched(&self.block[end..place.start]) {
                return true;
            }
            end = place.end;
        }
        is_touched(&self.block[end..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Spec};

    #[test]
    fn every_write_outside_the_rows_is_found() {
        let spec = Spec::new().field("a", DType::I64, []).unwrap().field("b", DType::U8, [5]).unwrap();
        let layout = Layout::new(&spec, 2 + 2).unwrap();
        let mut slab = Slab::new(&layout, 2, 0x55).unwrap();
        assert!((slab.block[slab.start..].as_ptr() as usize).is_multiple_of(ALIGN));
        let mut inside = 0;
        for at in 0..slab.block.len() {
            slab.block[at] ^= 1;
            let is_inside = (0..2).any(|field| slab.place(field).contains(&at));
            assert_eq!(slab.is_touched_outside(), !is_inside, "byte {at}");
            inside += usize::from(is_inside);
            slab.block[at] ^= 1;
        }
        assert_eq!(inside, 2 * (8 + 5));
        slab.rows().column_mut(1).fill(7);
        assert!(!slab.is_touched_outside());
        assert_eq!(slab.field(1, 1), [7; 5]);
    }
}
