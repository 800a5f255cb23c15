//! Rows in memory at a fixed stride, which a device can read without a worker.

use crate::{Error, ErrorKind, Result};

/// One field of every sample, in memory: row `id` is the `row_bytes` bytes at `first + id * stride`.
///
/// A data set that returns it from [`Storage::column`](crate::Storage::column) needs no worker to copy its
/// rows.
///
/// ```
/// use feedline_core::StridedColumn;
/// // Records of three pixels and a label: every fourth byte is a label.
/// let file = [1, 2, 3, 7, 4, 5, 6, 8];
/// let labels = StridedColumn::new(&file, 3, 4, 2, 1)?;
/// assert!(StridedColumn::new(&file, 3, 4, 3, 1).is_err());
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct StridedColumn<'a> {
    bytes: &'a [u8],
    first: usize,
    stride: usize,
    rows: usize,
    row_bytes: usize,
}

impl<'a> StridedColumn<'a> {
    /// A column of `rows` rows of `row_bytes` bytes each: row 0 begins at byte `first` of `bytes`, and each
    /// further row `stride` bytes after the previous one.
    ///
    /// Fields in one block of memory should pass the whole block as `bytes`, so that it is pinned only once.
    ///
    /// # Errors
    /// `Config` when a row is not inside `bytes`, or when `rows` or `row_bytes` is 0.
    pub fn new(bytes: &'a [u8], first: usize, stride: usize, rows: usize, row_bytes: usize) -> Result<Self> {
        let end = rows
            .checked_sub(1)
            .and_then(|last| last.checked_mul(stride))
            .and_then(|last| last.checked_add(first)?.checked_add(row_bytes));
        if row_bytes == 0 || end.is_none_or(|end| end > bytes.len()) {
            let why = format!(
                "{rows} rows of {row_bytes} bytes, from byte {first} at stride {stride}, do not fit in {} \
                 bytes",
                bytes.len()
            );
            return Err(Error::new(ErrorKind::Config, why));
        }
        Ok(Self { bytes, first, stride, rows, row_bytes })
    }
}

/// # For loaders and readers
///
/// What loaders, bridges and sets that read other sets call. It may change in any release.
impl<'a> StridedColumn<'a> {
    /// The memory that contains the rows.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The byte at which row 0 begins.
    pub fn first(&self) -> usize {
        self.first
    }

    /// Bytes from the beginning of one row to the beginning of the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Number of rows, at least one.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes per row, at least one.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Row `id`; `None` when there is no such row.
    pub fn row(&self, id: u64) -> Option<&'a [u8]> {
        let id = usize::try_from(id).ok().filter(|&id| id < self.rows)?;
        self.bytes.get(self.first + id * self.stride..)?.get(..self.row_bytes)
    }
}

impl std::fmt::Debug for StridedColumn<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { bytes, first, stride, rows, row_bytes } = self;
        write!(
            f,
            "StridedColumn({rows} rows of {row_bytes} bytes at {first}, stride {stride}, in {} bytes)",
            bytes.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_outside_the_bytes_are_rejected() {
        let bytes = [0; 20];
        let refused = |first, stride, rows, row_bytes| {
            StridedColumn::new(&bytes, first, stride, rows, row_bytes).is_err()
        };
        assert!(!refused(0, 5, 4, 5) && !refused(1, 6, 4, 1) && !refused(17, 1, 1, 3));
        assert!(refused(1, 5, 4, 5), "one byte too far");
        assert!(refused(0, 5, 5, 5), "one row too many");
        assert!(refused(0, 5, 0, 5) && refused(0, 5, 4, 0), "no rows, or empty rows");
        assert!(refused(0, usize::MAX, 3, 1) && refused(usize::MAX, 1, 2, 1) && refused(0, 1, 2, usize::MAX));
    }

    #[test]
    fn row_returns_existing_rows_only() {
        let bytes: Vec<u8> = (0..20).collect();
        let column = StridedColumn::new(&bytes, 3, 4, 4, 2).expect("a valid column");
        assert_eq!(column.row(3), Some(&[15, 16][..]));
        assert!(column.row(4).is_none() && column.row(u64::MAX).is_none());
        assert!(format!("{column:?}").contains("4 rows of 2 bytes"), "{column:?}");
    }
}
