//! Rows that lie ready in memory, at equal distances: what a device can read without a CPU.

use crate::{Error, ErrorKind, Result};

/// One field of every sample of a set, as it lies in memory: row `id` is the `row_bytes` bytes from `first + id * stride` on.
///
/// A set that can say so ([`Dataset::column`](crate::Dataset::column)) needs no worker to copy its rows.
///
/// ```
/// use feedline_core::StridedColumn;
/// // Records of three pixels and a label: the labels are one byte each, every fourth.
/// let file = [1, 2, 3, 7, 4, 5, 6, 8];
/// let labels = StridedColumn::new(&file, 3, 4, 2, 1)?;
/// assert_eq!((labels.row(0), labels.row(1), labels.row(2)), (Some(&[7][..]), Some(&[8][..]), None));
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
    /// `rows` rows of `row_bytes` bytes in `bytes`, the first from byte `first` on, each `stride` bytes after the one before.
    ///
    /// Fields that lie in one block of memory give the same `bytes`, all of the block: then it is made readable once.
    ///
    /// # Errors
    /// `Config` when a row does not lie in `bytes`, or there are no rows or no bytes in a row.
    pub fn new(bytes: &'a [u8], first: usize, stride: usize, rows: usize, row_bytes: usize) -> Result<Self> {
        let end = rows
            .checked_sub(1)
            .and_then(|last| last.checked_mul(stride))
            .and_then(|last| last.checked_add(first)?.checked_add(row_bytes));
        if row_bytes == 0 || end.is_none_or(|end| end > bytes.len()) {
            let why = format!(
                "{rows} rows of {row_bytes} bytes from byte {first} on, every {stride}, do not lie in {} bytes",
                bytes.len()
            );
            return Err(Error::new(ErrorKind::Config, why));
        }
        Ok(Self { bytes, first, stride, rows, row_bytes })
    }

    /// The memory that the rows lie in.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The byte at which row 0 begins.
    pub fn first(&self) -> usize {
        self.first
    }

    /// Bytes from the beginning of a row to that of the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Number of rows, at least one.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of a row, at least one.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Row `id`; none when there are fewer.
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
            "Table({rows} rows of {row_bytes} bytes at {first}, every {stride}, in {} bytes)",
            bytes.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_whose_rows_do_not_lie_in_its_bytes_is_refused() {
        let bytes = [0; 20];
        let refused = |first, stride, rows, row_bytes| {
            StridedColumn::new(&bytes, first, stride, rows, row_bytes).is_err()
        };
        assert!(!refused(0, 5, 4, 5) && !refused(1, 6, 4, 1) && !refused(17, 1, 1, 3));
        assert!(refused(1, 5, 4, 5), "one byte too far");
        assert!(refused(0, 5, 5, 5), "one row too many");
        assert!(refused(0, 5, 0, 5) && refused(0, 5, 4, 0), "nothing");
        assert!(refused(0, usize::MAX, 3, 1) && refused(usize::MAX, 1, 2, 1) && refused(0, 1, 2, usize::MAX));
    }

    #[test]
    fn rows_are_found_and_no_row_beyond() {
        let bytes: Vec<u8> = (0..20).collect();
        let column = StridedColumn::new(&bytes, 3, 4, 4, 2).expect("a table");
        assert_eq!(column.row(3), Some(&[15, 16][..]));
        assert!(column.row(4).is_none() && column.row(u64::MAX).is_none());
        assert!(format!("{column:?}").contains("4 rows of 2 bytes"), "{column:?}");
    }
}
