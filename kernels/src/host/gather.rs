//! Rows by id.

/// Copies row `ids[r]` of `src` to row `r` of `dst`, rows of `row_bytes`; returns how many ids were no row of `src`, whose
/// rows become zeros.
///
/// ```
/// let mut dst = [9; 4];
/// assert_eq!(feedline_kernels::host::gather_rows(&[1, 2, 3, 4], &[1, 7], 2, &mut dst), 1);
/// assert_eq!(dst, [3, 4, 0, 0]);
/// ```
///
/// # Panics
/// When `row_bytes` is 0 or `dst` is not one row an id.
pub fn gather_rows(src: &[u8], ids: &[i64], row_bytes: usize, dst: &mut [u8]) -> u32 {
    assert!(
        row_bytes > 0 && Some(dst.len()) == ids.len().checked_mul(row_bytes),
        "gather_rows: one row an id"
    );
    let rows = src.len() / row_bytes;
    let mut bad = 0;
    for (to, id) in dst.chunks_exact_mut(row_bytes).zip(ids) {
        match usize::try_from(*id) {
            Ok(id) if id < rows => to.copy_from_slice(&src[id * row_bytes..][..row_bytes]),
            _ => {
                to.fill(0);
                bad += 1;
            }
        }
    }
    bad
}
