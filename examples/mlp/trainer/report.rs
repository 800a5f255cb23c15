//! The report of a run: a few lines for people, one JSON object for programs.

use std::fmt;

use feedline::sampler::Proof;
use feedline::{Error, ErrorKind, Result};
use feedline_core::bad_samples::BadSample;
use serde::Serialize;

use super::files::Output;
use super::pace::Pace;

/// The figures of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub device: String,
    /// The number of ranks. Except for counts, rates and losses, the figures belong to the first rank.
    pub world: u32,
    /// The transport between the ranks.
    pub connection: String,
    /// The implementation of the matrix products.
    pub kernels: String,
    /// The transfer mode, and why it is staged if zero copy was not possible.
    pub transfer_mode: String,
    pub samples_per_s: f64,
    pub seconds: f64,
    /// Time from the start of the process to the end of the first step.
    pub first_step_seconds: f64,
    pub steps: u64,
    /// The mean loss of every step over all ranks, before the update.
    pub losses: Vec<f32>,
    pub test_accuracy: f64,
    /// The hash of the delivered sample ids, in order; with several ranks, over the hashes of all.
    pub order_hash: String,
    /// The proof over the delivered (epoch, sample id) pairs.
    pub proof: Proof,
    /// The proof expected from the batch sampler, over all parts of a resumed run.
    pub expected_proof: Proof,
    /// Whether the two are equal, so that every sample was delivered exactly once.
    pub exactly_once: bool,
    /// Samples that could not be read, with file and cause.
    pub bad_samples: Vec<BadSample>,
    /// The share of time that the training loop waited for data.
    pub wait_share: f64,
    /// The limiting stage, and settings that would help.
    pub diagnosis: String,
    /// The rank that slows down the others, because it waits for its data much longer than they do.
    pub slow_rank: Option<Pace>,
    /// The account of the consumer's time, and the service times of the stages.
    pub stalls: feedline::report::Report,
    pub peak_pinned_bytes: u64,
    pub peak_device_bytes: u64,
}

impl Report {
    /// The report as one line of JSON.
    ///
    /// # Errors
    /// `Data` if it cannot be serialized.
    pub fn json(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|error| Error::new(ErrorKind::Data, "cannot serialize the report").with_source(error))
    }

    /// Writes the JSON to a file, completely or not at all.
    ///
    /// # Errors
    /// `Data` if it cannot be written.
    pub fn write(&self, output: &Output) -> Result<()> {
        output.replace(format!("{}\n", self.json()?).as_bytes())
    }

    /// Checks that the run delivered every sample exactly once.
    ///
    /// # Errors
    /// `Data` if a sample was lost, delivered twice or delivered instead of another.
    pub fn check(&self) -> Result<()> {
        self.proof.check(&self.expected_proof).map_err(|error| {
            let why = "the run did not deliver every sample exactly once, please report this as a bug";
            Error::new(ErrorKind::Data, why).with_source(error)
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.losses.last().copied().unwrap_or(f32::NAN);
        writeln!(f, "device         {} ({})", self.device, self.kernels)?;
        if self.world > 1 {
            writeln!(f, "ranks          {}", self.connection)?;
        }
        writeln!(f, "transfer mode  {}", self.transfer_mode)?;
        writeln!(f, "steps          {} in {:.1} s, last loss {last:.4}", self.steps, self.seconds)?;
        match self.proof.check(&self.expected_proof) {
            Ok(()) => writeln!(f, "samples        {}, each exactly once per epoch", self.proof.count())?,
            Err(error) => writeln!(f, "samples        NOT EXACTLY ONCE: {}", error.message())?,
        }
        writeln!(f, "throughput     {:.0} samples/s", self.samples_per_s)?;
        writeln!(f, "waited         {:.1} % of the time for data", 100.0 * self.wait_share)?;
        writeln!(f, "diagnosis      {}", self.diagnosis)?;
        if let Some(Pace { rank, wait_share, diagnosis }) = &self.slow_rank {
            let percent = 100.0 * wait_share;
            writeln!(f, "slow rank      rank {rank} waited {percent:.1} % of the time: {diagnosis}")?;
        }
        if let Some(tuning) = &self.stalls.tuning {
            writeln!(f, "{tuning}")?;
        }
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        writeln!(
            f,
            "pipeline held  {:.1} MiB pinned, {:.1} MiB on the device",
            mib(self.peak_pinned_bytes),
            mib(self.peak_device_bytes)
        )?;
        write!(f, "test accuracy  {:.2} %", 100.0 * self.test_accuracy)
    }
}
