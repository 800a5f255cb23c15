//! Every way in which the thread ends, and what it leaves behind: nothing.

use feedline_core::ErrorKind;
use feedline_testkit::{fixtures, watchdog::LIMIT, with_watchdog};

use super::{Rig, Setting, fine};

/// Three batches in flight, each at its first sample.
fn three_in_flight() -> (Rig, fixtures::Gate) {
    let (data, gate) = fixtures::blocking(fine(), [0, 4, 8]);
    let rig = Rig::new(data, Setting { workers: 3, ..Setting::default() });
    rig.ask(1, 0, u64::MAX);
    assert!(gate.wait_until_waiting(3, LIMIT));
    let mut steps: Vec<u64> = rig.pool.readings().iter().map(|reading| reading.step).collect();
    steps.sort_unstable();
    assert_eq!(steps, [0, 1, 2], "each is named");
    (rig, gate)
}

#[test]
fn a_stop_ends_the_thread_at_once_and_the_workers_after_their_reads() {
    with_watchdog(LIMIT, || {
        let (rig, gate) = three_in_flight();
        rig.stop();
        let ended = rig.ended.recv_timeout(LIMIT).expect("the thread ends");
        assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == ErrorKind::Stopped));
        assert!(rig.dropped.try_recv().is_err(), "reads go on");
        gate.open();
        rig.dropped.recv_timeout(LIMIT).expect("the workers end their work").unwrap();
        assert!(rig.loaded.try_recv().is_err(), "nothing is delivered");
        assert_eq!((rig.host_slots.counts().free, rig.device_slots.free()), (3, 2), "every slot is free");
    });
}

#[test]
fn the_thread_ends_when_nobody_receives_and_every_slot_is_free() {
    with_watchdog(LIMIT, || {
        let (rig, gate) = three_in_flight();
        let Rig { loaded, ended, dropped, host_slots, device_slots, .. } = rig;
        drop(loaded);
        gate.open();
        ended.recv_timeout(LIMIT).expect("the thread ends").unwrap();
        dropped.recv_timeout(LIMIT).expect("the workers end their work").unwrap();
        assert_eq!(device_slots.free(), 2);
        // One batch was copied for nobody; its slot is in flight until it is asked for.
        let counts = host_slots.counts();
        assert_eq!((counts.free + counts.in_flight, counts.lost), (3, 0), "{counts:?}");
    });
}

#[test]
fn the_thread_ends_when_nobody_receives_any_more() {
    with_watchdog(LIMIT, || {
        let rig = Rig::new(fine(), Setting::default());
        rig.ask(1, 0, u64::MAX);
        assert_eq!(rig.take(), (0, 0));
        let Rig { loaded, ended, device_slots, .. } = rig;
        drop(loaded);
        ended.recv_timeout(LIMIT).expect("the thread ends").unwrap();
        assert_eq!(device_slots.free(), 2);
    });
}

#[test]
fn the_thread_ends_when_its_host_slots_are_closed() {
    with_watchdog(LIMIT, || {
        let rig = Rig::new(fine(), Setting::default());
        rig.ask(1, 0, u64::MAX);
        let held = (rig.next(), rig.next());
        rig.host_slots.close();
        drop(held);
        loop {
            // What was decoded may still come.
            match rig.loaded.recv_timeout(LIMIT) {
                Ok(delivery) => drop(delivery),
                Err(error) => break assert!(error.is_disconnected()),
            }
        }
        assert_eq!(rig.error(), (ErrorKind::Stopped, None, None));
    });
}

#[test]
fn the_thread_ends_when_its_device_slots_are_closed() {
    with_watchdog(LIMIT, || {
        let rig = Rig::new(fine(), Setting::default());
        rig.ask(1, 0, u64::MAX);
        let held = (rig.next(), rig.next());
        rig.device_slots.close();
        assert_eq!(rig.error(), (ErrorKind::Stopped, None, None));
        drop(held);
    });
}

#[test]
fn a_request_after_a_stop_is_refused() {
    with_watchdog(LIMIT, || {
        let (rig, gate) = three_in_flight();
        let decoder = rig.decoder.upgrade().expect("the stages run");
        rig.stop();
        let error = rig.wanted.ask(Default::default(), decoder.inbox()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stopped);
        gate.open();
    });
}
