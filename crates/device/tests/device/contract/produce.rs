//! Slots that are filled by work of several streams: `SlotRing::set_writers` and `WriteLease::produce`.

use std::sync::Arc;

use feedline_core::{Error, ErrorKind, Result};
use feedline_device::device_slots::{Loaded, SlotMut, SlotRing};
use feedline_device::{Buffer, Pinned, Stream, launch_host};

use super::rig::{Ending, Rig, everywhere, with_host_memory};

const BYTES: usize = 4096;

/// A ring with two writers.
struct Pair {
    slots: Arc<SlotRing>,
    writers: [Stream; 2],
    compute: Stream,
}

impl Pair {
    fn new(rig: &Rig, slots: usize) -> Result<Self> {
        let writers = [rig.stream("writer 0")?, rig.stream("writer 1")?];
        let slots = SlotRing::new(&rig.device, slots, BYTES)?;
        slots.set_writers(&writers)?;
        Ok(Self { slots, writers, compute: rig.stream("compute")? })
    }

    /// Fills a slot with `value`, on writer `writer`.
    fn produce(&self, rig: &Rig, writer: usize, value: u8) -> Result<Loaded> {
        let stream = &self.writers[writer];
        self.slots.acquire()?.produce(stream, |slot| {
            let view = slot.view_mut::<u8>(0, BYTES)?;
            rig.fill_at(stream, view.address(), value, BYTES)
        })
    }

    fn see(&self, loaded: Loaded) -> Result<Vec<u8>> {
        loaded.wait_on(&self.compute)?.view::<u8>(0, BYTES)?.to_vec()
    }
}

#[test]
fn a_reader_gets_what_any_writer_has_produced() {
    everywhere("a_reader_gets_what_any_writer_has_produced", Ending::Clean, |rig| {
        let pair = Pair::new(rig, 1)?;
        for batch in 0..12 {
            let loaded = pair.produce(rig, usize::from(batch % 3 == 0), batch)?;
            assert_eq!(pair.see(loaded)?, [batch; BYTES]);
        }
        assert_eq!(pair.slots.free(), 1);
        Ok(())
    });
}

/// No reader has waited for its writer, so the next writer does.
#[test]
fn a_batch_that_is_dropped_unread_is_written_to_its_end_before_the_next() {
    everywhere("a_batch_that_is_dropped_unread_is_written_to_its_end", Ending::Clean, |rig| {
        let pair = Pair::new(rig, 1)?;
        let gate = rig.gate(&pair.writers[0])?;
        drop(pair.produce(rig, 0, 1)?);
        let next = pair.produce(rig, 1, 2)?;
        assert!((0..100).all(|_| next.is_copied().is_ok_and(|done| !done)), "the first writer is not done");
        // This one is dropped too, so the next one waits for both.
        drop(next);
        let last = pair.produce(rig, 0, 3)?;
        drop(gate);
        assert_eq!(pair.see(last)?, [3; BYTES]);
        Ok(())
    });
}

#[test]
fn a_slot_is_produced_after_all_its_readers() {
    everywhere("a_slot_is_produced_after_all_its_readers", Ending::Clean, |rig| {
        let pair = Pair::new(rig, 1)?;
        let kept = Pinned::new(&rig.device, BYTES)?;
        let reader = pair.produce(rig, 0, 1)?.wait_on(&pair.compute)?;
        let gate = rig.gate(&pair.compute)?;
        rig.fetch((&pair.compute).into(), reader.view::<u8>(0, BYTES)?.address(), &kept)?;
        drop(reader);
        let next = pair.produce(rig, 1, 2)?;
        assert!((0..100).all(|_| next.is_copied().is_ok_and(|done| !done)), "the slot still has a reader");
        drop(gate);
        let other = rig.stream("other")?;
        assert_eq!(next.wait_on(&other)?.view::<u8>(0, BYTES)?.to_vec()?, [2; BYTES]);
        pair.compute.synchronize()?;
        assert_eq!(rig.bytes(&kept)?, [1; BYTES]);
        Ok(())
    });
}

#[test]
fn only_the_writers_of_a_ring_produce_and_they_are_set_once() {
    everywhere("only_the_writers_of_a_ring_produce", Ending::Clean, |rig| {
        let pair = Pair::new(rig, 2)?;
        let refused = pair.slots.acquire()?.produce(&pair.compute, |_| panic!("not called"));
        let error = refused.expect_err("a third stream");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.message().contains("its 2 streams only, not by"), "{error}");
        let again = pair.slots.set_writers(&pair.writers).expect_err("set before");
        assert_eq!(again.kind(), ErrorKind::Config, "{again}");
        assert_eq!(pair.slots.free(), 2, "the slot is free again");
        // A ring whose writers were not set has one.
        let ring = SlotRing::new(&rig.device, 1, BYTES)?;
        drop(ring.acquire()?.produce(&pair.writers[0], |_| Ok(()))?);
        let error = ring.acquire()?.produce(&pair.writers[1], |_| Ok(())).expect_err("a second stream");
        assert!(error.message().contains("filled by one stream only"), "{error}");
        Ok(())
    });
}

/// What was queued before the error runs to its end, then the slot is used again.
#[test]
fn a_slot_whose_work_returns_an_error_is_free_again() {
    everywhere("a_slot_whose_work_returns_an_error_is_free_again", Ending::Clean, |rig| {
        let pair = Pair::new(rig, 1)?;
        for writer in [0, 1, 0] {
            let stream = &pair.writers[writer];
            let failed = pair.slots.acquire()?.produce(stream, |slot| {
                rig.fill_at(stream, slot.view_mut::<u8>(0, BYTES)?.address(), 9, BYTES)?;
                Err(Error::new(ErrorKind::Sample, "planned"))
            });
            assert_eq!(failed.err().map(|error| error.kind()), Some(ErrorKind::Sample));
            assert_eq!(pair.slots.free(), 1);
        }
        assert_eq!(pair.see(pair.produce(rig, 1, 5)?)?, [5; BYTES]);
        Ok(())
    });
}

#[test]
fn a_slot_whose_work_panics_is_never_handed_out_again() {
    with_host_memory("a_slot_whose_work_panics_is_never_handed_out_again", Ending::Dirty, |rig| {
        let pair = Pair::new(rig, 2)?;
        let lease = pair.slots.acquire()?;
        let work = |_: SlotMut<'_>| -> Result<()> { std::panic::resume_unwind(Box::new("planned")) };
        let panicked = std::panic::AssertUnwindSafe(|| lease.produce(&pair.writers[0], work));
        assert!(std::panic::catch_unwind(panicked).is_err());
        assert_eq!(pair.slots.free(), 1);
        for batch in 0..5 {
            assert_eq!(pair.see(pair.produce(rig, 0, batch)?)?, [batch; BYTES]);
        }
        Ok(())
    });
}

#[test]
fn views_of_a_slot_lie_inside_it_and_are_for_its_stream() {
    everywhere("views_of_a_slot_lie_inside_it_and_are_for_its_stream", Ending::Clean, |rig| {
        let pair = Pair::new(rig, 1)?;
        let loaded = pair.slots.acquire()?.produce(&pair.writers[0], |slot| {
            for (offset, len) in [(0, BYTES / 4 + 1), (BYTES, 1), (2, 1), (usize::MAX, 1), (0, usize::MAX)] {
                let error = slot.view_mut::<u32>(offset, len).expect_err("outside, or not aligned");
                assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            }
            let view = slot.view_mut::<u8>(0, 8)?;
            let error = launch_host(&pair.writers[1], "write", [], [view.into()], |_| {});
            assert_eq!(error.expect_err("the view of another stream").kind(), ErrorKind::Config);
            Ok(())
        })?;
        drop(loaded);
        Ok(())
    });
}

#[test]
fn elements_are_copied_between_views_of_one_stream_that_do_not_overlap() {
    everywhere("elements_are_copied_between_views_of_one_stream", Ending::Clean, |rig| {
        let (stream, other) = (rig.stream("stream")?, rig.stream("other")?);
        let (mut from, mut to) = (Buffer::<u32>::new(&stream, 6)?, Buffer::<u32>::new(&stream, 6)?);
        from.write(&[1, 2, 3, 4, 5, 6])?;
        to.slice_mut(2..5)?.copy_from(from.slice(1..4)?)?;
        to.slice_mut(0..0)?.copy_from(from.slice(6..6)?)?;
        assert_eq!(to.read()?, [0, 0, 2, 3, 4, 0]);
        let kinds = [
            to.slice_mut(0..2)?.copy_from(from.slice(0..3)?),
            Buffer::<u32>::new(&other, 6)?.view_mut().copy_from(from.view()),
        ];
        for refused in kinds {
            assert_eq!(refused.expect_err("refused").kind(), ErrorKind::Config);
        }
        // Two views of the same bytes of a slot.
        let ring = SlotRing::new(&rig.device, 1, BYTES)?;
        drop(ring.acquire()?.produce(&stream, |slot| {
            let (mut a, b) = (slot.view_mut::<u8>(0, 8)?, slot.view_mut::<u8>(4, 8)?);
            let error = a.reborrow().copy_from(b.as_view()).expect_err("they overlap");
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            a.copy_from(slot.view_mut::<u8>(8, 8)?.as_view())
        })?);
        Ok(())
    });
}
