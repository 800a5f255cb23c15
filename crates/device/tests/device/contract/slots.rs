//! The slots of a host ring and a device ring: batches arrive intact, and no slot is overwritten under a
//! reader.

use std::sync::Arc;

use feedline_core::{ErrorKind, Result};
use feedline_device::device_slots::{Loaded, MAX_READERS, MAX_SLOTS, Reader, SlotRing};
use feedline_device::slots::Ring;
use feedline_device::{Pinned, Stream};

use super::rig::{Ending, Rig, everywhere, with_host_memory};

const BYTES: usize = 4096;

/// A host ring, a device ring and a copy stream, as in a pipeline.
pub(crate) struct Pipe<'a> {
    rig: &'a Rig,
    pub(crate) host: Ring<Pinned>,
    pub(crate) slots: Arc<SlotRing>,
    pub(crate) copies: Stream,
    /// The host block to which batches are fetched.
    seen: Pinned,
}

impl<'a> Pipe<'a> {
    pub(crate) fn new(rig: &'a Rig, slots: usize) -> Result<Self> {
        let memory = (0..2).map(|_| Pinned::new(&rig.device, BYTES)).collect::<Result<_>>()?;
        let slots = SlotRing::new(&rig.device, slots, BYTES)?;
        Ok(Self {
            rig,
            host: Ring::new(memory),
            slots,
            copies: rig.stream("copies")?,
            seen: Pinned::new(&rig.device, BYTES)?,
        })
    }

    pub(crate) fn load(&self, value: u8) -> Result<Loaded> {
        let mut lease = self.host.acquire()?;
        lease.bytes_mut().fill(value);
        self.slots.acquire()?.upload(&self.copies, lease.ready(), BYTES)
    }

    /// Reads a batch on the reader's stream and returns its bytes.
    pub(crate) fn see(&self, reader: &Reader) -> Result<Vec<u8>> {
        let from = reader.view::<u8>(0, BYTES)?.address();
        self.rig.fetch(reader.stream().into(), from, &self.seen)?;
        reader.stream().synchronize()?;
        self.rig.bytes(&self.seen)
    }
}

#[test]
fn batches_arrive_intact_on_one_stream_and_on_two() {
    everywhere("batches_arrive_intact_on_one_stream_and_on_two", Ending::Clean, |rig| {
        let pipe = Pipe::new(rig, 2)?;
        let (compute, branch) = (rig.device.stream()?, rig.device.stream()?);
        for batch in 1..=20 {
            let reader = pipe.load(batch)?.wait_on(&compute)?;
            let second = (batch % 2 == 0).then(|| reader.also_on(&branch)).transpose()?;
            assert_eq!(pipe.see(&reader)?, [batch; BYTES]);
            assert_eq!(reader.view::<u8>(1, BYTES - 1)?.to_vec()?, [batch; BYTES - 1]);
            assert!(reader.view::<u8>(BYTES, 0)?.to_vec()?.is_empty());
            drop(reader);
            assert_eq!(pipe.slots.delivered(), second.iter().count(), "the last reader releases the slot");
            if let Some(second) = second {
                assert_eq!(pipe.see(&second)?, [batch; BYTES]);
            }
            assert_eq!(pipe.slots.free(), 2);
        }
        Ok(())
    });
}

#[test]
fn a_slot_is_overwritten_after_all_its_readers() {
    everywhere("a_slot_is_overwritten_after_all_its_readers", Ending::Clean, |rig| {
        let pipe = Pipe::new(rig, 1)?;
        let (slow, fast) = (rig.stream("slow")?, rig.stream("fast")?);
        let (kept, arrived) = (Pinned::new(&rig.device, BYTES)?, Pinned::new(&rig.device, BYTES)?);
        let reader = pipe.load(1)?.wait_on(&slow)?;
        let second = reader.also_on(&fast)?;
        // The first reader is late, and the second one ends before it.
        let gate = rig.gate(&slow)?;
        rig.fetch((&slow).into(), reader.view::<u8>(0, BYTES)?.address(), &kept)?;
        drop(reader);
        drop(second);
        fast.synchronize()?;
        let next = pipe.load(2)?;
        assert!((0..100).all(|_| next.is_copied().is_ok_and(|done| !done)), "the slot still has a reader");
        drop(gate);
        let reader = next.wait_on(&fast)?;
        rig.fetch((&fast).into(), reader.view::<u8>(0, BYTES)?.address(), &arrived)?;
        fast.synchronize()?;
        slow.synchronize()?;
        assert_eq!((rig.bytes(&kept)?, rig.bytes(&arrived)?), (vec![1; BYTES], vec![2; BYTES]));
        Ok(())
    });
}

/// One event covers the copy out of a block and into a slot. Neither side waits for later copies of the
/// other.
#[test]
fn a_block_and_a_slot_wait_only_for_their_own_copy() {
    everywhere("a_block_and_a_slot_wait_only_for_their_own_copy", Ending::Clean, |rig| {
        let compute = rig.device.stream()?;
        // The slot is filled again from another block.
        let pipe = Pipe::new(rig, 1)?;
        drop(pipe.load(1)?);
        pipe.copies.synchronize()?;
        let gate = rig.gate(&pipe.copies)?;
        let late = pipe.load(2)?;
        assert!(pipe.host.try_acquire()?.is_some(), "the first copy has ended");
        assert!(pipe.host.try_acquire()?.is_none() && !late.is_copied()?, "the second copy has not ended");
        drop(gate);
        assert_eq!(pipe.see(&late.wait_on(&compute)?)?, [2; BYTES]);
        // The block is copied again into another slot.
        let pipe = Pipe::new(rig, 2)?;
        let loaded = pipe.load(1)?;
        pipe.copies.synchronize()?;
        let other = pipe.host.acquire()?;
        let gate = rig.gate(&pipe.copies)?;
        let late = pipe.load(2)?;
        drop(other);
        assert!(loaded.is_copied()? && !late.is_copied()?, "the first copy has ended, the second has not");
        assert_eq!(pipe.see(&loaded.wait_on(&compute)?)?, [1; BYTES]);
        drop(gate);
        assert_eq!(pipe.see(&late.wait_on(&compute)?)?, [2; BYTES]);
        Ok(())
    });
}

#[test]
fn the_number_of_readers_of_a_batch_is_limited() {
    everywhere("the_number_of_readers_of_a_batch_is_limited", Ending::Clean, |rig| {
        let pipe = Pipe::new(rig, 1)?;
        let streams: Vec<Stream> = (0..=MAX_READERS).map(|_| rig.stream("reader")).collect::<Result<_>>()?;
        for batch in 1..=3 {
            let mut readers = vec![pipe.load(batch)?.wait_on(&streams[0])?];
            for stream in &streams[1..MAX_READERS] {
                let next = readers[0].also_on(stream)?;
                readers.push(next);
            }
            let refused = readers[0].also_on(&streams[MAX_READERS]).err().map(|error| error.kind());
            assert_eq!(refused, Some(ErrorKind::Config));
            for reader in &readers {
                assert_eq!(pipe.see(reader)?, [batch; BYTES]);
            }
        }
        Ok(())
    });
}

#[test]
fn a_forgotten_reader_loses_only_its_slot() {
    everywhere("a_forgotten_reader_loses_only_its_slot", Ending::Dirty, |rig| {
        let pipe = Pipe::new(rig, 2)?;
        let compute = rig.device.stream()?;
        let reader = pipe.load(1)?.wait_on(&compute)?;
        let lost = reader.index();
        std::mem::forget(reader);
        for batch in 2..=6 {
            let reader = pipe.load(batch)?.wait_on(&compute)?;
            assert_ne!(reader.index(), lost, "the slot of the forgotten reader is never handed out again");
            assert_eq!(pipe.see(&reader)?, [batch; BYTES]);
        }
        assert_eq!((pipe.slots.free(), pipe.slots.delivered()), (1, 1));
        Ok(())
    });
}

#[test]
fn dropped_leases_release_their_slots() {
    everywhere("dropped_leases_release_their_slots", Ending::Clean, |rig| {
        let pipe = Pipe::new(rig, 2)?;
        drop(pipe.slots.acquire()?);
        drop(pipe.load(1)?);
        let [kept, other] = [pipe.load(2)?, pipe.load(3)?];
        assert!(pipe.slots.try_acquire()?.is_none(), "both slots are taken");
        drop(other);
        let compute = rig.device.stream()?;
        assert_eq!(pipe.see(&kept.wait_on(&compute)?)?, [2; BYTES]);
        assert_eq!(pipe.slots.free(), 2);
        Ok(())
    });
}

#[test]
fn a_closed_ring_returns_stopped() {
    everywhere("a_closed_ring_returns_stopped", Ending::Clean, |rig| {
        let pipe = Pipe::new(rig, 2)?;
        pipe.slots.close();
        for _ in 0..100 {
            assert_eq!(pipe.slots.acquire().err().map(|error| error.kind()), Some(ErrorKind::Stopped));
            assert_eq!(pipe.slots.try_acquire().err().map(|error| error.kind()), Some(ErrorKind::Stopped));
        }
        Ok(())
    });
}

#[test]
fn a_ring_with_too_many_slots_is_rejected() {
    with_host_memory("a_ring_with_too_many_slots_is_rejected", Ending::Clean, |rig| {
        for slots in [usize::MAX, 1 << 40, MAX_SLOTS + 1] {
            let error = SlotRing::new(&rig.device, slots, 1).expect_err("more slots than a ring can have");
            assert_eq!(error.kind(), ErrorKind::Config, "{slots} slots: {error}");
        }
        Ok(())
    });
}
