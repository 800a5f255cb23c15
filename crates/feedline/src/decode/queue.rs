//! The work queue of the workers. It waits in a [`Monitor`], which `ci/loom.sh` checks.

use std::collections::VecDeque;
use std::time::Duration;

use feedline_slots::Monitor;

/// Work for a worker.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Work<J, S> {
    /// A batch to begin.
    Begin(J),
    /// A batch that was taken and given back.
    Resume(J),
    /// Rows of a batch that another worker has begun.
    Join(S),
}

/// The max sleep of a worker without a wake-up before it looks for work.
const LOOK: Duration = Duration::from_millis(100);

/// Batches to begin, and batches to join.
///
/// Work of loaders whose consumers wait comes first. Then come batches to join, the oldest before the others,
/// so that the batch that is needed first is finished first.
pub(crate) struct Queue<J, S> {
    work: Monitor<State<J, S>>,
    /// Workers that may not take work sleep here.
    resting: Monitor<()>,
}

struct State<J, S> {
    jobs: VecDeque<J>,
    /// Batches that were taken and given back: only workers take them, before all others.
    returned: VecDeque<J>,
    /// Prepares the first job for a worker, which takes it next.
    choose: fn(usize, &mut VecDeque<J>),
    /// Whether a consumer waits for the loader of a job.
    is_job_waited: fn(&J) -> bool,
    /// Whether a consumer waits for the loader of a share.
    is_share_waited: fn(&S) -> bool,
    /// Batches to join, each with the number of workers that may still do so.
    shares: VecDeque<(S, usize)>,
    /// Workers with this number or a higher one take no work.
    limit: usize,
    closed: bool,
}

impl<J, S: Clone> State<J, S> {
    /// The next work for worker number `worker`, if there is some.
    fn take(&mut self, worker: usize) -> Option<Work<J, S>> {
        let (is_job, is_share) = (self.is_job_waited, self.is_share_waited);
        if let Some(at) = self.shares.iter().position(|(batch, _)| is_share(batch)) {
            return self.join(at);
        }
        if let Some(at) = self.returned.iter().position(is_job) {
            return self.returned.remove(at).map(Work::Resume);
        }
        if let Some(at) = self.jobs.iter().position(is_job) {
            if let Some(job) = self.jobs.remove(at) {
                self.jobs.push_front(job);
            }
            (self.choose)(worker, &mut self.jobs);
            return self.jobs.pop_front().map(Work::Begin);
        }
        if !self.shares.is_empty() {
            return self.join(0);
        }
        if let Some(job) = self.returned.pop_front() {
            return Some(Work::Resume(job));
        }
        (self.choose)(worker, &mut self.jobs);
        self.jobs.pop_front().map(Work::Begin)
    }

    /// Joins the batch at `at`.
    fn join(&mut self, at: usize) -> Option<Work<J, S>> {
        let (batch, workers) = self.shares.get_mut(at)?;
        *workers -= 1;
        let (batch, is_last) = (batch.clone(), *workers == 0);
        if is_last {
            self.shares.remove(at);
        }
        Some(Work::Join(batch))
    }

    /// The number of workers that the queued work can keep busy.
    fn items(&self) -> usize {
        self.jobs.len() + self.returned.len() + self.shares.iter().map(|(_, workers)| workers).sum::<usize>()
    }
}

impl<J, S: Clone> Queue<J, S> {
    /// An empty queue; `capacity` items need no further memory.
    pub(crate) fn new(capacity: usize) -> Self {
        let (jobs, shares) = (VecDeque::with_capacity(capacity), VecDeque::with_capacity(capacity));
        let (returned, limit, closed) = (VecDeque::new(), usize::MAX, false);
        let state = State {
            jobs,
            returned,
            choose: |_, _| {},
            is_job_waited: |_| false,
            is_share_waited: |_| false,
            shares,
            limit,
            closed,
        };
        Self { work: Monitor::new(state), resting: Monitor::new(()) }
    }

    /// Lets `choose` change the queued jobs before a worker takes the first.
    pub(crate) fn choosing(self, choose: fn(usize, &mut VecDeque<J>)) -> Self {
        self.work.with(|state| state.choose = choose);
        self
    }

    /// Lets work of loaders whose consumers wait go first.
    pub(crate) fn preferring(self, is_job: fn(&J) -> bool, is_share: fn(&S) -> bool) -> Self {
        self.work.with(|state| (state.is_job_waited, state.is_share_waited) = (is_job, is_share));
        self
    }

    /// Adds a batch to begin; gives it back when the queue is closed.
    ///
    /// Without `wake`, no sleeping worker is woken. Use this for short batches: the worker that was woken for
    /// the previous batch takes them too. If that worker is held up, another one looks within [`LOOK`].
    pub(crate) fn begin(&self, job: J, wake: bool) -> Result<(), J> {
        self.work.add(usize::from(wake), |state| {
            if state.closed {
                return (Err(job), 0);
            }
            state.jobs.push_back(job);
            (Ok(()), state.items())
        })
    }

    /// Takes the first batch to begin for which `is_wanted` returns true, without waiting; `None` if there is
    /// none. The batches that were given back are left to the workers.
    pub(crate) fn take(&self, is_wanted: impl Fn(&J) -> bool) -> Option<J> {
        self.work.with(|state| {
            let index = state.jobs.iter().position(is_wanted)?;
            state.jobs.remove(index)
        })
    }

    /// Whether [`take`](Self::take) would return a batch.
    pub(crate) fn has(&self, is_wanted: impl Fn(&J) -> bool) -> bool {
        self.work.with(|state| state.jobs.iter().any(is_wanted))
    }

    /// Gives back a batch that [`take`](Self::take) has returned: a worker begins it next. Returns it if the
    /// queue is closed.
    pub(crate) fn give_back(&self, job: J) -> Result<(), J> {
        self.work.add(1, |state| {
            if state.closed {
                return (Err(job), 0);
            }
            state.returned.push_back(job);
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

    /// Lets up to `workers` workers join a batch.
    pub(crate) fn share(&self, batch: S, workers: usize) {
        self.work.add(workers, |state| {
            if workers > 0 && !state.closed {
                state.shares.push_back((batch, workers));
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
    pub(crate) fn next(&self, worker: usize) -> Option<Work<J, S>> {
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
    pub(crate) fn try_next(&self, worker: usize) -> (Option<Work<J, S>>, usize) {
        self.work.with(|state| {
            let may_work = !state.closed && worker < state.limit;
            (may_work.then(|| state.take(worker)).flatten(), state.items())
        })
    }

    /// Drops queued jobs and shares for which the closures return true.
    pub(crate) fn remove(&self, is_job: impl Fn(&J) -> bool, is_share: impl Fn(&S) -> bool) {
        let left = self.work.with(|State { jobs, returned, shares, .. }| {
            (remove(jobs, &is_job), remove(returned, &is_job), remove(shares, |(share, _)| is_share(share)))
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

/// Removes the items for which `is_unwanted` returns true. The others keep their order, and the queue its
/// memory.
fn remove<T>(items: &mut VecDeque<T>, is_unwanted: impl Fn(&T) -> bool) -> Vec<T> {
    let mut removed = Vec::new();
    for _ in 0..items.len() {
        match items.pop_front() {
            Some(item) if is_unwanted(&item) => removed.push(item),
            Some(item) => items.push_back(item),
            None => break,
        }
    }
    removed
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Weak, mpsc};
    use std::time::Instant;

    use feedline_testkit::{watchdog::LIMIT, with_watchdog};

    use super::*;

    #[test]
    fn batches_to_join_come_before_batches_to_begin_and_in_their_order() {
        let queue = Queue::new(4);
        queue.begin(1, true).unwrap();
        queue.share("a", 2);
        queue.share("b", 1);
        queue.share("nobody", 0);
        queue.begin(2, true).unwrap();
        let all: Vec<_> = (0..5).map(|_| queue.next(0).unwrap()).collect();
        assert_eq!(all, [Work::Join("a"), Work::Join("a"), Work::Join("b"), Work::Begin(1), Work::Begin(2)]);
    }

    #[test]
    fn work_that_is_waited_for_comes_first_and_in_its_order() {
        let queue = Queue::new(8).preferring(|job| *job >= 10, |share: &i32| *share >= 10);
        [1, 10, 2, 11].into_iter().for_each(|job| queue.begin(job, true).unwrap());
        [3, 12].into_iter().for_each(|share| queue.share(share, 2));
        let all: Vec<_> = (0..8).map(|_| queue.next(0).unwrap()).collect();
        let join = |share| [Work::Join(share), Work::Join(share)];
        let begin = |jobs: [i32; 2]| jobs.map(Work::Begin);
        assert_eq!(
            all,
            [join(12), begin([10, 11]), join(3), begin([1, 2])].into_iter().flatten().collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_closed_queue_gives_no_work_and_takes_none() {
        let queue = Queue::<_, ()>::new(1);
        queue.begin(1, true).unwrap();
        queue.close();
        assert_eq!((queue.next(0), queue.begin(2, true)), (None, Err(2)));
    }

    #[test]
    fn removed_work_is_not_given_out_and_the_rest_keeps_its_order() {
        let queue = Queue::new(4);
        (0..6).for_each(|job| queue.begin(job, true).unwrap());
        (0..4).for_each(|share| queue.share(share, 1));
        queue.remove(|job| job % 2 == 0, |share| *share < 3);
        let all: Vec<_> = (0..4).map(|_| queue.next(0).unwrap()).collect();
        assert_eq!(all, [Work::Join(3), Work::Begin(1), Work::Begin(3), Work::Begin(5)]);
    }

    #[test]
    fn a_batch_that_is_given_back_is_left_to_the_workers_and_comes_before_later_ones() {
        let queue = Queue::<_, ()>::new(4);
        (0..4).for_each(|job| queue.begin(job, true).unwrap());
        assert_eq!((queue.take(|&job| job > 0), queue.take(|&job| job > 7)), (Some(1), None));
        queue.give_back(1).unwrap();
        assert!(!queue.has(|&job| job == 1) && queue.has(|&job| job == 2));
        let all: Vec<_> = (0..4).map(|_| queue.next(0).unwrap()).collect();
        assert_eq!(all, [Work::Resume(1), Work::Begin(0), Work::Begin(2), Work::Begin(3)]);
        queue.give_back(5).unwrap();
        queue.give_back(6).unwrap();
        queue.remove(|&job| job == 5, |()| false);
        assert_eq!(queue.next(0), Some(Work::Resume(6)));
        queue.close();
        assert_eq!(queue.give_back(7), Err(7));
    }

    /// The drop of an item may use the queue, so it runs without the queue's lock.
    #[test]
    fn work_is_dropped_without_the_lock() {
        struct Locks(Weak<Queue<Locks, ()>>);
        impl Drop for Locks {
            fn drop(&mut self) {
                self.0.upgrade().expect("the queue").share((), 0);
            }
        }
        with_watchdog(LIMIT, || {
            let queue = Arc::new(Queue::new(4));
            let begin = || queue.begin(Locks(Arc::downgrade(&queue)), true);
            assert!(begin().is_ok() && begin().is_ok());
            queue.remove(|_| true, |()| true);
            assert!(begin().is_ok());
            queue.close();
        });
    }

    #[test]
    fn every_item_is_taken_as_often_as_it_was_added_and_close_ends_every_worker() {
        const ITEMS: usize = 20_000;
        const JOINS: usize = 3;
        with_watchdog(LIMIT, || {
            let queue = Queue::<usize, usize>::new(4);
            let [begun, joined] =
                [(); 2].map(|()| (0..ITEMS).map(|_| AtomicUsize::new(0)).collect::<Vec<_>>());
            let (tell, told) = mpsc::channel();
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    let tell = tell.clone();
                    let (queue, begun, joined) = (&queue, &begun, &joined);
                    scope.spawn(move || {
                        while let Some(work) = queue.next(0) {
                            match work {
                                Work::Begin(job) | Work::Resume(job) => {
                                    begun[job].fetch_add(1, Ordering::Relaxed)
                                }
                                Work::Join(share) => joined[share].fetch_add(1, Ordering::Relaxed),
                            };
                            tell.send(()).unwrap();
                        }
                    });
                }
                for half in [0, 1] {
                    let queue = &queue;
                    scope.spawn(move || {
                        for item in (half..ITEMS).step_by(2) {
                            queue.begin(item, true).unwrap();
                            queue.share(item, JOINS);
                            // A pause, so that the workers sleep sometimes.
                            (0..item % 100).for_each(|_| std::hint::spin_loop());
                        }
                    });
                }
                (0..ITEMS * (1 + JOINS)).for_each(|_| told.recv().unwrap());
                queue.close();
            });
            let all =
                |counts: &[AtomicUsize], times| counts.iter().all(|n| n.load(Ordering::Relaxed) == times);
            assert!(all(&begun, 1) && all(&joined, JOINS));
        });
    }

    #[test]
    fn a_batch_that_nobody_was_woken_for_is_begun_all_the_same() {
        with_watchdog(LIMIT, || {
            let queue = Queue::<_, ()>::new(1);
            std::thread::scope(|scope| {
                let worker = scope.spawn(|| queue.next(0));
                while queue.work.asleep() == 0 {
                    std::thread::yield_now();
                }
                queue.begin(7, false).unwrap();
                assert_eq!(worker.join().unwrap(), Some(Work::Begin(7)));
            });
        });
    }

    #[test]
    fn a_worker_that_waits_is_unused_unless_work_is_queued_for_it() {
        with_watchdog(LIMIT, || {
            let queue = Queue::<u32, ()>::new(4);
            std::thread::scope(|scope| {
                let _workers = [(); 2].map(|()| scope.spawn(|| queue.next(0)));
                while queue.unused() < 2 {
                    std::thread::yield_now();
                }
                // The worker may or may not have taken it yet.
                queue.begin(7, false).unwrap();
                assert!(queue.unused() <= 1);
                queue.begin(8, false).unwrap();
                assert_eq!(queue.unused(), 0);
            });
        });
    }

    #[test]
    fn a_worker_beyond_the_limit_takes_no_work_until_the_limit_is_raised() {
        with_watchdog(LIMIT, || {
            let queue = Queue::<u32, ()>::new(4);
            for round in 0..200 {
                queue.set_limit(1);
                queue.begin(2 * round, true).unwrap();
                let mut taken = None;
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let first = queue.next(0);
                        queue.set_limit(2);
                        if first.is_some() {
                            queue.begin(2 * round + 1, true).unwrap();
                        }
                    });
                    // The job is queued before worker 0 starts: without the limit, worker 1 would take it.
                    taken = queue.next(1);
                    if !matches!(taken, Some(Work::Begin(job)) if job == 2 * round + 1) {
                        queue.close();
                    }
                });
                assert!(matches!(taken, Some(Work::Begin(job)) if job == 2 * round + 1), "round {round}");
            }
        });
    }

    /// The wake-up may reach a worker that may no longer take work.
    #[test]
    fn a_lower_limit_loses_no_work() {
        with_watchdog(LIMIT, || {
            let queue = Queue::<u32, ()>::new(4);
            std::thread::scope(|scope| {
                let workers = [0, 1, 2, 3].map(|worker| {
                    let queue = &queue;
                    scope.spawn(move || std::iter::from_fn(|| queue.next(worker)).count())
                });
                for round in 0..2000_u32 {
                    queue.set_limit(1 + round as usize % 4);
                    queue.begin(round, true).unwrap();
                }
                while queue.work.with(|state| !state.jobs.is_empty()) {
                    std::thread::yield_now();
                }
                queue.close();
                assert_eq!(workers.map(|worker| worker.join().unwrap()).iter().sum::<usize>(), 2000);
            });
        });
    }

    /// Workers look for work periodically, so work without a wake-up is late, not lost.
    #[test]
    fn a_worker_that_sleeps_is_woken_at_once() {
        let events: [fn(&Queue<u32, u32>); 3] =
            [|queue| queue.begin(1, true).unwrap(), |queue| queue.share(1, 1), Queue::close];
        let time_to_wake = |event: fn(&Queue<u32, u32>)| {
            let queue = Queue::new(4);
            std::thread::scope(|scope| {
                let worker = scope.spawn(|| {
                    queue.next(0);
                    Instant::now()
                });
                while queue.work.asleep() == 0 {
                    std::thread::yield_now();
                }
                let start = Instant::now();
                event(&queue);
                worker.join().unwrap() - start
            })
        };
        with_watchdog(LIMIT, || {
            for event in events {
                // The shortest of several times: the machine may be busy.
                let quickest = (0..5).map(|_| time_to_wake(event)).min().unwrap();
                assert!(quickest < LOOK / 4, "{quickest:?}");
            }
        });
    }
}
