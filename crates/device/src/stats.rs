//! What a device's users hold, counted: page-locked bytes, device bytes, streams, events; and errors from drops.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use feedline_core::Error;

/// A counted thing: how much is held now, and the most that ever was.
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

    /// Held now.
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// The most held at once.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

/// The counts of one device. All are back at zero when everything made from the device is dropped.
#[derive(Debug, Default)]
pub struct DeviceStats {
    /// Page-locked host bytes.
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
    /// Keeps an error that a drop could not return.
    pub fn report(&self, error: Error) {
        // Bounded: after a device is lost every drop fails, and the first few say it all.
        const KEPT: usize = 16;
        let mut errors = self.errors.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if errors.len() < KEPT {
            errors.push(error);
        }
    }

    /// Takes the errors that drops have kept since the last call, oldest first.
    pub fn take_errors(&self) -> Vec<Error> {
        std::mem::take(&mut *self.errors.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}
