//! u8 to f32, scaled.

use rayon::prelude::*;

use super::parallel::CHUNK;

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
    dst.par_chunks_mut(CHUNK).zip(src.par_chunks(CHUNK)).for_each(|(dst, src)| {
        for (to, from) in dst.iter_mut().zip(src) {
            *to = scale * f32::from(*from);
        }
    });
}
