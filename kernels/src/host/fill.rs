//! Fills a slice with a constant.

/// `dst[i] = value`.
pub fn fill(dst: &mut [f32], value: f32) {
    dst.fill(value);
}
