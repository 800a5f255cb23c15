//! Service times of a run, in a small file. They are the working times of the stages, without the waits.

use std::path::Path;

use feedline::Progress;
use feedline::report::MAX_WORKERS;
use feedline::report::waits::mean;
use feedline::report::{ServiceTimes, Setup};
use feedline_core::{Error, ErrorKind, Result};
use feedline_device::device_slots::MAX_SLOTS;
use serde::{Deserialize, Serialize};

use crate::servers::Served;

/// The service times of a run's last batches, up to 256. They are enough to predict other settings
/// ([`WhatIf`](crate::WhatIf)). The file has a few kilobytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// The setup that was measured.
    pub setup: Setup,
    /// The batches, in order.
    pub samples: Vec<ServiceTimes>,
    /// The counters of decode servers; `None` without servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers: Option<Served>,
}

impl Profile {
    /// The service times of the loader's last batches. `progress` may be the loader itself.
    pub fn new(progress: &Progress) -> Self {
        let report = progress.report();
        let servers = Served::new(&report);
        Self { setup: report.setup, samples: progress.service_times(), servers }
    }

    /// Writes the profile to a file, as JSON.
    ///
    /// # Errors
    /// `Data` if it cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let failed = |what: &str| Error::new(ErrorKind::Data, what).at_path(path.as_ref());
        std::fs::write(path.as_ref(), self.to_json() + "\n")
            .map_err(|error| failed("cannot write the service times").with_source(error))
    }

    /// The profile as one JSON object.
    pub fn to_json(&self) -> String {
        // This cannot fail, because the profile has only plain numbers.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a profile that [`write`](Self::write) has written.
    ///
    /// # Errors
    /// `Data` for a file that cannot be read, or that is not a profile.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let failed = |what: &str| Error::new(ErrorKind::Data, what).at_path(path.as_ref());
        let text = std::fs::read_to_string(path.as_ref())
            .map_err(|error| failed("cannot read the service times").with_source(error))?;
        let profile: Self = serde_json::from_str(&text)
            .map_err(|error| failed("not a file of service times").with_source(error))?;
        if profile.samples.is_empty() {
            return Err(failed("the file has no service times: save them after the first batches"));
        }
        Ok(profile)
    }

    /// The mean of each time.
    pub fn mean(&self) -> ServiceTimes {
        mean(self.samples.iter().copied())
    }
}

/// Max time in a model: 1000 s. With it, the sum over all batches fits in 64 bits.
pub(crate) const MAX_NS: u64 = 1_000_000_000_000;

/// Max threads per worker in a model.
const MAX_THREADS_PER_WORKER: usize = 8;

/// Number of decode threads.
pub(crate) fn threads(setup: &Setup) -> usize {
    setup.workers.saturating_mul(setup.threads_per_worker.max(1))
}

/// Limits a setup to the limits of a loader. The setup may come from a file or a caller.
pub(crate) fn bounded_setup(setup: &Setup) -> Setup {
    Setup {
        workers: setup.workers.clamp(1, MAX_WORKERS),
        threads_per_worker: setup.threads_per_worker.clamp(1, MAX_THREADS_PER_WORKER),
        host_slots: setup.host_slots.clamp(1, MAX_SLOTS),
        device_slots: setup.device_slots.clamp(1, MAX_SLOTS),
        map_lanes: setup.map_lanes.min(MAX_WORKERS),
        batch_size: setup.batch_size.min(1 << 32),
        batch_bytes: setup.batch_bytes.min(1 << 42),
        ..*setup
    }
}

/// Limits each time to 1000 s.
pub(crate) fn bounded_times(times: &ServiceTimes) -> ServiceTimes {
    let ServiceTimes { read_ns, decode_ns, submit_ns, copy_ns, map_ns, step_ns, device_ns } = *times;
    let [read_ns, decode_ns, submit_ns, copy_ns, map_ns, step_ns, device_ns] =
        [read_ns, decode_ns, submit_ns, copy_ns, map_ns, step_ns, device_ns].map(|ns| ns.min(MAX_NS));
    ServiceTimes { read_ns, decode_ns, submit_ns, copy_ns, map_ns, step_ns, device_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_a_profile_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("profile.json");
        for (text, why) in [("{", "not a file of service times"), ("{\"setup\":", "not a file")] {
            std::fs::write(&path, text).expect("a file");
            assert!(Profile::read(&path).expect_err("an error").to_string().contains(why));
        }
        let profile = Profile::default();
        profile.write(&path).expect("a file");
        assert!(Profile::read(&path).expect_err("an error").to_string().contains("no service times"));
        let profile = Profile { samples: vec![ServiceTimes { step_ns: 7, ..Default::default() }], ..profile };
        profile.write(&path).expect("a file");
        assert_eq!(Profile::read(&path).expect("a profile"), profile);
    }
}
