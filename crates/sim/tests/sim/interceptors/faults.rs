//! Failing the n-th call: a loop over all calls of a small run, and single cases.

use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard};

use feedline_core::{ErrorKind, Result};
use feedline_device::host::Host;
use feedline_device::{Backend, Buffer, Device, Output, Priority, Readback, launch_host};
use feedline_sim::interceptors::faults::{Fault, FaultPlan, Faults, Mode};
use feedline_sim::interceptors::{Count, Op};
use feedline_testkit::nth::every_fault;

use super::LIMIT;
use super::hand_off::HandOff;
use super::raw::Raw;

/// The number of calls of `small_run` that can fail. It may grow but must not shrink.
const CALLS: u64 = 143;

/// Three batches, a buffer that is written and read, and one readback.
fn small_run(device: &Device) -> Result<()> {
    let hand_off = HandOff::new(device, "nth")?;
    (0..3).try_for_each(|batch| late_step(&hand_off, batch))?;
    let mut total = Buffer::<u32>::new(&hand_off.compute, 1)?;
    total.write(&[41])?;
    let output: Output<'_> = total.view_mut().into();
    launch_host(&hand_off.compute, "add", [], [output], |memory| memory.output::<u32>(0)[0] += 1)?;
    assert_eq!(total.read()?, [42]);
    let mut results = Readback::<u32>::new(&hand_off.compute, 1, 2)?;
    let cell = results.begin()?;
    launch_host(&hand_off.compute, "result", [], [cell.into()], |memory| memory.output::<u32>(0)[0] = 43)?;
    results.send()?;
    assert_eq!(results.wait()?, Some(&[43][..]));
    assert_eq!(hand_off.finish()?, 0);
    Ok(())
}

/// A step whose readers wait before the copy ends. Otherwise the number of calls would depend on the
/// machine's speed.
fn late_step(hand_off: &HandOff, batch: u64) -> Result<()> {
    let (_open, opened) = channel::<()>();
    launch_host(&hand_off.copier, "hold", [], [], move |_| {
        let _ = opened.recv();
    })?;
    hand_off.step(batch, true)
}

/// Serialises the tests that count threads by name.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Fails each call of `small_run` in turn. `every_fault` documents the checks after each run.
fn try_every_call(fault: Fault, mode: Mode) {
    let _alone = alone();
    let tried = every_fault(fault, mode, LIMIT, "fl-stream-nth", Host::new, small_run);
    println!("{fault:?} {mode:?}: {tried:?}");
    assert!(tried.calls >= CALLS, "only {} calls failed, not {CALLS}", tried.calls);
}

#[test]
fn every_call_can_fail_once() {
    try_every_call(Fault::Error, Mode::Once);
}

#[test]
fn every_call_can_fail_permanently() {
    try_every_call(Fault::Error, Mode::Forever);
}

#[test]
fn every_call_can_fail_late_once() {
    try_every_call(Fault::Late, Mode::Once);
}

#[test]
fn every_call_can_fail_late_permanently() {
    try_every_call(Fault::Late, Mode::Forever);
}

#[test]
fn every_call_can_lose_the_device() {
    try_every_call(Fault::DeviceLost, Mode::Once);
}

#[test]
fn only_the_planned_call_fails() {
    let backend = Faults::new(Host::new(), FaultPlan { nth: 3, mode: Mode::Once, fault: Fault::Error });
    let faults = backend.handle();
    let made: Vec<_> = (0..5).map(|_| backend.create_event(false).is_ok()).collect();
    assert_eq!(made, [true, true, false, true, true]);
    assert_eq!((faults.calls(), faults.snapshot().of(Op::CreateEvent), faults.fired()), (5, 5, true));

    // Arming again restarts the count, and the fault stays until it is disarmed.
    faults.arm(FaultPlan { nth: 2, mode: Mode::Forever, fault: Fault::Error });
    assert!(!faults.fired());
    let made: Vec<_> = (0..4).map(|_| backend.create_event(false).is_ok()).collect();
    assert_eq!(made, [true, false, false, false]);
    faults.disarm();
    assert!(backend.create_event(false).is_ok() && backend.lost().is_none());
}

#[test]
fn a_lost_device_stays_lost_with_its_first_cause() {
    let backend = Faults::new(Host::new(), FaultPlan { nth: 2, mode: Mode::Once, fault: Fault::DeviceLost });
    let faults = backend.handle();
    let device = feedline_device::with_backend(backend);
    let event = device.event().unwrap();
    let first = event.query().unwrap_err();
    assert_eq!(first.kind(), ErrorKind::DeviceLost);
    faults.disarm();
    let later = device.stream().unwrap_err();
    assert_eq!((later.kind(), later.to_string()), (first.kind(), first.to_string()));
    assert_eq!(feedline_device::backend(&device).lost().unwrap().to_string(), first.to_string());
}

#[test]
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "one argument covers all of them")]
fn releasing_calls_are_made_although_they_fail() {
    let count = Count::new(Host::new());
    let below = count.handle();
    let backend = Faults::new(count, FaultPlan { nth: 5, mode: Mode::Forever, fault: Fault::Error });
    let stream = backend.create_stream("released", Priority::Normal).unwrap();
    let event = backend.create_event(false).unwrap();
    let (host, memory) = (backend.alloc_host(64).unwrap(), backend.alloc_device(64).unwrap());
    assert!(backend.create_event(false).is_err());
    // SAFETY: each belongs to this backend and is not used again.
    unsafe {
        assert!(backend.free_host(host, 64).is_err());
        assert!(backend.free_device(memory, 64).is_err());
        assert!(backend.destroy_event(event).is_err());
        assert!(backend.destroy_stream(stream).is_err());
    }
    let below = below.snapshot();
    assert_eq!((below.created(), below.released()), (4, 4));
}

#[test]
fn a_late_fault_still_copies() {
    let backend = Faults::new(Host::new(), FaultPlan::NONE);
    let faults = backend.handle();
    let raw = Raw::new(backend);
    raw.fill_host(1);
    faults.arm(FaultPlan { nth: 1, mode: Mode::Once, fault: Fault::Late });
    assert_eq!(raw.copy().unwrap_err().kind(), ErrorKind::Device);
    assert_eq!(raw.read_after_all(), raw.batch(1));

    raw.fill_host(2);
    faults.arm(FaultPlan { nth: 1, mode: Mode::Once, fault: Fault::Error });
    assert!(raw.copy().is_err());
    assert_eq!(raw.read_after_all(), raw.batch(1), "the failed copy was made");
}
