//! Self-describing bytes: every byte is a function of its position, so a byte from the wrong place, batch
//! or epoch is detected.
//!
//! A row is the output of SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number
//! generators") seeded with the row's key, as little-endian words. With `+` and `*` modulo 2^64 and
//! [`splitmix64`]:
//!
//! ```text
//! batch key = key([seed, epoch, batch])                          feedline_core::random::key
//! row key   = splitmix64(batch key ^ id)                         id: the row's number, or its sample's
//! word j    = splitmix64(row key + j * 0x9E3779B97F4A7C15)
//! byte k    = word (k / 8) >> (8 * (k % 8)) & 255
//! ```

use feedline_core::random::{key, splitmix64};

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The result of [`check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The number of wrong bytes.
    pub wrong: u64,
    /// Index of the first wrong byte, counted from the start of the rows.
    pub first: Option<u64>,
    /// The number of bytes checked.
    pub seen: u64,
}

/// The key of a batch's rows.
pub fn batch_key(seed: u64, epoch: u64, batch: u64) -> u64 {
    key(&[seed, epoch, batch])
}

/// Byte `k` of row `id` under `key`.
///
/// ```
/// use feedline_kernels::host::pattern;
/// let mut row = [0; 13];
/// pattern::fill(&mut row, 13, 42, |_| 7);
/// assert_eq!(row[11], pattern::byte(42, 7, 11));
/// ```
pub fn byte(key: u64, id: u64, k: u64) -> u8 {
    word(splitmix64(key ^ id), k / 8).to_le_bytes()[(k % 8) as usize]
}

/// Writes rows of `row_bytes` bytes; `id(r)` is the id of row `r`.
///
/// # Panics
/// If `data` is not whole rows.
pub fn fill(data: &mut [u8], row_bytes: usize, key: u64, id: impl Fn(u64) -> u64) {
    assert!(row_bytes > 0 && data.len().is_multiple_of(row_bytes), "rows of {row_bytes} bytes");
    for (r, row) in data.chunks_exact_mut(row_bytes).enumerate() {
        let row_key = splitmix64(key ^ id(r as u64));
        for (j, bytes) in row.chunks_mut(8).enumerate() {
            bytes.copy_from_slice(&word(row_key, j as u64).to_le_bytes()[..bytes.len()]);
        }
    }
}

/// Compares rows of `row_bytes` bytes with the output of [`fill`].
///
/// # Panics
/// If `data` is not whole rows.
pub fn check(data: &[u8], row_bytes: usize, key: u64, id: impl Fn(u64) -> u64) -> Report {
    assert!(row_bytes > 0 && data.len().is_multiple_of(row_bytes), "rows of {row_bytes} bytes");
    let mut report = Report { wrong: 0, first: None, seen: data.len() as u64 };
    for (r, row) in data.chunks_exact(row_bytes).enumerate() {
        let row_key = splitmix64(key ^ id(r as u64));
        for (j, bytes) in row.chunks(8).enumerate() {
            let want = word(row_key, j as u64).to_le_bytes();
            if *bytes == want[..bytes.len()] {
                continue;
            }
            for (k, _) in bytes.iter().zip(want).enumerate().filter(|(_, (got, want))| **got != *want) {
                report.wrong += 1;
                report.first.get_or_insert((r * row_bytes + j * 8 + k) as u64);
            }
        }
    }
    report
}

fn word(row_key: u64, j: u64) -> u64 {
    splitmix64(row_key.wrapping_add(j.wrapping_mul(STEP)))
}
