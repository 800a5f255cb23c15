//! How the samples of a reader lie: what can be had without reading them one by one.

use std::ops::Range;
use std::path::Path;

use feedline_core::{Prefetched, Result, StridedColumn};

use crate::{Decoded, FieldStream};

/// How samples lie in memory and in files. [`Reader::storage`](crate::Reader::storage) returns it.
///
/// Each method has a default for samples that are read one by one. A reader implements those for which it can
/// do better; what they return must be what [`Reader::visit`](crate::Reader::visit) puts.
pub trait Storage: Send + Sync {
    /// Field `field` of every sample as a strided column of memory. `None` if memory does not hold them in
    /// this form.
    fn column(&self, _field: usize) -> Option<StridedColumn<'_>> {
        None
    }

    /// Field `field` of sample `sample`, if memory holds its bytes. A sample may have a slice even if there
    /// is no [`column`](Self::column).
    fn slice(&self, sample: u64, field: usize) -> Option<&[u8]> {
        self.column(field)?.row(sample)
    }

    /// The bytes of field `field` of sample `sample` as a stream, so that a part of a large file can be read.
    /// `None`, the default, if the field can only be read as a whole.
    ///
    /// # Errors
    /// As [`Reader::visit`](crate::Reader::visit). Errors of the stream are this project's, inside the
    /// `io::Error`.
    fn stream(&self, _sample: u64, _field: usize) -> Result<Option<FieldStream<'_>>> {
        Ok(None)
    }

    /// The number of items of each sample, for each field that varies in its first dimension, in order. With
    /// it, [`Bounded::measured`](crate::Bounded::measured) reads no sample. `None`, the default, if only
    /// reading the samples can tell.
    ///
    /// # Errors
    /// As [`Reader::visit`](crate::Reader::visit).
    fn lengths(&self) -> Result<Option<Vec<Vec<u32>>>> {
        Ok(None)
    }

    /// The samples that are decoded together with `sample`, including itself. By default, samples are read
    /// one by one, and it is `sample` alone.
    fn group(&self, sample: u64) -> Range<u64> {
        sample..sample.saturating_add(1)
    }

    /// Sample `sample`, and the others of its [group](Self::group). `None`, the default, if samples are read
    /// one by one. [`Bounded`](crate::Bounded) holds up to four such groups while it copies the samples of a
    /// batch.
    ///
    /// Blocks on the file, unless the group is in a cache.
    ///
    /// # Errors
    /// As [`Reader::visit`](crate::Reader::visit).
    fn decoded(&self, _sample: u64) -> Result<Option<Decoded>> {
        Ok(None)
    }

    /// Drops the group of `sample` from a cache. The caller has a copy of its rows. Does nothing by default.
    fn forget(&self, _sample: u64) {}

    /// As [`Dataset::prefetch`](feedline_core::Dataset::prefetch). Decodes one [group](Self::group), if the
    /// cache lacks it and `samples` has some of its samples.
    fn prefetch(&self, _samples: &[u64]) -> Prefetched {
        Prefetched::Never
    }

    /// Calls `to` with the items of field `field` that sample `sample` has and a read leaves out, as
    /// [`Dataset::left_out`](feedline_core::Dataset::left_out). Does nothing by default.
    fn left_out(&self, _sample: u64, _field: usize, _to: &mut dyn FnMut(&[u8])) {}

    /// The file that holds field `field` of sample `sample`, if the fields of a sample are in several files.
    /// `None`, the default, if [`Reader::path`](crate::Reader::path) holds all of them.
    fn field_path(&self, _sample: u64, _field: usize) -> Option<&Path> {
        None
    }
}

/// Samples that are read one by one.
pub(crate) struct OneByOne;

impl Storage for OneByOne {}
