//! `FEEDLINE_SYNC=1`: a fault is returned by the call that caused it, with its line, its stage and its batch.

use feedline::{Device, ErrorKind, Loader, Result, Stage, Workers};
use std::sync::atomic::{AtomicU64, Ordering};

use feedline_device::host::Host;
use feedline_device::{Backend, launch_host};
use feedline_sim::interceptors::{Call, Intercepted, Interceptor, Op};
use feedline_sim::{Sim, SimOptions};
use feedline_testkit::fixtures::Fine;
use feedline_testkit::{watchdog::LIMIT, with_watchdog};

/// Opens batches of 4 of 32 rows, and runs a task on each that fails in step `bad`. Returns the step whose
/// call returned the error, the error, and the line of the task.
fn fail_in(device: &Device, bad: u64) -> (u64, feedline::Error, u32) {
    let stream = device.stream().expect("a stream");
    let builder = Loader::builder(Fine::new(32, 16).expect("a set")).batch_size(4).workers(Workers::Count(1));
    let mut loader = builder.build(device).expect("a loader");
    let line = line!() + 6;
    let step = |batch: Result<feedline::Batch>| {
        let batch = batch?.wait_on(&stream)?;
        let step = batch.step();
        let body = move |_: &mut feedline_device::Memory<'_>| assert!(step != bad, "step {bad} fails");
        let view = batch.field::<u8>("bytes")?;
        launch_host(&stream, "train", [view.into()], [], body)
    };
    for (at, batch) in loader.epoch(0).expect("an epoch").enumerate() {
        if let Err(error) = step(batch) {
            return (at as u64, error, line);
        }
    }
    let error = stream.synchronize().expect_err("the task fails");
    (u64::MAX, error, line)
}

fn sim() -> Sim {
    Sim::new(SimOptions::seed(3)).expect("a simulated device").0
}

#[test]
fn a_failed_task_is_returned_by_its_own_call_with_line_stage_and_batch() {
    let _one = crate::common::one_at_a_time();
    with_watchdog(LIMIT, || {
        for device in [Device::synchronous(Host::new()), Device::synchronous(sim())] {
            let (at, error, line) = fail_in(&device, 5);
            assert_eq!((at, error.batch(), error.stage()), (5, Some(5), Some(Stage::Compute)), "{error}");
            assert_eq!(error.kind(), ErrorKind::DeviceLost);
            let site = format!("\"train\", called at {}:{line}:", file!());
            assert!(error.to_string().contains(&site), "\"{site}\" is not in: {error}");
            assert!(error.to_string().contains("step 5 fails"), "{error}");
        }
    });
}

/// Without the switch the simulator runs the task later: a later batch is blamed.
#[test]
fn without_the_switch_a_later_call_returns_the_fault() {
    let _one = crate::common::one_at_a_time();
    with_watchdog(LIMIT, || {
        let (at, error, _) = fail_in(&feedline_device::with_backend(sim()), 5);
        assert!(at > 5, "returned by step {at}");
        assert_ne!(error.batch(), Some(5), "{error}");
    });
}

/// The wait after the third copy fails, as on a GPU with a bad address.
#[derive(Default)]
struct BadCopy(AtomicU64);

impl Interceptor for BadCopy {
    fn intercept<R>(&self, _: &dyn Backend, call: Call, make: impl FnOnce() -> Result<R>) -> Result<R> {
        match call.op {
            Op::CopyToDevice => drop(self.0.fetch_add(1, Ordering::Relaxed)),
            Op::SynchronizeStream if self.0.load(Ordering::Relaxed) == 3 => {
                self.0.fetch_add(1, Ordering::Relaxed);
                return Err(feedline::Error::new(ErrorKind::Device, "an illegal address"));
            }
            _ => {}
        }
        make()
    }
}

#[test]
fn a_failed_copy_names_the_transfer_its_batch_and_its_line() {
    let _one = crate::common::one_at_a_time();
    with_watchdog(LIMIT, || {
        let device = Device::synchronous(Intercepted::with(Host::new(), BadCopy::default()));
        let builder = Loader::builder(Fine::new(32, 16).expect("a set")).batch_size(4);
        let mut loader = builder.build(&device).expect("a loader");
        let mut delivered = 0;
        let error = loader.epoch(0).expect("an epoch").find_map(|batch| match batch {
            Ok(_) => {
                delivered += 1;
                None
            }
            Err(error) => Some(error),
        });
        let error = error.expect("the third copy fails");
        assert_eq!((delivered, error.batch(), error.stage()), (2, Some(2), Some(Stage::Transfer)), "{error}");
        let text = error.to_string();
        let part = "a copy of 320 bytes to the device, called at crates/feedline/src/transfer/mod.rs:";
        assert!(text.contains(part) && text.contains("an illegal address"), "{text}");
    });
}

/// The variable is read when a device is opened, so a child process sets it.
#[test]
fn the_variable_turns_it_on_for_every_device() {
    let _one = crate::common::one_at_a_time();
    const CHILD: &str = "FEEDLINE_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let (at, error, _) = fail_in(&Device::new_host(), 5);
        assert_eq!((at, error.batch()), (5, Some(5)), "{error}");
        return;
    }
    with_watchdog(LIMIT, || {
        let this = std::env::current_exe().expect("the test's own program");
        let mut child = std::process::Command::new(this);
        child.args(["--exact", "synchronous::the_variable_turns_it_on_for_every_device", "--nocapture"]);
        let ended = child.env(CHILD, "1").env("FEEDLINE_SYNC", "1").output().expect("a child");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    });
}
