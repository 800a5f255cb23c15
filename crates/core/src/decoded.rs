//! Samples that were decoded together. A worker holds them while it copies their rows.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// The rows of samples that were decoded together.
pub trait DecodedRows: Debug + Send + Sync {
    /// Field `field` of row `row`, if it is contiguous in memory in the form that
    /// [`Dataset::read`](crate::Dataset::read) writes. `None` for other rows, for a null, and for a row whose
    /// read is an error.
    fn slice(&self, row: usize, field: usize) -> Option<&[u8]>;

    /// Field `field` of row `row` and of the rows after it that are contiguous in memory. Also the bytes of
    /// one row. `None`, the default, if the rows are not contiguous, or the read of one of them is an error.
    fn run(&self, _row: usize, _field: usize) -> Option<(&[u8], usize)> {
        None
    }

    /// Writes field `field` of `rows` into `to`, as [`Dataset::read`](crate::Dataset::read) writes it:
    /// `width` bytes per row, `stride` bytes apart. Stops at a row of another size. Also stops at a row that
    /// must be read alone, such as a row whose read is an error. Returns the number of rows written.
    fn write(
        &self,
        rows: Range<usize>,
        field: usize,
        width: usize,
        (to, stride): (&mut [u8], usize),
    ) -> usize {
        let mut written = 0;
        while let Some(row) = rows.clone().nth(written) {
            let places = to.chunks_mut(stride).skip(written).filter(|place| place.len() >= width);
            let before = written;
            if let Some((bytes, size)) = self.run(row, field).filter(|(_, size)| *size == width) {
                for (value, place) in bytes.chunks_exact(size).zip(places).take(rows.end - row) {
                    Decoded::copy(value, &mut place[..width]);
                    written += 1;
                }
            } else if let Some(value) = self.slice(row, field).filter(|value| value.len() == width) {
                for place in places.take(1) {
                    Decoded::copy(value, &mut place[..width]);
                    written += 1;
                }
            }
            if written == before {
                break;
            }
        }
        written
    }
}

/// Neighbours that were decoded together, such as a row group of a Parquet file.
///
/// A `Decoded` keeps the memory alive, even after a cache has dropped it. A worker that reads a batch holds
/// up to four of them at a time.
#[derive(Clone, Debug)]
pub struct Decoded {
    samples: Range<u64>,
    rows: Arc<dyn DecodedRows>,
}

impl Decoded {
    /// The rows of `samples`, in order.
    pub fn new(samples: Range<u64>, rows: Arc<dyn DecodedRows>) -> Self {
        Self { samples, rows }
    }

    /// Whether `sample` is one of these samples.
    pub fn has(&self, sample: u64) -> bool {
        self.samples.contains(&sample)
    }

    /// The samples, in order.
    pub fn samples(&self) -> Range<u64> {
        self.samples.clone()
    }

    /// Field `field` of `sample`, if its bytes are contiguous.
    pub fn slice(&self, sample: u64, field: usize) -> Option<&[u8]> {
        self.rows.slice(self.row(sample)?, field)
    }

    /// As [`DecodedRows::run`].
    pub fn run(&self, sample: u64, field: usize) -> Option<(&[u8], usize)> {
        self.rows.run(self.row(sample)?, field)
    }

    /// Writes field `field` of the samples from `sample` to the last one, as [`DecodedRows::write`] does.
    pub fn write(&self, sample: u64, field: usize, width: usize, to: (&mut [u8], usize)) -> usize {
        let end = usize::try_from(self.samples.end - self.samples.start).unwrap_or(usize::MAX);
        self.row(sample).map_or(0, |row| self.rows.write(row..end, field, width, to))
    }

    fn row(&self, sample: u64) -> Option<usize> {
        let row = sample.checked_sub(self.samples.start).filter(|_| self.has(sample))?;
        usize::try_from(row).ok()
    }
}

/// # For loaders and readers
///
/// What loaders, bridges and sets that read other sets call. It may change in any release.
impl Decoded {
    /// The same rows, with all sample numbers increased by `before`.
    pub fn behind(self, before: u64) -> Self {
        let Range { start, end } = self.samples;
        Self { samples: start.saturating_add(before)..end.saturating_add(before), ..self }
    }

    /// Copies a value. Most values have four or eight bytes.
    #[inline]
    pub fn copy(value: &[u8], to: &mut [u8]) {
        if let (Ok(value), Ok(to)) = (<&[u8; 4]>::try_from(value), <&mut [u8; 4]>::try_from(&mut *to)) {
            *to = *value;
        } else if let (Ok(value), Ok(to)) = (<&[u8; 8]>::try_from(value), <&mut [u8; 8]>::try_from(&mut *to))
        {
            *to = *value;
        } else {
            to.copy_from_slice(value);
        }
    }
}
