//! A lost device: every call returns the first cause, and nothing hangs.

use std::sync::mpsc;

use feedline_core::{ErrorKind, Result};
use feedline_device::{Buffer, Readback, launch_host};

use super::rig::{Ending, with_host_memory};
use super::slots::Pipe;

const BYTES: usize = 4096;

#[test]
fn a_panic_on_a_stream_loses_the_device_and_nothing_hangs() {
    let name = "a_panic_on_a_stream_loses_the_device_and_nothing_hangs";
    with_host_memory(name, Ending::Dirty, |rig| {
        let device = &rig.device;
        let pipe = Pipe::new(rig, 2)?;
        let stream = rig.stream("a")?;
        let (buffer, mut results) =
            (Buffer::<u8>::new(&stream, BYTES)?, Readback::<u8>::new(&stream, 16, 2)?);
        let (loaded, after) = (pipe.load(1)?, device.event()?);
        launch_host(&stream, "boom", [], [], |_| panic!("test panic"))?;
        let (ran, run) = mpsc::channel();
        // Rejected if the device is already lost; otherwise queued but not run.
        let _ = launch_host(&stream, "after boom", [], [], move |_| ran.send(()).expect("the test listens"));
        // Some of these fail at once and some only after the panic; none may hang.
        let _ = (stream.record(&after), pipe.copies.wait(&after), results.send());
        let first = stream.synchronize().expect_err("the work panicked");
        assert_eq!(first.kind(), ErrorKind::DeviceLost);
        assert_eq!(first.message(), "\"boom\" panicked on its stream: test panic");
        assert!(run.recv().is_err(), "work after the panic is dropped, not run");
        let lost: [(&str, Result<()>); 8] = [
            ("lost", feedline_device::backend(device).lost().map_or(Ok(()), Err)),
            ("run", launch_host(&stream, "next", [], [], |_| panic!("work of a lost device is not run"))),
            ("record", stream.record(&after)),
            ("query", after.query().map(drop)),
            ("synchronize an event", after.synchronize()),
            ("synchronize another stream", pipe.copies.synchronize()),
            ("wait for a result", results.send()),
            ("read a buffer", buffer.read().map(drop)),
        ];
        for (what, result) in lost {
            let error = result.expect_err(what);
            assert_eq!((error.kind(), error.message()), (first.kind(), first.message()), "{what}");
        }
        assert_eq!(loaded.wait_on(&stream).map(drop).expect_err("lost").kind(), ErrorKind::DeviceLost);
        // Memory that cannot be drained is leaked, and every failed drop is reported.
        drop((pipe, buffer, results, after));
        let errors = device.stats().take_errors();
        assert!(!errors.is_empty() && errors.iter().all(|e| e.kind() == ErrorKind::DeviceLost), "{errors:?}");
        Ok(())
    });
}
