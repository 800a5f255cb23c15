//! Loaders that share a worker pool: each delivers its own batches in its own order, and a loader that ends
//! or waits does not hold up the others.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::small::{BATCH, LEN, STEPS, fine, on_a_device, take_epoch};
use crate::common::{LONG, alone, assert_intact, wait_for_threads, wait_until_gone};
use feedline::{Dataset, Device, ErrorKind, Loader, Stream, TryNext, WorkerPool, Workers};
use feedline_testkit::fixtures::{self, Fine};

fn pool(workers: usize) -> WorkerPool {
    WorkerPool::new(Workers::Count(workers)).unwrap()
}

fn loader(data: impl Dataset, pool: &WorkerPool, depth: usize, device: &Device) -> Loader {
    Loader::builder(data).batch_size(BATCH).depth(depth).pool(pool).build(device).unwrap()
}

/// Takes the next batch of `fine`, and checks its ids and every byte.
#[track_caller]
fn take(batches: &mut feedline::Epoch<'_>, fine: &Fine, ids: &[u64], compute: &Stream) {
    let batch = batches.next_timeout(LONG).unwrap().batch().expect("a batch").wait_on(compute).unwrap();
    assert_eq!(batch.ids(), ids);
    assert_intact(fine, &batch);
}

#[test]
fn two_loaders_share_the_workers_and_keep_their_orders() {
    alone(|| {
        for workers in [1, 3] {
            on_a_device(|device, compute| {
                let pool = pool(workers);
                let threads = Arc::new(Mutex::new(HashSet::new()));
                let seen = threads.clone();
                let record_threads = move |data| {
                    let seen = seen.clone();
                    fixtures::Before::new(data, move |_| {
                        seen.lock().unwrap().insert(std::thread::current().id());
                        Ok(())
                    })
                };
                let (one, two) = (Fine::new(101, 300).unwrap().seed(1), Fine::new(57, 5000).unwrap().seed(2));
                let builder = |data: &Fine, seed| {
                    Loader::builder(record_threads(data.clone()))
                        .batch_size(BATCH)
                        .shuffle()
                        .seed(seed)
                        .pool(&pool)
                };
                let mut first = builder(&one, 5).depth(3).build(device).unwrap();
                let mut second = builder(&two, 6).depth(1).build(device).unwrap();
                let ids_of = |loader: &Loader, epoch, step| {
                    let mut ids = Vec::new();
                    loader.batch_sampler().batch(epoch, 0, step, &mut ids);
                    ids
                };
                for epoch in 0..5 {
                    let (steps, others) =
                        (first.batch_sampler().steps(epoch, 0), second.batch_sampler().steps(epoch, 0));
                    let orders = [(&first, steps), (&second, others)].map(|(loader, steps)| {
                        (0..steps).map(|step| ids_of(loader, epoch, step)).collect::<Vec<_>>()
                    });
                    let (mut a, mut b) = (first.epoch(epoch).unwrap(), second.epoch(epoch).unwrap());
                    for step in 0..steps as usize {
                        take(&mut a, &one, &orders[0][step], compute);
                        // The other has fewer steps.
                        if let Some(ids) = orders[1].get(step) {
                            take(&mut b, &two, ids, compute);
                        }
                    }
                    assert!(a.next().is_none() && b.next().is_none());
                }
                // More, if a loader has started its own workers.
                wait_for_threads("fl-decode", workers);
                assert!(
                    (1..=workers).contains(&threads.lock().unwrap().len()),
                    "reads on threads outside the pool"
                );
            });
        }
    });
}

#[test]
fn a_loader_stops_while_another_continues_and_the_pool_outlives_both() {
    alone(|| {
        on_a_device(|device, compute| {
            let pool = pool(2);
            let mut first = loader(fine(), &pool, 2, device);
            let mut second = loader(fine(), &pool, 2, device);
            assert_intact(
                &fine(),
                &first.epoch(0).unwrap().next().unwrap().unwrap().wait_on(compute).unwrap(),
            );
            let ids = |step| (step * BATCH as u64..(step + 1) * BATCH as u64).collect::<Vec<_>>();
            let mut batches = second.epoch(0).unwrap();
            take(&mut batches, &fine(), &ids(0), compute);
            // Both are in the middle of an epoch.
            first.stop(LONG).unwrap();
            drop(first);
            (1..STEPS).for_each(|step| take(&mut batches, &fine(), &ids(step), compute));
            assert!(batches.next().is_none());
            drop(second);
            let mut third = loader(fine(), &pool, 2, device);
            take_epoch(&mut third, 0, compute);
            // The loader also holds a handle and keeps the threads alive.
            drop(pool);
            take_epoch(&mut third, 1, compute);
            third.stop(LONG).unwrap();
            wait_until_gone("fl-decode");
        });
    });
}

#[test]
fn a_stop_does_not_wait_for_the_reads_of_another_loader() {
    alone(|| {
        on_a_device(|device, compute| {
            let pool = pool(1);
            let (data, gate) = fixtures::blocking(fine(), [0]);
            let mut blocked = loader(data, &pool, 2, device);
            let mut other = loader(fine(), &pool, 2, device);
            let batches = blocked.epoch(0).unwrap();
            assert!(gate.wait_until_waiting(1, LONG));
            let mut waiting = other.epoch(0).unwrap();
            let next = waiting.next_timeout(Duration::from_millis(50)).unwrap();
            assert!(matches!(next, TryNext::NotYet), "its batches wait behind the blocked read");
            other.stop(LONG).unwrap();
            gate.open();
            let all: Vec<_> = batches.map(|batch| batch.unwrap().wait_on(compute).unwrap().step()).collect();
            assert!(all.into_iter().eq(0..STEPS));
        });
    });
}

/// Requests wake the transfer thread of their loader. They always leave room for the workers' messages,
/// because a blocked worker would be missing in every loader of the pool.
#[test]
fn requests_of_a_loader_that_waits_for_its_consumer_block_no_worker() {
    alone(|| {
        on_a_device(|device, compute| {
            let pool = pool(1);
            let (data, gate) = fixtures::blocking(fine(), [2 * BATCH as u64]);
            let mut first = loader(data, &pool, 1, device);
            // The held batch has the only device slot, the next one waits for it, and the one after is
            // being read.
            let held = first.epoch(0).unwrap().next().unwrap().unwrap();
            assert!(gate.wait_until_waiting(1, LONG));
            for epoch in 1..20 {
                let _ = first.epoch(epoch).unwrap();
            }
            gate.open();
            let mut second = loader(fine(), &pool, 1, device);
            let mut batches = second.epoch(0).unwrap();
            let batch = batches.next_timeout(LONG).unwrap().batch().expect("the worker is free");
            assert_intact(&fine(), &batch.wait_on(compute).unwrap());
            drop(held);
            take_epoch(&mut first, 20, compute);
        });
    });
}

#[test]
fn the_threads_of_an_unused_pool_end_with_its_last_handle() {
    alone(|| {
        let one = pool(3);
        let two = one.clone();
        drop(one);
        assert_eq!(two.workers(), 3);
        wait_for_threads("fl-decode", 3);
        drop(two);
        wait_until_gone("fl-decode");
    });
}

/// A worker that waits for a batch of its own pool would wait for itself: a single worker at once, several as
/// soon as all of them wait.
#[test]
fn a_loader_that_a_worker_of_its_pool_drives_is_refused() {
    alone(|| {
        for workers in [1, 3] {
            let device = Device::new_host();
            let pool = pool(workers);
            let inner = Mutex::new(Some(loader(fine(), &pool, 2, &device)));
            let heard = Arc::new(Mutex::new(None));
            let told = heard.clone();
            let data = fixtures::Before::new(fine(), move |_| {
                if let Some(mut inner) = inner.lock().unwrap().take() {
                    let cursor = inner.cursor();
                    let answers =
                        [inner.epoch(0).map(drop), inner.resume(cursor).map(drop), inner.stop(LONG)];
                    let start = Instant::now();
                    drop(inner);
                    *told.lock().unwrap() = Some((answers, start.elapsed()));
                }
                Ok(())
            });
            let mut outer = loader(data, &pool, 2, &device);
            assert_eq!(
                outer.epoch(0).unwrap().map(|batch| batch.unwrap().len()).sum::<usize>(),
                LEN as usize
            );
            let (answers, dropped) = heard.lock().unwrap().take().unwrap();
            for (answer, call) in answers.into_iter().zip(["epoch", "resume", "stop"]) {
                let error = answer.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Config);
                let text = error.to_string();
                assert!(text.contains(&format!("{call} was called on fl-decode-")), "{text}");
            }
            // It does not wait for the time-out.
            assert!(dropped < Duration::from_secs(4), "the drop took {dropped:?}");
            drop(outer);
            assert!(device.stats().take_errors().is_empty());
        }
    });
}

#[test]
fn a_loader_that_is_waited_for_goes_before_the_read_ahead_of_another() {
    alone(|| {
        on_a_device(|device, compute| {
            let pool = pool(1);
            let order = Arc::new(Mutex::new(Vec::new()));
            let recorded = |name: &'static str, data: Box<dyn Dataset>| {
                let order = order.clone();
                fixtures::Before::new(data, move |_| {
                    order.lock().unwrap().push(name);
                    Ok(())
                })
            };
            let (train, other) = (Fine::new(100, 300).unwrap().seed(1), fine());
            let (gated, gate) = fixtures::blocking(train, [0]);
            let mut first = loader(recorded("train", Box::new(gated)), &pool, 8, device);
            let mut second = loader(recorded("val", Box::new(other.clone())), &pool, 2, device);
            // The only worker is held up by the first sample; seven more batches are queued behind it.
            let ahead = first.epoch(0).unwrap();
            assert!(gate.wait_until_waiting(1, LONG));
            let progress = second.progress();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while progress.report().waiting.is_none() {
                        std::thread::yield_now();
                    }
                    // Time for the call to begin its wait; the bound below has room for a batch.
                    std::thread::sleep(Duration::from_millis(20));
                    gate.open();
                });
                let mut batches = second.epoch(0).unwrap();
                take(&mut batches, &other, &Vec::from_iter(0..BATCH as u64), compute);
            });
            let order = order.lock().unwrap().clone();
            let before = order.iter().position(|name| *name == "val").unwrap();
            assert!(
                before <= 2 * BATCH,
                "{before} samples were read ahead before the one that is waited for"
            );
            drop(ahead);
        });
    });
}
