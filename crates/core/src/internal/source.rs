//! How a loader numbers and orders the records of a source.

use crate::random::key;
use crate::source::{MAX_OFFSET, MAX_SHARDS, OFFSET_BITS};
use crate::{BatchSampler, Error, ErrorKind, Result, named};

/// The sample id of the record at `offset` of `shard`: `shard * 2^40 + offset`. `None` when either is too
/// large.
pub const fn id(shard: u64, offset: u64) -> Option<u64> {
    if shard < MAX_SHARDS && offset < MAX_OFFSET { Some(shard << OFFSET_BITS | offset) } else { None }
}

/// The position up to which a rank has read a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourcePosition {
    /// The position of the rank's present shard in the epoch's order of shards, over all ranks.
    pub position: u64,
    /// The offset of the next record in that shard, or of the first record of the block that is being
    /// delivered if records are shuffled.
    pub offset: u64,
    /// Records delivered of that block; 0 if records are not shuffled.
    pub taken: u64,
}

/// The order in which the ranks read the records of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordOrder {
    /// Whether each rank reads all shards, and takes every `world`-th record.
    pub split: bool,
    /// Bytes of the shuffle buffer; 0 for none.
    pub buffer_bytes: u64,
}

impl RecordOrder {
    /// Adds the order to the digest of a sampler; the default order leaves it unchanged.
    pub(crate) fn digest(self, sampler: u64) -> u64 {
        if self == Self::default() {
            return sampler;
        }
        key(&[u64::from_le_bytes(*b"records "), sampler, self.split.into(), self.buffer_bytes])
    }
}

/// Checks that a source can be read in the order of `batch_sampler`, which takes one shard per step.
///
/// # Errors
/// `Config` for more than [`MAX_SHARDS`] shards, and for a sampler that may repeat a shard within an epoch:
/// its records would be delivered twice.
pub fn check(batch_sampler: &BatchSampler) -> Result<()> {
    let options = batch_sampler.options();
    if options.len > MAX_SHARDS {
        let why = format!("the source has {} shards: the maximum is {MAX_SHARDS}", options.len);
        return Err(Error::new(ErrorKind::Config, why));
    }
    if options.sampler.repeats() {
        let others = named(
            "sequential, shuffle, block, weighted without replacement, or a subset that lists no shard twice",
            "shuffle=, Sampler.block or Sampler.weighted(..., replacement=False)",
        );
        let why = format!(
            "the sampler orders the shards of a source, and this one may repeat a shard within an epoch: use \
             {others}"
        );
        return Err(Error::new(ErrorKind::Config, why));
    }
    Ok(())
}
