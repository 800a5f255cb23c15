//! Data without a length or random access: sockets, growing logs, generators, archives.
//!
//! | word | meaning |
//! | --- | --- |
//! | source | shards, in a number that is known; see [`Source`] |
//! | shard | records, one after the other; how many is learned at its end; see [`Shard`] |
//! | record | the raw bytes of one sample |
//! | offset | where in its shard a record begins |
//!
//! An epoch is a line of shards, in the order of an [`Sampler`](crate::Sampler) over them. Of every `world` shards in line
//! each rank takes one, and reads its own from end to end, one after the other. A batch is the next records of that line,
//! across the end of a shard too. So the samples of a batch depend on the source, the seed, the epoch, the rank and the
//! batch size alone, never on the workers.
//!
//! What is read in sequence is the raw record; what costs time, the decoding, is spread over all workers.
//!
//! Nobody knows how long an epoch is before it was read: the ranks' numbers of steps may differ, and there is no proof in
//! closed form. What each rank delivered is in the [proof](crate::Proof) of its cursor, to be compared with what the
//! writer of the data counted.

use std::path::Path;

use crate::dataset::spec_key;
use crate::random::key;
use crate::{BatchSampler, Context, Error, ErrorKind, ReadError, Result, Row, Spec};

/// Bits of a sample's id that hold the offset of its record; the bits above hold the shard.
const OFFSET_BITS: u32 = 40;

/// The most shards a source can have: 2^24.
pub const MAX_SHARDS: u64 = 1 << (64 - OFFSET_BITS);

/// Every offset is below this: 2^40.
pub const MAX_OFFSET: u64 = 1 << OFFSET_BITS;

/// The sample id of the record at `offset` of `shard`: `shard * 2^40 + offset`. `None` when either is too large.
///
/// ```
/// use feedline_core::source::{id, place};
/// assert_eq!(id(3, 1000), Some(3 * (1 << 40) + 1000));
/// assert_eq!(id(0, 1 << 40), None);
/// assert_eq!(place(3 * (1 << 40) + 1000), (3, 1000));
/// ```
pub const fn id(shard: u64, offset: u64) -> Option<u64> {
    if shard < MAX_SHARDS && offset < MAX_OFFSET { Some(shard << OFFSET_BITS | offset) } else { None }
}

/// The shard and the offset of a sample id; see [`id`].
pub const fn place(id: u64) -> (u64, u64) {
    (id >> OFFSET_BITS, id & (MAX_OFFSET - 1))
}

/// What a [`Shard`] had for its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A record.
    Record,
    /// Nothing now: ask again. A reader that waits for data returns this every now and then, so that a pipeline that is
    /// stopped does not wait for it.
    Later,
    /// Nothing more in this epoch.
    End,
}

/// Samples without random access, in shards that are read in sequence.
///
/// ```
/// use feedline_core::{Context, DType, ReadError, Row, Spec};
/// use feedline_core::source::{Next, Shard, Source};
///
/// /// Shard `n` counts from `n * 100`; nobody knows how far before its end.
/// struct Counters { spec: Spec }
/// struct Counter { shard: u64, at: u64 }
///
/// impl Shard for Counter {
///     fn offset(&self) -> u64 { self.at }
///     fn read(&mut self, record: &mut Vec<u8>) -> Result<Next, ReadError> {
///         if self.at == 10 + self.shard { return Ok(Next::End) }
///         record.extend((self.shard * 100 + self.at).to_le_bytes());
///         self.at += 1;
///         Ok(Next::Record)
///     }
/// }
///
/// impl Source for Counters {
///     fn shards(&self) -> u64 { 4 }
///     fn spec(&self) -> &Spec { &self.spec }
///     fn open(&self, _epoch: u64, shard: u64, offset: u64) -> Result<Box<dyn Shard>, ReadError> {
///         Ok(Box::new(Counter { shard, at: offset }))
///     }
///     fn decode(&self, record: &[u8], row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
///         row.write(0, record);
///         Ok(())
///     }
/// }
/// let counters = Counters { spec: Spec::new().field("count", DType::I64, [])? };
/// let (mut shard, mut record) = (counters.open(0, 2, 5).unwrap(), Vec::new());
/// assert_eq!(shard.read(&mut record).unwrap(), Next::Record);
/// assert_eq!((record, shard.offset()), (205_u64.to_le_bytes().to_vec(), 6));
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub trait Source: Send + Sync + 'static {
    /// Number of shards, at most [`MAX_SHARDS`]; the same at every call and on every rank.
    ///
    /// Shards are what ranks share: give at least as many as there are ranks, of about the same size.
    fn shards(&self) -> u64;

    /// What a sample is; the same at every call.
    fn spec(&self) -> &Spec;

    /// Opens `shard` before its record at `offset`: 0, or what [`Shard::offset`] was in an earlier run.
    ///
    /// Called by one worker, for one shard at a time. For every (epoch, shard, offset) the same records must follow.
    ///
    /// # Errors
    /// Any error; it ends the run, with the shard named.
    fn open(&self, epoch: u64, shard: u64, offset: u64) -> Result<Box<dyn Shard>, ReadError>;

    /// Writes the sample of `record` into `row`, all of it: a recycled row holds an older sample's bytes.
    ///
    /// Called from many threads at once, in any order. [`Context::current`] has the sample's id, from which
    /// [`place`] tells shard and offset.
    ///
    /// # Errors
    /// Any error; the record is then a bad sample.
    fn decode(&self, record: &[u8], row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError>;

    /// The file of a shard, for error messages.
    fn path(&self, _shard: u64) -> Option<&Path> {
        None
    }

    /// A number that tells this data from other data; a cursor is refused when it differs.
    ///
    /// The default covers the number of shards and the spec only; see
    /// [`Dataset::fingerprint`](crate::Dataset::fingerprint).
    fn fingerprint(&self) -> u64 {
        spec_key(key(&[u64::from_le_bytes(*b"a source"), self.shards()]), self.spec())
    }
}

/// A shard of a [`Source`], open to be read.
pub trait Shard: Send {
    /// Where the next record begins, in any unit that grows with every record and stays below [`MAX_OFFSET`]: bytes of a
    /// file, so that [`Source::open`] finds it at once, or the number of the record.
    fn offset(&self) -> u64;

    /// Appends the bytes of the next record to `record`, which is empty and has the memory of an older one.
    ///
    /// May block, for a short while; see [`Next::Later`].
    ///
    /// # Errors
    /// Any error; it ends the run, with shard and offset named, after the batches before it.
    fn read(&mut self, record: &mut Vec<u8>) -> Result<Next, ReadError>;
}

/// How far a rank has read a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourcePosition {
    /// The place in the epoch's line of shards, over all ranks, from which this rank's shard is taken.
    pub position: u64,
    /// Where in that shard the next record begins.
    pub offset: u64,
}

/// Whether `shards` can be read in the order of `batch_sampler`, a plan of one shard a step.
///
/// # Errors
/// `Config` for more than [`MAX_SHARDS`], and for an order in which a shard may come twice in an epoch: its records would
/// be delivered twice.
pub fn check(batch_sampler: &BatchSampler) -> Result<()> {
    let options = batch_sampler.options();
    if options.len > MAX_SHARDS {
        let why = format!("the source has {} shards: the most is {MAX_SHARDS}", options.len);
        return Err(Error::new(ErrorKind::Config, why));
    }
    if options.sampler.repeats() {
        return Err(Error::new(
            ErrorKind::Config,
            "the order is of shards here, and in this one a shard may come twice in an epoch: take sequential, shuffle, \
             block, distinct, or a subset that lists no shard twice",
        ));
    }
    Ok(())
}
