//! Work on the wrong device, stream or ring is rejected with an error that names both sides.

use feedline_core::{Error, ErrorKind, Result};
use feedline_device::device_slots::Reader;
use feedline_device::{BackendKind, Buffer, Device, Readback, launch_host};

use super::rig::{Ending, Rig, everywhere};
use super::slots::Pipe;

/// The bytes of a batch of [`Pipe`].
const BYTES: usize = 4096;

/// A second device of the backend of `rig`.
fn second_device(rig: &Rig) -> Result<Device> {
    match rig.device.kind() {
        BackendKind::Cuda => Device::cuda(0),
        BackendKind::Sim => feedline_sim::device(1000).map(|(device, _)| device),
        _ => Ok(Device::new_host()),
    }
}

/// Asserts that the error names both sides: an argument belongs to `found` instead of `expected`.
#[track_caller]
fn assert_names<T: std::fmt::Debug>(outcome: Result<T>, found: &str, expected: &str) {
    let error: Error = outcome.expect_err("this mismatch is rejected");
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    let part = format!("{found}, not to {expected}");
    assert!(error.to_string().contains(&part), "no {part:?} in: {error}");
}

#[test]
fn arguments_of_another_device_are_rejected() {
    everywhere("arguments_of_another_device_are_rejected", Ending::Clean, |rig| {
        let other = second_device(rig)?;
        let (own, from_other) = (rig.device.to_string(), format!("belongs to {other}"));
        let (compute, foreign) = (rig.stream("compute")?, other.stream()?);
        let pipe = Pipe::new(rig, 1)?;
        // A batch, before and after its own stream has waited for it.
        assert_names(pipe.load(1)?.wait_on(&foreign), &from_other, &own);
        let hint = rig.device.check_stream(&foreign).expect_err("a foreign stream");
        assert_eq!(hint.message().contains("clone the first one"), rig.device.kind() == BackendKind::Host);
        let reader = pipe.load(2)?.wait_on(&compute)?;
        assert_names(reader.also_on(&foreign), &from_other, &own);
        // A batch and a buffer as arguments of work on another device.
        let read = |reader: &Reader| {
            let view = reader.view::<u8>(0, BYTES)?;
            launch_host(&foreign, "read", [view.into()], [], |_| {})
        };
        let (from_own, foreign_name) = (format!("belongs to {own}"), other.to_string());
        assert_names(read(&reader), &from_own, &foreign_name);
        let mut buffer = Buffer::<u8>::new(&compute, 16)?;
        let write = launch_host(&foreign, "write", [], [buffer.view_mut().into()], |_| {});
        assert_names(write, &from_own, &foreign_name);
        // Events.
        let event = rig.device.event()?;
        assert_names(foreign.wait(&event), &from_own, &foreign_name);
        assert_names(foreign.record(&event), &from_other, &own);
        drop(reader);
        // The copy stream.
        let filled = pipe.host.acquire()?.ready();
        assert_names(pipe.slots.acquire()?.upload(&foreign, filled, BYTES), &from_other, &own);
        assert_eq!(pipe.slots.free(), 1, "the slot is free again");
        Ok(())
    });
}

#[test]
fn arguments_of_another_stream_are_rejected() {
    everywhere("arguments_of_another_stream_are_rejected", Ending::Clean, |rig| {
        let (compute, branch) = (rig.stream("compute")?, rig.stream("branch")?);
        let (found, expected) = (format!("belongs to {compute}"), branch.to_string());
        let pipe = Pipe::new(rig, 1)?;
        let reader = pipe.load(1)?.wait_on(&compute)?;
        let view = reader.view::<u8>(0, BYTES)?;
        let error = launch_host(&branch, "read", [view.into()], [], |_| {});
        assert!(
            error.as_ref().is_err_and(|error| error.to_string().contains("also_on(&stream)")),
            "{error:?}"
        );
        assert_names(error, &found, &expected);
        let mut buffer = Buffer::<u8>::new(&compute, 16)?;
        assert_names(launch_host(&branch, "read", [buffer.view().into()], [], |_| {}), &found, &expected);
        assert_names(
            launch_host(&branch, "write", [], [buffer.view_mut().into()], |_| {}),
            &found,
            &expected,
        );
        let mut results = Readback::<u8>::new(&compute, 16, 2)?;
        let cell = results.begin()?;
        assert_names(launch_host(&branch, "result", [], [cell.into()], |_| {}), &found, &expected);
        Ok(())
    });
}

#[test]
fn a_second_copy_stream_is_rejected() {
    everywhere("a_second_copy_stream_is_rejected", Ending::Clean, |rig| {
        let (pipe, other) = (Pipe::new(rig, 2)?, Pipe::new(rig, 2)?);
        drop((pipe.load(1)?, pipe.load(2)?));
        for (what, outcome) in [
            // Device slots of this pipeline, filled by the other pipeline's stream.
            (
                "device slots",
                pipe.slots.acquire()?.upload(&other.copies, other.host.acquire()?.ready(), BYTES),
            ),
            // A host slot of this pipeline, copied into the other pipeline's device slots.
            (
                "pinned slot",
                other.slots.acquire()?.upload(&other.copies, pipe.host.acquire()?.ready(), BYTES),
            ),
        ] {
            let error = outcome.expect_err(what);
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            let part = format!("by {}, not by {}", pipe.copies, other.copies);
            assert!(error.to_string().contains(what) && error.to_string().contains(&part), "{error}");
        }
        Ok(())
    });
}
