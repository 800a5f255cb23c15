//! The decode stage: what it works with, and its start on workers of its own.

use std::iter::repeat_n;
use std::sync::{Arc, Barrier, Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender};
use feedline_core::{BadSamples, Layout, Plan, Result, Tail, Ticket};
use feedline_device::Pinned;
use feedline_slots::{ReadyLease, Ring};

use crate::feed::Input;
use crate::maker::Makers;
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

/// Everything the decode stage works with.
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
    /// The slots to fill; closed when the stage is over.
    pub ring: Ring<Pinned, Option<Arc<Ticket>>>,
    /// Runs asked for; the stage ends when the other end is dropped.
    pub runs: Receiver<Run>,
    /// Where filled slots go, in the order of the steps; the stage ends when the other end is dropped.
    pub filled: Sender<ReadyLease<Pinned, Option<Arc<Ticket>>>>,
    /// Tickets that came home, to be used again.
    pub tickets: Receiver<Arc<Ticket>>,
}

impl Stage {
    /// Starts the workers and makers on them. `over` gets the result as soon as the last batch was delivered, or the first
    /// error reached in order, and `filled` is dropped behind it: who finds it closed looks for the cause. `ended` gets the
    /// stage when all workers are done, which a read that does not return may keep from happening. Both also after a panic.
    ///
    /// There is a maker for each slot, as far as there are workers. A maker is itself a task of the pool: it takes part in the
    /// reading, and no batch crosses a queue between it and the workers.
    ///
    /// # Errors
    /// `Config` for zero workers or threads the machine refuses.
    pub fn start(
        self,
        workers: Workers,
        over: impl FnOnce(Result<()>) + Send + 'static,
        ended: impl FnOnce(Self) + Send + 'static,
    ) -> Result<Arc<Activity>> {
        let pool = workers.start()?;
        let threads = pool.current_num_threads();
        let activity = Arc::new(Activity::new(threads));
        let count = self.ring.len().clamp(1, threads);
        let makers = Makers::new(self, activity.clone(), count, Box::new(over));
        // A worker that waits for a piece takes any task of the pool. Were that a maker, the piece's batch would never be
        // done. So all of them run before the first batch is begun, each on a worker of its own.
        let all_run = Arc::new(Barrier::new(count));
        // The pool ends when its last task does: its handle is dropped here, the makers keep the threads alive.
        for shared in repeat_n(Arc::new((makers, Mutex::new(ended))), count) {
            let all_run = all_run.clone();
            pool.spawn(move || {
                all_run.wait();
                shared.0.make();
                // The last one to end; nobody else has a share.
                if let Some((makers, ended)) = Arc::into_inner(shared) {
                    let ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
                    ended(makers.end());
                }
            });
        }
        Ok(activity)
    }
}
