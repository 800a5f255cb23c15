//! Every interleaving of small models of the workers' queue, with loom. Run by `ci/loom.sh`.
//!
//! A worker that nobody wakes is reported as a deadlock.
#![cfg(loom)]

#[allow(dead_code, reason = "a model uses a part")]
#[path = "../src/decode/queue.rs"]
mod queue;

use loom::sync::Arc;
use loom::thread;
use queue::{Queue, Work};

type Numbers = Queue<(), u32, u32>;

fn queue() -> Arc<Numbers> {
    Arc::new(Queue::new(4, |()| false, |_, _| {}))
}

fn loader() -> std::sync::Arc<()> {
    std::sync::Arc::new(())
}

/// Lets up to `workers` workers join a batch.
fn share(queue: &Numbers, share: u32, workers: usize) {
    queue.share(&loader(), std::sync::Arc::new(share), workers);
}

/// The next work for a worker, without its loader.
fn next(queue: &Numbers, worker: usize) -> Option<Work<u32, u32>> {
    queue.next(worker).map(|(_, work)| work)
}

fn join(share: u32) -> Work<u32, u32> {
    Work::Join(std::sync::Arc::new(share))
}

/// A thread that runs `work` with the queue.
fn spawn<T: 'static>(
    queue: &Arc<Numbers>,
    work: impl FnOnce(&Numbers) -> T + 'static,
) -> thread::JoinHandle<T> {
    let queue = queue.clone();
    thread::spawn(move || work(&queue))
}

/// Takes work until the queue is closed; the sums of the batches begun and joined.
fn work(queue: &Numbers) -> (u32, u32) {
    let (mut begun, mut joined) = (0, 0);
    while let Some(work) = next(queue, 0) {
        match work {
            Work::Begin(job) | Work::Resume(job) => begun += job,
            Work::Join(share) => joined += *share,
        }
    }
    (begun, joined)
}

/// The work may come before, while or after the worker goes to sleep.
#[test]
fn a_worker_that_goes_to_sleep_is_woken_for_each_job() {
    loom::model(|| {
        let queue = queue();
        let worker = spawn(&queue, |queue| [(); 2].map(|()| next(queue, 0)));
        queue.begin(&loader(), 1, true).unwrap();
        queue.begin(&loader(), 2, true).unwrap();
        assert_eq!(worker.join().unwrap(), [Some(Work::Begin(1)), Some(Work::Begin(2))]);
    });
}

/// Each job needs a worker of its own: one worker does not come back for the second.
#[test]
fn two_jobs_wake_two_workers() {
    loom::model(|| {
        let queue = queue();
        let workers = [(); 2].map(|()| spawn(&queue, |queue| next(queue, 0)));
        let other = spawn(&queue, |queue| queue.begin(&loader(), 1, true));
        queue.begin(&loader(), 2, true).unwrap();
        other.join().unwrap().unwrap();
        let mut taken = workers.map(|worker| match worker.join().unwrap() {
            Some(Work::Begin(job)) => job,
            other => panic!("not a job: {other:?}"),
        });
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
    });
}

#[test]
fn a_batch_to_join_wakes_as_many_workers_as_may_join_it() {
    loom::model(|| {
        let queue = queue();
        let workers = [(); 2].map(|()| spawn(&queue, |queue| next(queue, 0)));
        share(&queue, 7, 2);
        assert!(workers.into_iter().all(|worker| worker.join().unwrap() == Some(join(7))));
    });
}

#[test]
fn a_batch_to_join_comes_before_a_job_that_was_there_first() {
    loom::model(|| {
        let queue = queue();
        queue.begin(&loader(), 1, true).unwrap();
        let other = spawn(&queue, |queue| share(queue, 7, 1));
        let worker = spawn(&queue, |queue| next(queue, 0));
        other.join().unwrap();
        let first = worker.join().unwrap();
        let second = next(&queue, 0);
        // The worker may have looked before there was anything to join; then the join comes next.
        assert!(
            [(Some(join(7)), Some(Work::Begin(1))), (Some(Work::Begin(1)), Some(join(7)))]
                .contains(&(first, second))
        );
    });
    loom::model(|| {
        let queue = queue();
        queue.begin(&loader(), 1, true).unwrap();
        share(&queue, 7, 2);
        let worker = spawn(&queue, |queue| next(queue, 0));
        assert_eq!(next(&queue, 0), Some(join(7)));
        assert_eq!(worker.join().unwrap(), Some(join(7)));
        assert_eq!(next(&queue, 0), Some(Work::Begin(1)));
    });
}

#[test]
fn close_ends_every_worker_and_what_was_taken_is_taken_once() {
    loom::model(|| {
        let queue = queue();
        let workers = [(); 2].map(|()| spawn(&queue, work));
        let other = spawn(&queue, |queue| queue.begin(&loader(), 1, true));
        share(&queue, 10, 2);
        let is_added = other.join().unwrap().is_ok();
        queue.close();
        let sums = workers.map(|worker| worker.join().unwrap());
        let (begun, joined) = (sums[0].0 + sums[1].0, sums[0].1 + sums[1].1);
        assert!(is_added && begun <= 1 && joined <= 20, "{sums:?}");
        assert_eq!(next(&queue, 0), None);
        assert_eq!(queue.begin(&loader(), 3, true), Err(3));
    });
}

#[test]
fn work_that_is_removed_is_not_taken_and_nobody_misses_the_rest() {
    loom::model(|| {
        let queue = queue();
        let first = loader();
        queue.begin(&first, 1, true).unwrap();
        let worker = spawn(&queue, |queue| next(queue, 0));
        let other = spawn(&queue, |queue| queue.begin(&loader(), 2, true));
        queue.remove(&first);
        other.join().unwrap().unwrap();
        // The worker took the first job before it was removed, or gets the second one.
        assert!([Some(Work::Begin(1)), Some(Work::Begin(2))].contains(&worker.join().unwrap()));
    });
}

/// The wake-up may reach the worker that may take no more work.
#[test]
fn a_lower_limit_loses_no_wake_up() {
    loom::model(|| {
        let queue = queue();
        let first = spawn(&queue, |queue| next(queue, 0));
        let second = spawn(&queue, |queue| next(queue, 1));
        queue.set_limit(1);
        queue.begin(&loader(), 7, true).unwrap();
        assert_eq!(first.join().unwrap(), Some(Work::Begin(7)));
        queue.close();
        assert_eq!(second.join().unwrap(), None);
    });
}

#[test]
fn a_higher_limit_wakes_the_workers_that_rested() {
    loom::model(|| {
        let queue = queue();
        queue.set_limit(0);
        let worker = spawn(&queue, |queue| next(queue, 0));
        queue.begin(&loader(), 7, true).unwrap();
        queue.set_limit(1);
        assert_eq!(worker.join().unwrap(), Some(Work::Begin(7)));
    });
}
