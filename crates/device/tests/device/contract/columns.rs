//! Zero-copy transfer: every byte arrives, gathers are ordered like copies, and invalid arguments are
//! rejected.

use std::sync::Arc;

use feedline_core::{
    Context, DType, Dataset, ErrorKind, Layout, ReadError, Result, Row, Spec, StableDataset, random::key,
};
use feedline_device::device_slots::{Loaded, Reader, SlotRing};
use feedline_device::slots::Ring;
use feedline_device::zero_copy::{GatherOrder, StridedColumns};
use feedline_device::{Address, BackendKind, Pinned, Stream};
use feedline_testkit::fixtures::{Fine, Laid, Wide};

use super::rig::{Ending, Rig, everywhere};

pub(crate) const BATCH: usize = 37;
pub(crate) const ROOM: usize = 1 << 30;

pub(crate) fn stable(set: impl Dataset) -> Arc<StableDataset> {
    Arc::new(StableDataset::new(Arc::new(set)))
}

/// A data set with its registered columns, and the rings and streams that bring its rows to the device.
pub(crate) struct ZeroCopy<'a> {
    pub(crate) rig: &'a Rig,
    pub(crate) set: Arc<StableDataset>,
    pub(crate) layout: Layout,
    pub(crate) columns: Arc<StridedColumns>,
    pub(crate) host: Ring<Pinned>,
    pub(crate) slots: Arc<SlotRing>,
    copies: Stream,
    pub(crate) seen: Pinned,
}

impl<'a> ZeroCopy<'a> {
    pub(crate) fn new(rig: &'a Rig, set: impl Dataset, host_slots: usize, slots: usize) -> Result<Self> {
        Self::of(rig, set, BATCH, host_slots, slots)
    }

    fn of(rig: &'a Rig, set: impl Dataset, batch: usize, host_slots: usize, slots: usize) -> Result<Self> {
        let set = stable(set);
        let columns = StridedColumns::new(&rig.device, &set, batch, ROOM)?;
        Self::with(rig, (set, columns), batch, host_slots, slots)
    }

    /// With a copy of the set on the device.
    pub(crate) fn resident(rig: &'a Rig, set: impl Dataset, host_slots: usize, slots: usize) -> Result<Self> {
        Self::of_resident(rig, set, BATCH, (host_slots, slots))
    }

    pub(crate) fn of_resident(
        rig: &'a Rig,
        set: impl Dataset,
        batch: usize,
        (host_slots, slots): (usize, usize),
    ) -> Result<Self> {
        let set = stable(set);
        let columns = StridedColumns::resident(&rig.device, &set, batch, ROOM, 3)?;
        Self::with(rig, (set, columns), batch, host_slots, slots)
    }

    fn with(
        rig: &'a Rig,
        (set, columns): (Arc<StableDataset>, StridedColumns),
        batch: usize,
        host_slots: usize,
        slots: usize,
    ) -> Result<Self> {
        let layout = columns.layout().clone();
        let block = |_| Pinned::new(&rig.device, GatherOrder::slot_bytes(batch));
        let blocks = (0..host_slots).map(block).collect::<Result<_>>()?;
        Ok(Self {
            columns: Arc::new(columns),
            host: Ring::new(blocks),
            slots: SlotRing::new(&rig.device, slots, layout.bytes())?,
            copies: rig.stream("copies")?,
            seen: Pinned::new(&rig.device, layout.bytes())?,
            rig,
            set,
            layout,
        })
    }

    pub(crate) fn load(&self, ids: &[u64]) -> Result<Loaded> {
        let mut lease = self.host.acquire()?;
        self.columns.gather_order().write(ids, lease.bytes_mut());
        let mut slot = self.slots.acquire()?;
        slot.info_mut().ids = ids.to_vec();
        slot.gather(&self.copies, lease.ready(), &self.columns)
    }

    /// Fetches the whole slot on the reader's stream.
    pub(crate) fn fetch(&self, reader: &Reader, to: &Pinned) -> Result<()> {
        let from: Address = reader.view::<u8>(0, self.layout.bytes())?.address();
        self.rig.fetch(reader.stream().into(), from, to)
    }

    /// Checks the rows of a fetched slot against `read`. Rows of ids out of range must be zeros.
    pub(crate) fn check(&self, ids: &[u64], slab: &[u8]) {
        for (row, &id) in ids.iter().enumerate() {
            let mut want = vec![0; self.layout.bytes()];
            if id < self.set.len() {
                let mut rows = feedline_core::Rows::new(&self.layout, &mut want, 1);
                self.set.read_many(&[id], &mut rows, &mut Context::new(0, 0)).expect("a sample");
            }
            for (index, field) in self.layout.spec().fields().iter().enumerate() {
                let (at, width) = (self.layout.offset(index), field.row_bytes());
                let (got, want) = (&slab[at + row * width..][..width], &want[at..][..width]);
                assert_eq!(got, want, "row {row}, sample {id}, field \"{}\"", field.name());
            }
        }
    }

    /// Loads a batch, reads it back and checks every byte.
    pub(crate) fn pass(&self, ids: &[u64], compute: &Stream) -> Result<()> {
        let reader = self.load(ids)?.wait_on(compute)?;
        self.fetch(&reader, &self.seen)?;
        compute.synchronize()?;
        self.check(ids, &self.rig.bytes(&self.seen)?);
        Ok(())
    }
}

pub(crate) fn shuffled(round: u64, rows: usize, len: u64) -> Vec<u64> {
    (0..rows as u64).map(|row| key(&[round, row]) % len).collect()
}

/// Samples with two fields of the given widths.
pub(crate) struct Two(Spec, u64);

impl Two {
    pub(crate) fn new(first: usize, second: usize, len: u64) -> Result<Self> {
        Ok(Self(Spec::new().field("a", DType::U8, [first])?.field("b", DType::U8, [second])?, len))
    }
}

impl Dataset for Two {
    fn len(&self) -> u64 {
        self.1
    }

    fn spec(&self) -> &Spec {
        &self.0
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        for field in 0..2 {
            let bytes = row.bytes_mut(field).iter_mut().enumerate();
            bytes.for_each(|(at, byte)| *byte = key(&[id, field as u64, at as u64]) as u8);
        }
        Ok(())
    }
}

#[test]
fn rows_of_any_width_and_stride_arrive_intact() {
    everywhere("rows_of_any_width_and_stride_arrive_intact", Ending::Clean, |rig| {
        let compute = rig.device.stream()?;
        let laid = |set: std::result::Result<Laid, ReadError>| set.expect("a set with columns");
        // The GPU kernel has several code paths by width; other devices have one.
        let widths: &[(usize, usize)] = match rig.device.kind() {
            BackendKind::Cuda => &[
                (1, 3),
                (8, 15),
                (16, 17),
                (31, 255),
                (256, 257),
                (784, 1),
                (3073, 9001),
                (65_535, 65_536),
                (150_528, 4),
                (70_001, 90_003),
            ],
            _ => &[(1, 300)],
        };
        for &(a, b) in widths {
            let two = Two::new(a, b, 50)?;
            for set in [
                laid(Laid::records(&two, 0, 0)),
                laid(Laid::records(&two, 5, 3)),
                laid(Laid::records(&two, 1, 15)),
                laid(Laid::columns(&two, 0)),
                laid(Laid::columns(&two, 7)),
            ] {
                let zero_copy = ZeroCopy::new(rig, set, 2, 2)?;
                for round in 0..3 {
                    zero_copy.pass(&shuffled(round, BATCH, 50), &compute)?;
                }
                zero_copy.pass(&shuffled(9, 3, 50), &compute)?;
                zero_copy.pass(&(13..50).collect::<Vec<_>>(), &compute)?;
                zero_copy.pass(&[49], &compute)?;
                zero_copy.pass(&[], &compute)?;
            }
        }
        Ok(())
    });
}

/// Two loaders of one process register the same memory, on one device or on several.
#[test]
fn memory_that_is_registered_twice_is_read_until_its_last_user_ends() {
    everywhere("memory_that_is_registered_twice_is_read_until_its_last_user_ends", Ending::Clean, |rig| {
        if rig.device.kind() != BackendKind::Cuda {
            // The simulator takes a second registration for a fault.
            return Ok(());
        }
        let compute = rig.device.stream()?;
        let set = stable(Laid::records(&Fine::new(5000, 784)?, 5, 3).expect("a set with columns"));
        let of = || -> Result<ZeroCopy<'_>> {
            let columns = StridedColumns::new(&rig.device, &set, BATCH, ROOM)?;
            ZeroCopy::with(rig, (set.clone(), columns), BATCH, 2, 2)
        };
        let (first, second) = (of()?, of()?);
        for round in 0..5 {
            first.pass(&shuffled(round, BATCH, 5000), &compute)?;
            second.pass(&shuffled(round + 5, BATCH, 5000), &compute)?;
        }
        drop(first);
        second.pass(&shuffled(11, BATCH, 5000), &compute)?;
        drop(second);
        // Unregistered by now, so it can be registered again.
        of()?.pass(&shuffled(12, BATCH, 5000), &compute)
    });
}

#[test]
fn fields_of_every_type_arrive_together() {
    everywhere("fields_of_every_type_arrive_together", Ending::Clean, |rig| {
        let compute = rig.device.stream()?;
        let zero_copy =
            ZeroCopy::new(rig, Laid::records(&Wide::new(40)?, 1, 0).expect("a set with columns"), 2, 2)?;
        zero_copy.pass(&shuffled(1, BATCH, 40), &compute)?;
        let zero_copy =
            ZeroCopy::new(rig, Laid::columns(&Wide::new(40)?, 0).expect("a set with columns"), 2, 2)?;
        zero_copy.pass(&shuffled(2, BATCH, 40), &compute)?;
        zero_copy.pass(&(3..40).collect::<Vec<_>>(), &compute)?;
        Ok(())
    });
}

#[test]
fn ids_out_of_range_write_zeros_and_read_nothing() {
    everywhere("ids_out_of_range_write_zeros_and_read_nothing", Ending::Clean, |rig| {
        let compute = rig.device.stream()?;
        // The second set has rows that count as long on a GPU (`crates/device/src/cuda/driver/long_rows.rs`).
        let (short, long) = (Fine::new(9, 300)?, Fine::new(9, 70_001)?);
        let sets = [
            Laid::records(&short, 0, 1),
            Laid::columns(&short, 0),
            Laid::records(&long, 3, 1),
            Laid::columns(&long, 0),
        ];
        for set in sets {
            let zero_copy = ZeroCopy::new(rig, set.expect("a set with columns"), 2, 1)?;
            zero_copy.pass(&[8, 9, u64::MAX, 0, 1 << 40], &compute)?;
            // Consecutive ids that pass the end of the set.
            zero_copy.pass(&[7, 8, 9, 10], &compute)?;
            zero_copy.pass(&[u64::MAX, 0, 1], &compute)?;
        }
        Ok(())
    });
}

/// A data set so large that gathers reorder the rows of a batch.
fn large(row_bytes: usize) -> Result<Laid> {
    Ok(Laid::far(&Fine::new(3000, row_bytes)?, 600 << 20).expect("a set with columns"))
}

#[test]
fn rows_of_a_reordered_batch_arrive_in_their_places() {
    everywhere("rows_of_a_reordered_batch_arrive_in_their_places", Ending::Clean, |rig| {
        let compute = rig.device.stream()?;
        // Only a GPU copies long rows differently.
        let widths: &[usize] = if rig.device.kind() == BackendKind::Cuda { &[24, 70_001] } else { &[24] };
        for &row_bytes in widths {
            let zero_copy = ZeroCopy::of(rig, large(row_bytes)?, 300, 2, 2)?;
            assert_ne!(zero_copy.columns.gather_order(), GatherOrder::default());
            for rows in [300, 257, 256, 255, 37] {
                zero_copy.pass(&shuffled(1, rows, 3000), &compute)?;
                zero_copy.pass(&(0..rows as u64).rev().map(|row| row * 9).collect::<Vec<_>>(), &compute)?;
            }
            let mut ids = shuffled(2, 300, 3000);
            (ids[3], ids[100], ids[299]) = (3000, u64::MAX, 1 << 40);
            zero_copy.pass(&ids, &compute)?;
            // The same sample repeatedly; then consecutive rows.
            zero_copy.pass(&[2999; 300], &compute)?;
            zero_copy.pass(&(2700..3000).collect::<Vec<_>>(), &compute)?;
        }
        Ok(())
    });
}

#[test]
fn a_host_slot_too_small_for_the_places_is_rejected() {
    everywhere("a_host_slot_too_small_for_the_places_is_rejected", Ending::Clean, |rig| {
        let zero_copy = ZeroCopy::of(rig, large(24)?, 300, 1, 1)?;
        let host: Ring<Pinned> = Ring::new(vec![Pinned::new(&rig.device, 12 * 300 - 1)?]);
        let gather = |rows| {
            let (mut slot, ready) = (zero_copy.slots.acquire()?, host.acquire()?.ready());
            slot.info_mut().ids = shuffled(1, rows, 3000);
            slot.gather(&zero_copy.copies, ready, &zero_copy.columns)
        };
        assert_eq!(gather(300).err().map(|error| error.kind()), Some(ErrorKind::Config));
        // The contents of the slot are arbitrary: ids and places out of range.
        drop(gather(299)?);
        Ok(())
    });
}

/// Pairs of batches: one pair for the gather, one for the copy engine.
fn gathered_and_copied() -> [(Vec<u64>, Vec<u64>); 2] {
    let (one, other) = (shuffled(1, BATCH, 60), shuffled(2, BATCH, 60));
    [(one, other), ((0..37).collect(), (20..57).collect())]
}

#[test]
fn a_slot_is_gathered_into_after_all_its_readers() {
    everywhere("a_slot_is_gathered_into_after_all_its_readers", Ending::Clean, |rig| {
        for (first, then) in gathered_and_copied() {
            let zero_copy = ZeroCopy::new(
                rig,
                Laid::columns(&Fine::new(60, 100)?, 0).expect("a set with columns"),
                2,
                1,
            )?;
            let (slow, fast) = (rig.stream("slow")?, rig.stream("fast")?);
            let (kept, arrived) = (
                Pinned::new(&rig.device, zero_copy.layout.bytes())?,
                Pinned::new(&rig.device, zero_copy.layout.bytes())?,
            );
            let reader = zero_copy.load(&first)?.wait_on(&slow)?;
            let second = reader.also_on(&fast)?;
            // The first reader is late, and the second one ends before it.
            let gate = rig.gate(&slow)?;
            zero_copy.fetch(&reader, &kept)?;
            drop(reader);
            drop(second);
            fast.synchronize()?;
            let next = zero_copy.load(&then)?;
            let waits = (0..100).all(|_| next.is_copied().is_ok_and(|done| !done));
            drop(gate);
            zero_copy.fetch(&next.wait_on(&fast)?, &arrived)?;
            fast.synchronize()?;
            slow.synchronize()?;
            // Assert only now: if the test failed while a stream writes into the blocks, it would crash.
            assert!(waits, "the slot still has a reader");
            zero_copy.check(&first, &rig.bytes(&kept)?);
            zero_copy.check(&then, &rig.bytes(&arrived)?);
        }
        Ok(())
    });
}

#[test]
fn ids_are_not_overwritten_before_the_gather_has_read_them() {
    everywhere("ids_are_not_overwritten_before_the_gather_has_read_them", Ending::Clean, |rig| {
        let compute = rig.device.stream()?;
        for (first, then) in gathered_and_copied() {
            let zero_copy = ZeroCopy::new(
                rig,
                Laid::columns(&Fine::new(60, 100)?, 0).expect("a set with columns"),
                1,
                2,
            )?;
            let gate = rig.gate(&zero_copy.copies)?;
            let loaded = zero_copy.load(&first)?;
            assert!(
                (0..100).all(|_| zero_copy.host.try_acquire().is_ok_and(|lease| lease.is_none())),
                "its ids have not been read"
            );
            drop(gate);
            let next = zero_copy.load(&then)?;
            for (ids, loaded) in [(&first, loaded), (&then, next)] {
                zero_copy.fetch(&loaded.wait_on(&compute)?, &zero_copy.seen)?;
                compute.synchronize()?;
                zero_copy.check(ids, &rig.bytes(&zero_copy.seen)?);
            }
        }
        Ok(())
    });
}

#[test]
fn columns_outlive_the_work_that_reads_them() {
    everywhere("columns_outlive_the_work_that_reads_them", Ending::Clean, |rig| {
        let compute = rig.device.stream()?;
        for (ids, _) in gathered_and_copied() {
            let zero_copy = ZeroCopy::new(
                rig,
                Laid::columns(&Fine::new(60, 100)?, 0).expect("a set with columns"),
                1,
                1,
            )?;
            let gate = rig.gate(&zero_copy.copies)?;
            let loaded = zero_copy.load(&ids)?;
            // The ring keeps the columns, and the batch keeps the ring.
            let ZeroCopy { columns, seen, host, slots, layout, .. } = zero_copy;
            drop((columns, slots));
            drop(gate);
            let reader = loaded.wait_on(&compute)?;
            rig.fetch((&compute).into(), reader.view::<u8>(0, layout.bytes())?.address(), &seen)?;
            compute.synchronize()?;
            let want = ZeroCopy::new(
                rig,
                Laid::columns(&Fine::new(60, 100)?, 0).expect("a set with columns"),
                1,
                1,
            )?;
            want.check(&ids, &rig.bytes(&seen)?);
            drop((reader, host));
        }
        Ok(())
    });
}

#[test]
fn streams_columns_and_sizes_that_do_not_fit_are_rejected() {
    everywhere("streams_columns_and_sizes_that_do_not_fit_are_rejected", Ending::Clean, |rig| {
        let kind = |result: Result<Loaded>| result.err().map(|error| error.kind());
        let laid = || Laid::records(&Fine::new(60, 100)?, 0, 0).map_err(|_| unreachable!("it can be read"));
        let zero_copy = ZeroCopy::new(rig, laid()?, 3, 2)?;
        let ids = shuffled(1, BATCH, 60);
        drop(zero_copy.load(&ids)?);
        let load = |stream: &Stream, columns: &Arc<StridedColumns>, ids: &[u64]| {
            let mut slot = zero_copy.slots.acquire()?;
            slot.info_mut().ids = ids.to_vec();
            slot.gather(stream, zero_copy.host.acquire()?.ready(), columns)
        };
        assert_eq!(kind(load(&rig.stream("other")?, &zero_copy.columns, &ids)), Some(ErrorKind::Config));
        assert_eq!(
            kind(load(&zero_copy.copies, &zero_copy.columns, &[0; BATCH + 1])),
            Some(ErrorKind::Config)
        );
        let columns = Arc::new(StridedColumns::new(&rig.device, &stable(laid()?), BATCH, ROOM)?);
        assert_eq!(kind(load(&zero_copy.copies, &columns, &ids)), Some(ErrorKind::Config));
        let columns = Arc::new(StridedColumns::new(&rig.device, &stable(laid()?), 2 * BATCH, ROOM)?);
        assert_eq!(kind(load(&zero_copy.copies, &columns, &ids)), Some(ErrorKind::Config));
        // All slots were released.
        assert_eq!(zero_copy.slots.free(), 2);
        drop(zero_copy.load(&ids)?);
        Ok(())
    });
}
