//! The options about the record of a run.

use std::ops::Range;
use std::path::Path;

use feedline_core::source::place;
use feedline_core::{BadSamples, BatchSampler, Dataset, Layout, RecordOrder, Result};

use super::{LoaderBuilder, LoaderOptions};
use crate::TransferMode;
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

impl LoaderOptions {
    /// How rows are hashed, and the writer of the record. Each is `None` if it is not requested.
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
}

impl<T: ?Sized> LoaderBuilder<T> {
    /// Records the steps of the loader into the folder of `recorder`: see [`record`](crate::record). Default:
    /// nothing is recorded.
    ///
    /// `build` then refuses to continue the record of a run with other data, and names the file that has
    /// changed.
    pub fn record(mut self, recorder: &Recorder) -> Self {
        self.options.recording.recorder = Some(recorder.clone());
        self
    }
}

/// # For loaders
///
/// What the crate feedline-record calls. It may change in any release.
impl<T: ?Sized> LoaderBuilder<T> {
    /// The file of sample `id`, if known.
    pub fn sample_path(&self, id: u64) -> Option<&Path> {
        match &self.options.input {
            Input::Dataset(set) | Input::ZeroCopy(set, _) => set.path(id),
            Input::Source(source) => source.path(place(id).0),
        }
    }

    /// Makes the batches of a recorded run again: `records` is the order of a source's records, and `skips`
    /// are the steps that were skipped, by epoch. Batches are staged, without a device map. The rows of every
    /// batch are hashed, and nothing is recorded.
    pub fn replaying(mut self, records: RecordOrder, skips: Vec<(u64, Range<u64>)>) -> Self {
        let options = &mut self.options;
        options.splits_shards = records.split;
        options.shuffle_buffer = Some(records.buffer_bytes).filter(|&bytes| bytes > 0);
        options.skips = skips;
        options.transfer_mode = TransferMode::Staged;
        options.device_map = None;
        options.recording.hashes = true;
        self
    }
}
