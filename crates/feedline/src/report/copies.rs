//! The rates of copies from host memory, while workers fill other slots and while none does, and the fastest:
//! workers, and copies to other GPUs, use the same memory.

use serde::{Deserialize, Serialize};

/// Shorter copies are not counted: they are slow for other reasons.
const LONG: usize = 4 << 20;

/// The copies of a run that were timed on a GPU, one in about five milliseconds, of 4 MiB or more from pinned
/// memory. None on other devices, and none if the device reads host memory itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyRates {
    /// Copies that were queued while workers filled other slots, or while batches waited for a worker.
    pub beside: CopyRate,
    /// Copies that were queued while no slot was filled.
    pub alone: CopyRate,
    /// The fastest copy. Other loaders and GPUs of the host slow down the copies of this loader too, so the
    /// copies alone do not show what the link carries.
    #[serde(default)]
    pub fastest: CopyRate,
}

/// The number, bytes and time of some copies together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyRate {
    /// The number of copies.
    pub copies: u64,
    /// The bytes of these copies.
    pub bytes: u64,
    /// The time of these copies on the device, in nanoseconds.
    pub ns: u64,
}

impl CopyRates {
    /// Counts a copy of `bytes` bytes that took `ns` nanoseconds on the device. `is_alone`: no slot was being
    /// filled when it was queued.
    pub(crate) fn add(&mut self, bytes: usize, is_alone: bool, ns: u64) {
        if bytes < LONG || ns == 0 {
            return;
        }
        let rate = if is_alone { &mut self.alone } else { &mut self.beside };
        rate.copies += 1;
        rate.bytes += bytes as u64;
        rate.ns += ns;
        let (bytes, copies) = (bytes as u64, 1);
        // The rates are compared by products, so neither is rounded.
        if u128::from(bytes) * u128::from(self.fastest.ns) >= u128::from(self.fastest.bytes) * u128::from(ns)
        {
            self.fastest = CopyRate { copies, bytes, ns };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_copies_are_counted_by_whether_slots_are_filled_meanwhile() {
        let mut rates = CopyRates::default();
        for (bytes, is_alone, ns) in
            [(LONG, true, 1 << 20), (LONG, false, 1 << 21), (LONG - 1, false, 9), (LONG, false, 0)]
        {
            rates.add(bytes, is_alone, ns);
        }
        let CopyRates { beside, alone, fastest } = rates;
        assert_eq!(fastest, alone);
        assert_eq!(beside, CopyRate { copies: 1, bytes: LONG as u64, ns: 1 << 21 });
        assert_eq!(alone, CopyRate { copies: 1, bytes: LONG as u64, ns: 1 << 20 });
    }
}
