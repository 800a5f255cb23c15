//! Slots that are filled with rows which the device reads itself: every byte arrives, in the order of the hand-off, and what
//! does not fit is refused.

use std::sync::Arc;

use feedline_core::{
    Context, DType, Dataset, Error, ErrorKind, Layout, ReadError, Result, Row, Rows, Spec, StridedColumn,
    random::key,
};
use feedline_device::slot::{Loaded, Reader, SlotRing};
use feedline_device::zero_copy::{GatherOrder, StridedColumns};
use feedline_device::{Address, Backend, BackendKind, Device, Pinned, Stream};
use feedline_sim::interceptors::{Call, Intercepted, Interceptor, Op};
use feedline_sim::{Sim, SimOptions};
use feedline_slots::Ring;
use feedline_testkit::fixtures::{Fine, Laid, Wide};

use crate::rig::{Ending, Rig, everywhere};

const BATCH: usize = 37;
const ROOM: usize = 1 << 30;

/// A data set, its tables, and what brings them to the device.
struct Direct<'a> {
    rig: &'a Rig,
    set: Arc<dyn Dataset>,
    layout: Layout,
    columns: Arc<StridedColumns>,
    host: Ring<Pinned>,
    slots: SlotRing,
    copies: Stream,
    seen: Pinned,
}

impl<'a> Direct<'a> {
    fn new(rig: &'a Rig, set: impl Dataset, host_slots: usize, slots: usize) -> Result<Self> {
        Self::of(rig, set, BATCH, host_slots, slots)
    }

    fn of(rig: &'a Rig, set: impl Dataset, batch: usize, host_slots: usize, slots: usize) -> Result<Self> {
        let set: Arc<dyn Dataset> = Arc::new(set);
        let layout = Layout::new(set.spec(), batch)?;
        let gather_order = |_| rig.device.pinned(GatherOrder::slot_bytes(batch));
        let gather_order = (0..host_slots).map(gather_order).collect::<Result<_>>()?;
        Ok(Self {
            columns: Arc::new(StridedColumns::new(&rig.device, &set, &layout, ROOM)?),
            host: Ring::new(gather_order),
            slots: SlotRing::new(&rig.device, slots, layout.bytes())?,
            copies: rig.stream("copies")?,
            seen: rig.device.pinned(layout.bytes())?,
            rig,
            set,
            layout,
        })
    }

    fn load(&self, ids: &[u64]) -> Result<Loaded> {
        let mut lease = self.host.acquire()?;
        self.columns.gather_order().write(ids, lease.bytes_mut());
        let mut slot = self.slots.acquire()?;
        slot.info_mut().ids = ids.to_vec();
        slot.gather(&self.copies, lease.ready(), &self.columns)
    }

    /// Gives the reader's stream the fetch of the whole slot.
    fn fetch(&self, reader: &Reader, to: &Pinned) -> Result<()> {
        let from: Address = reader.view::<u8>(0, self.layout.bytes())?.address();
        self.rig.fetch(reader.stream().into(), from, to)
    }

    /// Checks the rows of a fetched slot against `read`; those of ids that are none are zeros.
    fn check(&self, ids: &[u64], slab: &[u8]) {
        for (row, &id) in ids.iter().enumerate() {
            let mut want = vec![0; self.layout.bytes()];
            if id < self.set.len() {
                let mut rows = Rows::new(&self.layout, &mut want, 1);
                self.set.read_many(&[id], &mut rows, &mut Context::new(0, 0)).expect("a sample");
            }
            for (index, field) in self.layout.spec().fields().iter().enumerate() {
                let (at, width) = (self.layout.offset(index), field.row_bytes());
                let (got, want) = (&slab[at + row * width..][..width], &want[at..][..width]);
                assert_eq!(got, want, "row {row}, sample {id}, field \"{}\"", field.name());
            }
        }
    }

    /// Loads a batch, reads it back and looks at every byte.
    fn pass(&self, ids: &[u64], compute: &Stream) -> Result<()> {
        let reader = self.load(ids)?.wait_on(compute)?;
        self.fetch(&reader, &self.seen)?;
        compute.synchronize()?;
        self.check(ids, &self.rig.bytes(&self.seen)?);
        Ok(())
    }
}

fn shuffled(round: u64, rows: usize, len: u64) -> Vec<u64> {
    (0..rows as u64).map(|row| key(&[round, row]) % len).collect()
}

/// Samples with two fields of these widths.
struct Two(Spec, u64);

impl Two {
    fn new(first: usize, second: usize, len: u64) -> Result<Self> {
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
fn rows_of_any_width_and_distance_arrive_as_they_lie() {
    everywhere("rows_of_any_width_and_distance_arrive_as_they_lie", Ending::Clean, |rig| {
        let compute = rig.device.stream()?;
        let laid = |set: std::result::Result<Laid, ReadError>| set.expect("a laid set");
        // A GPU has many roads for many widths; the others have one.
        let widths: &[(usize, usize)] = match rig.device.kind() {
            BackendKind::Cuda => {
                &[(1, 3), (8, 15), (16, 17), (31, 255), (256, 257), (784, 1), (3073, 9001), (150_528, 4)]
            }
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
                let direct = Direct::new(rig, set, 2, 2)?;
                for round in 0..3 {
                    direct.pass(&shuffled(round, BATCH, 50), &compute)?;
                }
                direct.pass(&shuffled(9, 3, 50), &compute)?;
                direct.pass(&(13..50).collect::<Vec<_>>(), &compute)?;
                direct.pass(&[49], &compute)?;
                direct.pass(&[], &compute)?;
            }
        }
        Ok(())
    });
}

#[test]
fn fields_of_every_type_arrive_at_once() {
    everywhere("fields_of_every_type_arrive_at_once", Ending::Clean, |rig| {
        let compute = rig.device.stream()?;
        let direct = Direct::new(rig, Laid::records(&Wide::new(40)?, 1, 0).expect("a laid set"), 2, 2)?;
        direct.pass(&shuffled(1, BATCH, 40), &compute)?;
        let direct = Direct::new(rig, Laid::columns(&Wide::new(40)?, 0).expect("a laid set"), 2, 2)?;
        direct.pass(&shuffled(2, BATCH, 40), &compute)?;
        direct.pass(&(3..40).collect::<Vec<_>>(), &compute)?;
        Ok(())
    });
}

#[test]
fn ids_that_are_none_leave_zeros_and_read_nothing() {
    everywhere("ids_that_are_none_leave_zeros_and_read_nothing", Ending::Clean, |rig| {
        let compute = rig.device.stream()?;
        for set in [Laid::records(&Fine::new(9, 300)?, 0, 1), Laid::columns(&Fine::new(9, 300)?, 0)] {
            let direct = Direct::new(rig, set.expect("a laid set"), 2, 1)?;
            direct.pass(&[8, 9, u64::MAX, 0, 1 << 40], &compute)?;
            // As if one after the other, and beyond the end.
            direct.pass(&[7, 8, 9, 10], &compute)?;
            direct.pass(&[u64::MAX, 0, 1], &compute)?;
        }
        Ok(())
    });
}

/// A set that lies so far apart that batches of some size are visited in another order than their own.
fn far() -> Result<Laid> {
    Ok(Laid::far(&Fine::new(3000, 24)?, 600 << 20).expect("a laid set"))
}

#[test]
fn rows_of_a_set_that_lies_far_apart_arrive_in_their_places() {
    everywhere("rows_of_a_set_that_lies_far_apart_arrive_in_their_places", Ending::Clean, |rig| {
        let compute = rig.device.stream()?;
        let direct = Direct::of(rig, far()?, 300, 2, 2)?;
        assert_ne!(direct.columns.gather_order(), GatherOrder::default());
        for rows in [300, 257, 256, 255, 37] {
            direct.pass(&shuffled(1, rows, 3000), &compute)?;
            direct.pass(&(0..rows as u64).rev().map(|row| row * 9).collect::<Vec<_>>(), &compute)?;
        }
        let mut ids = shuffled(2, 300, 3000);
        (ids[3], ids[100], ids[299]) = (3000, u64::MAX, 1 << 40);
        direct.pass(&ids, &compute)?;
        // One sample, again and again; and the rows one after the other.
        direct.pass(&[2999; 300], &compute)?;
        direct.pass(&(2700..3000).collect::<Vec<_>>(), &compute)
    });
}

#[test]
fn places_have_room_in_the_host_slot() {
    everywhere("places_have_room_in_the_host_slot", Ending::Clean, |rig| {
        let direct = Direct::of(rig, far()?, 300, 1, 1)?;
        let host: Ring<Pinned> = Ring::new(vec![rig.device.pinned(12 * 300 - 1)?]);
        let gather = |rows| {
            let (mut slot, gather_order) = (direct.slots.acquire()?, host.acquire()?.ready());
            slot.info_mut().ids = shuffled(1, rows, 3000);
            slot.gather(&direct.copies, gather_order, &direct.columns)
        };
        assert_eq!(gather(300).err().map(|error| error.kind()), Some(ErrorKind::Config));
        // Of what lies in the slot nothing is known here: ids that are none, and places that are none.
        drop(gather(299)?);
        Ok(())
    });
}

/// A batch by the gather, and one by the copy engine.
fn both_ways() -> [(Vec<u64>, Vec<u64>); 2] {
    let (one, other) = (shuffled(1, BATCH, 60), shuffled(2, BATCH, 60));
    [(one, other), ((0..37).collect(), (20..57).collect())]
}

#[test]
fn a_slot_is_gathered_into_after_all_its_readers() {
    everywhere("a_slot_is_gathered_into_after_all_its_readers", Ending::Clean, |rig| {
        for (first, then) in both_ways() {
            let direct = Direct::new(rig, Laid::columns(&Fine::new(60, 100)?, 0).expect("a laid set"), 2, 1)?;
            let (slow, fast) = (rig.stream("slow")?, rig.stream("fast")?);
            let (kept, arrived) =
                (rig.device.pinned(direct.layout.bytes())?, rig.device.pinned(direct.layout.bytes())?);
            let reader = direct.load(&first)?.wait_on(&slow)?;
            let second = reader.also_on(&fast)?;
            // The first reader is late, and the second is done before it.
            let gate = rig.gate(&slow)?;
            direct.fetch(&reader, &kept)?;
            drop(reader);
            drop(second);
            fast.synchronize()?;
            let next = direct.load(&then)?;
            let waits = (0..100).all(|_| next.arrived().is_ok_and(|done| !done));
            drop(gate);
            direct.fetch(&next.wait_on(&fast)?, &arrived)?;
            fast.synchronize()?;
            slow.synchronize()?;
            // Only now: a test that ends while a stream writes into its blocks would end otherwise than by this.
            assert!(waits, "the slot has a reader still");
            direct.check(&first, &rig.bytes(&kept)?);
            direct.check(&then, &rig.bytes(&arrived)?);
        }
        Ok(())
    });
}

#[test]
fn ids_are_not_overwritten_before_they_were_read() {
    everywhere("ids_are_not_overwritten_before_they_were_read", Ending::Clean, |rig| {
        let compute = rig.device.stream()?;
        for (first, then) in both_ways() {
            let direct = Direct::new(rig, Laid::columns(&Fine::new(60, 100)?, 0).expect("a laid set"), 1, 2)?;
            let gate = rig.gate(&direct.copies)?;
            let loaded = direct.load(&first)?;
            assert!(
                (0..100).all(|_| direct.host.try_acquire().is_ok_and(|lease| lease.is_none())),
                "its ids are not read"
            );
            drop(gate);
            let next = direct.load(&then)?;
            for (ids, loaded) in [(&first, loaded), (&then, next)] {
                direct.fetch(&loaded.wait_on(&compute)?, &direct.seen)?;
                compute.synchronize()?;
                direct.check(ids, &rig.bytes(&direct.seen)?);
            }
        }
        Ok(())
    });
}

#[test]
fn tables_outlive_the_work_that_reads_them() {
    everywhere("tables_outlive_the_work_that_reads_them", Ending::Clean, |rig| {
        let compute = rig.device.stream()?;
        for (ids, _) in both_ways() {
            let direct = Direct::new(rig, Laid::columns(&Fine::new(60, 100)?, 0).expect("a laid set"), 1, 1)?;
            let gate = rig.gate(&direct.copies)?;
            let loaded = direct.load(&ids)?;
            // The ring has the tables, and the batch has the ring.
            let Direct { columns, seen, host, slots, layout, .. } = direct;
            drop((columns, slots));
            drop(gate);
            let reader = loaded.wait_on(&compute)?;
            rig.fetch((&compute).into(), reader.view::<u8>(0, layout.bytes())?.address(), &seen)?;
            compute.synchronize()?;
            let want = Direct::new(rig, Laid::columns(&Fine::new(60, 100)?, 0).expect("a laid set"), 1, 1)?;
            want.check(&ids, &rig.bytes(&seen)?);
            drop((reader, host));
        }
        Ok(())
    });
}

#[test]
fn what_does_not_fit_is_refused() {
    everywhere("what_does_not_fit_is_refused", Ending::Clean, |rig| {
        let kind = |result: Result<Loaded>| result.err().map(|error| error.kind());
        let laid = || Laid::records(&Fine::new(60, 100)?, 0, 0).map_err(|_| unreachable!("it can be read"));
        let direct = Direct::new(rig, laid()?, 3, 2)?;
        let ids = shuffled(1, BATCH, 60);
        drop(direct.load(&ids)?);
        let load = |stream: &Stream, columns: &Arc<StridedColumns>, ids: &[u64]| {
            let mut slot = direct.slots.acquire()?;
            slot.info_mut().ids = ids.to_vec();
            slot.gather(stream, direct.host.acquire()?.ready(), columns)
        };
        assert_eq!(kind(load(&rig.stream("other")?, &direct.columns, &ids)), Some(ErrorKind::Config));
        assert_eq!(kind(load(&direct.copies, &direct.columns, &[0; BATCH + 1])), Some(ErrorKind::Config));
        let other: Arc<dyn Dataset> = Arc::new(laid()?);
        let columns = Arc::new(StridedColumns::new(&rig.device, &other, &direct.layout, ROOM)?);
        assert_eq!(kind(load(&direct.copies, &columns, &ids)), Some(ErrorKind::Config));
        let larger = Layout::new(other.spec(), 2 * BATCH)?;
        let another: Arc<dyn Dataset> = Arc::new(laid()?);
        let columns = Arc::new(StridedColumns::new(&rig.device, &another, &larger, ROOM)?);
        assert_eq!(kind(load(&direct.copies, &columns, &ids)), Some(ErrorKind::Config));
        // And the slots all came home.
        assert_eq!(direct.slots.free(), 2);
        drop(direct.load(&ids)?);
        Ok(())
    });
}

#[test]
fn a_set_that_cannot_be_read_says_why_and_leaves_nothing() {
    everywhere("a_set_that_cannot_be_read_says_why_and_leaves_nothing", Ending::Clean, |rig| {
        let why = |set: Arc<dyn Dataset>, layout: &Layout, room| {
            let error = StridedColumns::new(&rig.device, &set, layout, room).expect_err("it cannot be read");
            assert_eq!(rig.device.stats().pinned_bytes.now(), 0);
            (error.kind(), error.message().to_owned())
        };
        let fine = Fine::new(60, 100)?;
        let layout = Layout::new(fine.spec(), BATCH)?;
        let (kind, text) = why(Arc::new(fine.clone()), &layout, ROOM);
        assert_eq!((kind, &*text), (ErrorKind::Config, "field \"id\" has no table"));
        let laid = Laid::records(&fine, 0, 0).expect("a laid set");
        let (kind, text) = why(Arc::new(laid.clone()), &layout, laid.block_bytes() - 1);
        assert_eq!(kind, ErrorKind::Budget);
        assert!(text.contains(&format!("{} bytes", laid.block_bytes())), "{text}");
        let other = Layout::new(&Spec::new().field("id", DType::I64, [2])?, BATCH)?;
        let (kind, text) = why(Arc::new(laid), &other, ROOM);
        assert_eq!(kind, ErrorKind::Config);
        assert!(text.contains("60 rows of 8 bytes"), "{text}");
        struct Short(Laid);
        impl Dataset for Short {
            fn len(&self) -> u64 {
                61
            }
            fn spec(&self) -> &Spec {
                self.0.spec()
            }
            fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
                self.0.read(id, row, context)
            }
            fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
                self.0.column(field)
            }
        }
        let (kind, _) = why(Arc::new(Short(Laid::records(&fine, 0, 0).expect("a laid set"))), &layout, ROOM);
        assert_eq!(kind, ErrorKind::Config);
        Ok(())
    });
}

/// Makes every gather, and says that it failed.
struct FailsLate;

impl Interceptor for FailsLate {
    fn intercept<R>(&self, _: &dyn Backend, call: Call, make: impl FnOnce() -> Result<R>) -> Result<R> {
        let made = make()?;
        if call.op == Op::Gather { Err(Error::new(ErrorKind::Device, "planned")) } else { Ok(made) }
    }
}

#[test]
fn memory_stays_registered_under_a_gather_that_failed_late() {
    for seed in 0..10 {
        let (backend, sim) = Sim::new(SimOptions::seed(seed)).expect("a device");
        let rig = Rig {
            device: Device::with_backend(Intercepted::with(backend, FailsLate)),
            sim: Some(sim.clone()),
        };
        let laid = Laid::records(&Fine::new(60, 100).expect("a set"), 0, 1).expect("a laid set");
        let direct = Direct::new(&rig, laid, 2, 2).expect("tables");
        assert!(direct.load(&shuffled(1, BATCH, 60)).is_err());
        // The host slot, which waits for its stream too, goes last.
        let Direct { columns, slots, host, .. } = direct;
        drop((columns, slots));
        assert_eq!(sim.races().len(), 0, "seed {seed}: {:?}", sim.races());
        drop(host);
    }
}

/// Unregisters nothing, and says so.
struct KeepsRegistered;

impl Interceptor for KeepsRegistered {
    fn intercept<R>(&self, _: &dyn Backend, call: Call, make: impl FnOnce() -> Result<R>) -> Result<R> {
        if call.op == Op::UnregisterHost {
            return Err(Error::new(ErrorKind::Device, "planned: still registered"));
        }
        make()
    }
}

#[test]
fn memory_that_stays_registered_is_never_freed() {
    let backend = Intercepted::with(feedline_device::host::Host::new(), KeepsRegistered);
    let device = Device::with_backend(backend);
    let set: Arc<dyn Dataset> =
        Arc::new(Laid::records(&Fine::new(60, 100).expect("a set"), 0, 1).expect("a set"));
    let layout = Layout::new(set.spec(), BATCH).expect("a layout");
    let columns = StridedColumns::new(&device, &set, &layout, ROOM).expect("tables");
    let held = Arc::downgrade(&set);
    drop(set);
    drop(columns);
    assert!(held.upgrade().is_some(), "the set's memory was freed while the driver had it registered");
    let errors = device.stats().take_errors();
    assert!(errors.iter().any(|error| error.message() == "planned: still registered"), "{errors:?}");
    assert_eq!(device.stats().pinned_bytes.now(), 0);
}
