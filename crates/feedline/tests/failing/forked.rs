//! A loader in a forked child is a typed error. It must not wait for threads that the child does not have.

use crate::common::small::{builder, fine, on_a_device, take_epoch};
use crate::common::{LONG, alone};
use feedline::ErrorKind;
use feedline_testkit::fork::{Child, in_a_fork};

/// Whether `result` is the error of a forked process.
fn is_refused<T>(result: feedline::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::Forked)
}

#[test]
fn a_loader_in_a_forked_child_is_an_error() {
    alone(|| {
        on_a_device(|device, compute| {
            let mut loader = builder(fine()).build(device).unwrap();
            let mut batches = loader.epoch(0).unwrap();
            drop(batches.next().unwrap().unwrap().wait_on(compute).unwrap());
            let child = in_a_fork(LONG, || {
                let error = batches.find_map(Result::err);
                error.is_some_and(|error| error.kind() == ErrorKind::Forked) && batches.next().is_none()
            });
            assert_eq!(child, Child::Returned(true), "next");
            let cursor = loader.cursor();
            let child = in_a_fork(LONG, || is_refused(loader.epoch(1)) && is_refused(loader.resume(cursor)));
            assert_eq!(child, Child::Returned(true), "epoch and resume");
            let mut loader = Some(loader);
            let child = in_a_fork(LONG, || {
                let refused = loader.as_mut().is_some_and(|loader| is_refused(loader.stop(LONG)));
                drop(loader.take());
                refused
            });
            assert_eq!(child, Child::Returned(true), "stop and drop");
            // The parent's loader still works.
            let mut loader = loader.unwrap();
            take_epoch(&mut loader, 0, compute);
        });
    });
}
