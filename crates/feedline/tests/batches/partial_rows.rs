//! A `read` that writes only a part of its row.

use crate::common::{alone, elements};
use feedline::bad_samples::Budget;
use feedline::check::CheckOptions;
use feedline::{
    BadSamples, Context, DType, Dataset, Device, Loader, ReadError, Result, Row, Spec, TransferMode,
    check_dataset,
};

const LEN: u64 = 24;

/// Samples of two floats. `read` writes only the first one, except for every third sample.
struct Halves(Spec);

impl Halves {
    fn new() -> Result<Self> {
        Ok(Self(Spec::new().field("pair", DType::F32, [2])?))
    }
}

impl Dataset for Halves {
    fn len(&self) -> u64 {
        LEN
    }

    fn spec(&self) -> &Spec {
        &self.0
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        let pair = row.field_mut::<f32>(0)?;
        pair[0] = id as f32;
        if id.is_multiple_of(3) {
            pair[1] = id as f32;
        }
        Ok(())
    }
}

/// Release builds skip the fill.
#[cfg(debug_assertions)]
#[test]
fn unwritten_floats_are_nan_in_debug_builds() {
    alone(|| {
        let device = Device::new_host();
        let compute = device.stream().expect("a stream");
        let builder = Loader::builder(Halves::new().expect("a set")).batch_size(4).shuffle().seed(1);
        let mut loader = builder.transfer_mode(TransferMode::Staged).build(&device).expect("a loader");
        // More epochs than slots, so every slot still holds rows of older samples.
        for epoch in 0..10 {
            for batch in loader.epoch(epoch).expect("an epoch") {
                let batch = batch.expect("a batch").wait_on(&compute).expect("a view");
                let pairs = elements(&compute, batch.field::<f32>("pair").expect("pairs"));
                for (&id, pair) in batch.ids().iter().zip(pairs.chunks_exact(2)) {
                    let is_whole = id.is_multiple_of(3);
                    assert_eq!(pair[0], id as f32);
                    assert!(if is_whole { pair[1] == id as f32 } else { pair[1].is_nan() }, "{id}: {pair:?}");
                }
            }
        }
    });
}

/// A sample fails halfway, and its substitute writes only a part of the row. The rest must not be data of
/// the failed sample.
#[cfg(debug_assertions)]
#[test]
fn unwritten_floats_of_a_substitute_are_nan_in_debug_builds() {
    struct Torn(Halves);
    impl Dataset for Torn {
        fn len(&self) -> u64 {
            LEN
        }

        fn spec(&self) -> &Spec {
            self.0.spec()
        }

        fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
            if id < LEN / 2 {
                row.field_mut::<f32>(0)?.fill(77.0);
                return Err("torn".into());
            }
            self.0.read(id, row, context)
        }
    }
    alone(|| {
        let device = Device::new_host();
        let compute = device.stream().expect("a stream");
        let bad_samples = BadSamples::Substitute { budget: Budget::Count(LEN) };
        let builder = Loader::builder(Torn(Halves::new().expect("a set"))).batch_size(4).seed(3);
        let mut loader = builder.bad_samples(bad_samples).build(&device).expect("a loader");
        for batch in loader.epoch(0).expect("an epoch") {
            let batch = batch.expect("a batch").wait_on(&compute).expect("a view");
            let pairs = elements(&compute, batch.field::<f32>("pair").expect("pairs"));
            for (&id, pair) in batch.ids().iter().zip(pairs.chunks_exact(2)) {
                assert_eq!(pair[0], id as f32);
                assert!(pair[1].is_nan() || id.is_multiple_of(3), "{id}: {pair:?}");
            }
        }
    });
}

#[test]
fn check_dataset_finds_partial_rows_in_every_build() {
    alone(|| {
        let report =
            check_dataset(&Halves::new().expect("a set"), &CheckOptions::default()).expect("a report");
        let finding = report.findings.first().expect("a finding");
        assert_eq!((finding.sample, finding.field.as_deref(), finding.byte), (1, Some("pair"), Some(4)));
    });
}
