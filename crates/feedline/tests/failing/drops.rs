//! Values of the user's types panic when they are dropped, and so do the payloads of these panics. Neither
//! makes the loader panic or ends the process.

use std::time::Duration;

use feedline::{Context, DType, Dataset, Device, Loader, ReadError, Row, Spec, TransferMode, Workers};

use crate::common::{alone, hush_planned_panics};

const LEN: u64 = 40;

/// Panics when it is dropped, with a payload that does so too.
#[derive(Default)]
struct Drops;

struct Payload;

impl Drop for Drops {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::panic::panic_any(Payload);
        }
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("planned: dropped");
        }
    }
}

/// Numbers, read with a [`Drops`] in the scratch memory.
struct Numbers(Spec);

impl Numbers {
    fn new() -> Self {
        Self(Spec::new().field("x", DType::I64, []).unwrap())
    }
}

impl Dataset for Numbers {
    fn len(&self) -> u64 {
        LEN
    }

    fn spec(&self) -> &Spec {
        &self.0
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        context.scratch::<Drops>();
        row.field_mut::<i64>(0)?[0] = id as i64;
        Ok(())
    }
}

#[test]
fn scratch_memory_whose_drop_panics_ends_no_build_and_no_thread() {
    hush_planned_panics();
    alone(|| {
        let device = Device::new_host();
        let stream = device.stream().unwrap();
        for mode in [TransferMode::Staged, TransferMode::Resident] {
            let builder = Loader::builder(Numbers::new()).batch_size(8).workers(Workers::Count(3));
            let mut loader = builder.transfer_mode(mode).build(&device).unwrap();
            let rows = loader
                .epoch(0)
                .unwrap()
                .flat_map(|batch| batch.unwrap().wait_on(&stream).unwrap().to_vec::<i64>("x").unwrap());
            assert_eq!(rows.collect::<Vec<_>>(), (0..LEN as i64).collect::<Vec<_>>());
            loader.stop(Duration::from_secs(30)).unwrap();
        }
        assert_eq!(Numbers::new().filter(|_| true).unwrap().len(), LEN);
    });
}
