//! Arguments of a task keep the element type of their view. A task that uses another type fails.

use std::sync::mpsc;

use feedline_core::{ErrorKind, Result};
use feedline_device::{Buffer, Memory, launch_host};

use super::rig::{Ending, Rig, with_host_memory};

/// Runs `body` on an input of 8 `f32` and an output of 4 `u32`, and asserts that the device is lost with
/// the error `why`.
fn assert_refused(rig: &Rig, body: fn(&mut Memory<'_>), why: &str) -> Result<()> {
    let stream = rig.stream("a")?;
    let floats = Buffer::<f32>::new(&stream, 8)?;
    let mut words = Buffer::<u32>::new(&stream, 4)?;
    let (passed, pass) = mpsc::channel();
    launch_host(&stream, "sum", [floats.view().into()], [words.view_mut().into()], move |memory| {
        body(memory);
        let _ = passed.send(());
    })?;
    let error = stream.synchronize().expect_err("the task used an argument in the wrong way");
    assert_eq!(error.kind(), ErrorKind::DeviceLost);
    assert_eq!(error.to_string(), format!("\"sum\" failed on its stream: {why}"));
    assert!(pass.recv().is_err(), "the task continued after the error");
    Ok(())
}

#[test]
fn an_input_cannot_be_read_as_another_type() {
    with_host_memory("an_input_cannot_be_read_as_another_type", Ending::Dirty, |rig| {
        assert_refused(rig, |memory| assert!(memory.input::<i64>(0).len() < 99), "input 0 holds f32, not i64")
    });
    // A type of the same size is rejected too.
    with_host_memory("an_input_cannot_be_read_as_another_type", Ending::Dirty, |rig| {
        assert_refused(rig, |memory| assert!(memory.input::<u32>(0).len() < 99), "input 0 holds f32, not u32")
    });
}

#[test]
fn an_output_cannot_be_written_as_another_type() {
    with_host_memory("an_output_cannot_be_written_as_another_type", Ending::Dirty, |rig| {
        assert_refused(rig, |memory| memory.output::<u8>(0).fill(1), "output 0 holds u32, not u8")
    });
}

#[test]
fn a_missing_argument_is_rejected() {
    with_host_memory("a_missing_argument_is_rejected", Ending::Dirty, |rig| {
        assert_refused(
            rig,
            |memory| assert!(memory.input::<f32>(1).len() < 99),
            "there is no input 1: the task has 1",
        )
    });
    with_host_memory("a_missing_argument_is_rejected", Ending::Dirty, |rig| {
        assert_refused(rig, |memory| memory.output::<u32>(7).fill(1), "there is no output 7: the task has 1")
    });
    with_host_memory("a_missing_argument_is_rejected", Ending::Dirty, |rig| {
        let twice = |memory: &mut Memory<'_>| {
            memory.output::<u32>(0).fill(1);
            memory.output::<u32>(0).fill(2);
        };
        assert_refused(rig, twice, "output 0 was taken already")
    });
}

#[test]
fn arguments_of_the_right_type_are_readable_and_writable() {
    with_host_memory("arguments_of_the_right_type_are_readable_and_writable", Ending::Clean, |rig| {
        let stream = rig.stream("a")?;
        let mut floats = Buffer::<f32>::new(&stream, 8)?;
        floats.write(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])?;
        let mut words = Buffer::<u32>::new(&stream, 4)?;
        let odd = floats.slice(1..8)?;
        launch_host(&stream, "sum", [odd.into()], [words.view_mut().into()], |memory| {
            let sum: f32 = memory.input::<f32>(0).iter().sum();
            memory.output::<u32>(0).fill(sum as u32);
        })?;
        assert_eq!(words.read()?, [35; 4]);
        Ok(())
    });
}
