//! Batches are decoded in any order, by any number of workers, and delivered in order.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use feedline_core::source;
use feedline_device::slots::WAKE_UP;
use feedline_testkit::fixtures::streams::{Generator, Hooked};
use feedline_testkit::{fixtures, watchdog::LIMIT, with_watchdog};

use super::{BATCH, LEN, Rig, STEPS, Setting, fine, until};
use crate::job::Message;

#[test]
fn a_request_is_delivered_in_order_and_nothing_beyond_it_is_read() {
    with_watchdog(LIMIT, || {
        let (data, reads) = fixtures::counting(fine());
        let rig = Rig::new(data, Setting::default());
        rig.ask(7, 3, 5);
        let mut addresses = BTreeSet::new();
        for (epoch, step) in (3..5).flat_map(|epoch| (0..STEPS).map(move |step| (epoch, step))) {
            let loaded = rig.next();
            addresses.insert(loaded.index());
            assert_eq!(rig.check(loaded), (7, epoch, step));
        }
        assert_eq!(addresses.len(), 2, "slots are reused");
        rig.stop();
        let _ = rig.end();
        // Epoch 5 was not requested.
        assert_eq!(reads.other_than(2), []);
    });
}

#[test]
fn batches_decoded_out_of_order_are_delivered_in_order() {
    with_watchdog(LIMIT, || {
        // Many rounds, so that the first batch finds the workers in different states.
        for workers in (0..20).flat_map(|_| [2, 3, 4]) {
            let (data, gate) = fixtures::blocking(fine(), [0]);
            let (data, reads) = fixtures::counting(data);
            let rig = Rig::new(data, Setting { workers, ..Setting::default() });
            rig.ask(1, 0, 1);
            // The other batches are decoded before the first one.
            until("all but the first are read", || {
                (BATCH as u64..LEN).all(|id| reads.of(id) == 1) && gate.waiting() == 1
            });
            assert!(rig.loaded.try_recv().is_err(), "a batch came before the first");
            gate.open();
            assert_eq!([rig.take(), rig.take(), rig.take()], [(0, 0), (0, 1), (0, 2)]);
        }
    });
}

#[test]
fn any_number_of_workers_and_slots_delivers_all_batches_in_order() {
    with_watchdog(LIMIT, || {
        for (workers, host_slots, device_slots) in
            [(1, 1, 1), (1, 4, 1), (4, 1, 1), (4, 2, 3), (2, 5, 1), (3, 3, 2), (8, 8, 8)]
        {
            for batch in [1, BATCH] {
                let setting = Setting { batch, workers, host_slots, device_slots, ..Setting::default() };
                let rig = Rig::new(fine(), setting);
                rig.ask(1, 0, 20);
                let steps = LEN / batch as u64;
                for at in 0..20 * steps {
                    let place = (at / steps, at % steps);
                    assert_eq!(rig.take(), place, "{workers} workers, {host_slots} and {device_slots} slots");
                }
            }
        }
    });
}

/// One worker alone may decode short batches. If one of them unexpectedly takes long, the other workers must
/// wake up: here no batch ends before every worker reads one.
#[test]
fn a_read_that_takes_unexpectedly_long_leaves_no_worker_asleep() {
    const WORKERS: usize = 3;
    with_watchdog(LIMIT, || {
        let meeting = Arc::new((Mutex::new(WORKERS), Condvar::new()));
        let (place, is_open) = (meeting.clone(), move |missing: &mut usize| *missing > 0);
        let data = fixtures::Before::new(fine(), move |id| {
            if id % BATCH as u64 == 0 {
                let mut missing = place.0.lock().unwrap();
                *missing = missing.saturating_sub(1);
                place.1.notify_all();
                drop(place.1.wait_while(missing, is_open).unwrap());
            }
            Ok(())
        });
        let setting = Setting { workers: WORKERS, host_slots: WORKERS + 1, ..Setting::default() };
        let rig = Rig::new(data, setting);
        rig.ask(1, 0, u64::MAX);
        // From the second round on the time per row is known.
        for round in 0..5 {
            for at in 0..100 {
                assert_eq!(rig.take().1, (100 * round + at) % STEPS);
            }
            *meeting.0.lock().unwrap() = WORKERS;
        }
    });
}

/// Without a wake-up, a worker that sleeps looks for work every 100 ms.
#[test]
fn a_worker_is_woken_for_a_batch_that_is_handed_out_alone() {
    with_watchdog(LIMIT, || {
        let setting = Setting { workers: 1, host_slots: 1, device_slots: 1, ..Setting::default() };
        let rig = Rig::new(fine(), setting);
        rig.ask(1, 0, u64::MAX);
        rig.take();
        // On a busy machine a wake-up may be late, here by 32 ms in all six; without one, every batch comes
        // 100 ms later.
        let quickest = (0..6).map(|_| {
            let start = Instant::now();
            rig.take();
            start.elapsed()
        });
        let quickest = quickest.min().unwrap();
        assert!(quickest < Duration::from_millis(80), "{quickest:?}");
    });
}

/// With one batch per epoch, several workers share it: they join its pieces before they begin another batch.
#[test]
fn batches_of_a_whole_epoch_follow_each_other_in_order() {
    with_watchdog(LIMIT, || {
        for _ in 0..300 {
            let setting = Setting { batch: LEN as usize, workers: 4, host_slots: 4, ..Setting::default() };
            let rig = Rig::new(fine(), setting);
            rig.ask(1, 0, 6);
            for epoch in 0..6 {
                assert_eq!(rig.take(), (epoch, 0));
            }
        }
    });
}

#[test]
fn a_new_request_comes_before_the_rest_of_the_old_one() {
    with_watchdog(LIMIT, || {
        let rig = Rig::new(fine(), Setting { batch: 2, host_slots: 2, ..Setting::default() });
        rig.ask(1, 0, 1);
        // Both device slots hold batches of request 1, and the thread waits for one.
        let (one, two) = (rig.next(), rig.next());
        rig.ask(2, 9, 10);
        assert_eq!((rig.check(one), rig.check(two)), ((1, 0, 0), (1, 0, 1)));
        // A batch whose copy was about to begin is still delivered; a loader would drop it.
        let mut next = rig.next();
        if next.info().request == 1 {
            assert_eq!(rig.check(next), (1, 0, 2));
            next = rig.next();
        }
        assert_eq!(rig.check(next), (2, 9, 0));
        for step in 1..LEN / 2 {
            assert_eq!(rig.check(rig.next()), (2, 9, step));
        }
    });
}

#[test]
fn a_new_request_is_begun_while_a_batch_of_the_old_one_is_read() {
    with_watchdog(LIMIT, || {
        let (data, reads) = fixtures::counting(fine());
        let (data, gate) = fixtures::blocking(data, [8]);
        let rig = Rig::new(data, Setting { host_slots: 4, ..Setting::default() });
        rig.ask(1, 0, 1);
        assert!(gate.wait_until_waiting(1, LIMIT));
        assert_eq!([rig.take(), rig.take()], [(0, 0), (0, 1)]);
        rig.ask(2, 7, 8);
        until("the new request is read", || reads.of(0) == 2 && reads.of(4) == 2);
        assert!(rig.loaded.try_recv().is_err(), "a batch came before the one that is being read");
        gate.open();
        // The last batch of the old request was dropped.
        assert_eq!([rig.take(), rig.take(), rig.take()], [(7, 0), (7, 1), (7, 2)]);
    });
}

#[test]
fn a_message_that_wakes_nobody_is_received_while_a_read_does_not_return() {
    with_watchdog(LIMIT, || {
        let (data, gate) = fixtures::blocking(fine(), [0]);
        let rig = Rig::new(data, Setting::default());
        rig.ask(1, 0, 1);
        let inbox = &rig.requests.inbox;
        until("the thread sleeps", || gate.waiting() == 1 && inbox.is_asleep());
        rig.requests.inbox.send(Message::Wake, false);
        until("the message is received", || inbox.is_empty());
        gate.open();
        assert_eq!([rig.take(), rig.take(), rig.take()], [(0, 0), (0, 1), (0, 2)]);
    });
}

/// A worker posts short batches without waking the thread, and is then held up by the next batch.
#[test]
fn short_batches_before_a_read_that_does_not_return_are_delivered() {
    with_watchdog(LIMIT, || {
        // Tries several lengths of reads. One must post the last batch when the thread sleeps again, but so
        // soon after its last wake-up that the worker does not wake it.
        let reads = [1, 2, 3, 4, 5].map(|halves| halves * WAKE_UP / 2);
        for (short, read) in (1..LEN - 1).flat_map(|short| reads.map(|read| (short, read))) {
            let busy = fixtures::Before::new(fine(), move |_| {
                let start = Instant::now();
                while start.elapsed() < read {}
                Ok(())
            });
            let (data, gate) = fixtures::blocking(busy, [short]);
            let (host_slots, device_slots) = (LEN as usize + 1, LEN as usize);
            let setting = Setting { batch: 1, workers: 1, host_slots, device_slots, ..Setting::default() };
            let rig = Rig::new(data, setting);
            rig.ask(1, 0, 1);
            for step in 0..short {
                assert_eq!(rig.take(), (0, step));
            }
            assert!(rig.loaded.try_recv().is_err(), "a batch came before the one that is being read");
            gate.open();
            assert_eq!(rig.take(), (0, short));
        }
    });
}

#[test]
fn records_are_read_in_sequence_while_batches_are_decoded_in_parallel() {
    with_watchdog(LIMIT, || {
        const RECORDS: u64 = 40;
        let read = Arc::new(Mutex::new(Vec::new()));
        let (seen, second_began) = (read.clone(), Arc::new(AtomicBool::new(false)));
        let [first, second] = [0, BATCH as u64].map(|number| feedline_core::record_id(0, number).unwrap());
        let source = Hooked::new(Generator::new([RECORDS, 0, RECORDS]).unwrap())
            .before_read(move |place| {
                seen.lock().unwrap().push(place);
                Ok(())
            })
            // The first batch is decoded only once the second is begun.
            .before_decode(move |id| {
                second_began.fetch_or(id == second, Ordering::SeqCst);
                if id == first {
                    until("the second batch is begun", || second_began.load(Ordering::SeqCst));
                }
                Ok(())
            });
        let rig = Rig::source_builder(source, Setting { workers: 3, ..Setting::default() });
        rig.ask(1, 0, 1);
        let mut ids = Vec::new();
        for step in 0..2 * RECORDS / BATCH as u64 {
            let loaded = rig.next();
            let info = loaded.info().clone();
            assert_eq!(info.step, step);
            let bytes = rig.bytes(loaded);
            for (&id, place) in info.ids.iter().zip(bytes[..8 * info.ids.len()].chunks_exact(8)) {
                let (shard, number) = source::place(id);
                let own = [shard as u32, number as u32].map(u32::to_le_bytes).concat();
                assert_eq!(place, own, "its own record");
            }
            let last = source::place(*info.ids.last().expect("a row"));
            assert_eq!(info.source_position.map(|source_position| source_position.offset), Some(last.1 + 1));
            ids.extend_from_slice(&info.ids);
        }
        let all = |shard| (0..RECORDS).map(move |number| feedline_core::record_id(shard, number).unwrap());
        assert!(ids.iter().copied().eq(all(0).chain(all(2))));
        let read = read.lock().unwrap();
        assert!(read.is_sorted(), "{read:?}");
        assert_eq!(read.iter().collect::<BTreeSet<_>>().len(), read.len(), "no record is read twice");
    });
}

/// Two device slots and three host slots fill up while the consumer takes no batch.
#[test]
fn the_workers_fill_every_slot_of_a_source_while_the_consumer_takes_nothing() {
    with_watchdog(LIMIT, || {
        for source in [Generator::new([100]).unwrap(), Generator::new([100]).unwrap().hesitant()] {
            let decoded = Arc::new(Mutex::new(BTreeSet::new()));
            let seen = decoded.clone();
            let source = Hooked::new(source).before_decode(move |id| {
                seen.lock().unwrap().insert(id);
                Ok(())
            });
            let rig = Rig::source_builder(source, Setting::default());
            rig.ask(1, 0, 1);
            until("every slot is full", || decoded.lock().unwrap().len() == 5 * BATCH);
            for step in 0..25 {
                assert_eq!(rig.next().info().step, step);
            }
        }
    });
}
