//! Statistics of a device: pinned bytes, device bytes, streams, events, and errors from drops.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use feedline_core::Error;

/// A gauge: the current amount, and its peak.
#[derive(Debug, Default)]
pub struct Gauge {
    now: AtomicU64,
    peak: AtomicU64,
}

impl Gauge {
    pub(crate) fn add(&self, amount: u64) {
        let now = self.now.fetch_add(amount, Ordering::Relaxed) + amount;
        self.peak.fetch_max(now, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, amount: u64) {
        self.now.fetch_sub(amount, Ordering::Relaxed);
    }

    /// The current amount.
    pub fn get(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// The highest amount so far.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

/// The statistics of one device. All amounts return to zero once everything created from the device is
/// dropped.
#[derive(Debug, Default)]
pub struct DeviceStats {
    /// Pinned host bytes.
    pub pinned_bytes: Gauge,
    /// Device bytes.
    pub device_bytes: Gauge,
    /// Streams.
    pub streams: Gauge,
    /// Events.
    pub events: Gauge,
    errors: Mutex<Vec<Error>>,
}

impl DeviceStats {
    /// Records an error that a drop could not return.
    pub(crate) fn report(&self, error: Error) {
        // The number is bounded. After a device is lost every drop fails, and the first errors are enough.
        const KEPT: usize = 16;
        let mut errors = self.errors.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if errors.len() < KEPT {
            errors.push(error);
        }
    }

    /// Takes the errors recorded since the last call, oldest first.
    pub fn take_errors(&self) -> Vec<Error> {
        std::mem::take(&mut *self.errors.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}
