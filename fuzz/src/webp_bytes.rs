//! Any bytes are a picture that WebP decodes to, or an error on one line.

/// Decodes `data`, whole and in part.
pub fn check(data: &[u8]) {
    crate::picture::check(data);
}
