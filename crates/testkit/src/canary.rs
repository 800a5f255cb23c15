//! Bytes that nobody may touch: a decoder that writes outside its row, or not all of it, is found.

use std::fmt;

use feedline_core::{Context, Dataset, Layout, Rows};

/// Guard bytes on each side of a [`Guarded`] slab.
pub const GUARD: usize = 64;

/// What guard bytes are: 0xC5 at even positions, its complement at odd ones, so that neither a fill nor a shift by one
/// goes unseen.
fn canary(at: usize) -> u8 {
    if at.is_multiple_of(2) { 0xC5 } else { 0x3A }
}

/// A byte that should not have been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Its place, counted from the start of the slab; negative before it.
    pub at: isize,
    /// What is there now.
    pub got: u8,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {} of the slab was overwritten with {:#04x}", self.at, self.got)
    }
}

impl std::error::Error for Damage {}

fn look(bytes: &[u8], first: usize) -> Option<(usize, u8)> {
    let mut places = bytes.iter().copied().zip(first..);
    places.find(|&(byte, at)| byte != canary(at)).map(|(byte, at)| (at, byte))
}

/// A slab, 256-byte aligned, with guard bytes on both sides; for decoders that are not all safe Rust.
#[derive(Debug)]
pub struct Guarded {
    block: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Guarded {
    /// A slab of `bytes` bytes, all zero.
    pub fn new(bytes: usize) -> Self {
        const ALIGN: usize = feedline_core::layout::ALIGN;
        let mut block: Vec<u8> = (0..bytes + 2 * GUARD + ALIGN).map(canary).collect();
        let start = (block.as_ptr() as usize + GUARD).next_multiple_of(ALIGN) - block.as_ptr() as usize;
        block[start..start + bytes].fill(0);
        Self { block, start, bytes }
    }

    /// The slab.
    pub fn slab(&self) -> &[u8] {
        &self.block[self.start..][..self.bytes]
    }

    /// The slab, to write.
    pub fn slab_mut(&mut self) -> &mut [u8] {
        &mut self.block[self.start..][..self.bytes]
    }

    /// Looks at the guard bytes.
    ///
    /// # Errors
    /// The first that was overwritten.
    pub fn check(&self) -> Result<(), Damage> {
        let end = self.start + self.bytes;
        let damage = look(&self.block[..self.start], 0).or_else(|| look(&self.block[end..], end));
        damage.map_or(Ok(()), |(at, got)| Err(Damage { at: at as isize - self.start as isize, got }))
    }
}

/// The ranges of a slab that the first `rows` rows of `layout` do not own: gaps between fields, and later rows.
fn gaps(layout: &Layout, rows: usize, bytes: usize) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
    let fields = layout.spec().fields();
    (0..fields.len()).map(move |index| {
        let end = layout.offset(index) + fields[index].row_bytes() * rows;
        let next = if index + 1 < fields.len() { layout.offset(index + 1) } else { bytes };
        end..next
    })
}

/// Writes guard bytes over all of `slab` that the first `rows` rows of `layout` do not own.
pub fn paint(layout: &Layout, rows: usize, slab: &mut [u8]) {
    for gap in gaps(layout, rows, slab.len()) {
        slab[gap.clone()].iter_mut().zip(gap).for_each(|(byte, at)| *byte = canary(at));
    }
}

/// Looks at what [`paint`] wrote.
///
/// # Errors
/// The first byte that was overwritten.
pub fn check(layout: &Layout, rows: usize, slab: &[u8]) -> Result<(), Damage> {
    let damage = gaps(layout, rows, slab.len()).find_map(|gap| look(&slab[gap.clone()], gap.start));
    damage.map_or(Ok(()), |(at, got)| Err(Damage { at: at as isize, got }))
}

/// Checks that `data` writes sample `id` inside its row, all of it, and the same at each call.
///
/// Every data set's `read` promises this: a recycled row holds the bytes of an older sample.
///
/// # Errors
/// What is wrong, in one line.
pub fn audit(data: &impl Dataset, id: u64) -> Result<(), String> {
    let layout = Layout::new(data.spec(), 3).map_err(|error| error.to_string())?;
    let place = |why: String| format!("sample {id}: {why}");
    // Over two backgrounds: a byte that a read skips differs.
    let first = read_middle(data, id, &layout, BACKGROUNDS.0).map_err(place)?;
    let second = read_middle(data, id, &layout, BACKGROUNDS.1).map_err(place)?;
    for (index, field) in data.spec().fields().iter().enumerate() {
        let column = layout.offset(index)..layout.offset(index) + 3 * field.row_bytes();
        let written = first.slab()[column.clone()].iter().copied().zip(second.slab()[column].iter().copied());
        audit_column(written, field.row_bytes())
            .map_err(|why| place(format!("field \"{}\": {why}", field.name())))?;
    }
    Ok(())
}

/// Checks that every field of `data` has a table, and that row `id` of each is what `read` writes, in two epochs.
///
/// Every set that gives tables promises this: a device reads them in place of `read`.
///
/// # Errors
/// What is wrong, in one line.
pub fn audit_tables(data: &impl Dataset, id: u64) -> Result<(), String> {
    let layout = Layout::new(data.spec(), 1).map_err(|error| error.to_string())?;
    for epoch in [0, 1] {
        let mut slab = vec![0; layout.bytes()];
        let read = data.read_many(&[id], &mut Rows::new(&layout, &mut slab, 1), &mut Context::new(0, epoch));
        read.map_err(|(_, error)| format!("sample {id}: it cannot be read: {error}"))?;
        for (index, field) in data.spec().fields().iter().enumerate() {
            let place = |why: &str| Err(format!("sample {id}: field \"{}\": {why}", field.name()));
            let Some(table) = data.table(index) else { return place("it has no table") };
            if (table.rows() as u64, table.row_bytes()) != (data.len(), field.row_bytes()) {
                return place("its table is not one row a sample");
            }
            if table.row(id) != Some(&slab[layout.offset(index)..][..field.row_bytes()]) {
                return place("its table has other bytes than its read");
            }
        }
    }
    if data.table(data.spec().fields().len()).is_some() {
        return Err("there is a table of a field that is none".to_owned());
    }
    Ok(())
}

const BACKGROUNDS: (u8, u8) = (0x55, 0xAA);

/// Reads sample `id` into the middle of three rows, over `background`.
fn read_middle(data: &impl Dataset, id: u64, layout: &Layout, background: u8) -> Result<Guarded, String> {
    let mut guarded = Guarded::new(layout.bytes());
    guarded.slab_mut().fill(background);
    paint(layout, 3, guarded.slab_mut());
    {
        let (_, rest) = Rows::new(layout, guarded.slab_mut(), 3).split_at(1);
        let (mut middle, _) = rest.split_at(1);
        let read = data.read_many(&[id], &mut middle, &mut Context::new(0, 0));
        read.map_err(|(_, error)| format!("it cannot be read: {error}"))?;
    }
    guarded.check().and_then(|()| check(layout, 3, guarded.slab())).map_err(|damage| damage.to_string())?;
    Ok(guarded)
}

/// Checks one field of three rows of `width` bytes, as written over both backgrounds.
fn audit_column(written: impl Iterator<Item = (u8, u8)>, width: usize) -> Result<(), String> {
    for (at, pair) in written.enumerate() {
        let inside = (width..2 * width).contains(&at);
        match (inside, pair == BACKGROUNDS) {
            (true, true) => return Err(format!("byte {} was not written", at - width)),
            (true, false) if pair.0 != pair.1 => {
                return Err(format!("byte {} differs between two reads", at - width));
            }
            (false, false) => return Err("another row was written".to_owned()),
            (true, false) | (false, true) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use feedline_core::{DType, ReadError, Row, Spec};

    use super::*;
    use crate::zoo::{Fine, Random, Wide};

    #[test]
    fn a_byte_outside_is_found_on_both_sides() {
        let mut guarded = Guarded::new(100);
        guarded.slab_mut().fill(0xC5);
        assert_eq!(guarded.check(), Ok(()));
        assert!((guarded.slab().as_ptr() as usize).is_multiple_of(256));
        let start = guarded.start;
        guarded.block[start + 100] ^= 1;
        assert_eq!(guarded.check().unwrap_err().at, 100);
        guarded.block[start - 1] = 0;
        assert_eq!(guarded.check(), Err(Damage { at: -1, got: 0 }));
    }

    #[test]
    fn a_byte_between_the_fields_or_in_a_later_row_is_found() {
        let fine = Fine::new(9, 5).unwrap();
        let layout = Layout::new(fine.spec(), 4).unwrap();
        let mut slab = vec![0; layout.bytes()];
        for at in
            [layout.offset(0) + 2 * 8, layout.offset(1) - 1, layout.offset(1) + 2 * 5, layout.bytes() - 1]
        {
            paint(&layout, 2, &mut slab);
            assert_eq!(check(&layout, 2, &slab), Ok(()));
            slab[at] = 0;
            assert_eq!(check(&layout, 2, &slab), Err(Damage { at: at as isize, got: 0 }));
        }
    }

    #[test]
    fn the_zoo_keeps_the_contract() {
        audit(&Fine::new(9, 5).unwrap(), 8).unwrap();
        audit(&Random::new(9, 5).unwrap(), 8).unwrap();
        audit(&Wide::new(9).unwrap(), 8).unwrap();
    }

    #[test]
    fn a_read_that_leaves_bytes_of_the_last_sample_is_found() {
        struct Lazy(Spec);
        impl Dataset for Lazy {
            fn len(&self) -> u64 {
                1
            }
            fn spec(&self) -> &Spec {
                &self.0
            }
            fn read(&self, _: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
                row.bytes_mut(0)[..2].fill(7);
                Ok(())
            }
        }
        let lazy = Lazy(Spec::new().field("x", DType::U8, [3]).unwrap());
        assert_eq!(audit(&lazy, 0).unwrap_err(), "sample 0: field \"x\": byte 2 was not written");
    }
}
