//! Many producers, many consumers and a device share slots; the bytes of each slot are checked.

use crate::common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Gate, TestMemory, WATCHDOG, sized, within};
use feedline_device::slots::{FillLease, ReadyLease};

const THREADS: usize = 4;
const SLOTS: usize = 6;

/// No further item is begun after this time: beside other programs each yield can take milliseconds.
const ENOUGH: Duration = Duration::from_secs(20);

/// The byte at `at` of item `id`; neighbouring items differ at every position.
fn pattern(id: usize, at: usize) -> u8 {
    (id.wrapping_mul(131) ^ at.wrapping_mul(29) ^ id >> 8) as u8
}

fn fill(lease: &mut FillLease<TestMemory, usize>, id: usize) {
    let (bytes, info) = lease.parts_mut();
    *info = id;
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = pattern(id, at);
    }
}

/// Asserts that the slot holds item `id`: no other holder wrote into it.
fn assert_whole(bytes: &[u8], id: usize) {
    for (at, &byte) in bytes.iter().enumerate() {
        assert_eq!(byte, pattern(id, at), "byte {at} of item {id}");
    }
}

/// A device copy; it reads slowly, byte by byte.
fn run_copy(gate: &Gate, id: usize) {
    for at in 0..64 {
        assert_eq!(gate.device_reads(at), pattern(id, at), "byte {at} of item {id} changed during its copy");
        if at % 16 == 0 {
            thread::yield_now();
        }
    }
    gate.land();
}

/// Each item reaches exactly one consumer, and its bytes do not change, also while a copy reads them.
#[test]
fn bytes_are_never_changed_by_another_holder() {
    let items = sized(25_000, 50);
    within(WATCHDOG, move || {
        let (ring, gates) = common::ring::<usize>(SLOTS);
        let seen: Vec<_> = (0..THREADS * items).map(|_| AtomicUsize::new(0)).collect();
        let (send, receive) = mpsc::sync_channel::<ReadyLease<TestMemory, usize>>(2);
        let receive = Mutex::new(receive);
        let (start_copy, copies) = mpsc::channel::<(Arc<Gate>, usize)>();
        let copies = Mutex::new(copies);
        let start = Instant::now();
        let sent: [usize; THREADS] = thread::scope(|scope| {
            let producers: [_; THREADS] = std::array::from_fn(|producer| {
                let (ring, send) = (ring.clone(), send.clone());
                scope.spawn(move || {
                    let ids = (0..items).map(|item| item * THREADS + producer);
                    let mut sent = 0;
                    for id in ids.take_while(|_| start.elapsed() < ENOUGH) {
                        let mut lease = ring.acquire().expect("open");
                        fill(&mut lease, id);
                        if id % 7 == 0 {
                            thread::yield_now();
                        }
                        send.send(lease.ready()).expect("consumers run");
                        sent += 1;
                    }
                    sent
                })
            });
            for _ in 0..THREADS {
                let (receive, seen, start_copy) = (&receive, &seen, start_copy.clone());
                scope.spawn(move || {
                    loop {
                        let Ok(ready) = receive.lock().expect("no panic").recv() else { return };
                        let id = *ready.info();
                        assert_whole(ready.bytes(), id);
                        seen[id].fetch_add(1, Ordering::Relaxed);
                        if id % 3 == 0 {
                            continue; // dropped: released without a copy
                        }
                        let submitted = ready.submit(|memory, &id| {
                            memory.0.start();
                            start_copy.send((memory.0.clone(), id)).expect("the device runs");
                            Ok(())
                        });
                        submitted.expect("a copy that starts");
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        let Ok((gate, id)) = copies.lock().expect("no panic").recv() else { return };
                        run_copy(&gate, id);
                    }
                });
            }
            drop((send, start_copy));
            producers.map(|producer| producer.join().expect("no panic"))
        });
        assert!(sent.iter().all(|&sent| sent > 0), "every producer sends: {sent:?}");
        for (id, seen) in seen.into_iter().enumerate() {
            let is_sent = id / THREADS < sent[id % THREADS];
            assert_eq!(seen.into_inner(), usize::from(is_sent), "item {id} arrives once if it was sent");
        }
        let counts = ring.counts();
        assert_eq!(counts.free + counts.in_flight, SLOTS, "every slot is released: {counts:?}");
        drop(ring);
        assert!(gates.iter().all(|gate| gate.drops() == 1));
    });
}

/// With one producer and one consumer, all items arrive in order, over many cycles of the ring.
#[test]
fn one_producer_and_one_consumer_keep_the_order() {
    let items = sized(100_000, 200);
    within(WATCHDOG, move || {
        let (ring, _gates) = common::ring::<usize>(3);
        let (send, receive) = mpsc::channel();
        let producer = thread::spawn({
            let ring = ring.clone();
            move || {
                for id in 0..items {
                    let mut lease = ring.acquire().expect("open");
                    assert_eq!(lease.index(), id % 3, "the slot released first is acquired first");
                    fill(&mut lease, id);
                    send.send(lease.ready()).expect("the consumer runs");
                }
            }
        });
        for id in 0..items {
            let ready = receive.recv().expect("the producer runs");
            assert_eq!(*ready.info(), id);
            assert_whole(ready.bytes(), id);
        }
        producer.join().expect("no panic");
    });
}

/// The ring is closed while threads are in every kind of wait: all waits end, and every slot is released.
#[test]
fn close_ends_every_kind_of_wait() {
    let rounds = sized(1_000, 5);
    within(WATCHDOG, move || {
        for round in 0..rounds {
            let (ring, gates) = common::ring::<usize>(2);
            thread::scope(|scope| {
                for thread in 0..THREADS {
                    let ring = ring.clone();
                    scope.spawn(move || {
                        loop {
                            let taken = match thread % 2 {
                                0 => ring.acquire().map(Some),
                                _ => ring.try_acquire(),
                            };
                            let Ok(lease) = taken else { return };
                            if let Some(lease) = lease {
                                lease.ready().submit(|_, _| Ok(())).expect("a copy that starts");
                            }
                            thread::yield_now();
                        }
                    });
                }
                for _ in 0..round % 50 {
                    thread::yield_now();
                }
                ring.close();
            });
            let counts = ring.counts();
            assert_eq!(counts.free + counts.in_flight, 2, "round {round}: {counts:?}");
            drop(ring);
            assert!(gates.iter().all(|gate| gate.drops() == 1));
        }
    });
}
