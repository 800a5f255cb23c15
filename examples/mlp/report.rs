//! What a run tells at its end: a few lines for people, one JSON object for programs.

use std::fmt;
use std::path::Path;

use feedline::{Error, ErrorKind, Proof, Result};
use feedline_core::quarantine::Bad;
use serde::Serialize;

use crate::checkpoint::replace_file;

/// The figures of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub device: String,
    /// What computes the matrix products.
    pub kernels: String,
    /// How rows got to the device; where that was by workers and another was looked for, why.
    pub road: String,
    pub samples_per_s: f64,
    pub seconds: f64,
    /// Process start to the end of the first step.
    pub first_step_seconds: f64,
    pub steps: u64,
    /// The mean loss of every step, before its update.
    pub losses: Vec<f32>,
    pub test_accuracy: f64,
    /// Over the delivered sample ids, in order.
    pub order_hash: String,
    /// Over the delivered (epoch, sample id), and whether it is what the plan says: every sample exactly once.
    pub proof: Proof,
    pub exactly_once: bool,
    /// Samples that could not be read, with their files and why.
    pub bad_samples: Vec<Bad>,
    /// The share of time the compute stage waited for data.
    pub wait_share: f64,
    pub peak_pinned_bytes: u64,
    pub peak_device_bytes: u64,
}

impl Report {
    /// Writes the object to `path`: whole, or not at all.
    pub fn write(&self, path: &Path) -> Result<()> {
        let refuse = |error: std::io::Error| {
            Error::new(ErrorKind::Data, "cannot write the report").caused_by(error).at_path(path)
        };
        let mut json = serde_json::to_vec(self).map_err(|error| refuse(error.into()))?;
        json.push(b'\n');
        replace_file(path, &json).map_err(refuse)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.losses.last().copied().unwrap_or(f32::NAN);
        writeln!(f, "device         {} ({})", self.device, self.kernels)?;
        writeln!(f, "road           {}", self.road)?;
        writeln!(f, "steps          {} in {:.1} s, last loss {last:.4}", self.steps, self.seconds)?;
        writeln!(f, "throughput     {:.0} samples/s", self.samples_per_s)?;
        writeln!(f, "waited         {:.1} % of the time for data", 100.0 * self.wait_share)?;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        writeln!(
            f,
            "pipeline held  {:.1} MiB page-locked, {:.1} MiB on the device",
            mib(self.peak_pinned_bytes),
            mib(self.peak_device_bytes)
        )?;
        write!(f, "test accuracy  {:.2} %", 100.0 * self.test_accuracy)
    }
}
