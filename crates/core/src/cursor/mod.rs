//! Checkpoints: a cursor covers the delivered samples, never those that were only prefetched.
//!
//! A cursor has two serialized forms: [`Cursor::to_bytes`], of fixed size with a checksum, and serde (feature
//! `serde`), for readable JSON. `fit` checks either against the batch sampler before a run resumes
//! from it, in constant time.

use crate::proof::NO_IDS;
#[cfg(feature = "serde")]
use crate::proof::hex;
use crate::source::MAX_OFFSET;
use crate::source_order::SourcePosition;
use crate::{BatchProof, BatchSampler, Error, ErrorKind, Proof, Result, Stage, named};

mod bytes;

/// Up to version 4 random numbers were keyed by samples, not by draws, and a short last step could leave
/// ranks without samples.
const VERSION: u32 = 5;
/// The oldest version that is parsed, so that old records of runs can be read. A run resumes only from
/// [`VERSION`].
const OLDEST: u32 = 3;

/// The progress of one rank.
///
/// Each rank has its own cursor. Between two steps, epoch and position are the same on all ranks; proof and
/// order hash cover the samples that this rank delivered.
///
/// ```
/// use feedline_core::Cursor;
/// # fn keep(cursor: &Cursor) -> feedline_core::Result<()> {
/// // `cursor` is usually from `Loader::checkpoint`.
/// let saved = cursor.to_bytes();
/// assert_eq!(Cursor::from_bytes(&saved)?, *cursor);
/// # Ok(())
/// # }
/// assert!(Cursor::from_bytes(&[0; Cursor::BYTES]).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Cursor {
    // This field is read first: a cursor of a newer version is then rejected by its version, not for unknown
    // or missing fields.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "known_version"))]
    version: u32,
    #[cfg_attr(feature = "serde", serde(with = "hex"))]
    fingerprint: u64,
    #[cfg_attr(feature = "serde", serde(rename = "order", with = "hex"))]
    sampler: u64,
    seed: u64,
    epoch: u64,
    position: u64,
    /// For a source: the offset of the next record in the shard at `position`. In its upper bits, above
    /// [`MAX_OFFSET`], the number of records taken from the block that begins there, if records are shuffled.
    offset: u64,
    /// The position in the epoch from which steps of this world and batch size are counted.
    start: u64,
    /// Number of positions skipped since `start`.
    skipped: u64,
    batch: u64,
    rank: u32,
    world: u32,
    proof: Proof,
    #[cfg_attr(feature = "serde", serde(with = "hex"))]
    order_hash: u64,
    #[cfg_attr(feature = "serde", serde(skip))]
    ignores_fingerprint: bool,
}

impl Cursor {
    /// The epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The next global position: the `start` of the batch sampler's methods. For a source, the position of
    /// the rank's shard in the order of shards.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The offset in the shard at [`position`](Self::position) at which a source continues; if records are
    /// shuffled, the start of the block being delivered. 0 for a data set.
    pub fn offset(&self) -> u64 {
        self.offset % MAX_OFFSET
    }

    /// Makes the cursor fit data with another fingerprint.
    ///
    /// Use it if the same samples were stored in another form. The number of samples, the seed and the order
    /// are still checked.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use feedline_core::Cursor;
    /// let cursor = Cursor::from_bytes(&std::fs::read("cursor")?)?.ignore_fingerprint();
    /// // loader.resume(cursor)?
    /// # Ok(())
    /// # }
    /// ```
    pub fn ignore_fingerprint(self) -> Self {
        Self { ignores_fingerprint: true, ..self }
    }

    /// The proof of the samples that this rank delivered, in any order.
    pub fn proof(&self) -> &Proof {
        &self.proof
    }

    /// The hash of the samples that this rank delivered, in order.
    pub fn order_hash(&self) -> u64 {
        self.order_hash
    }

    /// The checks that [`fit`](Self::fit) and [`fit_source`](Self::fit_source) share.
    fn fit_any(self, batch_sampler: &BatchSampler, fingerprint: u64, unit: &str) -> Result<Self> {
        if self.version != VERSION {
            return Err(refuse(format!(
                "the cursor has version {}, of an earlier feedline whose random numbers belong to samples; \
                 those of version {VERSION} belong to draws: finish the run with the feedline that saved the \
                 cursor, or start a new run",
                self.version
            )));
        }
        self.check_data(batch_sampler, fingerprint, unit)?;
        let options = batch_sampler.options();
        if self.seed != options.seed {
            return Err(refuse(format!(
                "the cursor has seed {}, this run has seed {}: use the cursor's seed",
                self.seed, options.seed
            )));
        }
        if self.sampler != batch_sampler.digest() {
            return Err(refuse(
                "the cursor belongs to another order of the samples: use the sampler, weights, ids and \
                 shuffle buffer of the run that saved it",
            ));
        }
        self.check_position(batch_sampler)?;
        let now = Self::new(batch_sampler, fingerprint);
        let mut next = Self { fingerprint, ignores_fingerprint: false, ..self };
        if (self.batch, self.world) != (now.batch, now.world) {
            (next.start, next.skipped, next.batch, next.world) = (self.position, 0, now.batch, now.world);
        }
        if self.rank != now.rank {
            (next.rank, next.proof, next.order_hash) = (now.rank, now.proof, now.order_hash);
        }
        Ok(next)
    }

    /// Checks that the cursor was saved with this data, or that its fingerprint is ignored.
    fn check_data(&self, batch_sampler: &BatchSampler, fingerprint: u64, unit: &str) -> Result<()> {
        if self.fingerprint == fingerprint || self.ignores_fingerprint {
            return Ok(());
        }
        let (saved, len) = (self.fingerprint, batch_sampler.options().len);
        let prints = format!("fingerprint {saved:#x}, this one has {fingerprint:#x}");
        // The digest of the sampler covers the length.
        let is_same_len = self.sampler == batch_sampler.digest();
        Err(refuse(if !is_same_len {
            format!(
                "the cursor belongs to another data set, of another length or with another sampler: this one \
                 has {len} {unit} ({prints}); open the data that it was saved with"
            )
        } else {
            format!(
                "the cursor belongs to another data set, which also has {len} {unit}: content, names or \
                 fields differ ({prints}); open the data that it was saved with, or, if the samples are the \
                 same, {}",
                what_to_do()
            )
        }))
    }

    fn check_position(&self, batch_sampler: &BatchSampler) -> Result<()> {
        let positions = batch_sampler.positions();
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
        if moved % global != 0 && position != positions && !batch_sampler.records().split {
            return Err(refuse(format!(
                "the cursor is inside a step: position {position} is {} samples into a step of {batch} on \
                 {world} ranks; use a cursor saved between steps",
                moved % global
            )));
        }
        Ok(())
    }
}

/// # For loaders
///
/// What a loader calls, and training code does not. It may change in any release.
impl Cursor {
    /// The cursor of a new run: epoch 0, nothing delivered. `fingerprint` is that of the
    /// [data set](crate::Dataset::fingerprint).
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
            proof: Proof::default(),
            order_hash: NO_IDS,
            ignores_fingerprint: false,
        }
    }

    /// Moves the cursor to a position in `epoch`, which must be between two steps of a run with these
    /// options. Proof and order hash stay. For a data set, only `position` counts.
    pub fn at(mut self, epoch: u64, source_position: SourcePosition) -> Self {
        self.begin(epoch);
        self.reach(source_position, &BatchProof::default());
        self.start = self.position;
        self
    }

    /// Moves to the beginning of `epoch`. The proof keeps the samples delivered before.
    pub fn begin(&mut self, epoch: u64) {
        (self.epoch, self.position, self.offset, self.start, self.skipped) = (epoch, 0, 0, 0, 0);
    }

    /// Advances over one delivered step. `delivered` covers the valid samples of this rank, with substitutes
    /// in place of samples that could not be read.
    pub fn deliver(&mut self, batch_sampler: &BatchSampler, delivered: &BatchProof) {
        let after = batch_sampler.position_after(self.epoch, self.position, 0);
        self.skipped += batch_sampler.skipped(self.epoch, self.position..after);
        self.position = after;
        let moved = after.saturating_sub(self.start).saturating_sub(self.skipped);
        if !moved.is_multiple_of(batch_sampler.global_batch()) && !self.is_at_end(batch_sampler) {
            // This step was shortened to leave samples for the last step.
            (self.start, self.skipped) = (after, 0);
        }
        delivered.add_to(&mut self.proof, &mut self.order_hash);
    }

    /// Advances over a delivered batch of a source, to the position up to which it was read.
    pub fn reach(&mut self, source_position: SourcePosition, delivered: &BatchProof) {
        let SourcePosition { position, offset, taken } = source_position;
        (self.position, self.offset) = (position, (taken * MAX_OFFSET) + offset);
        delivered.add_to(&mut self.proof, &mut self.order_hash);
    }

    /// The position of a source at which this rank continues.
    pub fn source_position(&self) -> SourcePosition {
        SourcePosition { position: self.position, offset: self.offset(), taken: self.offset / MAX_OFFSET }
    }

    /// Whether `batch_sampler` has no step left in this epoch.
    pub fn is_at_end(&self, batch_sampler: &BatchSampler) -> bool {
        batch_sampler.steps(self.epoch, self.position) == 0
    }

    /// Adds the proof of ranks that this rank continues; see [`fit`](Self::fit).
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
    /// `Cursor` if the cursor is of an earlier feedline, of another data set, seed or sampler, or of a
    /// source; and if its position is beyond the epoch, or inside a step of the saved world (some ranks have
    /// delivered their part of the step, others have not).
    pub fn fit(self, batch_sampler: &BatchSampler, fingerprint: u64) -> Result<Self> {
        let next = self.fit_any(batch_sampler, fingerprint, "samples")?;
        if self.offset != 0 {
            return Err(refuse(format!(
                "the cursor is at offset {} of a shard, but a data set has no shards: it belongs to a \
                 source, or was edited",
                self.offset()
            )));
        }
        Ok(next)
    }

    /// Like [`fit`](Self::fit), for a source; `shards` is the batch sampler over its shards.
    ///
    /// # Errors
    /// As for [`fit`](Self::fit). Also for a rank or world size that differs from the saved run's, unless the
    /// cursor is at the beginning or the end of an epoch: each rank has its own position, which other ranks
    /// do not know.
    pub fn fit_source(self, shards: &BatchSampler, fingerprint: u64) -> Result<Self> {
        let next = self.fit_any(shards, fingerprint, "shards")?;
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
}

fn check_version(version: u32) -> Result<(), String> {
    match version {
        OLDEST..=VERSION => Ok(()),
        older if older < OLDEST => Err(format!(
            "the cursor has version {older}, and this feedline resumes from version {VERSION}: start a new \
             run"
        )),
        newer => Err(format!(
            "the cursor has version {newer}, and this feedline resumes from version {VERSION}: use a newer \
             feedline"
        )),
    }
}

#[cfg(feature = "serde")]
fn known_version<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let version = serde::Deserialize::deserialize(from)?;
    check_version(version).map_err(serde::de::Error::custom)?;
    Ok(version)
}

/// Advice for a fingerprint that differs although the samples are the same.
fn what_to_do() -> &'static str {
    named("resume with Cursor::ignore_fingerprint", "begin an epoch anew: loader.epoch(n)")
}

fn refuse(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Cursor, message).at_stage(Stage::Sampler)
}
