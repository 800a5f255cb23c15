//! The slots of a ring after failures, closing and invalid calls.

use std::time::Duration;

use feedline_core::ErrorKind;
use feedline_device::Device;
use feedline_device::device_slots::SlotRing;
use feedline_device::host::Host;
use feedline_sim::interceptors::faults::{Fault, FaultPlan, Faults, Mode};
use feedline_testkit::with_watchdog;

use super::hand_off::HandOff;
use super::{BYTES, LIMIT, SLOTS};

/// Loses every slot of a ring to failing copies, then acquires one more: this must return an error
/// instead of hanging.
#[test]
fn a_ring_that_lost_all_slots_returns_an_error() {
    with_watchdog(LIMIT, || {
        let backend = Faults::new(Host::new(), FaultPlan::NONE);
        let faults = backend.handle();
        let hand_off = HandOff::new(&feedline_device::with_backend(backend), "lost").unwrap();
        for slot in 0..SLOTS as u64 {
            let host = hand_off.host.acquire().unwrap().ready();
            let device = hand_off.slots.acquire().unwrap();
            faults.arm(FaultPlan { nth: 1, mode: Mode::Once, fault: Fault::Error });
            let error = device.upload(&hand_off.copier, host, BYTES).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("planned fault: call {} (CopyToDevice) failed", faults.calls()),
                "{slot}"
            );
        }
        let errors =
            [hand_off.slots.acquire().map(drop).unwrap_err(), hand_off.host.acquire().map(drop).unwrap_err()];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Device);
            assert!(error.to_string().contains("2 of 2 were lost to device failures"), "{error}");
        }
    });
}

#[test]
fn an_invalid_upload_loses_no_slot() {
    let hand_off = HandOff::new(&Device::new_host(), "here").unwrap();
    let elsewhere = HandOff::new(&Device::new_host(), "there").unwrap();
    for _ in 0..2 * SLOTS {
        let (device, host) = (hand_off.slots.acquire().unwrap(), elsewhere.host.acquire().unwrap().ready());
        let error = device.upload(&hand_off.copier, host, BYTES).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    }
    assert_eq!((hand_off.slots.free(), elsewhere.host.counts().free), (SLOTS, SLOTS));
}

#[test]
fn a_closed_ring_returns_stopped() {
    let slots = SlotRing::new(&Device::new_host(), SLOTS, BYTES).unwrap();
    slots.close();
    for _ in 0..100 {
        assert_eq!(slots.acquire().map(drop).unwrap_err().kind(), ErrorKind::Stopped);
        assert_eq!(slots.try_acquire().map(drop).unwrap_err().kind(), ErrorKind::Stopped);
    }
}

#[test]
fn the_longest_timeout_does_not_overflow() {
    let device = Device::new_host();
    assert!(device.event().unwrap().synchronize_timeout(Duration::MAX).unwrap());
    let slots = SlotRing::new(&device, SLOTS, BYTES).unwrap();
    assert!(slots.acquire_timeout(Duration::MAX).unwrap().is_some());
}
