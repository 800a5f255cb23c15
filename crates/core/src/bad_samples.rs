//! Samples that could not be read: their substitutes, how many are tolerated, and the report.

mod bytes;

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::random::{Random, key};
use crate::{Error, ErrorKind, Proof, Result, Stage, named};

const TAG: u64 = u64::from_le_bytes(*b"instead ");

/// Max substitutes tried per position before the run fails.
pub const ATTEMPTS: u32 = 16;

/// Max samples that the error for an exceeded budget names.
const NAMED: usize = 5;

/// The position whose sample substitutes the one at `position`: a random one of the epoch's `len` positions.
/// It depends only on (seed, epoch, position, attempt), so every rank and every replay chooses the same one.
///
/// `attempt` counts from 0; try the next one if the substitute cannot be read either, up to [`ATTEMPTS`].
/// The sample at that position of the epoch's order is the substitute.
///
/// ```
/// use feedline_core::bad_samples::substitute;
/// assert_eq!(substitute(7, 0, 41, 0, 1000), substitute(7, 0, 41, 0, 1000));
/// assert_ne!(substitute(7, 0, 41, 0, 1000), substitute(7, 0, 41, 1, 1000));
/// ```
///
/// # Panics
/// If `len` is 0.
pub fn substitute(seed: u64, epoch: u64, position: u64, attempt: u32, len: u64) -> u64 {
    Random::from_key(key(&[seed, epoch, TAG, position, u64::from(attempt)])).below(len)
}

/// The policy for samples that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum BadSamples {
    /// End the run with the error.
    #[default]
    Fail,
    /// Read another sample instead, so that the batch keeps its size and the ranks stay in step.
    Substitute {
        /// The number of bad samples that are tolerated.
        budget: Budget,
    },
}

/// How many bad samples each rank tolerates.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Budget {
    /// At most this many different samples over the whole run.
    Count(u64),
    /// At most this fraction of the delivered rows; every failed read counts.
    Rate {
        /// The fraction, from 0 to 1.
        fraction: f64,
        /// Rows delivered before the rate is first checked, because few rows do not give a meaningful rate.
        after: u64,
    },
}

/// # For loaders
///
/// What a loader calls, and training code does not. It may change in any release.
impl BadSamples {
    /// Checks the policy's values.
    ///
    /// # Errors
    /// `Config` for a fraction outside 0 to 1.
    pub fn check(self) -> Result<()> {
        match self {
            Self::Substitute { budget: Budget::Rate { fraction, .. } }
                if !(0.0..=1.0).contains(&fraction) =>
            {
                let message = format!("the bad-sample rate is {fraction}: it must be from 0 to 1");
                Err(Error::new(ErrorKind::Config, message))
            }
            _ => Ok(()),
        }
    }
}

/// One sample that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct BadSample {
    /// The sample's id.
    pub sample: u64,
    /// The file it comes from, if known.
    pub path: Option<PathBuf>,
    /// Why the first read failed.
    pub cause: String,
    /// How often a read failed.
    pub times: u64,
}

/// The bad samples of a run, and the number of rows delivered.
///
/// It is updated in the order of delivery, so it does not depend on the number of workers and can be saved
/// with the cursor.
///
/// ```
/// # use feedline_core::BadSampleReport;
/// # let report = BadSampleReport::default();
/// // `report` is usually from `Loader::bad_sample_report`.
/// for bad in report.samples() {
///     println!("sample {}: {}, {} times", bad.sample, bad.cause, bad.times);
/// }
/// assert_eq!(report.failures(), 0);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "Stored"))]
pub struct BadSampleReport {
    /// Sorted by sample.
    samples: Vec<BadSample>,
    failures: u64,
    delivered: u64,
    /// Samples that were replaced.
    // Serialized under the names of earlier versions.
    #[cfg_attr(feature = "serde", serde(rename = "due"))]
    replaced: Proof,
    /// The substitutes that were delivered.
    #[cfg_attr(feature = "serde", serde(rename = "given"))]
    substitutes: Proof,
}

/// The serialized form of a report.
#[cfg(feature = "serde")]
#[derive(serde::Deserialize)]
struct Stored {
    samples: Vec<BadSample>,
    failures: u64,
    delivered: u64,
    due: Proof,
    given: Proof,
}

#[cfg(feature = "serde")]
impl TryFrom<Stored> for BadSampleReport {
    type Error = &'static str;

    fn try_from(stored: Stored) -> Result<Self, &'static str> {
        let Stored { samples, failures, delivered, due: replaced, given: substitutes } = stored;
        if !samples.is_sorted_by(|a, b| a.sample < b.sample) {
            return Err("the bad samples are not sorted by id, each once: the report was edited");
        }
        if replaced.count() != substitutes.count() {
            return Err("the report has not one substitute for each replaced sample: it was edited");
        }
        Ok(Self { samples, failures, delivered, replaced, substitutes })
    }
}

impl BadSampleReport {
    /// Adds the report of another rank.
    pub fn merge(&mut self, other: &Self) {
        for bad in &other.samples {
            match self.samples.binary_search_by_key(&bad.sample, |own| own.sample) {
                Ok(at) => self.samples[at].times = self.samples[at].times.saturating_add(bad.times),
                Err(at) => self.samples.insert(at, bad.clone()),
            }
        }
        self.failures = self.failures.saturating_add(other.failures);
        self.delivered = self.delivered.saturating_add(other.delivered);
        self.replaced.merge(&other.replaced);
        self.substitutes.merge(&other.substitutes);
    }

    /// The bad samples, sorted by id.
    pub fn samples(&self) -> &[BadSample] {
        &self.samples
    }

    /// Number of failed reads; a sample counts each time it fails.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Replaces the bad samples by their substitutes in `expected`, the proof of the batch sampler.
    /// `expected` is then the proof that this run should have.
    pub fn adjust(&self, expected: &mut Proof) {
        expected.merge(&self.substitutes);
        expected.unmerge(&self.replaced);
    }
}

/// # For loaders
///
/// What a loader calls, and training code does not. It may change in any release.
impl BadSampleReport {
    /// Counts delivered rows, including substitutes.
    pub fn delivered(&mut self, rows: u64) {
        self.delivered = self.delivered.saturating_add(rows);
    }

    /// Records that `sample` of `epoch` could not be read, and that `substitute` was delivered in its
    /// place.
    pub fn replaced(&mut self, epoch: u64, sample: u64, substitute: u64, path: Option<PathBuf>, cause: &str) {
        self.replaced.add(epoch, sample);
        self.substitutes.add(epoch, substitute);
        self.failed(sample, path, cause);
    }

    /// Records that `sample` could not be read as a substitute.
    pub fn failed(&mut self, sample: u64, path: Option<PathBuf>, cause: &str) {
        self.failures = self.failures.saturating_add(1);
        match self.samples.binary_search_by_key(&sample, |bad| bad.sample) {
            Ok(known) => {
                let times = &mut self.samples[known].times;
                *times = times.saturating_add(1);
            }
            Err(at) => self.samples.insert(at, BadSample { sample, path, cause: cause.to_owned(), times: 1 }),
        }
    }

    /// Checks that `policy` tolerates the bad samples so far.
    ///
    /// # Errors
    /// `Sample` when it does not; the message says how many there are and names the first files.
    pub fn check(&self, policy: BadSamples) -> Result<()> {
        let (over, budget) = match policy {
            BadSamples::Fail => (!self.samples.is_empty(), "and none is tolerated".to_owned()),
            BadSamples::Substitute { budget: Budget::Count(max) } => {
                (self.samples.len() as u64 > max, format!("the budget is {max}"))
            }
            BadSamples::Substitute { budget: Budget::Rate { fraction, after } } => {
                let rate = self.failures as f64 / self.delivered as f64;
                let over = self.delivered >= after && self.failures > 0 && rate > fraction;
                (
                    over,
                    format!(
                        "{} failed reads in {} rows are above the rate of {fraction}",
                        self.failures, self.delivered
                    ),
                )
            }
        };
        if !over {
            return Ok(());
        }
        let count = self.samples.len();
        let mut message = format!("{count} bad samples, {budget}: ");
        for (index, bad) in self.samples.iter().take(NAMED).enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            // Writing to a string cannot fail.
            let _ = match &bad.path {
                Some(path) => write!(message, "{comma}{} ({})", path.display(), bad.cause),
                None => write!(message, "{comma}sample {} ({})", bad.sample, bad.cause),
            };
        }
        if count > NAMED {
            let _ = write!(message, " and {} more", count - NAMED);
        }
        message.push_str("; repair or remove them, or ");
        message.push_str(named("raise the budget", "allow more by bad_samples="));
        Err(Error::new(ErrorKind::Sample, message).at_stage(Stage::Sampler))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(samples: u64) -> BadSampleReport {
        let mut bad_sample_report = BadSampleReport::default();
        for sample in (0..samples).rev() {
            bad_sample_report.replaced(0, sample, 1000, Some(format!("d/{sample}").into()), "torn");
        }
        bad_sample_report
    }

    fn count(max: u64) -> BadSamples {
        BadSamples::Substitute { budget: Budget::Count(max) }
    }

    fn rate(fraction: f64, after: u64) -> BadSamples {
        BadSamples::Substitute { budget: Budget::Rate { fraction, after } }
    }

    #[test]
    fn an_exceeded_count_is_one_error_that_names_the_files() {
        let error = bad(7).check(count(6)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Sample);
        assert_eq!(
            error.message(),
            "7 bad samples, the budget is 6: d/0 (torn), d/1 (torn), d/2 (torn), d/3 (torn), d/4 (torn) \
             and 2 more; repair or remove them, or raise the budget"
        );
        assert!(bad(7).check(count(7)).is_ok());
        assert!(bad(1).check(BadSamples::Fail).is_err());
        assert!(bad(0).check(BadSamples::Fail).is_ok());
    }

    #[test]
    fn a_count_counts_each_sample_once() {
        let mut bad_sample_report = bad(2);
        for epoch in 1..5 {
            bad_sample_report.replaced(epoch, 1, 7, None, "torn again");
        }
        assert_eq!((bad_sample_report.failures(), bad_sample_report.samples()[1].times), (6, 5));
        assert_eq!(bad_sample_report.samples()[1].cause, "torn");
        assert!(bad_sample_report.check(count(2)).is_ok());
    }

    #[test]
    fn a_rate_is_checked_after_enough_rows_and_counts_every_failure() {
        let mut bad_sample_report = bad(3);
        bad_sample_report.delivered(99);
        assert!(bad_sample_report.check(rate(0.02, 100)).is_ok(), "too few rows to check the rate");
        bad_sample_report.delivered(1);
        let error = bad_sample_report.check(rate(0.02, 100)).unwrap_err();
        assert!(error.message().contains("3 failed reads in 100 rows are above the rate of 0.02"), "{error}");
        bad_sample_report.delivered(50);
        assert!(bad_sample_report.check(rate(0.02, 100)).is_ok(), "3 of 150 is exactly the rate");
        assert!(bad_sample_report.check(rate(0.0, 0)).is_err());
        assert!(BadSampleReport::default().check(rate(0.0, 0)).is_ok());
    }

    #[test]
    fn a_rate_outside_0_to_1_is_rejected() {
        for fraction in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(rate(fraction, 0).check().unwrap_err().kind(), ErrorKind::Config);
        }
        assert!(rate(1.0, 0).check().is_ok() && count(0).check().is_ok() && BadSamples::Fail.check().is_ok());
    }

    #[test]
    fn adjust_replaces_samples_by_their_substitutes() {
        let (mut expected, mut delivered) = (Proof::default(), Proof::default());
        expected.add_all(3, &[0, 1, 2, 3]);
        delivered.add_all(3, &[0, 9, 2, 3]);
        let mut bad_sample_report = BadSampleReport::default();
        bad_sample_report.replaced(3, 1, 9, None, "torn");
        bad_sample_report.failed(5, None, "torn too");
        assert!(delivered.check(&expected).is_err());
        bad_sample_report.adjust(&mut expected);
        assert!(delivered.check(&expected).is_ok());
    }

    #[test]
    fn a_merged_report_is_that_of_both_ranks() {
        let (mut one, mut two, mut both) = (bad(2), bad(3), bad(2));
        one.delivered(10);
        two.delivered(20);
        (0..3).for_each(|sample| {
            let path = Some(format!("d/{sample}").into());
            both.replaced(0, sample, 1000, path, "torn");
        });
        both.delivered(30);
        one.merge(&two);
        assert_eq!(one, both);
        assert_eq!((one.failures(), one.samples().len(), one.samples()[1].times), (5, 3, 2));
    }

    #[test]
    fn counters_saturate() {
        let mut bad_sample_report = bad(1);
        bad_sample_report.delivered(3);
        let text = serde_json::to_string(&bad_sample_report).unwrap();
        let max = u64::MAX;
        let text = text.replace(r#""delivered":3"#, &format!(r#""delivered":{max}"#));
        let text = text.replace(r#""failures":1"#, &format!(r#""failures":{max}"#));
        let text = text.replace(r#""times":1"#, &format!(r#""times":{max}"#));
        let mut bad_sample_report: BadSampleReport = serde_json::from_str(&text).unwrap();
        bad_sample_report.delivered(1);
        bad_sample_report.failed(0, None, "torn");
        assert_eq!(
            (bad_sample_report.delivered, bad_sample_report.failures(), bad_sample_report.samples()[0].times),
            (max, max, max)
        );
    }

    #[test]
    fn an_edited_report_is_rejected() {
        let text = serde_json::to_string(&bad(3)).unwrap();
        let sample = |id| format!(r#""sample":{id}"#);
        for (from, to, part) in [
            (sample(1), sample(0), "not sorted"),
            (sample(1), sample(7), "not sorted"),
            (r#""due":{"count":3"#.into(), r#""due":{"count":2"#.into(), "one substitute for each"),
        ] {
            assert!(text.contains(&from), "{text}");
            let error = serde_json::from_str::<BadSampleReport>(&text.replace(&from, &to)).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn a_report_survives_json() {
        let mut bad_sample_report = bad(3);
        bad_sample_report.delivered(10);
        let text = serde_json::to_string(&bad_sample_report).unwrap();
        assert_eq!(serde_json::from_str::<BadSampleReport>(&text).unwrap(), bad_sample_report);
    }
}
