//! Many producers, many consumers and a device, on slots whose bytes say what they should be.
#![cfg(not(loom))]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use common::{Gate, TestMemory, WATCHDOG, sized, within};
use feedline_slots::{FillLease, ReadyLease};

const THREADS: usize = 4;
const SLOTS: usize = 6;

/// The bytes of item `id`: each differs from that of the same place in the items before and after.
fn pattern(id: usize, at: usize) -> u8 {
    (id.wrapping_mul(131) ^ at.wrapping_mul(29) ^ id >> 8) as u8
}

fn fill(lease: &mut FillLease<TestMemory, usize>, id: usize) {
    let (bytes, note) = lease.parts_mut();
    *note = id;
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = pattern(id, at);
    }
}

/// What another holder wrote into this slot shows here.
fn assert_whole(bytes: &[u8], id: usize) {
    for (at, &byte) in bytes.iter().enumerate() {
        assert_eq!(byte, pattern(id, at), "byte {at} of item {id}");
    }
}

/// A copy that the device runs: slowly, byte by byte.
fn run_copy(gate: &Gate, id: usize) {
    for at in 0..64 {
        assert_eq!(gate.device_reads(at), pattern(id, at), "byte {at} of item {id} changed under its copy");
        if at % 16 == 0 {
            thread::yield_now();
        }
    }
    gate.land();
}

/// Each item reaches exactly one consumer, whole, and stays whole while a copy reads it.
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
        thread::scope(|scope| {
            for producer in 0..THREADS {
                let (ring, send) = (ring.clone(), send.clone());
                scope.spawn(move || {
                    for id in (0..items).map(|item| item * THREADS + producer) {
                        let mut lease = ring.acquire().expect("open");
                        fill(&mut lease, id);
                        if id % 7 == 0 {
                            thread::yield_now();
                        }
                        send.send(lease.ready()).expect("consumers run");
                    }
                });
            }
            for _ in 0..THREADS {
                let (receive, seen, start_copy) = (&receive, &seen, start_copy.clone());
                scope.spawn(move || {
                    loop {
                        let Ok(ready) = receive.lock().expect("no panic").recv() else { return };
                        let id = *ready.note();
                        assert_whole(ready.bytes(), id);
                        seen[id].fetch_add(1, Ordering::Relaxed);
                        if id % 3 == 0 {
                            continue; // dropped: home without a copy
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
        });
        assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) == 1), "each item once");
        let counts = ring.counts();
        assert_eq!(counts.free + counts.in_flight, SLOTS, "all home: {counts:?}");
        drop(ring);
        assert!(gates.iter().all(|gate| gate.drops() == 1));
    });
}

/// One producer, one consumer: consecutive numbers, none lost, over many turns of the ring.
#[test]
fn one_to_one_keeps_order() {
    let items = sized(100_000, 200);
    within(WATCHDOG, move || {
        let (ring, _gates) = common::ring::<usize>(3);
        let (send, receive) = mpsc::channel();
        let producer = thread::spawn({
            let ring = ring.clone();
            move || {
                for id in 0..items {
                    let mut lease = ring.acquire().expect("open");
                    assert_eq!(lease.index(), id % 3, "first home, first out");
                    fill(&mut lease, id);
                    send.send(lease.ready()).expect("the consumer runs");
                }
            }
        });
        for id in 0..items {
            let ready = receive.recv().expect("the producer runs");
            assert_eq!(*ready.note(), id);
            assert_whole(ready.bytes(), id);
        }
        producer.join().expect("no panic");
    });
}

/// Threads in every kind of wait, while the ring is closed under them: all end, and every slot is home.
#[test]
fn close_at_any_moment_ends_everything() {
    let rounds = sized(1_000, 5);
    within(WATCHDOG, move || {
        for round in 0..rounds {
            let (ring, gates) = common::ring::<usize>(2);
            thread::scope(|scope| {
                for thread in 0..THREADS {
                    let ring = ring.clone();
                    scope.spawn(move || {
                        loop {
                            let taken = match thread % 3 {
                                0 => ring.acquire().map(Some),
                                1 => ring.acquire_timeout(WATCHDOG),
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
