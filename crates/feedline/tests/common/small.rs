//! A small data set: five batches of eight self-describing samples per epoch.

use feedline::{Dataset, Device, Loader, LoaderBuilder, Stream, Workers};
use feedline_testkit::fixtures::Fine;

use super::{assert_empty, assert_intact};

/// Number of samples in [`fine`].
pub const LEN: u64 = 40;
/// Rows per batch.
pub const BATCH: usize = 8;
/// Batches per epoch.
pub const STEPS: u64 = 5;

/// The data set.
pub fn fine() -> Fine {
    Fine::new(LEN, 300).unwrap()
}

/// A loader of `data`, with two workers and two device slots.
pub fn builder(data: impl Dataset) -> LoaderBuilder {
    Loader::builder(data).batch_size(BATCH).workers(Workers::Count(2)).depth(2)
}

/// Runs `work` on a new host device, and checks that the device holds nothing afterwards.
#[track_caller]
pub fn on_a_device(work: impl FnOnce(&Device, &Stream)) {
    let device = Device::new_host();
    let compute = device.stream().unwrap();
    work(&device, &compute);
    drop(compute);
    assert_empty(&device);
}

/// Takes a whole epoch and checks every byte.
#[track_caller]
pub fn take_epoch(loader: &mut Loader, epoch: u64, compute: &Stream) {
    let mut steps = 0;
    for batch in loader.epoch(epoch).unwrap() {
        let batch = batch.unwrap().wait_on(compute).unwrap();
        assert_eq!((batch.epoch(), batch.step()), (epoch, steps));
        assert_intact(&fine(), &batch);
        steps += 1;
    }
    assert_eq!(steps, STEPS);
}
