//! The batches of a source: one worker reads the records of a batch in sequence, then all workers decode them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;
use feedline_core::quarantine::substitute;
use feedline_core::source::place;
use feedline_core::{Context, Plan, Reached, ReadError, Result, Row, Rows, Source, Tail, Ticket};

use crate::batch::Decoder;
use crate::feed::{Feed, Next, Samples};
use crate::line::{Found, Line};
use crate::{Run, Stage};

/// When a shard that had nothing is asked again.
const PACE: Duration = Duration::from_millis(1);

/// A run through this rank's shards of a source.
pub(crate) struct FromSource {
    line: Line,
    records: Records,
}

/// The records of one batch; their memory is used again for the next.
struct Records {
    source: Arc<dyn Source>,
    seed: u64,
    epoch: u64,
    ids: Vec<u64>,
    /// Of the sample at the same place in `ids`; some more behind.
    bytes: Vec<Vec<u8>>,
}

impl FromSource {
    /// The batches from the line of `shards`.
    pub(crate) fn new(source: Arc<dyn Source>, shards: Arc<Plan>) -> Self {
        let seed = shards.options().seed;
        let records = Records { source: source.clone(), seed, epoch: 0, ids: Vec::new(), bytes: Vec::new() };
        Self { line: Line::new(source, shards), records }
    }

    /// Reads the records of the next batch: a full one, or the last of the epoch; unless something else is asked for.
    fn gather(&mut self, step: u64, stage: &Stage, decoder: &Decoder) -> Result<Option<Next>> {
        let batch = stage.layout.capacity();
        let watch = decoder.activity().begin(step, 0);
        self.records.ids.clear();
        let mut found = Found::Later;
        let mut next = None;
        while self.records.ids.len() < batch && found != Found::End && next.is_none() {
            found = self.line.read(self.records.blank(), watch.as_deref())?;
            match found {
                Found::Record(id) => {
                    self.records.ids.push(id);
                    next = asked(&stage.runs, Duration::ZERO);
                }
                Found::Later => next = asked(&stage.runs, PACE),
                Found::End => {}
            }
        }
        decoder.activity().end();
        if found == Found::End && stage.tail == Tail::Drop {
            self.records.ids.clear();
        }
        Ok(next)
    }
}

/// What is asked for within `limit`.
fn asked(runs: &Receiver<Run>, limit: Duration) -> Option<Next> {
    match runs.recv_timeout(limit) {
        Ok(run) => Some(Next::Run(run)),
        Err(error) => error.is_disconnected().then_some(Next::End),
    }
}

impl Feed for FromSource {
    fn begin(&mut self, run: Run) {
        self.line.seek(run.epoch, Reached { position: run.start, offset: run.offset });
        self.records.epoch = run.epoch;
    }

    fn is_over(&self, _steps: u64) -> bool {
        self.line.is_over()
    }

    fn fill(
        &mut self,
        stage: &Stage,
        decoder: &mut Decoder,
        ticket: &mut Ticket,
        bytes: &mut [u8],
    ) -> Result<Option<Next>> {
        let gathered = self.gather(ticket.step, stage, decoder);
        if let Some(next) = gathered.map_err(|error| error.at_batch(ticket.step))? {
            return Ok(Some(next));
        }
        ticket.ids.clone_from(&self.records.ids);
        ticket.due = ticket.ids.len();
        ticket.reached = Some(self.line.reached());
        decoder.decode(&self.records, ticket, Rows::new(&stage.layout, bytes, ticket.due))?;
        Ok(None)
    }
}

impl Records {
    /// The empty place of the record that comes next.
    fn blank(&mut self) -> &mut Vec<u8> {
        let index = self.ids.len();
        if index == self.bytes.len() {
            self.bytes.push(Vec::new());
        }
        self.bytes[index].clear();
        &mut self.bytes[index]
    }
}

impl Samples for Records {
    fn read(
        &self,
        _id: u64,
        due: usize,
        row: &mut Row<'_, '_>,
        context: &mut Context,
    ) -> Result<(), ReadError> {
        self.source.decode(&self.bytes[due], row, context)
    }

    /// Another record of the batch, chosen by the sample's id alone: nothing is read again, and the rest stays in place.
    fn substitute(&self, row: usize, attempt: u32) -> (u64, usize) {
        let due = substitute(self.seed, self.epoch, self.ids[row], attempt, self.ids.len() as u64) as usize;
        (self.ids[due], due)
    }

    fn path(&self, id: u64) -> Option<&Path> {
        self.source.path(place(id).0)
    }
}
