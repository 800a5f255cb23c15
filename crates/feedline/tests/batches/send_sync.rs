//! Checks at compile time which types are `Send` and `Sync`.
//!
//! Both follow from the fields, so a new field can silently add or remove them.

use crate::common::small::{STEPS, builder, fine, on_a_device};
use crate::common::{alone, assert_intact};
use feedline::{Batch, Cursor, Epoch, Error, Loader, LoaderBuilder, Ready};
use feedline_report::WaitMeter;

const fn is_send<T: Send>() {}
const fn is_sync<T: Sync>() {}

macro_rules! is_both {
    ($($type:ty),+ $(,)?) => {
        const _: () = {$(
            is_send::<$type>();
            is_sync::<$type>();
        )+};
    };
}

is_both!(LoaderBuilder, Loader, Epoch<'static>, Batch, Ready, WaitMeter, Cursor, Error);

/// A loader runs on one thread; its batches are opened on a second and dropped on a third.
#[test]
fn batches_travel_between_threads() {
    alone(|| {
        on_a_device(|device, compute| {
            let mut loader = builder(fine()).build(device).unwrap();
            let (batches, to_open) = std::sync::mpsc::sync_channel::<Batch>(0);
            let (opened, to_drop) = std::sync::mpsc::sync_channel::<Ready>(0);
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    for batch in loader.epoch(0).unwrap() {
                        batches.send(batch.unwrap()).unwrap();
                    }
                });
                scope.spawn(move || {
                    for batch in to_open {
                        opened.send(batch.wait_on(compute).unwrap()).unwrap();
                    }
                });
                let mut steps = 0;
                for batch in to_drop {
                    assert_eq!(batch.step(), steps);
                    assert_intact(&fine(), &batch);
                    steps += 1;
                }
                assert_eq!(steps, STEPS);
            });
        });
    });
}
