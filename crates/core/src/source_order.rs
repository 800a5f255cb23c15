//! How a loader numbers and orders the records of a source.

use crate::random::key;
use crate::source::{MAX_OFFSET, MAX_SHARDS, OFFSET_BITS};

/// The sample id of the record at `offset` of `shard`: `shard * 2^40 + offset`. `None` when either is too
/// large.
pub const fn record_id(shard: u64, offset: u64) -> Option<u64> {
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
