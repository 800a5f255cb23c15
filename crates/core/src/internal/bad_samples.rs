//! The bookkeeping of bad samples: the loader counts, checks and saves them.

use std::path::PathBuf;

use crate::{BadSampleReport, BadSamples, Result};

/// Checks the policy's values.
///
/// # Errors
/// `Config` for a fraction outside 0 to 1.
pub fn check_policy(policy: BadSamples) -> Result<()> {
    policy.check()
}

/// Counts delivered rows, including substitutes.
pub fn delivered(report: &mut BadSampleReport, rows: u64) {
    report.delivered(rows)
}

/// Records that `sample` of `epoch` could not be read, and that `substitute` was delivered in its
/// place.
pub fn replaced(
    report: &mut BadSampleReport,
    epoch: u64,
    sample: u64,
    substitute: u64,
    path: Option<PathBuf>,
    cause: &str,
) {
    report.replaced(epoch, sample, substitute, path, cause)
}

/// Records that `sample` could not be read as a substitute.
pub fn failed(report: &mut BadSampleReport, sample: u64, path: Option<PathBuf>, cause: &str) {
    report.failed(sample, path, cause)
}

/// Checks that `policy` tolerates the bad samples so far.
///
/// # Errors
/// `Sample` when it does not; the message says how many there are and names the first files.
pub fn check(report: &BadSampleReport, policy: BadSamples) -> Result<()> {
    report.check(policy)
}

/// Appends the report to `bytes`.
pub fn write_to(report: &BadSampleReport, bytes: &mut Vec<u8>) {
    report.write_to(bytes)
}

/// The report that `write_to` wrote; `None` if `bytes` are not exactly one report.
pub fn read_from(bytes: &[u8]) -> Option<BadSampleReport> {
    BadSampleReport::read_from(bytes)
}
