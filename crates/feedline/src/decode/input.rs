//! The data to decode.

use std::path::Path;
use std::sync::Arc;

use feedline_core::{
    About, BatchSampler, Context, DType, Dataset, Fingerprint, LastBatch, Prefetched, ReadError, Result, Row,
    RowError, Rows, Source, Spec, StableDataset, Storage,
};
use feedline_device::zero_copy::{GatherOrder, StridedColumns};

use crate::job::SourceReader;

/// The data of a loader. While the loader is built, `D` is a [`StableDataset`], whose length and spec are
/// read once; for the workers it is the data set itself.
#[derive(Clone)]
pub(crate) enum Input<D: ?Sized = StableDataset> {
    /// Samples with random access; the batch sampler is over samples.
    Dataset(Arc<D>),
    /// Samples that the device gathers itself, from host or device memory: a host slot holds only their ids.
    ZeroCopy(Arc<D>, GatherOrder),
    /// Records in sequence; the batch sampler is over shards, one per step.
    Source(Arc<dyn Source>),
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
        shards: &BatchSampler,
        batch: usize,
        last_batch: LastBatch,
    ) -> Option<Box<SourceReader>> {
        match self {
            Self::Dataset(_) | Self::ZeroCopy(..) => None,
            Self::Source(_) => Some(Box::new(SourceReader::new(shards, batch, last_batch))),
        }
    }

    /// The data set; `None` for a source.
    pub(crate) fn stable_dataset(&self) -> Option<&Arc<StableDataset>> {
        match self {
            Self::Dataset(dataset) | Self::ZeroCopy(dataset, _) => Some(dataset),
            Self::Source(_) => None,
        }
    }

    /// What the data set says of itself. Of a source, nothing.
    pub(crate) fn about(&self) -> About<'_> {
        self.stable_dataset().map(|dataset| dataset.about()).unwrap_or_default()
    }

    /// The input of the workers if `columns` are available to the device: only ids, or the rest of the set.
    pub(crate) fn of_workers(self, columns: Option<&StridedColumns>) -> Input<dyn Dataset> {
        match (self, columns) {
            (Self::Source(source), _) => Input::Source(source),
            (Self::ZeroCopy(set, gather_order), _) => Input::ZeroCopy(set.inner().clone(), gather_order),
            (Self::Dataset(set), None) => Input::Dataset(set.inner().clone()),
            (Self::Dataset(set), Some(columns)) => match columns.rest() {
                Some(rest) => Input::Dataset(Arc::new(RestOfSet { dataset: set, kept: rest.kept() })),
                None => Input::ZeroCopy(set.inner().clone(), columns.gather_order()),
            },
        }
    }

    /// The fingerprint of the data.
    ///
    /// # Errors
    /// The error of a read, if the fingerprint could not cover all of the data.
    pub(crate) fn fingerprint(&self) -> Result<u64> {
        Fingerprint::checked(|| match self {
            Self::Dataset(dataset) | Self::ZeroCopy(dataset, _) => dataset.fingerprint(),
            Self::Source(source) => source.fingerprint(),
        })
    }
}

/// Clears the `Bool` fields of `rows`. Samples on the device are not read into their rows, but these rows are
/// checked like all others.
fn clear_bools(rows: &mut Rows<'_>) {
    for (index, field) in rows.spec().fields().iter().enumerate() {
        if field.dtype() == DType::Bool {
            rows.column_mut(index).fill(0);
        }
    }
}

/// A set whose samples below `kept` are on the device: the workers do not read them.
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
        if id >= self.kept {
            return self.dataset.read(id, row, context);
        }
        clear_bools(&mut row.as_rows_mut());
        Ok(())
    }

    /// Consecutive samples that are not on the device are read together.
    fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, context: &mut Context) -> Result<(), RowError> {
        let mut first = 0;
        for run in ids.chunk_by(|&a, &b| (a < self.kept) == (b < self.kept)) {
            let range = first..first + run.len();
            if run.first().is_none_or(|&id| id < self.kept) {
                clear_bools(&mut rows.part(range.clone()));
            } else {
                let read = context.delegate(first, run, |context| {
                    rows.part(range.clone()).read_by(|rows| self.dataset.read_many(run, rows, context))
                });
                read.map_err(|(index, error)| (first + index, error))?;
            }
            first = range.end;
        }
        Ok(())
    }

    fn about(&self) -> About<'_> {
        self.dataset.about()
    }

    fn path(&self, id: u64) -> Option<&Path> {
        self.dataset.path(id)
    }

    fn fingerprint(&self) -> u64 {
        self.dataset.fingerprint()
    }

    fn storage(&self) -> &dyn Storage {
        self
    }
}

impl Storage for RestOfSet {
    fn prefetch(&self, ids: &[u64], context: &mut Context) -> Prefetched {
        let read = Vec::from_iter(ids.iter().copied().filter(|&id| id >= self.kept));
        self.dataset.storage().prefetch(&read, context)
    }
}
