//! Data without a length or random access: sockets, growing logs, generators, archives.
//!
//! | word | meaning |
//! | --- | --- |
//! | source | a known number of shards; see [`Source`] |
//! | shard | a sequence of records, of a length unknown until its end; see [`Shard`] |
//! | record | the raw bytes of one sample |
//! | offset | the position in its shard where a record begins |
//!
//! A [`Sampler`](crate::Sampler) orders the shards of an epoch. Of every `world` consecutive shards each rank
//! reads one, and a rank reads its shards one after the other, each from beginning to end. A batch is the
//! next records of the rank, also across the end of a shard. So the samples of a batch depend only on the
//! source, the seed, the epoch, the rank and the batch size, never on the workers. The random numbers of a
//! record are keyed by its id: a record occurs once per epoch, and its position in the order is not known.
//!
//! Two options of the loader's builder change this: with `split_shards` each rank reads all shards and takes
//! every `world`-th record, and with `shuffle_buffer` records are shuffled in blocks.
//!
//! One worker at a time reads raw records in sequence; decoding, the expensive part, is spread over all
//! workers.
//!
//! The length of an epoch is unknown until it was read: ranks may have different numbers of steps, and there
//! is no closed form of the expected proof. The [proof](crate::Proof) of each rank's cursor covers the
//! samples that the rank delivered; compare it with the count of the writer of the data.

mod from_iter;

use std::path::Path;

pub use from_iter::{FromIter, from_iter};

use crate::dataset::{spec_key, versioned};
use crate::random::key;
use crate::{Context, ReadError, Row, Spec};

/// Bits of a sample's id that hold the offset of its record; the bits above hold the shard.
pub(crate) const OFFSET_BITS: u32 = 40;

/// Maximum number of shards of a source: 2^24.
pub const MAX_SHARDS: u64 = 1 << (64 - OFFSET_BITS);

/// The bound of offsets: every offset is below 2^40.
pub const MAX_OFFSET: u64 = 1 << OFFSET_BITS;

/// The shard and the offset of a sample id: `shard * 2^40 + offset`.
pub const fn place(id: u64) -> (u64, u64) {
    (id >> OFFSET_BITS, id & (MAX_OFFSET - 1))
}

/// The result of [`Shard::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A record was read.
    Record,
    /// No record yet; call again. A shard that waits for data returns this from time to time, so that the
    /// pipeline can stop.
    Later,
    /// The shard has no more records in this epoch.
    End,
}

/// Samples without random access, in shards that are read in sequence.
///
/// ```
/// use feedline_core::{Context, DType, ReadError, Row, Spec};
/// use feedline_core::source::{Next, Shard, Source};
///
/// /// Shard `n` counts from `n * 100`; its length is unknown until its end.
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
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a source",
    label = "not a `Source`",
    note = "a data set is loaded by `Loader::builder`, and shuffled by `shuffle`"
)]
pub trait Source: Send + Sync + 'static {
    /// Number of shards, at most [`MAX_SHARDS`]; the same for every call and on every rank.
    ///
    /// Ranks share the shards: provide at least as many shards as ranks, of about the same size, or let the
    /// loader split them (`split_shards`).
    fn shards(&self) -> u64;

    /// The fields of a sample; the same for every call.
    fn spec(&self) -> &Spec;

    /// Opens `shard` at the record at `offset`: 0, or a value of [`Shard::offset`] from an earlier run.
    ///
    /// One worker at a time calls this, for one shard at a time. The same (epoch, shard, offset) must always
    /// yield the same records.
    ///
    /// # Errors
    /// Any error; it ends the run with an error that names the shard.
    fn open(&self, epoch: u64, shard: u64, offset: u64) -> Result<Box<dyn Shard>, ReadError>;

    /// Decodes `record` into `row`. It must write the whole row: a reused row contains bytes of an earlier
    /// sample.
    ///
    /// Called from many threads at once, in any order. [`Context::draw`] returns the sample's id;
    /// [`place`] turns it into shard and offset.
    ///
    /// # Errors
    /// Any error; the record then counts as a bad sample.
    fn decode(&self, record: &[u8], row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError>;

    /// The file of `shard`, for error messages.
    fn path(&self, _shard: u64) -> Option<&Path> {
        None
    }

    /// A number that identifies this data; a cursor with another fingerprint is rejected.
    ///
    /// The default covers only the number of shards, the spec and the [`version`](Self::version); see
    /// [`Dataset::fingerprint`](crate::Dataset::fingerprint).
    fn fingerprint(&self) -> u64 {
        let state = key(&[u64::from_le_bytes(*b"a source"), self.shards()]);
        versioned(spec_key(state, self.spec()), self.version())
    }

    /// The version of the records, which the default [`fingerprint`](Self::fingerprint) covers. Change it
    /// when the records change, so that cursors of the old ones are rejected. Default: 0.
    fn version(&self) -> u64 {
        0
    }
}

/// An open shard of a [`Source`].
pub trait Shard: Send {
    /// The start of the next record, in any unit that grows with every record and stays below [`MAX_OFFSET`],
    /// such as bytes of a file, so that [`Source::open`] can seek there, or the number of the record.
    fn offset(&self) -> u64;

    /// Appends the bytes of the next record to `record`, an empty vector whose memory is reused.
    ///
    /// May block for a short time; see [`Next::Later`].
    ///
    /// # Errors
    /// Any error; it ends the run after the batches before it, with an error that names shard and offset.
    fn read(&mut self, record: &mut Vec<u8>) -> Result<Next, ReadError>;
}
