//! The hand-off without a pipeline: the content of a batch, the release of its slot, the cost of the meter.

use std::sync::Arc;

use feedline_core::{DType, ErrorKind, Layout, Spec, Stage};
use feedline_device::host::Host;
use feedline_device::slot::SlotRing;
use feedline_device::{Device, Pinned, Stream};
use feedline_sim::interceptors::count::{CountHandle, Snapshot};
use feedline_sim::interceptors::{Count, Op};
use feedline_slots::Ring;
use feedline_testkit::{watchdog::LIMIT, with_watchdog};

use super::*;

const ROWS: usize = 6;
const DEPTH: usize = 2;

/// Device slots, and everything needed to load them by hand.
struct Rig {
    device: Device,
    count: CountHandle,
    compute: Stream,
    copy: Stream,
    layout: Arc<Layout>,
    host: Ring<Pinned>,
    slots: SlotRing,
}

impl Rig {
    fn new() -> Self {
        let backend = Count::new(Host::new());
        let count = backend.handle();
        let device = Device::with_backend(backend);
        let spec =
            Spec::new().field("image", DType::U8, [4, 5]).unwrap().field("label", DType::I64, []).unwrap();
        let layout = Arc::new(Layout::new(&spec, ROWS).unwrap());
        Self {
            count,
            compute: device.stream().unwrap(),
            copy: device.stream().unwrap(),
            host: Ring::new((0..DEPTH + 1).map(|_| device.pinned(layout.bytes()).unwrap()).collect()),
            slots: SlotRing::new(&device, DEPTH, layout.bytes()).unwrap(),
            layout,
            device,
        }
    }

    fn batch(&self, step: u64, ids: Vec<u64>) -> Batch {
        self.batch_from(&self.host, step, ids)
    }

    fn batch_from(&self, host: &Ring<Pinned>, step: u64, ids: Vec<u64>) -> Batch {
        let bytes = self.layout.used_bytes(ids.len());
        let mut slot = self.slots.acquire().unwrap();
        let info = slot.info_mut();
        info.reset(1, 4, step);
        (info.valid, info.ids) = (ids.len(), ids);
        let loaded = slot.upload(&self.copy, host.acquire().unwrap().ready(), bytes).unwrap();
        Batch::new(loaded, self.layout.clone())
    }
}

#[test]
fn a_batch_shows_its_ids_fields_and_slot() {
    with_watchdog(LIMIT, || {
        let rig = Rig::new();
        let batch = rig.batch(9, vec![7, 3, 5]);
        assert_eq!((batch.epoch(), batch.step(), batch.len(), batch.ids()), (4, 9, 3, &[7, 3, 5][..]));
        let slot = batch.slot();
        let ready = batch.wait_on(&rig.compute).unwrap();
        assert_eq!((ready.epoch(), ready.step(), ready.len(), ready.ids()), (4, 9, 3, &[7, 3, 5][..]));
        assert!(ready.slot() == slot && ready.stream().is(&rig.compute));
        // A short batch shows its own rows only, without rows that an older batch left in the slot.
        assert_eq!(ready.field::<u8>("image").unwrap().len(), 3 * 20);
        assert_eq!(ready.field_at::<i64>(1).unwrap().len(), 3);
        let addresses: Vec<_> = rig.slots.addresses().collect();
        assert_eq!(ready.field::<u8>("image").unwrap().address(), addresses[slot]);
    });
}

#[test]
fn a_slot_is_released_once_after_the_last_reader() {
    with_watchdog(LIMIT, || {
        let rig = Rig::new();
        drop(rig.batch(0, vec![1]));
        assert_eq!(rig.slots.free(), DEPTH, "dropped unread");
        let one = rig.batch(1, vec![1]).wait_on(&rig.compute).unwrap();
        let two = one.also_on(&rig.compute).unwrap();
        drop(one);
        assert_eq!((rig.slots.free(), rig.slots.delivered()), (DEPTH - 1, 1));
        assert_eq!(two.ids(), [1]);
        drop(two);
        assert_eq!((rig.slots.free(), rig.slots.delivered()), (DEPTH, 0));
    });
}

#[test]
fn a_slot_counts_as_delivered_until_its_batch_is_dropped() {
    with_watchdog(LIMIT, || {
        let rig = Rig::new();
        let batch = rig.batch(0, vec![1]);
        assert_eq!(rig.slots.delivered(), 1);
        let ready = batch.wait_on(&rig.compute).unwrap();
        let other = rig.batch(1, vec![2]);
        assert_eq!(rig.slots.delivered(), 2);
        drop((ready, other));
        assert_eq!(rig.slots.delivered(), 0);
    });
}

#[test]
fn an_error_of_the_hand_off_names_stage_and_batch() {
    with_watchdog(LIMIT, || {
        let rig = Rig::new();
        let foreign = Device::new_host().stream().unwrap();
        let error = rig.batch(3, vec![1]).wait_on(&foreign).unwrap_err();
        assert_eq!(
            (error.kind(), error.stage(), error.batch()),
            (ErrorKind::Config, Some(Stage::Compute), Some(3))
        );
        assert_eq!((rig.slots.free(), rig.slots.delivered()), (DEPTH, 0), "the slot is free again");
    });
}

#[test]
fn a_batch_of_another_device_is_refused_by_a_meter() {
    with_watchdog(LIMIT, || {
        let rig = Rig::new();
        let other = Device::new_host();
        let mut meter = WaitMeter::new(&other.stream().unwrap(), 1).unwrap();
        meter.begin();
        let error = meter.wait_on(rig.batch(0, vec![1])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        // Two devices with the same name are distinguished.
        assert!(error.to_string().contains("belongs to host (device #"), "{error}");
        assert!(error.to_string().contains("not to host (device #"), "{error}");
        assert_eq!(rig.slots.free(), DEPTH, "the slot is free again");
    });
}

#[test]
fn a_batch_open_to_another_stream_is_refused_by_a_replay() {
    with_watchdog(LIMIT, || {
        let rig = Rig::new();
        let branch = rig.device.stream().unwrap();
        let mut replay = Replay::new(&rig.compute);
        let mut result = branch.buffer::<u32>(1).unwrap();
        let batch = rig.batch(0, vec![1]).wait_on(&branch).unwrap();
        // The whole step is on one stream, but that is not the replay's stream.
        let error = replay
            .step(&batch, result.view_mut(), |batch, result| {
                branch.run("step", [batch.field::<u8>("image")?.into()], [result.into()], |_| {})
            })
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        for name in [rig.compute.to_string(), branch.to_string()] {
            assert!(error.to_string().contains(&name), "no {name} in: {error}");
        }
    });
}

/// Runs `steps` steps with a meter of `period`; returns the meter and the driver calls that the steps made.
fn metered(rig: &Rig, period: u64, steps: u64) -> (WaitMeter, Snapshot) {
    let mut meter = WaitMeter::new(&rig.compute, period).unwrap();
    assert_eq!((meter.idle_share().unwrap(), meter.measured()), (0.0, 0), "before the first step");
    let before = rig.count.snapshot();
    for step in 0..steps {
        meter.begin();
        let batch = rig.batch(step, vec![1]);
        let ready = meter.wait_on(batch).unwrap();
        drop(ready);
        meter.end().unwrap();
        rig.compute.synchronize().unwrap();
    }
    let made = rig.count.snapshot() - before;
    (meter, made)
}

#[test]
fn the_meter_measures_one_step_per_period_and_the_others_cost_nothing() {
    with_watchdog(LIMIT, || {
        let rig = Rig::new();
        let steps = 40;
        let (mut every, _) = metered(&rig, 1, steps);
        let share = every.idle_share().unwrap();
        // The first step has no start event, because no step precedes it.
        assert_eq!(every.measured(), steps - 1);
        assert!((0.0..=1.0).contains(&share), "{share}");

        let (mut some, made) = metered(&rig, 8, steps);
        some.idle_share().unwrap();
        assert_eq!(some.measured(), steps / 8 - 1);
        let (_, without) = metered(&rig, u64::MAX, steps);
        assert_eq!(without.of(Op::Elapsed), 0);
        // Four events per measured step, and the start event of the one that is still open.
        assert_eq!(made.of(Op::Record) - without.of(Op::Record), 4 * (steps / 8 - 1) + 1);
        assert_eq!(made.created(), 0, "the meter creates its events when it is created");
    });
}

#[test]
fn a_meter_without_a_free_sample_skips_steps() {
    with_watchdog(LIMIT, || {
        let rig = Rig::new();
        let mut meter = WaitMeter::new(&rig.compute, 1).unwrap();
        // While the stream is blocked no step finishes, so no sample can be closed.
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let block = move |_: &mut feedline_device::Memory<'_>| {
            let _ = wait.recv_timeout(LIMIT);
        };
        rig.compute.run("block", [], [], block).unwrap();
        // The copies wait for the readers of earlier batches and do not finish either, so each needs
        // its own host slot.
        let mut hosts = Vec::new();
        for step in 0..20 {
            meter.begin();
            let host: Ring<Pinned> = Ring::new(vec![rig.device.pinned(rig.layout.bytes()).unwrap()]);
            let batch = rig.batch_from(&host, step, vec![1]);
            hosts.push(host);
            drop(meter.wait_on(batch).unwrap());
            meter.end().unwrap();
        }
        go.send(()).unwrap();
        rig.compute.synchronize().unwrap();
        meter.idle_share().unwrap();
        assert!((1..=8).contains(&meter.measured()), "{} of 20", meter.measured());
    });
}
