//! The first error in batch order is reported, after the batches before it; nothing is delivered after it.

use feedline_core::ErrorKind;
use feedline_testkit::fixtures::Fine;
use feedline_testkit::{fixtures, watchdog::LIMIT, with_watchdog};

use super::{Rig, Setting, fine, until};

#[test]
fn the_thread_ends_with_the_first_bad_sample_after_the_batches_before_it() {
    with_watchdog(LIMIT, || {
        let rig = Rig::new(fixtures::failing(fine(), [9]), Setting::default());
        rig.ask(1, 0, 1);
        assert_eq!([rig.take(), rig.take()], [(0, 0), (0, 1)]);
        let error = rig.end().unwrap_err();
        assert_eq!((error.kind(), error.batch(), error.sample()), (ErrorKind::Sample, Some(2), Some(9)));
        assert_eq!(
            error.to_string(),
            "cannot read a sample: planned failure of sample 9 (stage decode, batch 2, sample 9)"
        );
    });
}

#[test]
fn the_first_error_in_order_is_reported_though_a_later_batch_failed_first() {
    with_watchdog(LIMIT, || {
        let (data, reads) = fixtures::counting(fixtures::failing(fine(), [0, 5]));
        let (data, gate) = fixtures::blocking(data, [0]);
        let rig = Rig::new(data, Setting::default());
        rig.ask(1, 0, 1);
        assert!(gate.wait_until_waiting(1, LIMIT));
        until("sample 5 has failed", || reads.of(5) == 1 && rig.pool.readings().len() == 1);
        gate.open();
        assert_eq!(rig.error(), (ErrorKind::Sample, Some(0), Some(0)));
    });
}

/// Otherwise batch after batch would be handed out and given up for as long as the earlier one takes.
#[test]
fn nothing_is_handed_out_once_a_batch_has_failed_and_an_earlier_one_is_still_read() {
    with_watchdog(LIMIT, || {
        let (data, gate) = fixtures::blocking(fixtures::failing(fine(), [5]), [0]);
        let rig = Rig::new(data, Setting::default());
        rig.ask(1, 0, u64::MAX);
        assert!(gate.wait_until_waiting(1, LIMIT));
        // The looks take longer than the thread sleeps between two of its own.
        until("two of three slots stay free", || (0..3_000_000).all(|_| rig.host_slots.counts().free == 2));
        gate.open();
        assert_eq!(rig.take(), (0, 0));
        assert_eq!(rig.error(), (ErrorKind::Sample, Some(1), Some(5)));
    });
}

#[test]
fn batches_before_the_failed_one_are_delivered_and_none_after_it() {
    with_watchdog(LIMIT, || {
        let (data, reads) = fixtures::counting(fixtures::failing(fine(), [6]));
        let (data, gate) = fixtures::blocking(data, [0, 8]);
        let rig = Rig::new(data, Setting { workers: 3, ..Setting::default() });
        rig.ask(1, 0, 1);
        assert!(gate.wait_until_waiting(1, LIMIT));
        until("sample 6 has failed", || {
            reads.of(6) == 1 && !rig.pool.readings().iter().any(|reading| reading.step == 1)
        });
        gate.open();
        assert_eq!(rig.take(), (0, 0));
        assert_eq!(rig.error(), (ErrorKind::Sample, Some(1), Some(6)));
    });
}

#[test]
fn of_a_panic_and_an_error_in_flight_the_first_in_order_is_reported() {
    with_watchdog(LIMIT, || {
        for (panics, fails, told) in [(0, 4, ErrorKind::Panic), (4, 0, ErrorKind::Sample)] {
            let data = fixtures::panicking(fixtures::failing(fine(), [fails]), [panics]);
            // Both errors happen before either can be reported.
            let (data, gate) = fixtures::blocking(data, [0, 4]);
            let rig = Rig::new(data, Setting::default());
            rig.ask(1, 0, 1);
            assert!(gate.wait_until_waiting(2, LIMIT));
            gate.open();
            assert_eq!(rig.error(), (told, Some(0), Some(0)));
        }
    });
}

#[test]
fn an_error_ends_the_thread_while_another_worker_is_idle() {
    with_watchdog(LIMIT, || {
        // There is only one sample: the other worker sleeps.
        let (data, gate) = fixtures::blocking(fixtures::failing(Fine::new(1, 100).unwrap(), [0]), [0]);
        let rig = Rig::new(data, Setting { batch: 1, host_slots: 2, ..Setting::default() });
        rig.ask(1, 0, 1);
        assert!(gate.wait_until_waiting(1, LIMIT));
        gate.open();
        assert_eq!(rig.error(), (ErrorKind::Sample, Some(0), Some(0)));
    });
}

#[test]
fn an_error_ends_the_thread_while_it_waits_for_a_slot() {
    with_watchdog(LIMIT, || {
        for _ in 0..50 {
            let (data, gate) = fixtures::blocking(fixtures::failing(fine(), [0]), [0]);
            let rig = Rig::new(data, Setting { batch: 1, host_slots: 2, ..Setting::default() });
            let held = rig.host_slots.acquire().unwrap();
            rig.ask(1, 0, 1);
            assert!(gate.wait_until_waiting(1, LIMIT));
            gate.open();
            assert_eq!(rig.error(), (ErrorKind::Sample, Some(0), Some(0)));
            drop(held);
        }
    });
}
