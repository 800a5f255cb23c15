//! What a run tells at its end: a few lines for people, one JSON object for programs.

use std::fmt;

use feedline::{Error, ErrorKind, Proof, Result};
use feedline_core::bad_samples::Bad;
use serde::Serialize;

use crate::files::Output;

/// The figures of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub device: String,
    /// What computes the matrix products.
    pub kernels: String,
    /// How rows got to the device; where that was by workers and another was looked for, why.
    pub transfer_mode: String,
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
    /// Over the delivered (epoch, sample id).
    pub proof: Proof,
    /// What the plan says, over all parts of a resumed run; and whether the two are equal: every sample
    /// exactly once.
    pub expected_proof: Proof,
    pub exactly_once: bool,
    /// Samples that could not be read, with their files and why.
    pub bad_samples: Vec<Bad>,
    /// The share of time the compute stage waited for data.
    pub wait_share: f64,
    pub peak_pinned_bytes: u64,
    pub peak_device_bytes: u64,
}

impl Report {
    /// The report as one line of JSON.
    ///
    /// # Errors
    /// `Data` when it cannot be JSON.
    pub fn json(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|error| Error::new(ErrorKind::Data, "cannot put the report into JSON").caused_by(error))
    }

    /// Writes the JSON to a file: whole, or not at all.
    ///
    /// # Errors
    /// `Data` when it cannot be written.
    pub fn write(&self, output: &Output) -> Result<()> {
        output.replace(format!("{}\n", self.json()?).as_bytes())
    }

    /// Whether the run delivered what the plan says.
    ///
    /// # Errors
    /// `Data` when a sample was lost, delivered twice or delivered in place of another.
    pub fn check(&self) -> Result<()> {
        self.proof.check(&self.expected_proof).map_err(|error| {
            let why = "the run did not deliver every sample exactly once, please report this as a bug";
            Error::new(ErrorKind::Data, why).caused_by(error)
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.losses.last().copied().unwrap_or(f32::NAN);
        writeln!(f, "device         {} ({})", self.device, self.kernels)?;
        writeln!(f, "transfer mode  {}", self.transfer_mode)?;
        writeln!(f, "steps          {} in {:.1} s, last loss {last:.4}", self.steps, self.seconds)?;
        match self.proof.check(&self.expected_proof) {
            Ok(()) => writeln!(f, "samples        {}, each exactly once per epoch", self.proof.count())?,
            Err(error) => writeln!(f, "samples        NOT EXACTLY ONCE: {}", error.message())?,
        }
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
