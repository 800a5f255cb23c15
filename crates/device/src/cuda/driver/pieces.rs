//! How a gather from device memory is cut into parts of rows. A warp of the kernel copies one, or several.

use feedline_core::spec::MAX_FIELDS;
use feedline_core::{Error, ErrorKind, Result};

use crate::backend::Gather;

/// Threads per block.
pub(super) const THREADS: u32 = 256;

/// Max bytes of a part of a row: a warp has all of them in flight at the same time.
const PART: usize = 2 << 10;

/// How a field is cut: `GatherCut` in `gather.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cut {
    /// The number of its first block.
    first: u32,
    /// Parts per row.
    parts: u32,
    /// Bytes of a part: whole 16-byte words.
    bytes: u32,
    /// Lanes per part, as a power of two.
    lanes: u32,
}

/// The cuts of all fields, and the number of blocks.
///
/// # Errors
/// `Config` for more blocks than a launch can have.
pub(super) fn cut(gather: &Gather) -> Result<([Cut; MAX_FIELDS], u32)> {
    let mut cuts = [Cut { parts: 1, ..Cut::default() }; MAX_FIELDS];
    let mut first = 0_u32;
    for (cut, field) in cuts.iter_mut().zip(gather.fields()) {
        let blocks;
        (*cut, blocks) = of_field(gather.rows(), field.row_bytes).ok_or_else(too_large)?;
        cut.first = first;
        first = first
            .checked_add(blocks)
            .filter(|&blocks| i32::try_from(blocks).is_ok())
            .ok_or_else(too_large)?;
    }
    Ok((cuts, first))
}

fn too_large() -> Error {
    Error::new(ErrorKind::Config, "a batch is too large to gather in one launch: lower the batch size")
}

/// The cut of a field, and the number of its blocks.
fn of_field(rows: usize, row_bytes: usize) -> Option<(Cut, u32)> {
    // A lane of a short row has a word or two to copy.
    let lanes = match row_bytes {
        0..=16 => 0,
        17..=256 => 3,
        _ => 5,
    };
    if row_bytes == 0 {
        return Some((Cut { parts: 1, ..Cut::default() }, 0));
    }
    let bytes = row_bytes.div_ceil(row_bytes.div_ceil(PART)).next_multiple_of(16);
    let parts = row_bytes.div_ceil(bytes);
    let blocks = rows.checked_mul(parts)?.div_ceil(THREADS as usize >> lanes);
    let cut = Cut { first: 0, parts: u32::try_from(parts).ok()?, bytes: u32::try_from(bytes).ok()?, lanes };
    Some((cut, u32::try_from(blocks).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces that the kernel copies: for each, the row, its first byte and the byte after its last.
    fn copied(rows: usize, row_bytes: usize, cut: Cut, blocks: u32) -> Vec<(usize, usize, usize)> {
        let units = blocks as usize * (THREADS as usize >> cut.lanes);
        let unit = |unit: usize| {
            let (row, from) = (unit / cut.parts as usize, unit % cut.parts as usize * cut.bytes as usize);
            (row < rows).then(|| (row, from, row_bytes.min(from + cut.bytes as usize)))
        };
        (0..units).filter_map(unit).collect()
    }

    #[test]
    fn every_byte_is_in_one_part() {
        for rows in [1, 2, 37, 256, 4096] {
            for row_bytes in [1, 8, 15, 16, 17, 256, 257, 784, 2048, 2049, 4097, 150_528, 1_000_003] {
                let (cut, blocks) = of_field(rows, row_bytes).unwrap();
                assert!(cut.bytes.is_multiple_of(16) && cut.bytes as usize <= PART);
                let mut at = (0, 0);
                for (row, from, end) in copied(rows, row_bytes, cut, blocks) {
                    assert_eq!((row, from), at, "{rows} rows of {row_bytes} bytes: {cut:?}");
                    assert!(from < end, "an empty part: {cut:?}");
                    at = if end == row_bytes { (row + 1, 0) } else { (row, end) };
                }
                assert_eq!(at, (rows, 0), "{rows} rows of {row_bytes} bytes: {cut:?}");
            }
        }
    }

    #[test]
    fn a_batch_has_work_for_every_multiprocessor_of_132() {
        for (rows, row_bytes) in [(4096, 784), (4096, 128), (256, 150_528), (16, 150_528)] {
            let (_, blocks) = of_field(rows, row_bytes).unwrap();
            assert!(blocks >= 128, "{blocks} blocks of {rows} x {row_bytes} bytes");
        }
        assert_eq!(of_field(4096, 0).unwrap().1, 0, "a field without bytes");
        assert_eq!(of_field(usize::MAX, 4096), None);
    }
}
