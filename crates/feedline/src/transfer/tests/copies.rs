//! A batch takes one copy, of the bytes in use, which begins when a device slot is free. The thread polls for
//! its end.

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use feedline_core::{Context, DType, Dataset, ReadError, Row, Spec};
use feedline_device::launch_host;
use feedline_sim::interceptors::Op;
use feedline_testkit::fixtures::{Fine, Uneven};
use feedline_testkit::{watchdog::LIMIT, with_watchdog};

use super::{BATCH, Copies, LEN, LONGEST, QUICK, Rig, SLOW, STEPS, Setting, copy_poll, fine, now, until};

#[test]
fn a_batch_is_one_copy_of_its_used_bytes() {
    with_watchdog(LIMIT, || {
        let copies = Copies::default();
        let data = Fine::new(2 * BATCH as u64 + 1, 100).unwrap();
        let rig = Rig::new(data, Setting { copies: copies.clone(), ..Setting::default() });
        rig.ask(1, 0, 2);
        for (epoch, step) in (0..2).flat_map(|epoch| (0..3).map(move |step| (epoch, step))) {
            assert_eq!(rig.take(), (epoch, step));
        }
        let wanted = [BATCH, BATCH, 1].map(|rows| rig.layout.used_bytes(rows));
        assert_eq!(*copies.bytes.lock().unwrap(), [wanted, wanted].concat());
        assert_eq!(rig.device_slots.free(), 2);
    });
}

/// One copy has the fixed field, the offsets and the values of the first ragged field; another one has the
/// second ragged field.
#[test]
fn a_batch_of_ragged_fields_is_a_copy_per_field_of_its_used_bytes() {
    with_watchdog(LIMIT, || {
        let copies = Copies::default();
        let data = Uneven::new(2 * BATCH as u64 + 1, 5000).unwrap();
        let rig = Rig::new(data.clone(), Setting { copies: copies.clone(), ..Setting::default() });
        rig.ask(1, 0, 1);
        let mut wanted = Vec::new();
        for ids in [0..4, 4..8, 8..9] {
            drop(rig.next());
            let values = |field| ids.clone().map(|id| data.values(0, field, id).len()).sum::<usize>();
            let fixed = rig.layout.offset(Uneven::PAIRS) - rig.layout.values(Uneven::BYTES).end;
            assert!(fixed < 256, "the fields are close together");
            wanted.push(rig.layout.values(Uneven::BYTES).start + values(Uneven::BYTES));
            wanted.push(256 + values(Uneven::PAIRS));
        }
        assert_eq!(*copies.bytes.lock().unwrap(), wanted);
        assert!(wanted.iter().sum::<usize>() < 3 * rig.layout.bytes());
    });
}

#[test]
fn copies_stop_when_the_device_slots_are_full_and_the_workers_fill_the_host_slots() {
    with_watchdog(LIMIT, || {
        let copies = Copies::default();
        let rig = Rig::new(fine(), Setting { copies: copies.clone(), ..Setting::default() });
        rig.ask(1, 0, u64::MAX);
        let copied = || copies.bytes.lock().unwrap().len();
        until("every slot is full", || copied() >= 2 && rig.host_slots.counts().ready == 3);
        assert_eq!(copied(), 2);
        for at in 0..20 {
            assert_eq!(rig.take(), (at / STEPS, at % STEPS));
        }
    });
}

/// The wait for the slot's readers must not count as a part of the copy.
#[test]
fn a_timed_copy_starts_after_the_wait_for_the_readers_of_its_slot() {
    with_watchdog(LIMIT, || {
        // After a pause, the first copies are timed.
        until("the clock has run for 40 ms", || now() > 40_000_000);
        let copies = Copies::default();
        let rig = Rig::new(fine(), Setting { device_slots: 1, copies: copies.clone(), ..Setting::default() });
        rig.ask(1, 0, 1);
        let (go_on, wait) = mpsc::channel::<()>();
        let reader = rig.next().wait_on(&rig.compute).unwrap();
        let body = move |_: &mut feedline_device::Memory<'_>| {
            let _ = wait.recv();
        };
        launch_host(&rig.compute, "read", [reader.view::<u8>(0, 1).unwrap().into()], [], body).unwrap();
        drop(reader);
        // The next batch is copied into the same slot, and its copy waits on the device.
        until("the second copy is queued", || copies.bytes.lock().unwrap().len() == 2);
        let calls = copies.calls.lock().unwrap().clone();
        let copy = calls.iter().rposition(|&op| op == Op::CopyToDevice).unwrap();
        assert_eq!(calls[copy - 3..copy], [Op::Record, Op::Wait, Op::Record], "{calls:?}");
        drop(go_on);
        assert_eq!(rig.take(), (0, 1));
    });
}

/// Rows of 1 MiB. Batch 1 waits until the gate opens.
struct Long {
    spec: Spec,
    gate: Mutex<mpsc::Receiver<()>>,
}

impl Dataset for Long {
    fn len(&self) -> u64 {
        LEN
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        row.field_mut::<u8>(0)?.fill(1);
        if id == BATCH as u64 {
            let _ = self.gate.lock().unwrap().recv();
        }
        Ok(())
    }
}

#[test]
fn copies_beside_decoding_and_copies_alone_are_counted_apart() {
    with_watchdog(LIMIT, || {
        // After a pause, the first copies are timed.
        until("the clock has run for 40 ms", || now() > 40_000_000);
        let (open, gate) = mpsc::channel();
        let spec = Spec::new().field("x", DType::U8, [1 << 20]).unwrap();
        let set = Long { spec, gate: Mutex::new(gate) };
        let rig = Rig::new(set, Setting { device_slots: 3, ..Setting::default() });
        rig.ask(1, 0, 1);
        // Batch 0 is copied while batch 1 is decoded.
        let first = rig.next();
        drop(open);
        let (second, third) = (rig.next(), rig.next());
        // The times of the last copies are read when slots are handed out again.
        drop((first, second, third));
        rig.ask(2, 0, 1);
        (0..STEPS).for_each(|_| drop(rig.next()));
        rig.ask(3, 0, 1);
        (0..STEPS).for_each(|_| drop(rig.next()));
        let rates = *rig.copied.lock().unwrap();
        assert!(rates.beside.copies >= 1 && rates.alone.copies >= 1, "{rates:?}");
        for rate in [rates.beside, rates.alone] {
            assert_eq!(rate.bytes, rate.copies * (BATCH << 20) as u64, "{rates:?}");
            assert!(rates.fastest.ns <= rate.ns / rate.copies, "{rates:?}");
        }
    });
}

#[test]
fn a_failed_copy_is_reported_after_the_batches_before_it() {
    with_watchdog(LIMIT, || {
        let copies = Copies { fails: Some(2), ..Copies::default() };
        let rig = Rig::new(fine(), Setting { copies, ..Setting::default() });
        rig.ask(1, 0, 1);
        assert_eq!(rig.take(), (0, 0));
        let error = rig.end().unwrap_err();
        assert_eq!(error.to_string(), "planned failure of a copy (stage transfer, batch 1)");
        // The device may still read the host slot and write the device slot: neither is reused.
        assert_eq!((rig.host_slots.counts().lost, rig.device_slots.free()), (1, 1));
    });
}

const STEP: Duration = Duration::from_millis(2);

#[test]
fn a_quick_device_is_looked_at_often() {
    assert_eq!(copy_poll(Duration::ZERO, 9, Duration::ZERO), QUICK.0);
    assert_eq!(copy_poll(Duration::ZERO, 9, Duration::from_micros(400)), Duration::from_micros(100));
    let per_copy = Duration::from_micros(600);
    assert_eq!(copy_poll(per_copy, 9, Duration::ZERO), Duration::from_micros(150));
    assert_eq!(copy_poll(per_copy, 9, STEP), QUICK.1, "until it is known to be slow");
    assert_eq!(copy_poll(STEP / 25, 9, Duration::ZERO), QUICK.0, "50 copies in four steps");
}

#[test]
fn a_slow_device_is_looked_at_when_half_of_the_copies_have_ended() {
    assert_eq!(
        [9, 4, 2, 1].map(|slots| copy_poll(STEP, slots, Duration::ZERO)),
        [4, 2, 1, 1].map(|n| n * STEP)
    );
    assert_eq!(copy_poll(STEP, 4, 3 * STEP), SLOW / 4, "it is later than expected");
    assert_eq!(copy_poll(Duration::from_secs(1), 9, Duration::ZERO), LONGEST);
}
