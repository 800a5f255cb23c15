//! Self-describing bytes. They reveal torn, stale, swapped and repeated rows.
//!
//! The bytes are equal to those of `feedline_kernels::host::pattern` and of the kernel `pattern_check`. So
//! samples of the [`fixtures`](crate::fixtures) can be checked on the device. The bytes of a row are the
//! output of SplitMix64 (Steele, Lea, Flood 2014) seeded with `splitmix64(key ^ id)`, as little-endian words.

use std::fmt;

use feedline_core::random::{key, splitmix64};

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The key of the rows of `part` in `epoch` under `seed`. A part is a batch or a field.
pub fn part_key(seed: u64, epoch: u64, part: u64) -> u64 {
    key(&[seed, epoch, part])
}

/// The endless bytes of row `id` under `key`.
///
/// ```
/// use feedline_testkit::pattern;
/// let mut row = [0; 13];
/// pattern::fill(&mut row, 42, 7);
/// assert!(pattern::bytes(42, 7).zip(row).all(|(want, got)| want == got));
/// ```
pub fn bytes(key: u64, id: u64) -> impl Iterator<Item = u8> {
    let row_key = splitmix64(key ^ id);
    (0u64..).flat_map(move |j| splitmix64(row_key.wrapping_add(j.wrapping_mul(STEP))).to_le_bytes())
}

/// Writes row `id`.
pub fn fill(row: &mut [u8], key: u64, id: u64) {
    row.iter_mut().zip(bytes(key, id)).for_each(|(byte, want)| *byte = want);
}

/// Compares `row` with the bytes that [`fill`] writes.
///
/// # Errors
/// The first wrong byte.
pub fn check(row: &[u8], key: u64, id: u64) -> Result<(), Wrong> {
    let pairs = row.iter().copied().zip(bytes(key, id)).enumerate();
    let mut wrong = pairs.filter(|(_, (got, want))| got != want);
    let Some((byte, (got, want))) = wrong.next() else { return Ok(()) };
    Err(Wrong { id, byte, got, want, count: 1 + wrong.count() })
}

/// A row with wrong bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The row's id.
    pub id: u64,
    /// The index of the first wrong byte in the row.
    pub byte: usize,
    /// The byte's value.
    pub got: u8,
    /// The expected value.
    pub want: u8,
    /// The number of wrong bytes in the row.
    pub count: usize,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, byte, got, want, count } = self;
        write!(f, "row {id}: byte {byte} is {got:#04x}, not {want:#04x}; {count} bytes of the row are wrong")
    }
}

impl std::error::Error for Wrong {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fixes the definition of the bytes, because the kernels use the same one.
    #[test]
    fn the_bytes_match_the_kernels() {
        let got: Vec<u8> = bytes(part_key(1, 2, 3), 4).take(9).collect();
        let row_key = splitmix64(key(&[1, 2, 3]) ^ 4);
        let words = [splitmix64(row_key), splitmix64(row_key.wrapping_add(STEP))];
        assert_eq!(got[..8], words[0].to_le_bytes());
        assert_eq!(got[8], words[1] as u8);
    }

    #[test]
    fn the_error_has_the_first_wrong_byte() {
        let mut row = [0; 20];
        fill(&mut row, 7, 9);
        assert_eq!(check(&row, 7, 9), Ok(()));
        let want = row[13];
        row[13] ^= 1;
        row[15] ^= 0x80;
        assert_eq!(check(&row, 7, 9), Err(Wrong { id: 9, byte: 13, got: want ^ 1, want, count: 2 }));
    }

    #[test]
    fn bytes_differ_between_rows_parts_epochs_and_seeds() {
        let row = |seed, epoch, part, id| bytes(part_key(seed, epoch, part), id).take(8).collect::<Vec<_>>();
        let one = row(0, 0, 0, 0);
        for other in [row(1, 0, 0, 0), row(0, 1, 0, 0), row(0, 0, 1, 0), row(0, 0, 0, 1)] {
            assert_ne!(one, other);
        }
    }
}
