//! The state shared by all handles of one device: the backend and the statistics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use feedline_core::{Error, ErrorKind, Result, Stage};

use crate::backend::{Backend, BackendKind, CallSite};
use crate::stats::DeviceStats;

pub(crate) struct Core {
    /// The device's number in this process, from 1. It tells apart devices with the same name.
    number: u64,
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) stats: DeviceStats,
    /// Whether each call waits for its work.
    is_synchronous: bool,
    /// Whether messages name source lines.
    names_lines: bool,
}

impl Core {
    pub(crate) fn new(backend: Box<dyn Backend>, is_synchronous: bool) -> Self {
        static DEVICES: AtomicU64 = AtomicU64::new(0);
        let number = DEVICES.fetch_add(1, Ordering::Relaxed) + 1;
        let names_lines = is_synchronous || backend.kind() == BackendKind::Sim;
        Self { number, backend, stats: DeviceStats::default(), is_synchronous, names_lines }
    }

    /// Whether each call waits for its work.
    pub(crate) fn is_synchronous(&self) -> bool {
        self.is_synchronous
    }

    /// While the result lives, messages of the next device calls name the caller's line.
    #[track_caller]
    pub(crate) fn call_site(&self) -> Option<CallSite> {
        if self.names_lines { Some(CallSite::enter()) } else { None }
    }

    /// Adds to the error the batch that the failed work reads, if the error is known to belong to this work.
    pub(crate) fn place(&self, error: Error, step: Option<u64>) -> Error {
        match step {
            Some(step) if self.is_synchronous => error.at_stage(Stage::Compute).at_batch(step),
            _ => error,
        }
    }

    /// Returns an error if `other` is another device. `what` names the object of `other` in the message.
    pub(crate) fn same(self: &Arc<Self>, other: &Arc<Self>, what: &str) -> Result<()> {
        if Arc::ptr_eq(self, other) {
            return Ok(());
        }
        let is_host = |core: &Self| core.backend.kind() == BackendKind::Host;
        let hint = match is_host(self) && is_host(other) {
            true => "; every Device::new_host() is a device of its own, so clone the first one",
            false => "",
        };
        let why = format!("{what} belongs to {other}, not to {self}: build both on one device{hint}");
        Err(Error::new(ErrorKind::Config, why))
    }
}

impl std::fmt::Display for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (device #{} of this process)", self.backend.name(), self.number)
    }
}
