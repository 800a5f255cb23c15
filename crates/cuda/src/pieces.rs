//! How a gather from device memory is cut into pieces, one for each block of the kernel.

use feedline_backend::Gather;
use feedline_core::spec::MAX_FIELDS;
use feedline_core::{Error, ErrorKind, Result};

/// Threads per block, and the maximum rows per piece: a thread finds one row.
pub(super) const THREADS: u32 = 512;

/// Minimum and maximum bytes of a piece of several rows, or of a part of a row: a block has all 32 KiB in
/// flight at the same time.
const BYTES: (usize, usize) = (4 << 10, 32 << 10);

/// Pieces per multiprocessor that a batch should have at least.
const PER_MULTIPROCESSOR: usize = 2;

/// How a field is cut: `GatherCut` in `gather.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cut {
    /// The number of its first block.
    first: u32,
    /// Rows per piece; 1 if rows have several parts.
    rows: u32,
    /// Parts per row.
    parts: u32,
    /// Bytes of a part: whole 16-byte words.
    bytes: u32,
}

/// The cuts of all fields, and the number of blocks.
///
/// # Errors
/// `Config` for more blocks than a launch can have.
pub(super) fn cut(gather: &Gather, multiprocessors: usize) -> Result<([Cut; MAX_FIELDS], u32)> {
    let mut cuts = [Cut { rows: 1, parts: 1, ..Cut::default() }; MAX_FIELDS];
    let mut first = 0;
    for (cut, field) in cuts.iter_mut().zip(gather.fields()) {
        let pieces;
        (*cut, pieces) = of_field(gather.rows(), field.row_bytes, multiprocessors).ok_or_else(too_large)?;
        cut.first = first;
        first = first
            .checked_add(pieces)
            .filter(|&blocks| i32::try_from(blocks).is_ok())
            .ok_or_else(too_large)?;
    }
    Ok((cuts, first))
}

fn too_large() -> Error {
    Error::new(ErrorKind::Config, "a batch is too large to gather in one launch: lower the batch size")
}

/// The cut of a field, and the number of its pieces.
fn of_field(rows: usize, row_bytes: usize, multiprocessors: usize) -> Option<(Cut, u32)> {
    let mut cut = Cut { rows: 1, parts: 1, ..Cut::default() };
    if row_bytes == 0 {
        return Some((cut, 0));
    }
    let share = rows.saturating_mul(row_bytes) / (PER_MULTIPROCESSOR * multiprocessors.max(1));
    let max = share.clamp(BYTES.0, BYTES.1);
    if row_bytes > max {
        let bytes = row_bytes.div_ceil(row_bytes.div_ceil(max)).next_multiple_of(16);
        cut.parts = u32::try_from(row_bytes.div_ceil(bytes)).ok()?;
        cut.bytes = u32::try_from(bytes).ok()?;
    } else {
        cut.rows = (max / row_bytes).min(THREADS as usize) as u32;
    }
    let pieces = rows.div_ceil(cut.rows as usize).checked_mul(cut.parts as usize)?;
    Some((cut, u32::try_from(pieces).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that the kernel copies: row, begin and end of each.
    fn copied(rows: usize, row_bytes: usize, cut: Cut, pieces: u32) -> Vec<(usize, usize, usize)> {
        let mut ranges = Vec::new();
        for piece in 0..pieces {
            let (group, part) = ((piece / cut.parts) as usize, (piece % cut.parts) as usize);
            let first = group * cut.rows as usize;
            let from = part * cut.bytes as usize;
            assert!(first < rows && from < row_bytes, "an empty piece: {cut:?}");
            let end = if cut.parts > 1 { row_bytes.min(from + cut.bytes as usize) } else { row_bytes };
            ranges.extend((first..rows.min(first + cut.rows as usize)).map(|row| (row, from, end)));
        }
        ranges
    }

    #[test]
    fn every_byte_is_in_one_piece() {
        for rows in [1, 2, 37, 256, 4096] {
            for row_bytes in [1, 8, 15, 16, 784, 4096, 4097, 32_768, 32_769, 150_528, 1_000_003] {
                for multiprocessors in [1, 132] {
                    let (cut, pieces) = of_field(rows, row_bytes, multiprocessors).unwrap();
                    assert!(cut.bytes.is_multiple_of(16) && cut.rows <= THREADS);
                    let mut at = (0, 0);
                    for (row, from, end) in copied(rows, row_bytes, cut, pieces) {
                        assert_eq!((row, from), at, "{rows} rows of {row_bytes} bytes: {cut:?}");
                        at = if end == row_bytes { (row + 1, 0) } else { (row, end) };
                    }
                    assert_eq!(at, (rows, 0), "{rows} rows of {row_bytes} bytes: {cut:?}");
                }
            }
        }
    }

    #[test]
    fn a_batch_has_work_for_every_multiprocessor() {
        for (rows, row_bytes) in [(4096, 784), (256, 150_528), (16, 150_528)] {
            let (_, pieces) = of_field(rows, row_bytes, 132).unwrap();
            assert!((2 * 132..=10 * 132).contains(&pieces), "{pieces} pieces of {rows} x {row_bytes} bytes");
        }
        assert_eq!(of_field(4096, 0, 132).unwrap().1, 0, "a field without bytes");
        assert_eq!(of_field(usize::MAX, 1 << 20, 132), None);
    }
}
