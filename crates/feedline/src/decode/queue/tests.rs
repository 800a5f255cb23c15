use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::time::Instant;

use feedline_testkit::{watchdog::LIMIT, with_watchdog};

use super::*;

/// A queue of jobs and shares that are numbers. A loader is whether its consumer waits.
type Numbers = Queue<bool, u32, u32>;

fn queue() -> Numbers {
    Queue::new(4, |is_waited_for| *is_waited_for, |_, _| {})
}

/// A loader whose consumer does not wait.
fn loader() -> Arc<bool> {
    Arc::new(false)
}

/// The next work for a worker, without its loader.
fn next(queue: &Numbers, worker: usize) -> Option<Work<u32, u32>> {
    queue.next(worker).map(|(_, work)| work)
}

fn join(share: u32) -> Work<u32, u32> {
    Work::Join(Arc::new(share))
}

#[test]
fn batches_to_join_come_before_batches_to_begin_and_in_their_order() {
    let (queue, loader) = (queue(), loader());
    queue.begin(&loader, 1, true).unwrap();
    for (share, workers) in [(7, 2), (8, 1), (9, 0)] {
        queue.share(&loader, Arc::new(share), workers);
    }
    queue.begin(&loader, 2, true).unwrap();
    let all: Vec<_> = (0..5).map(|_| next(&queue, 0).unwrap()).collect();
    assert_eq!(all, [join(7), join(7), join(8), Work::Begin(1), Work::Begin(2)]);
}

#[test]
fn work_that_is_waited_for_comes_first_and_in_its_order() {
    let (queue, other, waited) = (queue(), loader(), Arc::new(true));
    for (loader, job) in [(&other, 1), (&waited, 10), (&other, 2), (&waited, 11)] {
        queue.begin(loader, job, true).unwrap();
    }
    for (loader, share) in [(&other, 3), (&waited, 12)] {
        queue.share(loader, Arc::new(share), 2);
    }
    let all: Vec<_> = (0..8).map(|_| queue.next(0).unwrap()).collect();
    let begin = Work::Begin;
    let work = [join(12), join(12), begin(10), begin(11), join(3), join(3), begin(1), begin(2)];
    let of = |at| if at < 4 { &waited } else { &other };
    for (at, (found, expected)) in all.into_iter().zip(work).enumerate() {
        assert!(Arc::ptr_eq(&found.0, of(at)) && found.1 == expected, "{at}: {found:?}");
    }
}

#[test]
fn a_closed_queue_gives_no_work_and_takes_none() {
    let (queue, loader) = (queue(), loader());
    queue.begin(&loader, 1, true).unwrap();
    queue.close();
    assert_eq!((next(&queue, 0), queue.begin(&loader, 2, true)), (None, Err(2)));
}

#[test]
fn removed_work_is_not_given_out_and_the_rest_keeps_its_order() {
    let (queue, loaders) = (queue(), [loader(), loader()]);
    (0..6).for_each(|job| queue.begin(&loaders[job as usize % 2], job, true).unwrap());
    (0..4).for_each(|share| queue.share(&loaders[usize::from(share == 3)], Arc::new(share), 1));
    queue.remove(&loaders[0]);
    let all: Vec<_> = (0..4).map(|_| next(&queue, 0).unwrap()).collect();
    assert_eq!(all, [join(3), Work::Begin(1), Work::Begin(3), Work::Begin(5)]);
}

#[test]
fn a_batch_that_is_given_back_is_left_to_the_workers_and_comes_before_later_ones() {
    let (queue, [first, second, none]) = (queue(), [loader(), loader(), loader()]);
    for (loader, job) in [(&first, 0), (&second, 1), (&first, 2), (&second, 3)] {
        queue.begin(loader, job, true).unwrap();
    }
    assert_eq!((queue.take(&second), queue.take(&none)), (Some(1), None));
    queue.give_back(&none, 1).unwrap();
    assert!(!queue.has(&none) && queue.has(&first));
    assert_eq!(queue.take(&none), None, "it was given back");
    let all: Vec<_> = (0..4).map(|_| next(&queue, 0).unwrap()).collect();
    assert_eq!(all, [Work::Resume(1), Work::Begin(0), Work::Begin(2), Work::Begin(3)]);
    queue.give_back(&first, 5).unwrap();
    queue.give_back(&second, 6).unwrap();
    queue.remove(&first);
    assert_eq!(next(&queue, 0), Some(Work::Resume(6)));
    queue.close();
    assert_eq!(queue.give_back(&first, 7), Err(7));
}

/// The drop of an item may use the queue, so it runs without the queue's lock.
#[test]
fn work_is_dropped_without_the_lock() {
    struct Locks(Weak<Queue<bool, Locks, ()>>);
    impl Drop for Locks {
        fn drop(&mut self) {
            self.0.upgrade().expect("the queue").share(&loader(), Arc::new(()), 0);
        }
    }
    with_watchdog(LIMIT, || {
        let (queue, loader) = (Arc::new(Queue::new(4, |_: &bool| false, |_, _| {})), loader());
        let begin = || queue.begin(&loader, Locks(Arc::downgrade(&queue)), true);
        assert!(begin().is_ok() && begin().is_ok());
        queue.remove(&loader);
        assert!(begin().is_ok());
        queue.close();
    });
}

#[test]
fn every_item_is_taken_as_often_as_it_was_added_and_close_ends_every_worker() {
    const ITEMS: usize = 20_000;
    const JOINS: usize = 3;
    with_watchdog(LIMIT, || {
        let (queue, loader) = (Queue::<_, usize, usize>::new(4, |_: &bool| false, |_, _| {}), loader());
        let [begun, joined] = [(); 2].map(|()| (0..ITEMS).map(|_| AtomicUsize::new(0)).collect::<Vec<_>>());
        let (tell, told) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let tell = tell.clone();
                let (queue, begun, joined) = (&queue, &begun, &joined);
                scope.spawn(move || {
                    while let Some((_, work)) = queue.next(0) {
                        match work {
                            Work::Begin(job) | Work::Resume(job) => {
                                begun[job].fetch_add(1, Ordering::Relaxed)
                            }
                            Work::Join(share) => joined[*share].fetch_add(1, Ordering::Relaxed),
                        };
                        tell.send(()).unwrap();
                    }
                });
            }
            for half in [0, 1] {
                let (queue, loader) = (&queue, &loader);
                scope.spawn(move || {
                    for item in (half..ITEMS).step_by(2) {
                        queue.begin(loader, item, true).unwrap();
                        queue.share(loader, Arc::new(item), JOINS);
                        // A pause, so that the workers sleep sometimes.
                        (0..item % 100).for_each(|_| std::hint::spin_loop());
                    }
                });
            }
            (0..ITEMS * (1 + JOINS)).for_each(|_| told.recv().unwrap());
            queue.close();
        });
        let all = |counts: &[AtomicUsize], times| counts.iter().all(|n| n.load(Ordering::Relaxed) == times);
        assert!(all(&begun, 1) && all(&joined, JOINS));
    });
}

#[test]
fn a_batch_that_nobody_was_woken_for_is_begun_all_the_same() {
    with_watchdog(LIMIT, || {
        let (queue, loader) = (queue(), loader());
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| next(&queue, 0));
            while queue.work.asleep() == 0 {
                std::thread::yield_now();
            }
            queue.begin(&loader, 7, false).unwrap();
            assert_eq!(worker.join().unwrap(), Some(Work::Begin(7)));
        });
    });
}

#[test]
fn a_worker_that_waits_is_unused_unless_work_is_queued_for_it() {
    with_watchdog(LIMIT, || {
        let (queue, loader) = (queue(), loader());
        std::thread::scope(|scope| {
            let _workers = [(); 2].map(|()| scope.spawn(|| next(&queue, 0)));
            while queue.unused() < 2 {
                std::thread::yield_now();
            }
            // The worker may or may not have taken it yet.
            queue.begin(&loader, 7, false).unwrap();
            assert!(queue.unused() <= 1);
            queue.begin(&loader, 8, false).unwrap();
            assert_eq!(queue.unused(), 0);
        });
    });
}

#[test]
fn a_worker_beyond_the_limit_takes_no_work_until_the_limit_is_raised() {
    with_watchdog(LIMIT, || {
        let (queue, loader) = (queue(), loader());
        for round in 0..200 {
            queue.set_limit(1);
            queue.begin(&loader, 2 * round, true).unwrap();
            let mut taken = None;
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let first = next(&queue, 0);
                    queue.set_limit(2);
                    if first.is_some() {
                        queue.begin(&loader, 2 * round + 1, true).unwrap();
                    }
                });
                // The job is queued before worker 0 starts: without the limit, worker 1 would take it.
                taken = next(&queue, 1);
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
        let (queue, loader) = (queue(), loader());
        std::thread::scope(|scope| {
            let workers = [0, 1, 2, 3].map(|worker| {
                let queue = &queue;
                scope.spawn(move || std::iter::from_fn(|| next(queue, worker)).count())
            });
            for round in 0..2000_u32 {
                queue.set_limit(1 + round as usize % 4);
                queue.begin(&loader, round, true).unwrap();
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
    let events: [fn(&Numbers); 3] = [
        |queue| queue.begin(&loader(), 1, true).unwrap(),
        |queue| queue.share(&loader(), Arc::new(1), 1),
        Queue::close,
    ];
    let time_to_wake = |event: fn(&Numbers)| {
        let queue = queue();
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
