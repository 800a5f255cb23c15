//! The ring: it leases each slot once, reuses slots in the order of their release, and ends every wait.

use crate::common;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{PAUSE, WATCHDOG, put_in_flight, sized, within};
use feedline_core::ErrorKind;
use feedline_device::slots::{Counts, HeapMemory, Ring};

fn heap_ring(slots: usize) -> Ring<HeapMemory, usize> {
    Ring::new((0..slots).map(|_| HeapMemory::new(64).expect("64 bytes")).collect())
}

fn total(counts: Counts) -> usize {
    counts.free + counts.filling + counts.ready + counts.in_flight + counts.lost
}

#[test]
fn capacity_is_the_number_of_blocks() {
    for slots in [1, 2, 3, 64] {
        let ring = heap_ring(slots);
        assert_eq!((ring.len(), ring.is_empty()), (slots, false));
        let leases: Vec<_> = std::iter::from_fn(|| ring.try_acquire().expect("open")).collect();
        assert_eq!(leases.len(), slots);
        let indices: HashSet<_> = leases.iter().map(|lease| lease.index()).collect();
        assert_eq!(indices.len(), slots, "each slot is leased once");
        assert_eq!(ring.counts(), Counts { filling: slots, ..Counts::default() });
        drop(leases);
        assert_eq!(ring.counts(), Counts { free: slots, ..Counts::default() });
    }
}

#[test]
fn acquire_fails_at_once_on_an_empty_ring() {
    let ring = heap_ring(0);
    assert!(ring.is_empty());
    let kinds = within(WATCHDOG, move || {
        [ring.acquire().err(), ring.try_acquire().err()].map(|error| error.expect("refused").kind())
    });
    assert_eq!(kinds, [ErrorKind::Device; 2]);
}

#[test]
fn slots_are_acquired_in_the_order_of_their_release() {
    let ring = heap_ring(4);
    let mut leases: Vec<_> = (0..4).map(|_| ring.acquire().expect("a free slot")).collect();
    assert_eq!(leases.iter().map(|lease| lease.index()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    drop(leases.remove(2));
    drop(leases.remove(0).ready());
    leases.remove(1).ready().submit(|_, _| Ok(())).expect("a copy that starts");
    drop(leases);
    let again: Vec<_> = (0..4).map(|_| ring.acquire().expect("a free slot")).collect();
    assert_eq!(again.iter().map(|lease| lease.index()).collect::<Vec<_>>(), [2, 0, 3, 1]);
}

#[test]
fn concurrent_acquires_lease_every_slot_once() {
    const THREADS: usize = 16;
    const SLOTS: usize = 64;
    let tries = sized(10_000, 100);
    within(WATCHDOG, move || {
        let ring = heap_ring(SLOTS);
        let leases = Mutex::new(Vec::new());
        let start = Barrier::new(THREADS);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..tries {
                        if let Some(lease) = ring.try_acquire().expect("open") {
                            leases.lock().expect("no panic").push(lease);
                        }
                    }
                });
            }
        });
        assert_eq!(leases.lock().expect("no panic").len(), SLOTS);
        assert_eq!(ring.counts().filling, SLOTS);
    });
}

#[test]
fn no_slot_is_leased_twice_under_contention() {
    const THREADS: usize = 16;
    const SLOTS: usize = 5;
    let tries = sized(10_000, 50);
    within(WATCHDOG, move || {
        let ring = heap_ring(SLOTS);
        let holders: [AtomicUsize; SLOTS] = Default::default();
        let start = Barrier::new(THREADS);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    start.wait();
                    for number in 0..tries {
                        let lease = if number % 2 == 0 {
                            ring.acquire().expect("open")
                        } else {
                            let Some(lease) = ring.try_acquire().expect("open") else { continue };
                            lease
                        };
                        let holder = &holders[lease.index()];
                        assert_eq!(holder.fetch_add(1, Ordering::SeqCst), 0, "two holders of one slot");
                        assert_eq!(total(ring.counts()), SLOTS);
                        holder.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(ring.counts().free, SLOTS);
    });
}

#[test]
fn counts_follow_every_transition_and_add_up() {
    let (ring, gates) = common::ring::<()>(3);
    let expect = |free, filling, ready, in_flight, lost| {
        let counts = ring.counts();
        assert_eq!(counts, Counts { free, filling, ready, in_flight, lost });
        assert_eq!(total(counts), ring.len());
    };
    expect(3, 0, 0, 0, 0);
    let first = ring.acquire().expect("a slot");
    expect(2, 1, 0, 0, 0);
    let first = first.ready();
    expect(2, 0, 1, 0, 0);
    let second = ring.acquire().expect("a slot");
    expect(1, 1, 1, 0, 0);
    let submitted = first.submit(|memory, ()| {
        memory.0.start();
        expect(1, 1, 0, 1, 0);
        Ok(())
    });
    submitted.expect("a copy that starts");
    expect(1, 1, 0, 1, 0);
    drop(second);
    expect(2, 0, 0, 1, 0);
    let error =
        ring.acquire().expect("a slot").ready().submit(|_, ()| Err::<(), _>(common::device_failure()));
    assert_eq!(error.expect_err("the copy's error").message(), "injected failure");
    expect(1, 0, 0, 1, 1);
    gates[0].land();
    expect(1, 0, 0, 1, 1); // landed, but not yet polled
    assert_eq!(ring.try_acquire().expect("open").expect("landed").index(), 0);
    expect(2, 0, 0, 0, 1);
}

#[test]
fn try_acquire_never_waits_for_a_copy() {
    let (ring, gates) = common::ring::<()>(2);
    assert_eq!(put_in_flight(&ring), 0);
    let other = ring.try_acquire().expect("open").expect("the second slot is free");
    assert!(ring.try_acquire().expect("open").is_none(), "the copy still runs");
    drop(other);
    assert!(ring.try_acquire().expect("open").is_none(), "the copy of the first slot still runs");
    gates[0].land();
    assert_eq!(ring.try_acquire().expect("open").map(|lease| lease.index()), Some(0));
}

#[test]
fn acquire_blocks_until_a_lease_is_released() {
    within(WATCHDOG, || {
        let ring = heap_ring(1);
        let held = ring.acquire().expect("a free slot");
        let waiter = thread::spawn({
            let ring = ring.clone();
            move || ring.acquire().map(|lease| lease.index())
        });
        thread::sleep(PAUSE);
        assert!(!waiter.is_finished(), "two holders of one slot");
        drop(held);
        assert_eq!(waiter.join().expect("no panic").expect("open"), 0);
    });
}

/// Blocks a thread in `wait`, closes the ring, and measures until the thread ends. The median of ten.
fn close_to_end(wait: fn(Ring<HeapMemory, usize>) -> ErrorKind) -> Duration {
    median(|| {
        within(Duration::from_secs(60), move || {
            let ring = heap_ring(1);
            let _held = ring.acquire().expect("a free slot");
            let waiter = thread::spawn({
                let ring = ring.clone();
                move || wait(ring)
            });
            thread::sleep(PAUSE);
            let closed = Instant::now();
            ring.close();
            assert_eq!(waiter.join().expect("no panic"), ErrorKind::Stopped);
            closed.elapsed()
        })
    })
}

/// The same for a parked thread that is unparked: what a wake-up costs on this machine under its present
/// load.
fn unpark_to_end() -> Duration {
    median(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let waiter = thread::spawn({
            let stop = stop.clone();
            move || {
                while !stop.load(Ordering::Acquire) {
                    thread::park();
                }
            }
        });
        thread::sleep(PAUSE);
        let woken = Instant::now();
        stop.store(true, Ordering::Release);
        waiter.thread().unpark();
        waiter.join().expect("no panic");
        woken.elapsed()
    })
}

fn median(mut time: impl FnMut() -> Duration) -> Duration {
    let mut times: Vec<_> = (0..10).map(|_| time()).collect();
    times.sort();
    times[times.len() / 2]
}

#[test]
fn close_wakes_a_blocked_acquirer_within_100_ms() {
    let time = close_to_end(|ring| ring.acquire().expect_err("closed").kind());
    let plain = unpark_to_end();
    // The limit grows on a machine where every wake-up is slow.
    let limit = Duration::from_millis(100).max(20 * plain);
    assert!(time < limit, "woken after {time:?}; a parked thread after {plain:?}");
}

#[test]
fn close_wakes_every_waiter() {
    within(WATCHDOG, || {
        let ring = heap_ring(1);
        let _held = ring.acquire().expect("a free slot");
        let waiters: Vec<_> = (0..8)
            .map(|_| {
                let ring = ring.clone();
                thread::spawn(move || ring.acquire().expect_err("closed").kind())
            })
            .collect();
        thread::sleep(PAUSE);
        ring.close();
        for waiter in waiters {
            assert_eq!(waiter.join().expect("no panic"), ErrorKind::Stopped);
        }
    });
}

#[test]
fn close_can_be_repeated_and_leaves_leases_valid() {
    let ring = heap_ring(2);
    let mut lease = ring.acquire().expect("a free slot");
    for _ in 0..3 {
        ring.close();
        let errors = [ring.acquire().err(), ring.try_acquire().err(), ring.clone().acquire().err()];
        assert_eq!(errors.map(|error| error.expect("closed").kind()), [ErrorKind::Stopped; 3]);
    }
    lease.bytes_mut().fill(9);
    let ready = lease.ready();
    assert!(ready.bytes().iter().all(|&byte| byte == 9));
    ready.submit(|_, _| Ok(())).expect("a closed ring still accepts released slots");
    assert_eq!((ring.counts().free, ring.counts().in_flight), (1, 1));
}

#[test]
fn losing_the_last_slot_ends_every_wait() {
    within(WATCHDOG, || {
        let ring = Arc::new(heap_ring(2));
        let [first, last] = [ring.acquire(), ring.acquire()].map(|lease| lease.expect("a free slot").ready());
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let ring = ring.clone();
                thread::spawn(move || ring.acquire().expect_err("no slot is left"))
            })
            .collect();
        thread::sleep(PAUSE);
        first.submit(|_, _| Err::<(), _>(common::device_failure())).expect_err("injected");
        assert!(ring.try_acquire().expect("one slot is left").is_none());
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "one slot is left");
        last.submit(|_, _| Err::<(), _>(common::device_failure())).expect_err("injected");
        for waiter in waiters {
            let error = waiter.join().expect("no panic");
            assert_eq!(error.kind(), ErrorKind::Device);
            assert_eq!(error.message(), "no slot is left: 2 of 2 were lost to device failures");
        }
        assert_eq!(ring.try_acquire().expect_err("no slot is left").kind(), ErrorKind::Device);
    });
}
