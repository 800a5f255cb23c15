//! The state shared by all handles of one device: the backend and the statistics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use feedline_backend::Backend;
use feedline_core::{Error, ErrorKind, Result};

use crate::stats::DeviceStats;

pub(crate) struct Core {
    /// The device's number in this process, from 1: two devices may have the same name.
    number: u64,
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) stats: DeviceStats,
}

impl Core {
    pub(crate) fn new(backend: Box<dyn Backend>) -> Self {
        static DEVICES: AtomicU64 = AtomicU64::new(0);
        let number = DEVICES.fetch_add(1, Ordering::Relaxed) + 1;
        Self { number, backend, stats: DeviceStats::default() }
    }

    /// Returns an error if `what` belongs to another device.
    pub(crate) fn same(self: &Arc<Self>, other: &Arc<Self>, what: &str) -> Result<()> {
        if Arc::ptr_eq(self, other) {
            return Ok(());
        }
        let why = format!("{what} belongs to {other}, not to {self}: build both on one device");
        Err(Error::new(ErrorKind::Config, why))
    }
}

impl std::fmt::Display for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (device #{} of this process)", self.backend.name(), self.number)
    }
}
