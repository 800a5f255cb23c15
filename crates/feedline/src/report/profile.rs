//! Service times of the stages: how long each works on a batch, without the waits.

use std::path::Path;

use feedline_core::{Error, ErrorKind, Result};
use feedline_device::slot::MAX_SLOTS;
use serde::{Deserialize, Serialize};

use crate::MAX_WORKERS;

/// Batches whose times are kept.
const KEPT: usize = 256;

/// How a loader is set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Decode threads.
    pub workers: usize,
    /// Pinned slots.
    pub host_slots: usize,
    /// Slots on the device: the depth.
    pub device_slots: usize,
    /// Rows per batch.
    pub batch_size: usize,
    /// Bytes of a batch on the device.
    pub batch_bytes: usize,
    /// Whether records are read in sequence.
    pub is_source: bool,
    /// Whether the device reads the rows itself, so that a copy includes the gathering.
    pub is_zero_copy: bool,
}

/// How long each stage works on one batch, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceTimes {
    /// One worker reads the records of a source.
    pub read_ns: u64,
    /// Workers decode: the sum over all workers that took part.
    pub decode_ns: u64,
    /// The transfer thread queues the copy.
    pub submit_ns: u64,
    /// The copy on the device, of the last batch that was timed; 0 before the first.
    pub copy_ns: u64,
    /// The consumer's thread, between two calls.
    pub step_ns: u64,
    /// The consumer's work on the device, where it held up the pipeline or was told
    /// ([`Reporter::set_step_time`](super::Reporter::set_step_time)); 0 if it is not known.
    pub device_ns: u64,
}

/// The service times of a run's last batches, up to 256: enough to predict other settings
/// ([`WhatIf`](super::WhatIf)). A file of a few kilobytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// The setup that was measured.
    pub setup: Setup,
    /// The batches, in order.
    pub samples: Vec<ServiceTimes>,
}

/// The max of each time of a model, so that the sum over all batches fits 64 bits: 1000 s.
const MAX_NS: u64 = 1_000_000_000_000;

impl Setup {
    /// The setup within what a loader can have, because it may come from a file or a caller.
    pub(super) fn bounded(self) -> Self {
        Self {
            workers: self.workers.clamp(1, MAX_WORKERS),
            host_slots: self.host_slots.clamp(1, MAX_SLOTS),
            device_slots: self.device_slots.clamp(1, MAX_SLOTS),
            batch_size: self.batch_size.min(1 << 32),
            batch_bytes: self.batch_bytes.min(1 << 42),
            ..self
        }
    }
}

impl ServiceTimes {
    /// The times, each at most 1000 s.
    pub(super) fn bounded(self) -> Self {
        let Self { read_ns, decode_ns, submit_ns, copy_ns, step_ns, device_ns } = self;
        let [read_ns, decode_ns, submit_ns, copy_ns, step_ns, device_ns] =
            [read_ns, decode_ns, submit_ns, copy_ns, step_ns, device_ns].map(|ns| ns.min(MAX_NS));
        Self { read_ns, decode_ns, submit_ns, copy_ns, step_ns, device_ns }
    }
}

impl Profile {
    /// Writes the profile to a file, as JSON.
    ///
    /// # Errors
    /// `Data` if it cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let failed = |what: &str| Error::new(ErrorKind::Data, what).at_path(path.as_ref());
        std::fs::write(path.as_ref(), self.json() + "\n")
            .map_err(|error| failed("cannot write the service times").caused_by(error))
    }

    /// The profile as one JSON object.
    pub fn json(&self) -> String {
        // Plain numbers: nothing here can fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a profile that [`write`](Self::write) has written.
    ///
    /// # Errors
    /// `Data` for a file that cannot be read, or that is not a profile.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let failed = |what: &str| Error::new(ErrorKind::Data, what).at_path(path.as_ref());
        let text = std::fs::read_to_string(path.as_ref())
            .map_err(|error| failed("cannot read the service times").caused_by(error))?;
        let profile: Self = serde_json::from_str(&text)
            .map_err(|error| failed("not a file of service times").caused_by(error))?;
        if profile.samples.is_empty() {
            return Err(failed("the file has no service times: save them after the first batches"));
        }
        Ok(profile)
    }

    /// The mean of each time.
    pub fn mean(&self) -> ServiceTimes {
        mean(&self.samples)
    }
}

/// The last batches, in a ring that is never reallocated.
pub(super) struct Recent {
    samples: Box<[ServiceTimes; KEPT]>,
    count: usize,
}

impl Recent {
    pub(super) fn push(&mut self, times: ServiceTimes) {
        self.samples[self.count % KEPT] = times;
        self.count += 1;
    }

    /// The batches, the oldest first, without the very first one: its consumer has not had a batch yet.
    pub(super) fn samples(&self) -> Vec<ServiceTimes> {
        let first = self.count.saturating_sub(KEPT).max(1);
        let device_ns = self.mean().device_ns;
        let sample = |index: usize| ServiceTimes { device_ns, ..self.samples[index % KEPT] };
        (first..self.count).map(sample).collect()
    }

    pub(super) fn mean(&self) -> ServiceTimes {
        let (kept, count) = (&self.samples[..self.count.min(KEPT)], self.count);
        let mean = mean(if (2..KEPT).contains(&count) { &kept[1..] } else { kept });
        // A step that is the longest part holds up the pipeline for the rest of its time. Host slots come
        // back several at a time, so only the mean over many batches says for how long.
        let held = mean.device_ns;
        let device_ns = if held > mean.step_ns / 20 { mean.step_ns + held } else { 0 };
        ServiceTimes { device_ns, ..mean }
    }
}

impl Default for Recent {
    fn default() -> Self {
        Self { samples: Box::new([ServiceTimes::default(); KEPT]), count: 0 }
    }
}

fn mean(samples: &[ServiceTimes]) -> ServiceTimes {
    let mean = |part: fn(&ServiceTimes) -> u64| {
        samples.iter().map(part).fold(0, u64::saturating_add) / samples.len().max(1) as u64
    };
    let timed = samples.iter().filter(|times| times.copy_ns > 0).count().max(1) as u64;
    ServiceTimes {
        read_ns: mean(|times| times.read_ns),
        decode_ns: mean(|times| times.decode_ns),
        submit_ns: mean(|times| times.submit_ns),
        copy_ns: samples.iter().map(|times| times.copy_ns).fold(0, u64::saturating_add) / timed,
        step_ns: mean(|times| times.step_ns),
        device_ns: mean(|times| times.device_ns),
    }
}
