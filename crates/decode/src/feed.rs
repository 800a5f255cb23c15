//! What the decode loop asks of its data: which batch comes next, and its samples.

use std::path::Path;
use std::sync::Arc;

use feedline_core::{Context, Dataset, ReadError, Result, Row, Rows, Source, Spec, Ticket};

use crate::batch::Decoder;
use crate::{Run, Stage};

/// The data that is decoded.
#[derive(Clone)]
pub enum Input {
    /// Samples with random access: the plan is of them.
    Dataset(Arc<dyn Dataset>),
    /// Samples that the device reads itself: a slot is filled with their ids, each a `u64`, from its first byte on.
    Direct(Arc<dyn Dataset>),
    /// Records in sequence: the plan is of the shards, one a step.
    Source(Arc<dyn Source>),
}

impl Input {
    /// What a sample is.
    pub fn spec(&self) -> &Spec {
        match self {
            Self::Dataset(dataset) | Self::Direct(dataset) => dataset.spec(),
            Self::Source(source) => source.spec(),
        }
    }

    /// A number that tells this data from other data.
    pub fn fingerprint(&self) -> u64 {
        match self {
            Self::Dataset(dataset) | Self::Direct(dataset) => dataset.fingerprint(),
            Self::Source(source) => source.fingerprint(),
        }
    }
}

/// The batches of a run, one after the other.
pub(crate) trait Feed {
    /// Goes to the beginning of `run`.
    fn begin(&mut self, run: Run);

    /// Whether the run's epoch has no batch after its first `steps`.
    fn is_over(&self, steps: u64) -> bool;

    /// Writes the batch of step `ticket.step` into `bytes`; what comes next when it was not written.
    fn fill(
        &mut self,
        stage: &Stage,
        decoder: &mut Decoder,
        ticket: &mut Ticket,
        bytes: &mut [u8],
    ) -> Result<Option<Next>>;
}

/// What the decode loop does after a batch that it did not send on.
pub(crate) enum Next {
    /// Another run.
    Run(Run),
    /// The epoch after this.
    Epoch,
    /// Nothing more.
    End,
}

/// The samples of one batch, read into its rows by many workers.
pub(crate) trait Samples: Sync {
    /// Reads the samples `ids`, due at the rows of the batch from `rows.first()` on; the index of the one that failed.
    fn read_many(
        &self,
        ids: &[u64],
        rows: &mut Rows<'_>,
        context: &mut Context,
    ) -> Result<(), (usize, ReadError)> {
        let first = rows.first();
        for (index, &id) in ids.iter().enumerate() {
            context.begin(index, id);
            self.read(id, first + index, &mut rows.row(index), context).map_err(|error| (index, error))?;
        }
        Ok(())
    }

    /// Reads sample `id`, due at row `due` of the batch, into `row`.
    fn read(
        &self,
        id: u64,
        due: usize,
        row: &mut Row<'_, '_>,
        context: &mut Context,
    ) -> Result<(), ReadError>;

    /// The sample to read into `row` of the batch in place of its own, and the row where it is due.
    fn substitute(&self, row: usize, attempt: u32) -> (u64, usize);

    /// The file that sample `id` comes from.
    fn path(&self, id: u64) -> Option<&Path>;
}
