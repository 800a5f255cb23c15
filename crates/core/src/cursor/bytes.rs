//! The byte form of a cursor, of fixed size.

use super::{Cursor, check_version, refuse};
use crate::random::splitmix64;
use crate::{Error, Proof, Result};

const MAGIC: u32 = u32::from_le_bytes(*b"flcu");
/// Number of 64-bit little-endian words of the byte form. The last word is the checksum of the others.
const WORDS: usize = 16;

impl Cursor {
    /// Length of [`to_bytes`](Self::to_bytes), for any data set.
    pub const BYTES: usize = 8 * WORDS;

    /// The cursor as little-endian bytes with a checksum.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let sum = self.proof.sum();
        let mut words = [
            pair(MAGIC, self.version),
            self.fingerprint,
            self.sampler,
            self.seed,
            self.epoch,
            self.position,
            self.offset,
            self.start,
            self.skipped,
            self.batch,
            pair(self.rank, self.world),
            sum as u64,
            (sum >> 64) as u64,
            self.proof.count(),
            self.order_hash,
            0,
        ];
        words[WORDS - 1] = checksum(&words);
        let mut bytes = [0; Self::BYTES];
        for (part, word) in bytes.chunks_exact_mut(8).zip(words) {
            part.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Parses the bytes of [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    /// `Cursor` for bytes that are not a cursor, are of another version, truncated, too long or damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let (whole, rest) = bytes.as_chunks::<8>();
        let Some(&first) = whole.first() else {
            return Err(cut_short(bytes.len()));
        };
        let (magic, version) = unpair(u64::from_le_bytes(first));
        if magic != MAGIC {
            return Err(refuse("these bytes are not a cursor"));
        }
        check_version(version).map_err(refuse)?;
        if bytes.len() < Self::BYTES {
            return Err(cut_short(bytes.len()));
        }
        let words: Option<&[[u8; 8]; WORDS]> = whole.try_into().ok().filter(|_| rest.is_empty());
        let Some(words) = words else {
            return Err(refuse(format!("the cursor has {} bytes, not {}", bytes.len(), Self::BYTES)));
        };
        let words = words.map(u64::from_le_bytes);
        if words[WORDS - 1] != checksum(&words) {
            return Err(refuse("the cursor is damaged: its checksum does not match"));
        }
        let [_, fingerprint, sampler, seed, epoch, position, offset, start, ..] = words;
        let [.., skipped, batch, ranks, low, high, count, order_hash, _] = words;
        let (rank, world) = unpair(ranks);
        let proof = Proof::from_parts(count, u128::from(high) << 64 | u128::from(low));
        Ok(Self {
            version,
            fingerprint,
            sampler,
            seed,
            epoch,
            position,
            offset,
            start,
            skipped,
            batch,
            rank,
            world,
            proof,
            order_hash,
            ignores_fingerprint: false,
        })
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn unpair(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// The checksum of all words but the last. Each step is a bijection, so one changed word always changes it.
fn checksum(words: &[u64; WORDS]) -> u64 {
    words[..WORDS - 1].iter().fold(0, |state, &word| splitmix64(state ^ word))
}

fn cut_short(len: usize) -> Error {
    refuse(format!("the cursor is truncated: {len} of {} bytes", Cursor::BYTES))
}
