//! Work whose panic payload or captured values panic when they are dropped.

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, channel};

use feedline_core::ErrorKind;
use feedline_device::{Device, Memory, launch_host};
use feedline_testkit::with_watchdog;

use super::LIMIT;

type Work = Box<dyn FnOnce(&mut Memory<'_>) + Send>;

/// A value whose drop panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("test panic in a drop");
    }
}

/// Submits all of `works` to a stream; the first one waits for the receiver. Asserts that all later waits
/// return the loss of the device with the reason `why`.
fn assert_loses_the_device(works: fn(Receiver<()>) -> Vec<Work>, why: &str) {
    with_watchdog(LIMIT, || {
        for device in [Device::new_host(), feedline_sim::device(5).unwrap().0] {
            let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
            let [behind, far_behind] = [(); 2].map(|()| device.event().unwrap());
            let (open, opened) = channel();
            for work in works(opened) {
                launch_host(&stream, "boom", [], [], work).unwrap();
            }
            stream.record(&behind).unwrap();
            other.wait(&behind).unwrap();
            other.record(&far_behind).unwrap();
            open.send(()).unwrap();
            let waits =
                [stream.synchronize(), behind.synchronize(), far_behind.synchronize(), other.synchronize()];
            for wait in waits {
                let error = wait.expect_err("the device is lost");
                assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
                assert!(error.to_string().contains(why), "{error}");
            }
        }
    });
}

#[test]
fn a_panic_payload_that_panics_on_drop_loses_the_device() {
    let works = |gate: Receiver<()>| -> Vec<Work> {
        vec![Box::new(move |_| {
            gate.recv().unwrap();
            resume_unwind(Box::new(Bomb))
        })]
    };
    assert_loses_the_device(works, "\"boom\" panicked");
}

#[test]
fn a_captured_value_that_panics_on_drop_loses_the_device() {
    let works = |gate: Receiver<()>| -> Vec<Work> {
        let bomb = Bomb;
        vec![Box::new(move |_| {
            gate.recv().unwrap();
            drop(bomb);
        })]
    };
    assert_loses_the_device(works, "test panic in a drop");
}

#[test]
fn skipped_work_that_panics_on_drop_keeps_the_first_cause() {
    let works = |gate: Receiver<()>| -> Vec<Work> {
        let bomb = Bomb;
        vec![
            Box::new(move |_| {
                gate.recv().unwrap();
                panic!("test panic in the work")
            }),
            Box::new(move |_| drop(bomb)),
        ]
    };
    assert_loses_the_device(works, "test panic in the work");
}
