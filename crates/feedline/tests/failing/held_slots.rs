//! `SlotsHeld` is returned only to a thread that waits for itself: not from a wait with a limit, and not
//! while another thread may still drop a batch.

use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use crate::common::small::{STEPS, builder, fine, on_a_device};
use crate::common::{alone, assert_intact};
use feedline::{Batch, Device, ErrorKind, Loader, Ready, Stream, TryNext};

/// How long `next` waits in these tests before it fails with `SlotsHeld`.
const LIMIT: Duration = Duration::from_millis(400);
/// How long another thread holds a batch: longer than the limit.
const HOLD: Duration = Duration::from_millis(700);

fn loader(device: &Device) -> Loader {
    builder(fine()).held_timeout(LIMIT).build(device).unwrap()
}

#[test]
fn a_wait_with_its_own_limit_does_not_fail_with_slots_held() {
    alone(|| {
        on_a_device(|device, compute| {
            let mut loader = loader(device);
            let mut batches = loader.epoch(0).unwrap();
            assert!(batches.check_slots(true).is_ok());
            let held: Vec<_> =
                batches.by_ref().take(2).map(|batch| batch.unwrap().wait_on(compute)).collect();
            // For a caller that looks for itself.
            for on_any_thread in [false, true] {
                let error = batches.check_slots(on_any_thread).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::SlotsHeld);
            }
            for limit in [Duration::ZERO, LIMIT / 2, 2 * LIMIT] {
                assert!(matches!(batches.next_timeout(limit).unwrap(), TryNext::NotYet), "{limit:?}");
            }
            assert!(matches!(batches.try_next().unwrap(), TryNext::NotYet));
            assert!(!batches.is_over());
            drop(held);
            assert_eq!(batches.map(|batch| drop(batch.unwrap())).count() as u64, STEPS - 2);
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
