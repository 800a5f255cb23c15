//! `next` returns `SlotsHeld` once batches that nobody drops hold every slot, on any thread. It does not
//! while another thread works with one of them, nor because workers are slow.

use std::sync::mpsc::{Receiver, channel, sync_channel};
use std::time::{Duration, Instant};

use crate::common::small::{STEPS, builder, fine, on_a_device};
use crate::common::{alone, assert_intact};
use feedline::{
    Batch, Device, Error, ErrorKind, HostBatch, InMemory, Loader, LoaderBuilder, Ready, Stream, TransferMode,
    TryNext,
};
use feedline_testkit::fixtures::slow;

/// How long `next` waits in these tests before it fails with `SlotsHeld`.
const LIMIT: Duration = Duration::from_millis(400);
/// How long another thread holds a batch: longer than the limit.
const HOLD: Duration = Duration::from_millis(700);

fn loader(device: &Device) -> Loader {
    builder(fine()).held_timeout(LIMIT).build(device).unwrap()
}

#[test]
fn waits_with_limits_of_their_own_add_up_and_a_look_without_a_wait_never_fails() {
    alone(|| {
        on_a_device(|device, compute| {
            for keeps_all in [false, true] {
                let mut loader = loader(device);
                let mut batches = loader.epoch(0).unwrap();
                assert!(batches.check_slots(true).is_ok());
                let held: Vec<_> =
                    batches.by_ref().take(2).map(|batch| batch.unwrap().wait_on(compute)).collect();
                // For a caller that checks by itself.
                for on_any_thread in [false, true] {
                    let error = batches.check_slots(on_any_thread).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::SlotsHeld);
                }
                for limit in [Duration::ZERO, LIMIT / 8, LIMIT / 2, LIMIT / 8] {
                    assert!(matches!(batches.next_timeout(limit).unwrap(), TryNext::NotYet), "{limit:?}");
                }
                let start = Instant::now();
                while start.elapsed() < 2 * LIMIT {
                    assert!(matches!(batches.try_next().unwrap(), TryNext::NotYet));
                    std::thread::sleep(LIMIT / 40);
                }
                assert!(!batches.is_over());
                if keeps_all {
                    let error = batches.next_timeout(2 * LIMIT).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::SlotsHeld);
                    assert!(error.to_string().contains("held for 0.4 s"), "{error}");
                    assert!(batches.is_over());
                } else {
                    drop(held);
                    assert_eq!(batches.map(|batch| drop(batch.unwrap())).count() as u64, STEPS - 2);
                }
            }
        });
    });
}

/// Gives what `next` returns to a thread that drops the first `dropped` batches, looks at the next one if
/// `looks`, and keeps all the others; returns the error.
fn kept_by_another_thread<T: Send>(
    dropped: usize,
    looks: Option<fn(&T)>,
    mut next: impl FnMut() -> Option<feedline::Result<T>>,
) -> Error {
    let (send, receive) = channel::<T>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            (0..dropped).for_each(|_| drop(receive.recv()));
            let first = receive.recv();
            if let (Some(look), Ok(batch)) = (looks, &first) {
                look(batch);
            }
            let others: Vec<T> = receive.iter().collect();
            drop((first, others));
        });
        loop {
            match next().expect("an error before the end of the epoch") {
                Ok(batch) => send.send(batch).unwrap(),
                Err(error) => {
                    drop(send);
                    return error;
                }
            }
        }
    })
}

#[track_caller]
fn assert_held(error: &Error, seconds: &str) {
    assert_eq!(error.kind(), ErrorKind::SlotsHeld, "{error}");
    assert!(error.to_string().contains(&format!("held for {seconds} s")), "{error}");
}

#[test]
fn a_thread_that_drops_batches_and_keeps_the_others_ends_the_wait() {
    alone(|| {
        on_a_device(|device, compute| {
            let numbers = || InMemory::new().field("x", [], (0..80_u32).collect::<Vec<_>>()).unwrap();
            for mode in [TransferMode::Staged, TransferMode::ZeroCopy, TransferMode::Resident] {
                let limit = Duration::from_millis(100);
                let builder = || -> LoaderBuilder {
                    builder(numbers()).held_timeout(limit).transfer_mode(mode).epochs(1)
                };
                for dropped in [0, 1, 3] {
                    // Another thread keeps a `Batch`, then a `Ready`, then a `HostBatch`.
                    let mut loader = builder().build(device).unwrap();
                    let mut batches = loader.epoch(0).unwrap();
                    assert_held(&kept_by_another_thread::<Batch>(dropped, None, || batches.next()), "0.1");
                    let mut loader = builder().build(device).unwrap();
                    let mut batches = loader.epoch(0).unwrap();
                    let next = || batches.next().map(|batch| batch?.wait_on(compute));
                    assert_held(&kept_by_another_thread::<Ready>(dropped, None, next), "0.1");
                    let mut loader = builder().build_host_on(device).unwrap();
                    let mut batches = loader.epoch(0).unwrap();
                    assert_held(
                        &kept_by_another_thread::<HostBatch>(dropped, None, || batches.next()),
                        "0.1",
                    );
                    // `next_timeout` waits less than the limit each time; the sum of the waits counts.
                    let mut loader = builder().build(device).unwrap();
                    let mut batches = loader.epoch(0).unwrap();
                    let next = || loop {
                        match batches.next_timeout(limit / 10) {
                            Ok(TryNext::Batch(batch)) => return Some(Ok(batch)),
                            Ok(TryNext::NotYet) => {}
                            Ok(TryNext::Over) => return None,
                            Err(error) => return Some(Err(error)),
                        }
                    };
                    assert_held(&kept_by_another_thread::<Batch>(dropped, None, next), "0.1");
                }
            }
        });
    });
}

/// A thread that has looked at one batch may be working with it, so the wait is longer; but it ends.
#[test]
fn a_thread_that_looks_at_one_of_the_batches_that_it_keeps_ends_the_wait_later() {
    alone(|| {
        let limit = Duration::from_millis(20);
        let mut loader = builder(fine()).held_timeout(limit).build_host().unwrap();
        let mut batches = loader.epoch(0).unwrap();
        let look: fn(&HostBatch) = |batch| assert_eq!(batch.len(), 8);
        assert_held(&kept_by_another_thread(1, Some(look), || batches.next()), "0.6");
    });
}

#[test]
fn slow_workers_are_waited_for_also_while_the_consumer_holds_batches() {
    alone(|| {
        on_a_device(|device, compute| {
            let limit = Duration::from_millis(5);
            let data = slow(fine(), [0, 16, 32], Duration::from_millis(60));
            let mut loader = builder(data).held_timeout(limit).build(device).unwrap();
            let mut last = None;
            for batch in loader.epoch(0).unwrap() {
                // One of the two slots stays held until the next batch is there.
                last = Some(batch.unwrap().wait_on(compute).unwrap());
            }
            assert_eq!(last.map(|batch| batch.step()), Some(STEPS - 1));
        });
    });
}

/// Holds the first batches of an epoch for too long.
fn hold_early(step: u64) {
    if step < 2 {
        std::thread::sleep(HOLD);
    }
}

/// Takes an epoch, applies `pass` to each batch, and sends the result to a thread that runs `hold`.
fn pass_on<T: Send>(device: &Device, pass: impl Fn(Batch) -> T, hold: impl FnOnce(Receiver<T>) + Send) {
    let mut loader = loader(device);
    // Room for every slot. The loader cannot see who holds the batches in the channel.
    let (send, receive) = sync_channel(2);
    std::thread::scope(|scope| {
        let holder = scope.spawn(|| hold(receive));
        for batch in loader.epoch(0).unwrap() {
            send.send(pass(batch.unwrap())).unwrap();
        }
        drop(send);
        holder.join().unwrap();
    });
}

#[test]
fn a_thread_that_reads_host_batches_may_hold_them_for_longer_than_the_limit() {
    alone(|| {
        let mut loader = builder(fine()).held_timeout(LIMIT).build_host().unwrap();
        let (send, receive) = sync_channel::<HostBatch>(2);
        std::thread::scope(|scope| {
            let rows = scope.spawn(move || {
                receive.into_iter().fold(0, |rows, batch| {
                    let first = batch.field::<i64>("id").unwrap()[0];
                    std::thread::sleep(if first < 16 { HOLD } else { Duration::ZERO });
                    rows + batch.len()
                })
            });
            for batch in loader.epoch(0).unwrap() {
                send.send(batch.unwrap()).unwrap();
            }
            drop(send);
            assert_eq!(rows.join().unwrap(), 40);
        });
    });
}

#[test]
fn a_thread_that_opens_batches_may_hold_them_for_longer_than_the_limit() {
    alone(|| {
        on_a_device(|device, compute| {
            pass_on(
                device,
                |batch| batch,
                |batches| {
                    for batch in batches {
                        let batch = batch.wait_on(compute).unwrap();
                        std::thread::sleep(HOLD);
                        assert_intact(&fine(), &batch);
                    }
                },
            );
        });
    });
}

#[test]
fn a_thread_that_drops_batches_may_hold_later_ones_for_longer_than_the_limit() {
    alone(|| {
        on_a_device(|device, compute| {
            pass_on(
                device,
                |batch| batch.wait_on(compute).unwrap(),
                |batches: Receiver<Ready>| {
                    drop(batches.recv().unwrap());
                    for batch in batches {
                        hold_early(batch.step());
                        assert_intact(&fine(), &batch);
                    }
                },
            );
        });
    });
}

#[test]
fn a_loader_moved_to_another_thread_does_not_fail_for_batches_that_the_first_thread_holds() {
    alone(|| {
        on_a_device(|device, compute| {
            let mut loader = loader(device);
            let mut batches = loader.epoch(0).unwrap();
            let held: Vec<Batch> = batches.by_ref().take(2).map(|batch| batch.unwrap()).collect();
            std::thread::scope(|scope| {
                let (looked, wait) = sync_channel(1);
                let rest = scope.spawn(move || {
                    assert!(batches.check_slots(false).is_ok());
                    assert!(batches.check_slots(true).is_err());
                    looked.send(()).unwrap();
                    batches.map(|batch| drop(batch.unwrap())).count()
                });
                // An error: the thread has panicked, which `join` reports.
                let _ = wait.recv();
                std::thread::sleep(HOLD);
                held.into_iter().for_each(|batch| assert_intact(&fine(), &batch.wait_on(compute).unwrap()));
                assert_eq!(rest.join().unwrap() as u64, STEPS - 2);
            });
        });
    });
}

#[test]
fn a_thread_that_holds_every_slot_gets_an_error_after_the_builders_limit() {
    alone(|| {
        on_a_device(|device, compute| {
            let mut loader = loader(device);
            let kept = |stream: &Stream, loader: &mut Loader| {
                let batches = loader.epoch(0).unwrap().map(|batch| batch?.wait_on(stream));
                batches.collect::<feedline::Result<Vec<_>>>().map(|batches| batches.len())
            };
            let error = kept(compute, &mut loader).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::SlotsHeld);
            assert!(error.to_string().contains("held for 0.4 s"), "{error}");
        });
    });
}

/// A loop that keeps all batches, such as `collect`, is told within seconds, not after a minute of silence.
#[test]
fn a_thread_that_holds_every_slot_is_told_soon_without_a_limit_of_the_builder() {
    alone(|| {
        on_a_device(|device, _| {
            let mut loader = builder(fine()).build(device).unwrap();
            let start = Instant::now();
            let error = loader.epoch(0).unwrap().collect::<feedline::Result<Vec<_>>>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::SlotsHeld);
            assert!(error.to_string().contains("held for 1.0 s"), "{error}");
            // Far from the wait itself: the machine may be busy.
            assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        });
    });
}
