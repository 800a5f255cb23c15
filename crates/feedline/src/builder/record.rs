//! The options about the record of a run.

use std::path::Path;

use feedline_core::source::place;
use feedline_core::{BadSamples, BatchSampler, Dataset, Layout, Result};

use super::LoaderBuilder;
use crate::decode::Input;
use crate::record::{ContentHash, RankWriter, Recorder, Run};
use crate::transfer_mode::ChosenMode;

/// The recording options of a builder.
#[derive(Clone, Default)]
pub(super) struct Recording {
    recorder: Option<Recorder>,
    /// Whether batches are hashed without a record.
    hashes: bool,
}

impl LoaderBuilder {
    /// The hash of rows, and the writer of the record; `None` for each that is not requested.
    pub(crate) fn open_record(
        &self,
        mode: &ChosenMode,
        batch_sampler: &BatchSampler,
        layout: &Layout,
        fingerprint: u64,
    ) -> Result<(Option<ContentHash>, Option<RankWriter>)> {
        let Some(recorder) = &self.recording.recorder else {
            return Ok((ContentHash::new(u64::from(self.recording.hashes)), None));
        };
        let run = Run {
            input: &self.input,
            batch_sampler,
            layout,
            fingerprint,
            batch_size: self.batch_size,
            last_batch: self.last_batch,
            skips: &self.skips,
            has_substitutes: self.bad_samples != BadSamples::Fail,
            has_map_batch: self.map_batch.is_some(),
        };
        let (content, writer) = recorder.open(&run, mode)?;
        Ok((content, Some(writer)))
    }

    /// Records the steps of the loader into the folder of `recorder`: see [`record`](crate::record). Default:
    /// nothing is recorded.
    ///
    /// `build` then refuses to continue the record of a run with other data, and names the file that has
    /// changed.
    pub fn record(mut self, recorder: &Recorder) -> Self {
        self.recording.recorder = Some(recorder.clone());
        self
    }

    /// The file of sample `id`, if known.
    #[doc(hidden)] // For feedline-record.
    pub fn sample_path(&self, id: u64) -> Option<&Path> {
        match &self.input {
            Input::Dataset(set) | Input::ZeroCopy(set, _) => set.path(id),
            Input::Source(source) => source.path(place(id).0),
        }
    }

    /// Hashes the rows of every batch, without a record, and delivers them without a device map.
    #[doc(hidden)] // For feedline-record.
    pub fn hash_content(mut self) -> Self {
        self.recording.hashes = true;
        self.device_map = None;
        self
    }
}
