//! The data to decode, and the samples of one batch.

use std::path::Path;
use std::sync::Arc;

use feedline_core::bad_samples::substitute;
use feedline_core::source::place;
use feedline_core::{
    BatchInfo, BatchSampler, Context, Dataset, LastBatch, ReadError, Row, Rows, Source, Spec, StableDataset,
};
use feedline_device::zero_copy::{GatherOrder, StridedColumns};

use super::source::SourceReader;

/// The data of a loader.
#[derive(Clone)]
pub(crate) enum Input {
    /// Samples with random access; the batch sampler is over samples.
    Dataset(Arc<StableDataset>),
    /// Samples that the device gathers itself, from host or device memory: a host slot holds only their ids.
    ZeroCopy(Arc<StableDataset>, GatherOrder),
    /// Records in sequence; the batch sampler is over shards, one per step.
    Source(Arc<dyn Source>),
}

/// What is known of the batch in a host slot.
#[derive(Debug, Default)]
pub(crate) struct HostInfo {
    pub(crate) info: BatchInfo,
    /// The position in the epoch at which the steps begin.
    pub(crate) start: u64,
    /// The raw records of a source.
    pub(crate) records: Records,
}

/// The raw records of one batch of a source. The slot's next batch reuses their memory.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) ids: Vec<u64>,
    /// Record `i` belongs to sample `ids[i]`; buffers of older batches may follow.
    pub(crate) bytes: Vec<Vec<u8>>,
}

/// The samples of one batch; any number of workers read them into its rows.
#[derive(Clone, Copy)]
pub(super) enum Samples<'a> {
    Dataset { dataset: &'a dyn Dataset, batch_sampler: &'a BatchSampler, start: u64, info: &'a BatchInfo },
    Source { source: &'a dyn Source, seed: u64, records: &'a Records, info: &'a BatchInfo },
}

impl Input {
    pub(crate) fn dataset(dataset: impl Dataset) -> Self {
        Self::Dataset(Arc::new(StableDataset::new(Arc::new(dataset))))
    }

    /// The fields of a sample.
    pub(crate) fn spec(&self) -> &Spec {
        match self {
            Self::Dataset(dataset) | Self::ZeroCopy(dataset, _) => dataset.spec(),
            Self::Source(source) => source.spec(),
        }
    }

    /// The reader of a source's records, which are read in sequence for batches of `batch` rows.
    pub(crate) fn reader(
        &self,
        shards: &Arc<BatchSampler>,
        batch: usize,
        last_batch: LastBatch,
    ) -> Option<Box<SourceReader>> {
        match self {
            Self::Dataset(_) | Self::ZeroCopy(..) => None,
            Self::Source(_) => Some(Box::new(SourceReader::new(shards.clone(), batch, last_batch))),
        }
    }

    /// The data set; `None` for a source.
    pub(crate) fn stable_dataset(&self) -> Option<&Arc<StableDataset>> {
        match self {
            Self::Dataset(dataset) | Self::ZeroCopy(dataset, _) => Some(dataset),
            Self::Source(_) => None,
        }
    }

    /// What the workers read where `columns` lie ready for the device: only ids, or the rest of the set.
    pub(crate) fn beside(self, columns: Option<&StridedColumns>) -> Self {
        match (self, columns) {
            (Self::Dataset(dataset), Some(columns)) => match columns.rest() {
                Some(rest) => Self::dataset(RestOfSet { dataset, kept: rest.kept() }),
                None => Self::ZeroCopy(dataset, columns.gather_order()),
            },
            (other, _) => other,
        }
    }

    /// The fingerprint of the data.
    pub(crate) fn fingerprint(&self) -> u64 {
        match self {
            Self::Dataset(dataset) | Self::ZeroCopy(dataset, _) => dataset.fingerprint(),
            Self::Source(source) => source.fingerprint(),
        }
    }

    /// The samples of the batch that `host_info` describes.
    pub(super) fn samples<'a>(
        &'a self,
        batch_sampler: &'a BatchSampler,
        host_info: &'a HostInfo,
    ) -> Samples<'a> {
        let HostInfo { info, start, records } = host_info;
        match self {
            Self::Dataset(dataset) | Self::ZeroCopy(dataset, _) => {
                Samples::Dataset { dataset: &**dataset, batch_sampler, start: *start, info }
            }
            Self::Source(source) => {
                Samples::Source { source: &**source, seed: batch_sampler.options().seed, records, info }
            }
        }
    }
}

impl<'a> Samples<'a> {
    /// The batch's description.
    pub(super) fn info(&self) -> &'a BatchInfo {
        match *self {
            Self::Dataset { info, .. } | Self::Source { info, .. } => info,
        }
    }

    /// Reads the samples of `rows`. An error comes with the index of the sample that failed.
    pub(super) fn read_many(
        &self,
        ids: &[u64],
        rows: &mut Rows<'_>,
        context: &mut Context,
    ) -> Result<(), (usize, ReadError)> {
        if let Self::Dataset { dataset, .. } = self {
            return (**dataset).read_many(ids, rows, context);
        }
        let first = rows.first();
        for (index, &id) in ids.iter().enumerate() {
            context.begin(index, id);
            self.read(id, first + index, &mut rows.row(index), context).map_err(|error| (index, error))?;
        }
        Ok(())
    }

    /// Reads sample `id`, which belongs to row `own` of the batch, into `row`.
    pub(super) fn read(
        &self,
        id: u64,
        own: usize,
        row: &mut Row<'_, '_>,
        context: &mut Context,
    ) -> Result<(), ReadError> {
        match self {
            Self::Dataset { dataset, .. } => (**dataset).read(id, row, context),
            Self::Source { source, records, .. } => source.decode(&records.bytes[own], row, context),
        }
    }

    /// The sample to read into `row` instead of its own, and the row whose record it is.
    ///
    /// For a data set it depends only on the row's global position, so it is the same on every rank and
    /// in every replay. For a source it is another record of the batch, so nothing is read twice.
    pub(super) fn substitute(&self, row: usize, attempt: u32) -> (u64, usize) {
        match self {
            Self::Dataset { batch_sampler, start, info, .. } => {
                let position = batch_sampler.position(info.epoch, *start, info.step, row).unwrap_or(0);
                (batch_sampler.substitute(info.epoch, position, attempt), row)
            }
            Self::Source { seed, records, info, .. } => {
                let ids = &records.ids;
                let own = substitute(*seed, info.epoch, ids[row], attempt, ids.len() as u64) as usize;
                (ids[own], own)
            }
        }
    }

    /// The file that sample `id` comes from.
    pub(super) fn path(&self, id: u64) -> Option<&'a Path> {
        match *self {
            Self::Dataset { dataset, .. } => dataset.path(id),
            Self::Source { source, .. } => source.path(place(id).0),
        }
    }
}

impl Records {
    /// Forgets the records and keeps their memory.
    pub(crate) fn clear(&mut self) {
        self.ids.clear();
    }

    /// An empty buffer for the next record.
    pub(super) fn next(&mut self) -> &mut Vec<u8> {
        let index = self.ids.len();
        if index == self.bytes.len() {
            self.bytes.push(Vec::new());
        }
        self.bytes[index].clear();
        &mut self.bytes[index]
    }
}

/// A set of which the samples below `kept` are on the device: they are not read.
struct RestOfSet {
    dataset: Arc<dyn Dataset>,
    kept: u64,
}

impl Dataset for RestOfSet {
    fn len(&self) -> u64 {
        self.dataset.len()
    }

    fn spec(&self) -> &Spec {
        self.dataset.spec()
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        if id < self.kept { Ok(()) } else { self.dataset.read(id, row, context) }
    }

    /// Consecutive samples of the rest are read together.
    fn read_many(
        &self,
        ids: &[u64],
        rows: &mut Rows<'_>,
        context: &mut Context,
    ) -> Result<(), (usize, ReadError)> {
        let mut first = 0;
        for run in ids.chunk_by(|&a, &b| (a < self.kept) == (b < self.kept)) {
            let range = first..first + run.len();
            if run.first().is_some_and(|&id| id >= self.kept) {
                let read = context.delegate(first, run, |context| {
                    self.dataset.read_many(run, &mut rows.part(range.clone()), context)
                });
                read.map_err(|(index, error)| (first + index, error))?;
            }
            first = range.end;
        }
        Ok(())
    }

    fn path(&self, id: u64) -> Option<&Path> {
        self.dataset.path(id)
    }

    fn fingerprint(&self) -> u64 {
        self.dataset.fingerprint()
    }
}
