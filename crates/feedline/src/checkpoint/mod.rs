//! A checkpoint that matches the model: the position after exactly the batches whose work has finished.

mod file;

use feedline_core::{BadSampleReport, Cursor};

/// The state of a loader that matches the state of the model; created by
/// [`Progress::checkpoint`](crate::Progress::checkpoint).
///
/// Save it with the model, by [`save`](Self::save) or by its two fields. To continue the run, pass them to
/// [`Loader::set_bad_sample_report`](crate::Loader::set_bad_sample_report) and
/// [`Loader::resume`](crate::Loader::resume).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkpoint {
    /// The batches delivered so far.
    pub cursor: Cursor,
    /// The samples that could not be read so far.
    pub bad_sample_report: BadSampleReport,
}
