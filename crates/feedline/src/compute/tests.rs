//! The hand-off without a pipeline: the content of a batch, the release of its slot, wrong streams.

use std::sync::Arc;

use feedline_core::{DType, ErrorKind, Layout, Spec, Stage};
use feedline_device::device_slots::SlotRing;
use feedline_device::slots::Ring;
use feedline_device::{Buffer, Device, Pinned, Stream, launch_host};
use feedline_testkit::{watchdog::LIMIT, with_watchdog};

use super::*;

const ROWS: usize = 6;
const DEPTH: usize = 2;

/// Device slots, and everything needed to load them by hand.
struct Rig {
    device: Device,
    compute: Stream,
    copy: Stream,
    layout: Arc<Layout>,
    host: Ring<Pinned>,
    slots: Arc<SlotRing>,
}

impl Rig {
    fn new() -> Self {
        let device = Device::new_host();
        let spec =
            Spec::new().field("image", DType::U8, [4, 5]).unwrap().field("label", DType::I64, []).unwrap();
        let layout = Arc::new(Layout::new(&spec, ROWS).unwrap());
        Self {
            compute: device.stream().unwrap(),
            copy: device.stream().unwrap(),
            host: Ring::new((0..DEPTH + 1).map(|_| Pinned::new(&device, layout.bytes()).unwrap()).collect()),
            slots: SlotRing::new(&device, DEPTH, layout.bytes()).unwrap(),
            layout,
            device,
        }
    }

    fn batch(&self, step: u64, ids: Vec<u64>) -> Batch {
        let bytes = self.layout.used_bytes(ids.len());
        let mut slot = self.slots.acquire().unwrap();
        let info = slot.info_mut();
        info.reset(1, 4, step);
        (info.valid, info.ids) = (ids.len(), ids);
        let loaded = slot.upload(&self.copy, self.host.acquire().unwrap().ready(), bytes).unwrap();
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
        assert!(ready.slot() == slot && *ready.stream() == rig.compute);
        // A short batch has only its own rows. The rows that an older batch left in the slot are not visible.
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
fn a_batch_open_to_another_stream_is_refused_by_a_replay() {
    with_watchdog(LIMIT, || {
        let rig = Rig::new();
        let branch = rig.device.stream().unwrap();
        let mut replay = Replay::new(&rig.compute);
        let mut result = Buffer::<u32>::new(&branch, 1).unwrap();
        let batch = rig.batch(0, vec![1]).wait_on(&branch).unwrap();
        // The whole step is on one stream, but the replay uses another one.
        let result = result.view_mut();
        let error = replay
            .step(&batch, result.address(), || {
                launch_host(&branch, "step", [batch.field::<u8>("image")?.into()], [result.into()], |_| {})
            })
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        for name in [rig.compute.to_string(), branch.to_string()] {
            assert!(error.to_string().contains(&name), "no {name} in: {error}");
        }
    });
}
