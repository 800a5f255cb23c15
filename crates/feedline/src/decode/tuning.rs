//! Numbers that were chosen by measurement. Each names its value's reason, machine, date and the bench
//! that guards it.

use std::time::Duration;

/// A batch that takes one worker less than this is decoded by that worker alone; a longer one is split.
///
/// To wake a worker takes about 20 us, so a piece must be long against that. Machine: 16 cores of a
/// Xeon beside an H200, 2026-11-21. Bench: `tiny`, `gather`.
pub(super) const PIECE: Duration = Duration::from_micros(100);

/// The shortest piece of a batch that is split.
///
/// A batch of half a millisecond in pieces of a tenth would keep five of sixteen workers busy, and the
/// others would wait for the last of them. Machine and date as above. Bench: `gather` at 15 workers.
pub(super) const SHORT_PIECE: Duration = Duration::from_micros(25);

/// Up to this many workers copy long rows by non-temporal stores; more of them use plain stores.
///
/// Records of 150 KB of a mapped file to an H200 by 4, 8 and 15 workers: 31, 44 and 45 GB/s by
/// non-temporal stores, 25, 43 and 53 by plain stores. 2026-11-21. Bench: `raw`.
pub(super) const STREAMING_WORKERS: usize = 8;

/// How many rows one piece has when a row takes `row_ns` and there are `workers`.
pub fn piece_rows(rows: usize, row_ns: u64, workers: usize) -> usize {
    if row_ns == 0 {
        // Nothing is known before the first batch.
        return rows.div_ceil(4 * workers).max(1);
    }
    let batch = Duration::from_nanos(row_ns.saturating_mul(rows as u64));
    let piece = if batch > PIECE { (batch / workers as u32).clamp(SHORT_PIECE, PIECE) } else { PIECE };
    (piece.as_nanos() as u64 / row_ns).clamp(1, rows.max(1) as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::piece_rows;

    #[test]
    fn a_piece_is_neither_too_long_nor_too_short() {
        // 4096 rows of 200 ns are 820 us.
        for (workers, rows) in [(1, 500), (2, 500), (10, 409), (16, 256), (64, 125)] {
            assert_eq!(piece_rows(4096, 200, workers), rows, "{workers} workers");
        }
        // A batch of 100 us or less is not split, a longer one is.
        assert_eq!([piece_rows(500, 200, 16), piece_rows(501, 200, 16)], [500, 125]);
        let odd = [piece_rows(0, 200, 16), piece_rows(3, u64::MAX, 16), piece_rows(8, 1 << 40, 1)];
        assert_eq!(odd, [1; 3]);
        assert_eq!(piece_rows(4096, 0, 16), 64, "before the first batch");
    }
}
