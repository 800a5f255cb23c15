//! Checkpoints: a cursor covers the delivered samples, never those that were only prefetched.
//!
//! A cursor has two serialized forms: [`Cursor::to_bytes`], of fixed size with a checksum, and serde (feature
//! `serde`), for readable JSON. [`Cursor::fit`] checks either against the batch sampler before a run resumes
//! from it, in constant time.

#[cfg(feature = "serde")]
use crate::proof::hex;
use crate::{BatchProof, BatchSampler, Error, ErrorKind, OrderHash, Proof, Result, SourcePosition, Stage};

mod bytes;

const VERSION: u32 = 3;

/// The progress of one rank.
///
/// Each rank has its own cursor. Between two steps, epoch and position are the same on all ranks; proof and
/// order hash cover the samples that this rank delivered.
///
/// ```
/// # use feedline_core::{BatchSampler, BatchSamplerOptions, LastBatch, Sampler, World};
/// use feedline_core::Cursor;
/// # use feedline_core::BatchProof;
/// # let options = BatchSamplerOptions {
/// #     len: 100,
/// #     sampler: Sampler::Shuffle,
/// #     seed: 7,
/// #     batch: 8,
/// #     last_batch: LastBatch::Keep,
/// #     world: World::single(),
/// # };
/// # let (batch_sampler, fingerprint, mut ids) = (BatchSampler::new(options)?, 0xDA7A, Vec::new());
/// # let mut cursor = Cursor::new(&batch_sampler, fingerprint);
/// # for step in 0..3 {
/// #     let valid = batch_sampler.batch(0, 0, step, &mut ids);
/// #     cursor.deliver(&batch_sampler, &BatchProof::of(0, &ids[..valid]));
/// # }
/// // After three batches of 8; usually from `Loader::checkpoint`.
/// assert_eq!((cursor.epoch(), cursor.position(), cursor.proof().count()), (0, 24, 24));
/// let saved = cursor.to_bytes();
/// assert_eq!(Cursor::from_bytes(&saved)?, cursor);
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Cursor {
    // First, so that a newer version is rejected as such, not for unknown or missing fields.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "known_version"))]
    version: u32,
    #[cfg_attr(feature = "serde", serde(with = "hex"))]
    fingerprint: u64,
    #[cfg_attr(feature = "serde", serde(rename = "order", with = "hex"))]
    sampler: u64,
    seed: u64,
    epoch: u64,
    position: u64,
    /// For a source: the offset of the next record in the shard at `position`.
    offset: u64,
    /// The position in the epoch at which this world and batch size began.
    start: u64,
    /// Number of positions skipped since `start`.
    skipped: u64,
    batch: u64,
    rank: u32,
    world: u32,
    proof: Proof,
    order_hash: OrderHash,
}

impl Cursor {
    /// The cursor of a new run: epoch 0, nothing delivered. `fingerprint` is that of the
    /// [data set](crate::Dataset::fingerprint).
    #[doc(hidden)] // Made by the loader.
    pub fn new(batch_sampler: &BatchSampler, fingerprint: u64) -> Self {
        let options = batch_sampler.options();
        Self {
            version: VERSION,
            fingerprint,
            sampler: batch_sampler.digest(),
            seed: options.seed,
            epoch: 0,
            position: 0,
            offset: 0,
            start: 0,
            skipped: 0,
            batch: options.batch as u64,
            rank: options.world.rank(),
            world: options.world.size(),
            proof: Proof::new(),
            order_hash: OrderHash::new(),
        }
    }

    /// Moves to the beginning of `epoch`. The proof keeps the samples delivered before.
    /// This cursor at `position` of `epoch`, which a run of these options reaches between two steps. Proof and
    /// order hash stay.
    #[doc(hidden)] // For the replay of a step.
    pub fn at(mut self, epoch: u64, position: u64, offset: u64) -> Self {
        self.begin(epoch);
        (self.position, self.start, self.offset) = (position, position, offset);
        self
    }

    #[doc(hidden)] // The loader's bookkeeping.
    pub fn begin(&mut self, epoch: u64) {
        (self.epoch, self.position, self.offset, self.start, self.skipped) = (epoch, 0, 0, 0, 0);
    }

    /// Advances over one delivered step. `delivered` covers the valid samples of this rank, with substitutes
    /// in place of samples that could not be read.
    #[doc(hidden)] // The loader's bookkeeping.
    pub fn deliver(&mut self, batch_sampler: &BatchSampler, delivered: &BatchProof) {
        let after = batch_sampler.position_after(self.epoch, self.position, 0);
        self.skipped += batch_sampler.skipped(self.epoch, self.position..after);
        self.position = after;
        delivered.add_to(&mut self.proof, &mut self.order_hash);
    }

    /// Advances over a delivered batch of a source, to the position up to which it was read.
    #[doc(hidden)] // The loader's bookkeeping.
    pub fn reach(&mut self, source_position: SourcePosition, delivered: &BatchProof) {
        (self.position, self.offset) = (source_position.position, source_position.offset);
        delivered.add_to(&mut self.proof, &mut self.order_hash);
    }

    /// The epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The next global position: the `start` of the batch sampler's methods. For a source, the position of
    /// the rank's shard in the order of shards.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The offset in the shard at [`position`](Self::position) at which a source continues; 0 for a data set.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether `batch_sampler` has no step left in this epoch.
    #[doc(hidden)] // The loader's bookkeeping.
    pub fn is_at_end(&self, batch_sampler: &BatchSampler) -> bool {
        batch_sampler.steps(self.epoch, self.position) == 0
    }

    /// The proof of the samples that this rank delivered, in any order.
    pub fn proof(&self) -> &Proof {
        &self.proof
    }

    /// The hash of the samples that this rank delivered, in order.
    pub fn order_hash(&self) -> OrderHash {
        self.order_hash
    }

    /// Adds the proof of ranks that this rank continues; see [`fit`](Self::fit).
    #[doc(hidden)] // For the crates of this repository.
    pub fn merge_proof(&mut self, delivered: &Proof) {
        self.proof.merge(delivered);
    }

    /// Checks that a run of `batch_sampler` can resume here, and returns the cursor to resume with. The batch
    /// size, the last-batch policy and the world may differ from those of the saved run.
    ///
    /// Proof and order hash belong to one rank: on a rank other than the one that saved the cursor they start
    /// empty. After the world shrank, [merge](Proof::merge) the proofs of the removed ranks to get the proof
    /// of the whole run.
    ///
    /// # Errors
    /// `Cursor` for another data set, seed or sampler, for a position beyond the epoch or inside a step of
    /// the saved world (some ranks delivered their part of that step, others did not), and for an offset in a
    /// shard, which only the cursor of a source has.
    #[doc(hidden)] // Called by `Loader::resume`.
    pub fn fit(self, batch_sampler: &BatchSampler, fingerprint: u64) -> Result<Self> {
        let next = self.fit_any(batch_sampler, fingerprint)?;
        if self.offset != 0 {
            return Err(refuse(format!(
                "the cursor is at offset {} of a shard, but a data set has no shards: it belongs to a \
                 source, or was edited",
                self.offset
            )));
        }
        Ok(next)
    }

    /// The checks that [`fit`](Self::fit) and [`fit_source`](Self::fit_source) share.
    fn fit_any(self, batch_sampler: &BatchSampler, fingerprint: u64) -> Result<Self> {
        if self.fingerprint != fingerprint {
            return Err(refuse(format!(
                "the cursor belongs to another data set (fingerprint {:#x}, this one has \
                 {fingerprint:#x}): open the data that it was saved with",
                self.fingerprint
            )));
        }
        let options = batch_sampler.options();
        if self.seed != options.seed {
            return Err(refuse(format!(
                "the cursor has seed {}, this run has seed {}: use the cursor's seed",
                self.seed, options.seed
            )));
        }
        if self.sampler != batch_sampler.digest() {
            if self.sampler == batch_sampler.former_digest() {
                return Err(refuse(
                    "the cursor was saved by an earlier feedline, whose shuffle gives another order: restart \
                     the epoch, or finish it with that version",
                ));
            }
            return Err(refuse(
                "the cursor belongs to another order of the samples: use the sampler, weights and ids of \
                 the run that saved it",
            ));
        }
        self.check_position(batch_sampler.positions())?;
        let now = Self::new(batch_sampler, fingerprint);
        let mut next = self;
        if (self.batch, self.world) != (now.batch, now.world) {
            (next.start, next.skipped, next.batch, next.world) = (self.position, 0, now.batch, now.world);
        }
        if self.rank != now.rank {
            (next.rank, next.proof, next.order_hash) = (now.rank, now.proof, now.order_hash);
        }
        Ok(next)
    }

    /// Like [`fit`](Self::fit), for a source; `shards` is the batch sampler over its shards.
    ///
    /// # Errors
    /// As for [`fit`](Self::fit). Also for another rank or world size than that of the saved run, unless the
    /// cursor is at the beginning or the end of an epoch: each rank has its own position, which other ranks
    /// do not know.
    #[doc(hidden)] // Called by `Loader::resume`.
    pub fn fit_source(self, shards: &BatchSampler, fingerprint: u64) -> Result<Self> {
        let next = self.fit_any(shards, fingerprint)?;
        let world = shards.options().world;
        let between = self.is_at_end(shards) || (self.position, self.offset) == (0, 0);
        if (self.rank, self.world) != (world.rank(), world.size()) && !between {
            return Err(refuse(format!(
                "the cursor is from rank {} of {} in the middle of an epoch, but this is rank {} of {}: \
                 the ranks of a source have different positions, so use each rank's own cursor, and change \
                 the world only between epochs",
                self.rank,
                self.world,
                world.rank(),
                world.size()
            )));
        }
        Ok(next)
    }

    fn check_position(&self, positions: u64) -> Result<()> {
        let Self { position, start, skipped, batch, rank, world, .. } = *self;
        if position > positions {
            return Err(refuse(format!(
                "the cursor is at position {position}, beyond the {positions} of an epoch: it belongs to \
                 another run"
            )));
        }
        let global = batch.checked_mul(u64::from(world)).filter(|&global| global > 0 && rank < world);
        let moved = position.checked_sub(start).and_then(|way| way.checked_sub(skipped));
        let (Some(global), Some(moved)) = (global, moved) else {
            return Err(refuse(format!(
                "the cursor contradicts itself (position {position}, start {start}, skipped {skipped}, \
                 batch {batch}, rank {rank} of {world}): it was edited"
            )));
        };
        // The last step of an epoch may be short.
        if moved % global != 0 && position != positions {
            return Err(refuse(format!(
                "the cursor is inside a step: position {position} is {} samples into a step of {batch} on \
                 {world} ranks; use a cursor saved between steps",
                moved % global
            )));
        }
        Ok(())
    }
}

fn check_version(version: u32) -> Result<(), String> {
    match version {
        VERSION => Ok(()),
        older if older < VERSION => Err(format!(
            "the cursor has version {older}, this feedline reads only version {VERSION}: start a new run"
        )),
        newer => Err(format!(
            "the cursor has version {newer}, this feedline reads only version {VERSION}: use a newer feedline"
        )),
    }
}

#[cfg(feature = "serde")]
fn known_version<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let version = serde::Deserialize::deserialize(from)?;
    check_version(version).map_err(serde::de::Error::custom)?;
    Ok(version)
}

fn refuse(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Cursor, message).at_stage(Stage::Sampler)
}
