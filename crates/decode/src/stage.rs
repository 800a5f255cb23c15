//! The decode loop: step after step, epoch after epoch, into slots as they come home.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};
use feedline_core::{BadSamples, Error, ErrorKind, Layout, Plan, Result, Tail, Ticket};
use feedline_device::Pinned;
use feedline_slots::{ReadyLease, Ring};

use crate::batch::Decoder;
use crate::dataset::FromDataset;
use crate::direct::Ids;
use crate::feed::{Feed, Input, Next};
use crate::source::FromSource;
use crate::{Activity, Workers};

/// What to decode: from `start` in `epoch` on, epoch after epoch, until another run is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The run's number; its batches carry it.
    pub number: u64,
    /// The epoch to begin with.
    pub epoch: u64,
    /// The global position in that epoch to begin at; later epochs begin at 0.
    pub start: u64,
    /// Of a source: where in the shard at `start` to begin; later epochs begin at 0.
    pub offset: u64,
    /// The epoch to stop before: nothing of it is read ahead.
    pub end: u64,
}

/// Everything the decode loop works with.
pub struct Stage {
    /// The data.
    pub input: Input,
    /// Which ids make up which batch; of a source, which shards are read.
    pub plan: Arc<Plan>,
    /// What becomes of the samples of a source that do not fill the last batch: kept or dropped.
    pub tail: Tail,
    /// What happens at a sample that cannot be read.
    pub bad_samples: BadSamples,
    /// Where fields lie in a slot.
    pub layout: Arc<Layout>,
    /// The slots to fill.
    pub ring: Ring<Pinned, Option<Arc<Ticket>>>,
    /// Runs asked for; the loop ends when the other end is dropped.
    pub runs: Receiver<Run>,
    /// Where filled slots go; the loop ends when the other end is dropped.
    pub filled: Sender<ReadyLease<Pinned, Option<Arc<Ticket>>>>,
    /// Tickets that came home, to be used again.
    pub tickets: Receiver<Arc<Ticket>>,
}

impl Stage {
    /// Starts the workers and the loop on them; `ended` gets its result and the stage when it ends, also after a panic.
    ///
    /// Who finds the stage's channels closed looks for the cause: `ended` tells it before it drops the stage.
    ///
    /// The loop is itself a task of the pool: it takes part in the reading, and no batch crosses a queue between it and
    /// the workers.
    ///
    /// # Errors
    /// `Config` for zero workers or threads the machine refuses.
    pub fn start(
        self,
        workers: Workers,
        ended: impl FnOnce(Result<()>, Self) + Send + 'static,
    ) -> Result<Arc<Activity>> {
        let pool = workers.start()?;
        let activity = Arc::new(Activity::new(pool.current_num_threads()));
        let for_loop = activity.clone();
        // The pool ends when its last task does: its handle is dropped here, the loop keeps the threads alive.
        pool.spawn(move || {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.run(for_loop)));
            let panicked = |_| Err(Error::new(ErrorKind::Panic, "the decode loop panicked"));
            ended(outcome.unwrap_or_else(panicked), self);
        });
        Ok(activity)
    }

    fn run(&self, activity: Arc<Activity>) -> Result<()> {
        let mut decoder = Decoder::new(self.plan.options().seed, self.bad_samples, activity);
        let mut feed = self.feed();
        let Ok(mut run) = self.runs.recv() else { return Ok(()) };
        loop {
            match self.epoch(&mut *feed, &mut decoder, run)? {
                Next::Run(next) => run = next,
                Next::Epoch if run.epoch < run.end.saturating_sub(1) => {
                    run = Run { epoch: run.epoch + 1, start: 0, offset: 0, ..run };
                }
                Next::Epoch => match self.runs.recv() {
                    Ok(next) => run = next,
                    Err(_) => return Ok(()),
                },
                Next::End => return Ok(()),
            }
        }
    }

    fn feed(&self) -> Box<dyn Feed> {
        match &self.input {
            Input::Dataset(dataset) => Box::new(FromDataset::new(dataset.clone(), self.plan.clone())),
            Input::Direct(_) => Box::new(Ids::new(self.plan.clone())),
            Input::Source(source) => Box::new(FromSource::new(source.clone(), self.plan.clone())),
        }
    }

    /// Decodes the steps of one epoch, until another run is asked for.
    fn epoch(&self, feed: &mut dyn Feed, decoder: &mut Decoder, run: Run) -> Result<Next> {
        feed.begin(run);
        let mut step = 0;
        while !feed.is_over(step) {
            let mut lease = self.ring.acquire()?;
            // Asked after the wait, which is where time passes: what was asked for meanwhile comes first.
            if let Ok(next) = self.runs.try_recv() {
                return Ok(Next::Run(next));
            }
            let (bytes, note) = lease.parts_mut();
            let mut shared = self.tickets.try_recv().unwrap_or_default();
            // A ticket that came home has one owner; another one would only cost an allocation.
            let ticket = Arc::make_mut(&mut shared);
            (ticket.run, ticket.epoch, ticket.step) = (run.number, run.epoch, step);
            if let Some(next) = feed.fill(self, decoder, ticket, bytes)? {
                return Ok(next);
            }
            *note = Some(shared);
            if self.filled.send(lease.ready()).is_err() {
                return Ok(Next::End);
            }
            step += 1;
        }
        Ok(Next::Epoch)
    }
}
