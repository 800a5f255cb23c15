//! The options that only a source has: it is read in sequence, shard by shard.

use feedline_core::{Sampler, Source};

use super::LoaderBuilder;

/// # Options of a source
// The bound is on each method, for the message of rustc where the data are of the other kind.
impl<T: ?Sized> LoaderBuilder<T> {
    /// Shuffles the order of the shards anew every epoch, by the [`seed`](Self::seed): the same as
    /// `sampler(Sampler::Shuffle)`. The records of a shard keep their order;
    /// [`shuffle_buffer`](Self::shuffle_buffer) shuffles them too.
    pub fn shuffle_shards(self) -> Self
    where
        T: Source,
    {
        self.sampler(Sampler::Shuffle)
    }

    /// Shuffles the records anew every epoch, within a buffer of `bytes` bytes. Default: the
    /// order of the shards.
    ///
    /// The records of a rank are cut into blocks of a quarter to a half of the buffer, also across the ends
    /// of shards. Each block is shuffled; one is delivered while the next one is read. The order depends only
    /// on the source, the seed, the epoch, the rank and `bytes`. A run resumes exactly at any step, for which
    /// it reads at most one block again.
    ///
    /// Records move within their block only, so combine this with [`shuffle_shards`](Self::shuffle_shards),
    /// and write many shards that are smaller than the buffer: the smaller they are, the closer the order is
    /// to a shuffle of the whole set. The loader holds up to `bytes` bytes of records, 40 bytes of them for
    /// each record, and two records more. A source that grows delivers a block when it is full.
    pub fn shuffle_buffer(mut self, bytes: u64) -> Self
    where
        T: Source,
    {
        self.options.shuffle_buffer = Some(bytes);
        self
    }

    /// Splits every shard over the ranks: each rank reads all shards and takes every `n`-th
    /// record of `n` ranks. Default: each rank reads shards of its own.
    ///
    /// For sources with fewer shards than ranks, or with shards of very different lengths: the ranks get
    /// equal numbers of records, up to one per shard. Each rank reads the bytes of all records, and decodes
    /// its own.
    pub fn split_shards(mut self) -> Self
    where
        T: Source,
    {
        self.options.splits_shards = true;
        self
    }
}
