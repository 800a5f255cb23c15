//! If a set's spec changes, its first answers count: no byte outside its rows is read or written.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use feedline_core::{Context, DType, Dataset, ReadError, Row, Spec, StableDataset, Storage, StridedColumn};
use feedline_device::device_slots::SlotRing;
use feedline_device::slots::Ring;
use feedline_device::zero_copy::{GatherOrder, StridedColumns};
use feedline_device::{Device, Pinned, launch_host};
use feedline_testkit::with_watchdog;

use super::LIMIT;

const WIDTH: usize = 12;
const LEN: u64 = 20;

/// Answers with rows of [`WIDTH`] bytes once, and then with other rows.
struct Changing {
    specs: [Spec; 2],
    calls: AtomicUsize,
    rows: Vec<u8>,
}

impl Changing {
    fn new(then: usize) -> Self {
        let spec = |width| Spec::new().field("x", DType::U8, [width]).unwrap();
        let rows = (0..LEN).flat_map(|id| [id as u8; WIDTH]).collect();
        Self { specs: [spec(WIDTH), spec(then)], calls: AtomicUsize::new(0), rows }
    }
}

impl Dataset for Changing {
    fn len(&self) -> u64 {
        LEN
    }

    fn spec(&self) -> &Spec {
        &self.specs[self.calls.fetch_add(1, Ordering::Relaxed).min(1)]
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        row.bytes_mut(0).fill(id as u8);
        Ok(())
    }

    fn storage(&self) -> &dyn Storage {
        self
    }
}

impl Storage for Changing {
    fn column(&self, _: usize) -> Option<StridedColumn<'_>> {
        StridedColumn::new(&self.rows, 0, WIDTH, LEN as usize, WIDTH).ok()
    }
}

#[test]
fn a_set_whose_spec_changes_is_gathered_by_its_first_spec() {
    with_watchdog(LIMIT, || {
        let ids = [7, 0, 19, 3, 20, u64::MAX];
        for then in [1, 4096] {
            for is_resident in [true, false] {
                let device = Device::new_host();
                let set = Arc::new(StableDataset::new(Arc::new(Changing::new(then))));
                let columns = match is_resident {
                    true => StridedColumns::resident(&device, &set, ids.len(), usize::MAX, 1),
                    false => StridedColumns::new(&device, &set, ids.len(), usize::MAX),
                };
                let columns = Arc::new(columns.unwrap());
                let block = Pinned::new(&device, GatherOrder::slot_bytes(ids.len())).unwrap();
                let slots = SlotRing::new(&device, 1, columns.layout().bytes()).unwrap();
                let (copies, compute) = (device.stream().unwrap(), device.stream().unwrap());
                let ring: Ring<_> = Ring::new(vec![block]);
                let mut filled = ring.acquire().unwrap();
                columns.gather_order().write(&ids, filled.bytes_mut());
                let mut slot = slots.acquire().unwrap();
                slot.info_mut().ids = ids.to_vec();
                let loaded = slot.gather(&copies, filled.ready(), &columns).unwrap();
                let reader = loaded.wait_on(&compute).unwrap();
                let view = reader.view::<u8>(0, ids.len() * WIDTH).unwrap();
                let want: Vec<u8> =
                    ids.into_iter().flat_map(|id| [if id < LEN { id as u8 } else { 0 }; WIDTH]).collect();
                let check = move |memory: &mut feedline_device::Memory<'_>| {
                    assert_eq!(memory.input::<u8>(0), want);
                };
                launch_host(&compute, "check", [view.into()], [], check).unwrap();
                compute.synchronize().unwrap();
            }
        }
    });
}

/// A mask of one byte per sample; sample 3 has `third`. The set has a column, or must be read.
struct Masks {
    spec: Spec,
    bytes: Vec<u8>,
    has_column: bool,
}

impl Dataset for Masks {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        row.bytes_mut(0)[0] = self.bytes[id as usize];
        Ok(())
    }

    fn storage(&self) -> &dyn Storage {
        self
    }
}

impl Storage for Masks {
    fn column(&self, _: usize) -> Option<StridedColumn<'_>> {
        self.has_column.then(|| StridedColumn::new(&self.bytes, 0, 1, self.bytes.len(), 1).ok())?
    }
}

#[test]
fn a_bool_that_no_worker_looks_at_is_checked_once() {
    let made = |third, has_column, is_resident| {
        let spec = Spec::new().field("mask", DType::Bool, []).unwrap();
        let masks = Masks { spec, bytes: vec![0, 1, 0, third, 1], has_column };
        let (device, set) = (Device::new_host(), Arc::new(StableDataset::new(Arc::new(masks))));
        match is_resident {
            true => StridedColumns::resident(&device, &set, 2, usize::MAX, 1),
            false => StridedColumns::new(&device, &set, 2, usize::MAX),
        }
        .map(drop)
        .map_err(|error| error.to_string())
    };
    for (has_column, is_resident) in [(true, true), (true, false), (false, true)] {
        assert_eq!(made(1, has_column, is_resident), Ok(()));
        let error = made(2, has_column, is_resident).unwrap_err();
        assert!(error.contains("sample 3") && error.contains("mask"), "{error}");
    }
}
