//! Samples that are decoded together: row groups, record batches, chunks.

use std::ops::Range;
use std::sync::Arc;

use feedline_core::{About, Decoded, DecodedRows, Groups, Prefetched, Result};

use crate::io::cache::Cache;

/// Groups of consecutive samples that are decoded together. A cache keeps decoded groups.
#[derive(Debug)]
pub(crate) struct DecodedGroups<T> {
    /// The end of each group. The first one begins at 0.
    ends: Vec<u64>,
    /// Samples of the largest group; `None` without groups.
    largest: Option<u64>,
    cache: Cache<T>,
    cache_bytes: u64,
}

impl<T: DecodedRows + 'static> DecodedGroups<T> {
    /// Groups with these ends. The cache takes some 50 bytes for each group, and holds up to `cache_bytes`.
    pub(crate) fn new(ends: Vec<u64>, cache_bytes: u64) -> Self {
        let starts = std::iter::once(&0).chain(&ends);
        let largest = ends.iter().zip(starts).map(|(end, start)| end - start).max();
        Self { cache: Cache::new(ends.len(), cache_bytes), ends, largest, cache_bytes }
    }

    /// The number of samples.
    pub(crate) fn samples(&self) -> u64 {
        self.ends.last().copied().unwrap_or_default()
    }

    /// The number of groups.
    pub(crate) fn count(&self) -> usize {
        self.ends.len()
    }

    /// The samples of a group.
    pub(crate) fn group(&self, number: usize) -> Range<u64> {
        self.first(number)..self.ends[number]
    }

    /// The first sample of a group, or of the one that would follow the last.
    fn first(&self, number: usize) -> u64 {
        if number == 0 { 0 } else { self.ends[number - 1] }
    }

    /// The number of the group of a sample.
    fn number(&self, sample: u64) -> usize {
        self.ends.partition_point(|&end| end <= sample)
    }

    /// The number of the group of a sample, and the sample's row in it.
    pub(crate) fn find(&self, sample: u64) -> (usize, usize) {
        let number = self.number(sample);
        (number, (sample - self.first(number)) as usize)
    }

    /// The samples that are decoded together with `sample`; none if there is no such sample.
    pub(crate) fn group_of(&self, sample: u64) -> Range<u64> {
        if sample < self.samples() { self.group(self.number(sample)) } else { sample..sample }
    }

    /// The decoded group of a sample, and the sample's row in it. `decode` decodes a group, and returns its
    /// bytes too.
    ///
    /// # Panics
    /// If there is no such sample.
    pub(crate) fn get(
        &self,
        sample: u64,
        decode: impl FnOnce(usize) -> Result<(T, u64)>,
    ) -> Result<(Arc<T>, usize)> {
        let (number, row) = self.find(sample);
        Ok((self.cache.get(number, || decode(number))?, row))
    }

    /// As [`get`](Self::get), as a [`Storage`](feedline_core::Storage) returns it.
    pub(crate) fn decoded(
        &self,
        sample: u64,
        decode: impl FnOnce(usize) -> Result<(T, u64)>,
    ) -> Result<Option<Decoded>> {
        let number = self.number(sample);
        let group = self.cache.get(number, || decode(number))?;
        Ok(Some(Decoded::new(self.group(number), group)))
    }

    /// Decodes the group of one of `samples`; see [`Cache::prefetch`].
    pub(crate) fn prefetch(
        &self,
        samples: &[u64],
        decode: impl FnOnce(usize) -> Result<(T, u64)>,
    ) -> Prefetched {
        self.cache.prefetch(samples.iter().map(|&sample| self.number(sample)), decode)
    }

    /// Drops the group of a sample from the cache.
    pub(crate) fn forget(&self, sample: u64) {
        self.cache.forget(self.number(sample));
    }

    /// What a set of this format says of itself, if its groups have `bytes` bytes when decoded.
    pub(crate) fn about(&self, format: &'static str, bytes: u64) -> About<'static> {
        let groups = self.largest.map(|largest| Groups { largest, bytes });
        let block_shuffle =
            groups.and_then(|groups| groups.block_shuffle(self.count() as u64, self.cache_bytes));
        About { format, groups, block_shuffle, row_memory: self.cache_bytes, ..About::default() }
    }
}
