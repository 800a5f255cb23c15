//! Slots that are filled by work that reads a filled host slot: `WriteLease::produce_from`.

use std::sync::Arc;

use feedline_core::{Error, ErrorKind, Result};
use feedline_device::device_slots::{Loaded, SlotRing};
use feedline_device::slots::Ring;
use feedline_device::{Pinned, Stream};

use super::rig::{Ending, Rig, everywhere};

const BYTES: usize = 4096;

/// Host slots that two streams read, and a ring of device slots that they write.
struct Lanes {
    host: Ring<Pinned>,
    slots: Arc<SlotRing>,
    streams: [Stream; 2],
    compute: Stream,
}

impl Lanes {
    fn new(rig: &Rig, host: usize, slots: usize) -> Result<Self> {
        let streams = [rig.stream("lane 0")?, rig.stream("lane 1")?];
        let slots = SlotRing::new(&rig.device, slots, BYTES)?;
        slots.set_writers(&streams)?;
        let host = (0..host).map(|_| Pinned::new(&rig.device, BYTES)).collect::<Result<Vec<_>>>()?;
        host.iter().try_for_each(|slot| slot.set_readers(&streams))?;
        let host = Ring::new(host);
        Ok(Self { host, slots, streams, compute: rig.stream("compute")? })
    }

    /// Fills a host slot with `value` and copies it, on lane `lane`.
    fn produce(&self, lane: usize, value: u8) -> Result<Loaded> {
        let mut filled = self.host.acquire()?;
        filled.bytes_mut().fill(value);
        self.slots.acquire()?.produce_from(&self.streams[lane], filled.ready(), |host, _, slot| {
            assert_eq!(host.bytes(), [value; BYTES], "read on the host");
            host.copy(0, slot.view_mut::<u8>(0, BYTES / 2)?)?;
            host.copy(BYTES / 2, slot.view_mut::<u8>(BYTES / 2, BYTES / 2)?)
        })
    }

    fn see(&self, loaded: Loaded) -> Result<Vec<u8>> {
        loaded.wait_on(&self.compute)?.view::<u8>(0, BYTES)?.to_vec()
    }
}

#[test]
fn a_host_slot_is_filled_again_once_the_lane_that_reads_it_is_done() {
    everywhere("a_host_slot_is_filled_again_once_its_lane_is_done", Ending::Clean, |rig| {
        let lanes = Lanes::new(rig, 1, 2)?;
        for batch in 0..12 {
            let loaded = lanes.produce(usize::from(batch % 3 == 0), batch)?;
            assert_eq!(lanes.see(loaded)?, [batch; BYTES]);
        }
        let gate = rig.gate(&lanes.streams[0])?;
        let first = lanes.produce(0, 1)?;
        assert!(lanes.host.try_acquire()?.is_none(), "lane 0 still reads the slot");
        drop(gate);
        let second = lanes.produce(1, 2)?;
        assert_eq!((lanes.see(first)?, lanes.see(second)?), (vec![1; BYTES], vec![2; BYTES]));
        Ok(())
    });
}

/// Lanes decode pictures for a slot while the step still reads the slot's last batch.
#[test]
fn work_before_the_first_view_does_not_wait_for_the_readers_of_the_slot() {
    everywhere("work_before_the_first_view_does_not_wait_for_readers", Ending::Clean, |rig| {
        let lanes = Lanes::new(rig, 2, 1)?;
        let kept = Pinned::new(&rig.device, BYTES)?;
        let reader = lanes.produce(0, 1)?.wait_on(&lanes.compute)?;
        let gate = rig.gate(&lanes.compute)?;
        rig.fetch((&lanes.compute).into(), reader.view::<u8>(0, BYTES)?.address(), &kept)?;
        drop(reader);
        let filled = lanes.host.acquire()?.ready();
        let next = lanes.slots.acquire()?.produce_from(&lanes.streams[1], filled, |_, _, slot| {
            // It would block for ever if the stream waited for the reader.
            lanes.streams[1].synchronize()?;
            let view = slot.view_mut::<u8>(0, BYTES)?;
            rig.fill_at(&lanes.streams[1], view.address(), 2, BYTES)
        })?;
        assert!((0..100).all(|_| next.is_copied().is_ok_and(|done| !done)), "the slot still has a reader");
        drop(gate);
        assert_eq!(lanes.see(next)?, [2; BYTES]);
        assert_eq!(rig.bytes(&kept)?, [1; BYTES], "the reader saw its own batch");
        Ok(())
    });
}

/// Even if the work takes no view, the next writer is ordered after the readers.
#[test]
fn both_slots_are_free_again_after_an_error_and_after_work_that_took_no_view() {
    everywhere("both_slots_are_free_again_after_an_error", Ending::Clean, |rig| {
        let lanes = Lanes::new(rig, 1, 1)?;
        for lane in [0, 1, 0] {
            let filled = lanes.host.acquire()?.ready();
            let failed =
                lanes.slots.acquire()?.produce_from(&lanes.streams[lane], filled, |host, _, slot| {
                    host.copy(0, slot.view_mut::<u8>(0, BYTES)?)?;
                    Err(Error::new(ErrorKind::Sample, "planned"))
                });
            assert_eq!(failed.err().map(|error| error.kind()), Some(ErrorKind::Sample));
            assert_eq!((lanes.host.counts().lost, lanes.slots.free()), (0, 1));
            let filled = lanes.host.acquire()?.ready();
            drop(lanes.slots.acquire()?.produce_from(&lanes.streams[lane], filled, |_, _, _| Ok(()))?);
        }
        assert_eq!(lanes.see(lanes.produce(1, 5)?)?, [5; BYTES]);
        Ok(())
    });
}

#[test]
fn a_host_slot_is_read_by_its_streams_only_and_within_its_bytes() {
    everywhere("a_host_slot_is_read_by_its_streams_only", Ending::Clean, |rig| {
        let lanes = Lanes::new(rig, 1, 1)?;
        let other = SlotRing::new(&rig.device, 1, BYTES)?;
        let refused =
            other.acquire()?.produce_from(&lanes.compute, lanes.host.acquire()?.ready(), |_, _, _| Ok(()));
        let error = refused.expect_err("a third stream");
        assert!(error.message().contains("copied by its 2 streams only, not by"), "{error}");
        assert_eq!((lanes.host.counts().lost, other.free()), (0, 1), "both are free again");
        let pinned = Pinned::new(&rig.device, 8)?;
        pinned.set_readers(&lanes.streams)?;
        assert_eq!(pinned.set_readers(&lanes.streams).expect_err("set before").kind(), ErrorKind::Config);
        let filled = lanes.host.acquire()?.ready();
        drop(lanes.slots.acquire()?.produce_from(&lanes.streams[0], filled, |host, _, slot| {
            for offset in [1, BYTES, usize::MAX] {
                let error = host.copy(offset, slot.view_mut::<u8>(0, BYTES)?).expect_err("outside");
                assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            }
            host.copy(BYTES, slot.view_mut::<u8>(0, 0)?)
        })?);
        Ok(())
    });
}
