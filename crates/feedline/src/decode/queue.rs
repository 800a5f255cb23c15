//! The work queue of the workers. It waits in a [`Monitor`], which `ci/loom.sh` checks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use feedline_device::slots::Monitor;

/// Work for a worker.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Work<J, S> {
    /// A batch to begin.
    Begin(J),
    /// A batch that was taken and given back.
    Resume(J),
    /// Rows of a batch that another worker has begun.
    Join(Arc<S>),
}

/// The max sleep of a worker without a wake-up before it looks for work.
const LOOK: Duration = Duration::from_millis(100);

/// Batches to begin (`J`), and batches to join (`S`), each with its loader (`L`).
///
/// Work of loaders whose consumers wait comes first. Then come batches to join, the oldest before the others,
/// so that the batch that is needed first is finished first.
pub(crate) struct Queue<L, J, S> {
    work: Monitor<State<L, J, S>>,
    /// Workers that may not take work sleep here.
    resting: Monitor<()>,
}

/// Work in order, each with its loader.
type Waiting<L, W> = VecDeque<(Arc<L>, W)>;

struct State<L, J, S> {
    jobs: Waiting<L, J>,
    /// Batches that were taken and given back: only workers take them, before all others.
    returned: Waiting<L, J>,
    /// Batches to join, each with the number of workers that may still do so.
    shares: Waiting<L, (Arc<S>, usize)>,
    /// Prepares the first job for a worker, which takes it next.
    choose: fn(usize, &mut Waiting<L, J>),
    /// Whether the consumer of a loader waits.
    is_waited_for: fn(&L) -> bool,
    /// Workers with this number or a higher one take no work.
    limit: usize,
    closed: bool,
}

impl<L, J, S> State<L, J, S> {
    /// The next work for worker number `worker`, if there is some.
    fn take(&mut self, worker: usize) -> Option<(Arc<L>, Work<J, S>)> {
        let is_waited_for = self.is_waited_for;
        if let Some(at) = self.shares.iter().position(|(loader, _)| is_waited_for(loader)) {
            return self.join(at);
        }
        if let Some(at) = self.returned.iter().position(|(loader, _)| is_waited_for(loader)) {
            return self.returned.remove(at).map(|(loader, job)| (loader, Work::Resume(job)));
        }
        if let Some(at) = self.jobs.iter().position(|(loader, _)| is_waited_for(loader)) {
            if let Some(job) = self.jobs.remove(at) {
                self.jobs.push_front(job);
            }
            return self.begin(worker);
        }
        if !self.shares.is_empty() {
            return self.join(0);
        }
        if let Some((loader, job)) = self.returned.pop_front() {
            return Some((loader, Work::Resume(job)));
        }
        self.begin(worker)
    }

    /// Begins the first batch that is queued.
    fn begin(&mut self, worker: usize) -> Option<(Arc<L>, Work<J, S>)> {
        (self.choose)(worker, &mut self.jobs);
        self.jobs.pop_front().map(|(loader, job)| (loader, Work::Begin(job)))
    }

    /// Joins the batch at `at`.
    fn join(&mut self, at: usize) -> Option<(Arc<L>, Work<J, S>)> {
        let (loader, (batch, workers)) = self.shares.get_mut(at)?;
        *workers -= 1;
        let (work, is_last) = ((loader.clone(), Work::Join(batch.clone())), *workers == 0);
        if is_last {
            self.shares.remove(at);
        }
        Some(work)
    }

    /// The number of workers that the queued work can keep busy.
    fn items(&self) -> usize {
        self.jobs.len()
            + self.returned.len()
            + self.shares.iter().map(|(_, (_, workers))| workers).sum::<usize>()
    }
}

impl<L, J, S> Queue<L, J, S> {
    /// An empty queue; `capacity` items need no further memory. Work of loaders for which `is_waited_for`
    /// returns true goes first. Before a worker takes the first of the jobs, `choose` may change them.
    pub(crate) fn new(
        capacity: usize,
        is_waited_for: fn(&L) -> bool,
        choose: fn(usize, &mut Waiting<L, J>),
    ) -> Self {
        let (jobs, shares) = (VecDeque::with_capacity(capacity), VecDeque::with_capacity(capacity));
        let (returned, limit, closed) = (VecDeque::new(), usize::MAX, false);
        let state = State { jobs, returned, shares, choose, is_waited_for, limit, closed };
        Self { work: Monitor::new(state), resting: Monitor::new(()) }
    }

    /// Adds a batch of `loader` to begin; gives it back when the queue is closed.
    ///
    /// Without `wake`, no sleeping worker is woken. Use this for short batches: the worker that was woken for
    /// the previous batch takes them too. If that worker is held up, another one looks within [`LOOK`].
    pub(crate) fn begin(&self, loader: &Arc<L>, job: J, wake: bool) -> Result<(), J> {
        self.work.add(usize::from(wake), |state| {
            if state.closed {
                return (Err(job), 0);
            }
            state.jobs.push_back((loader.clone(), job));
            (Ok(()), state.items())
        })
    }

    /// Takes the first batch of `loader` to begin, without waiting; `None` if there is none. The batches that
    /// were given back are left to the workers.
    pub(crate) fn take(&self, loader: &Arc<L>) -> Option<J> {
        self.work.with(|state| {
            let index = state.jobs.iter().position(|(other, _)| Arc::ptr_eq(other, loader))?;
            state.jobs.remove(index).map(|(_, job)| job)
        })
    }

    /// Whether [`take`](Self::take) would return a batch.
    pub(crate) fn has(&self, loader: &Arc<L>) -> bool {
        self.work.with(|state| state.jobs.iter().any(|(other, _)| Arc::ptr_eq(other, loader)))
    }

    /// Gives back a batch of `loader` that [`take`](Self::take) has returned: a worker begins it next.
    /// Returns it if the queue is closed.
    pub(crate) fn give_back(&self, loader: &Arc<L>, job: J) -> Result<(), J> {
        self.work.add(1, |state| {
            if state.closed {
                return (Err(job), 0);
            }
            state.returned.push_back((loader.clone(), job));
            (Ok(()), state.items())
        })
    }

    /// Whether a worker sleeps and nothing is queued.
    pub(crate) fn is_idle(&self) -> bool {
        self.work.with(|state| state.items() == 0) && self.work.asleep() > 0
    }

    /// The number of sleeping workers that the queued work does not need.
    pub(crate) fn unused(&self) -> usize {
        self.work.look(|state, waiting| waiting.saturating_sub(state.items()))
    }

    /// Lets up to `workers` workers join a batch of `loader`.
    pub(crate) fn share(&self, loader: &Arc<L>, batch: Arc<S>, workers: usize) {
        self.work.add(workers, |state| {
            if workers > 0 && !state.closed {
                state.shares.push_back((loader.clone(), (batch, workers)));
            }
            ((), state.items())
        });
    }

    /// From now on only workers with a number below `limit` take work.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.work.with(|state| state.limit = limit);
        self.resting.change(|()| {});
    }

    /// Takes the next work for worker number `worker`, and sleeps until there is some; `None` once the queue
    /// is closed.
    pub(crate) fn next(&self, worker: usize) -> Option<(Arc<L>, Work<J, S>)> {
        loop {
            let taken = self.work.wait(Some(LOOK), |state| match state.closed || worker >= state.limit {
                true => Some(None),
                false => state.take(worker).map(Some),
            });
            match taken {
                Some(Some(work)) => return Some(work),
                Some(None) => {
                    // A wake-up may have reached this worker although only another one may take the work:
                    // pass it on.
                    if self.work.add(1, |state| (state.closed, state.items())) {
                        return None;
                    }
                    let may_work = || self.work.with(|state| state.closed || worker < state.limit);
                    self.resting.wait(None, |()| may_work().then_some(()));
                }
                None => {}
            }
        }
    }

    /// The next work for worker number `worker`, if there is some, and how much is left; never sleeps.
    #[expect(clippy::type_complexity, reason = "work with its loader, and a count")]
    pub(crate) fn try_next(&self, worker: usize) -> (Option<(Arc<L>, Work<J, S>)>, usize) {
        self.work.with(|state| {
            let may_work = !state.closed && worker < state.limit;
            (may_work.then(|| state.take(worker)).flatten(), state.items())
        })
    }

    /// Drops the queued work of `loader`.
    pub(crate) fn remove(&self, loader: &Arc<L>) {
        let left = self.work.with(|State { jobs, returned, shares, .. }| {
            (remove(jobs, loader), remove(returned, loader), remove(shares, loader))
        });
        // Without the lock: dropping a job may run user code.
        drop(left);
    }

    /// Ends every current and later `next`, and drops all queued work.
    pub(crate) fn close(&self) {
        let left = self.work.change(|state| {
            state.closed = true;
            (
                std::mem::take(&mut state.jobs),
                std::mem::take(&mut state.returned),
                std::mem::take(&mut state.shares),
            )
        });
        self.resting.change(|()| {});
        // Without the lock: dropping a job may run user code.
        drop(left);
    }
}

/// Removes the items of `loader`. The others keep their order, and the queue its memory.
fn remove<L, T>(items: &mut Waiting<L, T>, loader: &Arc<L>) -> Vec<(Arc<L>, T)> {
    let mut removed = Vec::new();
    for _ in 0..items.len() {
        match items.pop_front() {
            Some(item) if Arc::ptr_eq(&item.0, loader) => removed.push(item),
            Some(item) => items.push_back(item),
            None => break,
        }
    }
    removed
}

#[cfg(all(test, not(loom)))]
mod tests;
