//! Casts and fills.

use crate::pool::{CHUNK, each};

/// `dst[i] = scale * src[i]`.
///
/// ```
/// let mut pixels = [0.0; 3];
/// feedline_kernels::host::cast(&[0, 51, 255], 0.5, &mut pixels);
/// assert_eq!(pixels, [0.0, 25.5, 127.5]);
/// ```
///
/// # Panics
/// If the lengths differ.
pub fn cast(src: &[u8], scale: f32, dst: &mut [f32]) {
    assert_eq!(src.len(), dst.len(), "cast: one f32 per byte");
    each(dst.chunks_mut(CHUNK).zip(src.chunks(CHUNK)), |(dst, src)| {
        for (to, from) in dst.iter_mut().zip(src) {
            *to = scale * f32::from(*from);
        }
    });
}

/// As [`cast`], and also writes the result transposed: `src` and `dst` are `[rows, columns]`, `transposed` is
/// `[columns, rows]`.
///
/// ```
/// let (mut pixels, mut transposed) = ([0.0; 6], [0.0; 6]);
/// feedline_kernels::host::cast_with_transpose(&[0, 1, 2, 3, 4, 5], 1.0, 3, &mut pixels, &mut transposed);
/// assert_eq!(transposed, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
/// ```
///
/// # Panics
/// If the lengths differ or are not whole rows.
pub fn cast_with_transpose(src: &[u8], scale: f32, columns: usize, dst: &mut [f32], transposed: &mut [f32]) {
    cast(src, scale, dst);
    assert_eq!(dst.len(), transposed.len(), "cast_with_transpose: the lengths of dst and transposed");
    assert!(columns > 0 && dst.len().is_multiple_of(columns), "{} elements in rows of {columns}", dst.len());
    let rows = dst.len() / columns;
    for (r, row) in dst.chunks_exact(columns).enumerate() {
        for (to, value) in transposed[r..].iter_mut().step_by(rows).zip(row) {
            *to = *value;
        }
    }
}

/// `dst[i] = value`.
pub fn fill(dst: &mut [f32], value: f32) {
    dst.fill(value);
}
