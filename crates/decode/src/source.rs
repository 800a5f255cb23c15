//! The batches of a source: one worker at a time reads the records of a batch in sequence, any worker decodes them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use feedline_core::quarantine::substitute;
use feedline_core::source::place;
use feedline_core::{Context, Plan, Reached, ReadError, Result, Row, Source, Tail, Ticket};

use crate::feed::{Calls, Decode, Feed, Fill, Next, Records, Samples};
use crate::line::{Found, Line};
use crate::{Activity, Run};

/// When a shard that had nothing is asked again.
const PACE: Duration = Duration::from_millis(1);

/// A run through this rank's shards of a source.
pub(crate) struct Gather {
    line: Line,
    batch: usize,
    tail: Tail,
    activity: Arc<Activity>,
}

/// A source, of which records are decoded.
pub(crate) struct FromSource {
    source: Arc<dyn Source>,
    seed: u64,
}

/// One batch of records.
struct Gathered<'a> {
    from: &'a FromSource,
    epoch: u64,
    records: &'a Records,
}

impl Gather {
    /// The records of the line of `shards`, in batches of `batch`.
    pub(crate) fn new(
        source: Arc<dyn Source>,
        shards: Arc<Plan>,
        batch: usize,
        tail: Tail,
        activity: Arc<Activity>,
    ) -> Self {
        Self { line: Line::new(source, shards), batch, tail, activity }
    }

    /// Reads the records of the next batch: a full one, or the last of the epoch; unless something else is asked for.
    fn gather(&mut self, step: u64, records: &mut Records, calls: &Calls) -> Result<Option<Next>> {
        let watch = self.activity.begin(step, 0);
        let next = self.read(records, calls, watch.as_deref());
        self.activity.end();
        next
    }

    fn read(
        &mut self,
        records: &mut Records,
        calls: &Calls,
        watch: Option<&AtomicU64>,
    ) -> Result<Option<Next>> {
        records.ids.clear();
        let mut found = Found::Later;
        let mut next = None;
        while records.ids.len() < self.batch && found != Found::End && next.is_none() {
            found = self.line.read(records.blank(), watch)?;
            match found {
                Found::Record(id) => {
                    records.ids.push(id);
                    next = calls.now();
                }
                Found::Later => next = calls.wait(Some(PACE)),
                Found::End => {}
            }
        }
        if found == Found::End && self.tail == Tail::Drop {
            records.ids.clear();
        }
        Ok(next)
    }
}

impl FromSource {
    /// The records of `source`, read with the plan `shards`.
    pub(crate) fn new(source: Arc<dyn Source>, shards: &Plan) -> Self {
        Self { source, seed: shards.options().seed }
    }
}

impl Feed for Gather {
    fn begin(&mut self, run: Run) {
        self.line.seek(run.epoch, Reached { position: run.start, offset: run.offset });
    }

    fn is_over(&self, _steps: u64) -> bool {
        self.line.is_over()
    }

    fn take(&mut self, ticket: &mut Ticket, records: &mut Records, calls: &Calls) -> Result<Next> {
        let gathered = self.gather(ticket.step, records, calls);
        if let Some(next) = gathered.map_err(|error| error.at_batch(ticket.step))? {
            return Ok(next);
        }
        ticket.ids.clone_from(&records.ids);
        ticket.due = ticket.ids.len();
        ticket.reached = Some(self.line.reached());
        Ok(Next::Batch(ticket.due))
    }
}

impl Fill for FromSource {
    fn fill(
        &self,
        run: Run,
        ticket: &mut Ticket,
        records: &Records,
        bytes: &mut [u8],
        decode: &Decode<'_>,
    ) -> Result<()> {
        decode.rows(&Gathered { from: self, epoch: run.epoch, records }, ticket, bytes)
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

impl Samples for Gathered<'_> {
    fn read(
        &self,
        _id: u64,
        due: usize,
        row: &mut Row<'_, '_>,
        context: &mut Context,
    ) -> Result<(), ReadError> {
        self.from.source.decode(&self.records.bytes[due], row, context)
    }

    /// Another record of the batch, chosen by the sample's id alone: nothing is read again, and the rest stays in place.
    fn substitute(&self, row: usize, attempt: u32) -> (u64, usize) {
        let ids = &self.records.ids;
        let due = substitute(self.from.seed, self.epoch, ids[row], attempt, ids.len() as u64) as usize;
        (ids[due], due)
    }

    fn path(&self, id: u64) -> Option<&Path> {
        self.from.source.path(place(id).0)
    }
}
