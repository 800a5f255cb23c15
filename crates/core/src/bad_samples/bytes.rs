//! The byte form of a report: little-endian words, and texts after their lengths.

use super::{BadSample, BadSampleReport};
use crate::Proof;
use crate::system::{path_bytes, path_of};

/// The length that stands for an unknown path.
const NO_PATH: u64 = u64::MAX;

/// # For loaders
///
/// What a loader calls, and training code does not. It may change in any release.
impl BadSampleReport {
    /// Appends the report to `bytes`.
    pub fn write_to(&self, bytes: &mut Vec<u8>) {
        let mut word = |word: u64| bytes.extend(word.to_le_bytes());
        word(self.failures);
        word(self.delivered);
        for proof in [&self.replaced, &self.substitutes] {
            word(proof.count());
            word(proof.sum() as u64);
            word((proof.sum() >> 64) as u64);
        }
        word(self.samples.len() as u64);
        for BadSample { sample, path, cause, times } in &self.samples {
            bytes.extend(sample.to_le_bytes());
            bytes.extend(times.to_le_bytes());
            match path {
                Some(path) => text(bytes, &path_bytes(path)),
                None => bytes.extend(NO_PATH.to_le_bytes()),
            }
            text(bytes, cause.as_bytes());
        }
    }

    /// The report that [`write_to`](Self::write_to) wrote; `None` if `bytes` are not exactly one report.
    pub fn read_from(mut bytes: &[u8]) -> Option<Self> {
        let bytes = &mut bytes;
        let (failures, delivered) = (word(bytes)?, word(bytes)?);
        let mut proof = || {
            let (count, low, high) = (word(bytes)?, word(bytes)?, word(bytes)?);
            Some(Proof::from_parts(count, u128::from(high) << 64 | u128::from(low)))
        };
        let (replaced, substitutes) = (proof()?, proof()?);
        let count = word(bytes)?;
        // No capacity is reserved, because the number is not to be trusted.
        let mut samples = Vec::new();
        for _ in 0..count {
            let (sample, times, path) = (word(bytes)?, word(bytes)?, word(bytes)?);
            let path = if path == NO_PATH { None } else { Some(path_of(take(bytes, path)?)) };
            let cause = word(bytes)?;
            let cause = String::from_utf8(take(bytes, cause)?.to_vec()).ok()?;
            samples.push(BadSample { sample, path, cause, times });
        }
        let is_valid = bytes.is_empty()
            && samples.is_sorted_by(|a, b| a.sample < b.sample)
            && replaced.count() == substitutes.count();
        is_valid.then_some(Self { samples, failures, delivered, replaced, substitutes })
    }
}

fn text(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text);
}

fn word(bytes: &mut &[u8]) -> Option<u64> {
    let (word, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*word))
}

fn take<'a>(bytes: &mut &'a [u8], len: u64) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
    *bytes = rest;
    Some(taken)
}
