//! The makers: each takes the next batch, fills it beside the others', and puts it into its place in the line.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded};
use feedline_core::{Error, ErrorKind, Result, Ticket};
use feedline_device::Pinned;
use feedline_slots::{FillLease, ReadyLease};

use crate::batch::Decoder;
use crate::dataset::{FromDataset, Steps};
use crate::delivery::{Delivery, Outcome, Way};
use crate::direct::Ids;
use crate::feed::{Calls, Decode, Feed, Fill, Input, Next, Records};
use crate::pace::Pace;
use crate::patience::Patience;
use crate::source::{FromSource, Gather};
use crate::turn::{Head, InPieces, Turn};
use crate::{Activity, Run, Stage};

/// What it takes to wake a maker, about. For a batch that will be done sooner, as far as the last one tells, none is woken but in
/// a hurry: who makes it takes the next one too.
const WAKE: Duration = Duration::from_micros(20);

/// What the makers of a stage share.
pub(crate) struct Makers {
    stage: Stage,
    decoder: Decoder,
    fill: Box<dyn Fill>,
    turn: Turn,
    calls: Calls,
    delivery: Delivery<Filled, ToTransfer>,
}

/// A slot to fill, and one that is filled.
type Slot = FillLease<Pinned, Option<Arc<Ticket>>>;
type Filled = ReadyLease<Pinned, Option<Arc<Ticket>>>;

/// The way to the transfer stage.
struct ToTransfer {
    filled: Sender<Filled>,
    /// Taken by the end.
    over: Option<Over>,
}

/// Who is told how the stage ended.
type Over = Box<dyn FnOnce(Result<()>) + Send>;

impl Way<Filled> for ToTransfer {
    fn send(&mut self, filled: Filled) -> bool {
        self.filled.send(filled).is_ok()
    }

    fn end(&mut self, end: Result<()>) {
        if let Some(over) = self.over.take() {
            over(end);
        }
    }
}

/// A batch that was taken, to be filled.
struct Taken<'a> {
    number: u64,
    run: Run,
    lease: Slot,
    ticket: Arc<Ticket>,
    _in_pieces: Option<InPieces<'a>>,
}

/// What the next turn came to.
enum Planned {
    /// A batch with this slot and ticket, and the rows that there are to decode at most.
    Batch(Run, Slot, Arc<Ticket>, usize),
    /// Nothing yet, and there are pieces to read.
    Later,
    /// Nothing more.
    End,
}

impl Makers {
    /// The makers of `stage`, of which there are `count`.
    pub(crate) fn new(mut stage: Stage, activity: Arc<Activity>, count: usize, over: Over) -> Self {
        let (plan, batch) = (stage.plan.clone(), stage.layout.capacity());
        let (feed, fill): (Box<dyn Feed>, Box<dyn Fill>) = match &stage.input {
            Input::Dataset(dataset) => {
                (Box::new(Steps::new(plan.clone(), batch)), Box::new(FromDataset::new(dataset.clone(), plan)))
            }
            Input::Direct(_, visits) => {
                (Box::new(Steps::new(plan.clone(), 0)), Box::new(Ids::new(plan, *visits)))
            }
            Input::Source(source) => (
                Box::new(Gather::new(source.clone(), plan.clone(), batch, stage.tail, activity.clone())),
                Box::new(FromSource::new(source.clone(), &plan)),
            ),
        };
        let patience = Patience::new(stage.ring.len());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let (open, closed) = bounded(0);
        // The only sender: with it the transfer stage's channel closes.
        let filled = std::mem::replace(&mut stage.filled, bounded(0).0);
        let way = ToTransfer { filled, over: Some(over) };
        Self {
            decoder: Decoder::new(stage.plan.options().seed, stage.bad_samples, activity),
            fill,
            turn: Turn::new(Head::new(feed, patience), open, cores),
            calls: Calls { runs: stage.runs.clone(), over: closed },
            // A batch that waits for its turn has a slot; one that failed has none, but its maker has.
            delivery: Delivery::new(stage.ring.len() + count, way),
            stage,
        }
    }

    /// Makes batches until the stage is over.
    pub(crate) fn make(&self) {
        // Only a defect gets this far; the others must not wait for the number that this one has.
        if catch_unwind(AssertUnwindSafe(|| self.make_all())).is_err() {
            self.close();
            self.delivery.close(Err(panicked()));
        }
    }

    fn make_all(&self) {
        let mut records = Records::default();
        while let Some(taken) = self.take(&mut records) {
            let number = taken.number;
            let filled = caught(|| self.fill(taken, &records));
            self.put(number, filled.map_or_else(|error| Outcome::Over(Err(error)), Outcome::Batch));
        }
    }

    /// The stage, once all makers have ended.
    pub(crate) fn end(self) -> Stage {
        self.delivery.close(Ok(()));
        self.stage
    }

    /// Waits for a turn, and takes the next batch; `None` when the stage is over.
    fn take(&self, records: &mut Records) -> Option<Taken<'_>> {
        let mut pace = Pace::new();
        loop {
            let mut head = self.turn.take(&mut pace)?;
            let number = head.number;
            let start = Instant::now();
            let end = match caught(|| self.plan(&mut head, records, self.turn.limit(&pace))) {
                Ok(Planned::Batch(run, lease, ticket, rows)) => {
                    head.number += 1;
                    let in_pieces = self.decoder.splits(rows).then(|| self.turn.in_pieces());
                    let time = self.decoder.time(rows);
                    head.patience.make(time);
                    head.judge(start.elapsed(), self.stage.ring.len(), self.stage.ring.counts(), time);
                    self.turn.give(head, time > WAKE);
                    return Some(Taken { number, run, lease, ticket, _in_pieces: in_pieces });
                }
                Ok(Planned::Later) => {
                    self.turn.help(head, &mut pace);
                    continue;
                }
                Ok(Planned::End) => Ok(()),
                Err(error) => Err(error),
            };
            self.put(number, Outcome::Over(end));
            return None;
        }
    }

    /// Goes on to the next batch, which waits for a run, a slot, and the records of a source; at most for `limit`.
    fn plan(&self, head: &mut Head, records: &mut Records, limit: Option<Duration>) -> Result<Planned> {
        let mut shared = None;
        loop {
            let Some(run) = head.run else {
                match self.calls.wait(limit) {
                    Some(Next::Run(run)) => head.begin(run),
                    Some(_) => return Ok(Planned::End),
                    None => return Ok(Planned::Later),
                }
                continue;
            };
            if head.feed.is_over(head.steps) {
                head.begin_next_epoch(run);
                continue;
            }
            let Some(lease) = self.slot(&mut head.patience, limit)? else { return Ok(Planned::Later) };
            // Asked after the wait, which is where time passes: what was asked for meanwhile comes first.
            if let Ok(run) = self.calls.runs.try_recv() {
                head.begin(run);
                continue;
            }
            // A ticket that came home has one owner; another one would only cost an allocation.
            let home = || self.stage.tickets.try_recv().unwrap_or_default();
            let ticket = Arc::make_mut(shared.get_or_insert_with(home));
            head.name(run, ticket);
            match head.feed.take(ticket, records, &self.calls)? {
                Next::Batch(rows) => {
                    head.steps += 1;
                    return Ok(Planned::Batch(run, lease, shared.unwrap_or_default(), rows));
                }
                Next::Run(run) => head.begin(run),
                Next::End => return Ok(Planned::End),
            }
        }
    }

    /// Takes a slot to fill, waiting for at most `limit`; without one, as patiently as it may.
    fn slot(&self, patience: &mut Patience, limit: Option<Duration>) -> Result<Option<Slot>> {
        if let Some(limit) = limit {
            return self.stage.ring.acquire_timeout(limit);
        }
        let start = Instant::now();
        let copies = patience.copies(start);
        let lease = self.stage.ring.acquire_after(copies)?;
        patience.took(copies, start, Instant::now());
        Ok(Some(lease))
    }

    fn fill(&self, taken: Taken<'_>, records: &Records) -> Result<Filled> {
        let Taken { number, run, mut lease, mut ticket, _in_pieces } = taken;
        let (bytes, note) = lease.parts_mut();
        let decode = Decode { decoder: &self.decoder, layout: &self.stage.layout, number };
        self.fill.fill(run, Arc::make_mut(&mut ticket), records, bytes, &decode)?;
        *note = Some(ticket);
        Ok(lease.ready())
    }

    /// Puts what became of `number` into its place. An end anywhere in the line is the end of all turns: of those before it,
    /// none is left to take.
    fn put(&self, number: u64, outcome: Outcome<Filled>) {
        let ends = matches!(outcome, Outcome::Over(_));
        let over = self.delivery.put(number, outcome);
        if ends || over {
            self.close();
        }
    }

    /// Ends all turns, and the wait for a slot of who has one.
    fn close(&self) {
        self.turn.close();
        self.stage.ring.close();
    }
}

/// Runs `work`; a panic in it, outside of the reads, is an error too.
fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(panicked()))
}

fn panicked() -> Error {
    Error::new(ErrorKind::Panic, "the decode loop panicked")
}
