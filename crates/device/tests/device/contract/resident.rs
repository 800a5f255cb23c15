//! Resident sets: every byte gets to the device once and to every batch, gathers wait for readers, and a set
//! that does not fit is refused and leaves nothing behind.

use std::sync::Arc;

use feedline_core::{Context, Dataset, ErrorKind, ReadError, Result, Row, Spec};
use feedline_device::zero_copy::{GatherOrder, StridedColumns};
use feedline_device::{BackendKind, Pinned};
use feedline_testkit::fixtures::{self, Fine, Laid, Random, Wide};

use super::columns::{BATCH, Two, ZeroCopy, shuffled, stable};
use super::rig::{Ending, everywhere, with_host_memory};

#[test]
fn rows_of_a_resident_set_of_any_width_arrive_intact() {
    everywhere("rows_of_a_resident_set_of_any_width_arrive_intact", Ending::Clean, |rig| {
        let compute = rig.device.stream()?;
        // The GPU kernel has several code paths by width; other devices have one.
        let widths: &[(usize, usize)] = match rig.device.kind() {
            BackendKind::Cuda => {
                &[(1, 3), (8, 15), (16, 17), (31, 255), (256, 257), (784, 1), (3073, 9001), (150_528, 4)]
            }
            _ => &[(1, 300)],
        };
        for &(a, b) in widths {
            let resident = ZeroCopy::resident(rig, Two::new(a, b, 50)?, 2, 2)?;
            assert_eq!(resident.columns.gather_order(), GatherOrder::default());
            for round in 0..3 {
                resident.pass(&shuffled(round, BATCH, 50), &compute)?;
            }
            resident.pass(&(13..50).collect::<Vec<_>>(), &compute)?;
            resident.pass(&[49], &compute)?;
            resident.pass(&[], &compute)?;
            resident.pass(&[49, 50, u64::MAX, 0, 1 << 40], &compute)?;
        }
        // With and without columns; a set of more than one piece (4 MiB).
        let wide = Wide::new(40)?;
        ZeroCopy::resident(rig, Laid::records(&wide, 1, 0).expect("columns"), 2, 2)?
            .pass(&shuffled(1, BATCH, 40), &compute)?;
        if rig.sim.is_none() {
            let pieces = ZeroCopy::resident(rig, Two::new(1_000_001, 3, 11)?, 2, 1)?;
            pieces.pass(&(0..11).rev().collect::<Vec<_>>(), &compute)?;
        }
        Ok(())
    });
}

#[test]
fn a_large_batch_of_a_resident_set_is_gathered_in_pieces() {
    everywhere("a_large_batch_of_a_resident_set_is_gathered_in_pieces", Ending::Clean, |rig| {
        let compute = rig.device.stream()?;
        // More rows than the launch has ids among its parameters.
        let (rows, widths) = match rig.device.kind() {
            BackendKind::Cuda => (1500, [(784, 1), (4096, 8), (12, 3072), (1000, 16), (40_000, 6)]),
            _ => (900, [(16, 1); 5]),
        };
        for (a, b) in widths {
            let resident = ZeroCopy::of_resident(rig, Two::new(a, b, 2000)?, rows, (2, 2))?;
            for (round, rows) in [rows, rows - 1, 769, 768, 513, 512, 33].into_iter().enumerate() {
                let mut ids = shuffled(round as u64, rows, 2000);
                (ids[0], ids[7]) = (2000, u64::MAX);
                resident.pass(&ids, &compute)?;
            }
        }
        Ok(())
    });
}

#[test]
fn a_slot_is_gathered_into_from_the_device_after_all_its_readers() {
    everywhere("a_slot_is_gathered_into_from_the_device_after_all_its_readers", Ending::Clean, |rig| {
        let resident = ZeroCopy::resident(rig, fixed(60, 100)?, 2, 1)?;
        let (first, then) = (shuffled(1, BATCH, 60), (20..57).collect::<Vec<_>>());
        let (slow, fast) = (rig.stream("slow")?, rig.stream("fast")?);
        let kept = Pinned::new(&rig.device, resident.layout.bytes())?;
        let reader = resident.load(&first)?.wait_on(&slow)?;
        let gate = rig.gate(&slow)?;
        resident.fetch(&reader, &kept)?;
        drop(reader);
        let next = resident.load(&then)?;
        let waits = (0..100).all(|_| next.is_copied().is_ok_and(|done| !done));
        drop(gate);
        resident.fetch(&next.wait_on(&fast)?, &resident.seen)?;
        fast.synchronize()?;
        slow.synchronize()?;
        // Assert only now: if the test failed while a stream writes into the blocks, it would crash.
        assert!(waits, "the slot still has a reader");
        resident.check(&first, &rig.bytes(&kept)?);
        resident.check(&then, &rig.bytes(&resident.seen)?);
        Ok(())
    });
}

#[test]
fn the_set_counts_as_device_memory_and_is_freed_after_its_gathers() {
    everywhere("the_set_counts_as_device_memory_and_is_freed_after_its_gathers", Ending::Clean, |rig| {
        let before = rig.device.stats().device_bytes.get();
        let compute = rig.device.stream()?;
        let resident = ZeroCopy::resident(rig, fixed(60, 100)?, 1, 1)?;
        // Fields of 8 and 100 bytes, each aligned to 256 bytes.
        assert_eq!(resident.columns.device_bytes(), 512 + 6144);
        assert_eq!(resident.columns.bytes(), 0, "no host memory is registered");
        let slot = resident.layout.bytes() as u64;
        assert_eq!(rig.device.stats().device_bytes.get() - before, 512 + 6144 + slot);
        let gate = rig.gate(&compute)?;
        let reader = resident.load(&shuffled(1, BATCH, 60))?.wait_on(&compute)?;
        drop(gate);
        drop((reader, resident));
        Ok(())
    });
}

/// Self-describing samples, the same in every epoch; without columns.
fn fixed(len: u64, row_bytes: usize) -> Result<impl Dataset> {
    let laid = Laid::columns(&Fine::new(len, row_bytes)?, 0).expect("a set with columns");
    Ok(fixtures::counting(laid).0)
}

/// Samples of the epoch.
struct Epochs(Spec);

impl Dataset for Epochs {
    fn len(&self) -> u64 {
        9
    }

    fn spec(&self) -> &Spec {
        &self.0
    }

    fn read(&self, _: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        row.bytes_mut(0).fill(context.epoch() as u8);
        Ok(())
    }
}

#[test]
fn a_set_that_cannot_be_kept_is_refused_and_leaves_nothing_behind() {
    with_host_memory(
        "a_set_that_cannot_be_kept_is_refused_and_leaves_nothing_behind",
        Ending::Clean,
        |rig| {
            let refused = |set: Arc<dyn Dataset>, budget| {
                let made = StridedColumns::resident(&rig.device, &stable(set), BATCH, budget, 3);
                made.map(drop).expect_err("it cannot be kept")
            };
            let fine = Fine::new(60, 100)?;
            let error = refused(Arc::new(fine.clone()), 100);
            assert_eq!(
                (error.kind(), error.message()),
                (
                    ErrorKind::Budget,
                    "the set takes 6656 bytes on the device, and its budget of 100 is too small for a sample \
                     beside the rows of a batch"
                )
            );
            let error = refused(Arc::new(fixtures::failing(fixed(60, 100)?, [31])), usize::MAX);
            assert_eq!((error.kind(), error.sample()), (ErrorKind::Sample, Some(31)));
            assert!(error.to_string().contains("planned failure of sample 31"), "{error}");
            let error = refused(Arc::new(fixtures::panicking(fixed(60, 100)?, [31])), usize::MAX);
            assert_eq!((error.kind(), error.sample()), (ErrorKind::Panic, Some(31)));
            let spec = Spec::new().field("x", feedline_core::DType::U8, [])?;
            let fine = Fine::new(60, 100)?;
            for set in
                [Arc::new(Random::new(60, 2)?) as Arc<dyn Dataset>, Arc::new(Epochs(spec)), Arc::new(fine)]
            {
                let error = refused(set, usize::MAX);
                assert_eq!(error.kind(), ErrorKind::Config);
                assert!(error.message().contains("differ between epochs"), "{error}");
            }
            let ragged = Spec::new().ragged("tokens", feedline_core::DType::U8, [], 4)?;
            let error = refused(Arc::new(Epochs(ragged)), usize::MAX);
            assert!(error.kind() == ErrorKind::Config && error.message().contains("is ragged"), "{error}");
            assert_eq!(refused(Arc::new(Random::new(0, 4)?), usize::MAX).kind(), ErrorKind::Config);
            Ok(())
        },
    );
}
