//! How the samples of a set lie: what can be had without reading them one by one.

use std::ops::Range;
use std::path::Path;

use crate::{Context, Decoded, FieldStream, Prefetched, ReadError, Result, StridedColumn};

/// Receives the items of a list, in the bytes of the field's type: all at once or in parts.
pub type TakeItems<'a> = &'a mut dyn FnMut(&[u8]);

/// How samples lie in memory and in files. [`Dataset::storage`](crate::Dataset::storage) returns it.
///
/// Each method has a default for samples that are read one by one. A set implements those for which it can do
/// better; what they return must be what [`Dataset::read`](crate::Dataset::read) writes.
///
/// ```
/// use feedline_core::{Context, DType, Dataset, ReadError, Row, Spec, Storage, StridedColumn};
///
/// struct Digits { spec: Spec, pixels: Vec<u8> }
///
/// impl Dataset for Digits {
///     fn len(&self) -> u64 { (self.pixels.len() / 4) as u64 }
///     fn spec(&self) -> &Spec { &self.spec }
///     fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
///         Ok(row.put(0, &self.pixels[id as usize * 4..][..4])?)
///     }
///     fn storage(&self) -> &dyn Storage { self }
/// }
///
/// impl Storage for Digits {
///     fn column(&self, _: usize) -> Option<StridedColumn<'_>> {
///         StridedColumn::new(&self.pixels, 0, 4, self.len() as usize, 4).ok()
///     }
/// }
///
/// let digits = Digits { spec: Spec::new().field("pixels", DType::U8, [2, 2])?, pixels: vec![0; 400] };
/// assert_eq!(digits.storage().column(0).map(|column| column.rows()), Some(100));
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub trait Storage: Send + Sync {
    /// Field `field` of every sample as a column of memory, if there is one: for every id and epoch, row `id`
    /// must have exactly the bytes that a read writes. The bytes must not move or change while the data set
    /// exists.
    ///
    /// When every field has a column, the device can read the rows itself, without workers and copies. Return
    /// `None`, the default, for a ragged field, and in a set that changes what it reads from another.
    fn column(&self, _field: usize) -> Option<StridedColumn<'_>> {
        None
    }

    /// Field `field` of sample `id`, if memory holds its bytes. A sample may have a slice even if there is no
    /// [`column`](Self::column).
    fn slice(&self, id: u64, field: usize) -> Option<&[u8]> {
        self.column(field)?.row(id)
    }

    /// The bytes of field `field` of sample `id` as a stream, so that a part of a large file can be read.
    /// `None`, the default, if the field can only be read as a whole.
    ///
    /// # Errors
    /// As [`Dataset::read`](crate::Dataset::read). Errors of the stream are this project's, inside the
    /// `io::Error`.
    fn stream(&self, _id: u64, _field: usize) -> Result<Option<FieldStream<'_>>> {
        Ok(None)
    }

    /// The number of items of each sample, for each field that varies in its first dimension, in order. With
    /// it, a set is measured without reading a sample. `None`, the default, if only reading the samples can
    /// tell.
    ///
    /// # Errors
    /// As [`Dataset::read`](crate::Dataset::read).
    fn lengths(&self) -> Result<Option<Vec<Vec<u32>>>> {
        Ok(None)
    }

    /// The samples that are decoded together with `id`, including itself. By default, samples are read one by
    /// one, and it is `id` alone.
    fn group(&self, id: u64) -> Range<u64> {
        id..id.saturating_add(1)
    }

    /// Sample `id`, and the others of its [group](Self::group). `None`, the default, if samples are read one
    /// by one. A worker holds up to four such groups while it copies the samples of a batch.
    ///
    /// Blocks on the file, unless the group is in a cache.
    ///
    /// # Errors
    /// As [`Dataset::read`](crate::Dataset::read).
    fn decoded(&self, _id: u64) -> Result<Option<Decoded>> {
        Ok(None)
    }

    /// Drops the group of `id` from a cache. The caller has a copy of its rows. Does nothing by default.
    fn forget(&self, _id: u64) {}

    /// Prepares samples of one batch, `ids`, for a later [`read`](crate::Dataset::read): for sets where a
    /// read decodes or fetches a group of samples.
    ///
    /// Workers call this before they read a batch, and with the ids of later batches while they have nothing
    /// else to do. A call should prepare one group of samples, such as a row group, and must not wait for
    /// another thread. It must not change the result of a read. It does not report errors: the read of the
    /// samples will find them.
    ///
    /// The default is [`Prefetched::Never`]. A set that returns it must do so for any ids, even an empty
    /// list. Other sets must bound the memory of samples that are prepared and not yet read, and return
    /// [`Prefetched::Full`] at the bound.
    fn prefetch(&self, _ids: &[u64], _context: &mut Context) -> Prefetched {
        Prefetched::Never
    }

    /// Calls `to` with the items of the list `field` that sample `id` has in `epoch` and its row leaves out,
    /// in the bytes of the field's type, such as the items of a table's list before its last ten.
    /// [`negatives`](crate::Dataset::negatives) are none of them. The default is for rows of whole lists; a
    /// set that reads from others passes on what they leave out.
    ///
    /// # Errors
    /// Any error, such as that of a function of the samples, which may have changed the other items.
    fn left_out(&self, _id: u64, _field: usize, _epoch: u64, _to: TakeItems<'_>) -> Result<(), ReadError> {
        Ok(())
    }

    /// The file that holds field `field` of sample `id`, if the fields of a sample are in several files.
    /// `None`, the default, if [`Dataset::path`](crate::Dataset::path) holds all of them.
    fn field_path(&self, _id: u64, _field: usize) -> Option<&Path> {
        None
    }
}

/// Samples that are read one by one.
pub(crate) struct OneByOne;

impl Storage for OneByOne {}
