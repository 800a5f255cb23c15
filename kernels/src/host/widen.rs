//! u8 to f32, scaled; transposed besides.

use super::parallel::{CHUNK, each};

/// `dst[i] = scale * src[i]`.
///
/// ```
/// let mut pixels = [0.0; 3];
/// feedline_kernels::host::widen(&[0, 51, 255], 0.5, &mut pixels);
/// assert_eq!(pixels, [0.0, 25.5, 127.5]);
/// ```
///
/// # Panics
/// When the lengths differ.
pub fn widen(src: &[u8], scale: f32, dst: &mut [f32]) {
    assert_eq!(src.len(), dst.len(), "widen: one f32 a byte");
    each(dst.chunks_mut(CHUNK).zip(src.chunks(CHUNK)), |(dst, src)| {
        for (to, from) in dst.iter_mut().zip(src) {
            *to = scale * f32::from(*from);
        }
    });
}

/// `dst[i] = scale * src[i]`, and the same numbers transposed: `src` and `dst` are `[rows, columns]`, `transposed`
/// `[columns, rows]`.
///
/// ```
/// let (mut pixels, mut transposed) = ([0.0; 6], [0.0; 6]);
/// feedline_kernels::host::widen_both(&[0, 1, 2, 3, 4, 5], 1.0, 3, &mut pixels, &mut transposed);
/// assert_eq!(transposed, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
/// ```
///
/// # Panics
/// When the lengths differ, or are not whole rows.
pub fn widen_both(src: &[u8], scale: f32, columns: usize, dst: &mut [f32], transposed: &mut [f32]) {
    widen(src, scale, dst);
    assert_eq!(dst.len(), transposed.len(), "widen_both: a matrix and its transpose");
    assert!(columns > 0 && dst.len().is_multiple_of(columns), "widen_both: a matrix of rows of {columns}");
    let rows = dst.len() / columns;
    for (r, row) in dst.chunks_exact(columns).enumerate() {
        for (to, value) in transposed[r..].iter_mut().step_by(rows).zip(row) {
            *to = *value;
        }
    }
}
