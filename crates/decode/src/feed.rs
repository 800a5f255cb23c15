//! What the makers ask of their data: which batch comes next, and its samples.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvError, TryRecvError, select};
use feedline_core::{Context, CopyRows, Dataset, Layout, ReadError, Result, Row, Rows, Source, Spec, Ticket};
use feedline_device::slot::Visits;
use feedline_slots::{copy_rows, stream_rows};

use crate::Run;
use crate::batch::Decoder;

/// The data that is decoded.
#[derive(Clone)]
pub enum Input {
    /// Samples with random access: the plan is of them.
    Dataset(Arc<dyn Dataset>),
    /// Samples that the device reads itself: a slot is filled with their ids.
    Direct(Arc<dyn Dataset>, Visits),
    /// Records in sequence: the plan is of the shards, one a step.
    Source(Arc<dyn Source>),
}

impl Input {
    /// What a sample is.
    pub fn spec(&self) -> &Spec {
        match self {
            Self::Dataset(dataset) | Self::Direct(dataset, _) => dataset.spec(),
            Self::Source(source) => source.spec(),
        }
    }

    /// A number that tells this data from other data.
    pub fn fingerprint(&self) -> u64 {
        match self {
            Self::Dataset(dataset) | Self::Direct(dataset, _) => dataset.fingerprint(),
            Self::Source(source) => source.fingerprint(),
        }
    }
}

/// The batches of a run, one after the other: what one worker at a time does for a batch, in the order of the batches.
pub(crate) trait Feed: Send {
    /// Goes to the beginning of `run`.
    fn begin(&mut self, run: Run);

    /// Whether the run's epoch has no batch after its first `steps`.
    fn is_over(&self, steps: u64) -> bool;

    /// Takes the next batch, that of step `ticket.step`: as little of it as the next one must wait for. `records` are the
    /// caller's, to be filled and given to [`Fill::fill`].
    fn take(&mut self, ticket: &mut Ticket, records: &mut Records, calls: &Calls) -> Result<Next>;
}

/// What is done for a batch beside others, on any worker.
pub(crate) trait Fill: Send + Sync {
    /// Writes the batch of `run` that was taken with `ticket` and `records` into `bytes`.
    fn fill(
        &self,
        run: Run,
        ticket: &mut Ticket,
        records: &Records,
        bytes: &mut [u8],
        decode: &Decode<'_>,
    ) -> Result<()>;
}

/// So many workers copy long rows past the caches: what they do is what a batch waits for. On an H200's machine, records of 150 KB
/// of a mapped file to the GPU by 4, 8 and 15 workers: 31, 44 and 45 GB/s past the caches, 25, 43 and 53 by plain stores.
const STREAMING: usize = 8;

/// How the rows of a batch are decoded.
pub(crate) struct Decode<'a> {
    pub(crate) decoder: &'a Decoder,
    pub(crate) layout: &'a Layout,
    /// The batch's number in the order of all batches.
    pub(crate) number: u64,
}

impl Decode<'_> {
    /// Reads the samples `ticket.ids` into the rows of `bytes`.
    pub(crate) fn rows(&self, samples: &dyn Samples, ticket: &mut Ticket, bytes: &mut [u8]) -> Result<()> {
        let copy: CopyRows = if rayon::current_num_threads() <= STREAMING { stream_rows } else { copy_rows };
        let rows = Rows::new(self.layout, bytes, ticket.ids.len()).copied_by(copy);
        self.decoder.decode(self.number, samples, ticket, rows)
    }
}

/// The raw records of one batch of a source; their memory is used again for the next.
#[derive(Default)]
pub(crate) struct Records {
    pub(crate) ids: Vec<u64>,
    /// Of the sample at the same place in `ids`; some more behind.
    pub(crate) bytes: Vec<Vec<u8>>,
}

/// What comes next.
pub(crate) enum Next {
    /// A batch, with at most this many rows to decode.
    Batch(usize),
    /// Another run.
    Run(Run),
    /// Nothing more.
    End,
}

/// What is asked of the stage from outside, and its own end.
pub(crate) struct Calls {
    pub(crate) runs: Receiver<Run>,
    /// Gets nothing; closed when the stage is over.
    pub(crate) over: Receiver<Infallible>,
}

impl Calls {
    /// What is asked for now.
    pub(crate) fn now(&self) -> Option<Next> {
        match (self.over.try_recv(), self.runs.try_recv()) {
            (Err(TryRecvError::Disconnected), _) | (_, Err(TryRecvError::Disconnected)) => Some(Next::End),
            (_, run) => run.ok().map(Next::Run),
        }
    }

    /// What is asked for within `limit`; without one, blocks until a run is asked for or none can be any more.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> Option<Next> {
        let asked = |run: Result<Run, RecvError>| Some(run.map_or(Next::End, Next::Run));
        let Some(limit) = limit else {
            return select! {
                recv(self.runs) -> run => asked(run),
                recv(self.over) -> _ => Some(Next::End),
            };
        };
        select! {
            recv(self.runs) -> run => asked(run),
            recv(self.over) -> _ => Some(Next::End),
            default(limit) => None,
        }
    }
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
