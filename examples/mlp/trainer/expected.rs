//! The proof that a run must end with, even if it was resumed with another batch size.

use feedline::sampler::{BatchSampler, Proof};
use feedline::{BadSampleReport, Cursor};

/// The proof of the epochs that have ended, and the position of the run.
///
/// Samples at the end of an epoch that do not fill a batch are dropped, so the end of an epoch depends
/// on its batch size. A run that is resumed with another batch size cannot tell where earlier epochs
/// ended, so a checkpoint holds their proof.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    ended: Proof,
    epoch: u64,
    /// The start of this run's steps within `epoch`.
    start: u64,
}

impl Expected {
    /// For a run at its beginning.
    pub fn new() -> Self {
        Self { ended: Proof::default(), epoch: 0, start: 0 }
    }

    /// For a run that continues at `cursor`; `ended` is the proof of the epochs before it.
    pub fn resume(cursor: &Cursor, ended: Proof) -> Self {
        Self { ended, epoch: cursor.epoch(), start: cursor.position() }
    }

    /// The proof of the epochs that have ended.
    pub fn ended(&self) -> Proof {
        self.ended
    }

    /// Counts all epochs before `epoch` as ended. Takes a few nanoseconds per sample.
    pub fn begin(&mut self, batch_sampler: &BatchSampler, epoch: u64) {
        while self.epoch < epoch {
            let end = batch_sampler.end(self.epoch, self.start);
            self.ended.merge(&Proof::expected_part(batch_sampler, self.epoch, 0..end));
            (self.epoch, self.start) = (self.epoch + 1, 0);
        }
    }

    /// The proof expected up to `cursor`, with substitutes for bad samples.
    pub fn until(
        &mut self,
        batch_sampler: &BatchSampler,
        cursor: &Cursor,
        bad_sample_report: &BadSampleReport,
    ) -> Proof {
        self.begin(batch_sampler, cursor.epoch());
        let mut expected = self.ended;
        expected.merge(&Proof::expected_part(batch_sampler, cursor.epoch(), 0..cursor.position()));
        bad_sample_report.adjust(&mut expected);
        expected
    }
}
