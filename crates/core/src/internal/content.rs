//! The hash of a batch as numbers, for records and servers.

use crate::BatchContent;

/// The content of these `parts`.
pub const fn from_parts(parts: [u64; 2]) -> BatchContent {
    BatchContent::from_parts(parts)
}

/// The two sums.
pub const fn parts(content: &BatchContent) -> [u64; 2] {
    content.parts()
}

/// The row that differs, if only one of `rows` rows does.
pub fn changed_row(content: &BatchContent, other: &BatchContent, rows: usize) -> Option<usize> {
    content.changed_row(other, rows)
}
