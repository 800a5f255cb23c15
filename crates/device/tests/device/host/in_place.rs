//! The bytes of a slot on the host device, read in place.

use std::sync::mpsc::channel;
use std::time::Duration;

use feedline_core::ErrorKind;
use feedline_device::device_slots::SlotRing;
use feedline_device::slots::Ring;
use feedline_device::{Device, Pinned, launch_host};
use feedline_testkit::Watchdog;

use super::LIMIT;

const BYTES: usize = 4096;

#[test]
fn the_bytes_of_a_slot_are_read_after_its_copy() {
    let _watchdog = Watchdog::new(LIMIT, "the_bytes_of_a_slot_are_read_after_its_copy");
    let device = Device::new_host();
    let (compute, copies) = (device.stream().unwrap(), device.stream().unwrap());
    let host: Ring<_> = Ring::new(vec![Pinned::new(&device, BYTES).unwrap()]);
    let slots = SlotRing::new(&device, 1, BYTES).unwrap();
    for value in 1..=3 {
        let (open, gate) = channel::<()>();
        launch_host(&copies, "blocked", [], [], move |_| gate.recv().unwrap()).unwrap();
        // The copy of this batch waits behind the gate.
        let opener = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            open.send(()).unwrap();
        });
        let mut lease = host.acquire().unwrap();
        lease.bytes_mut().fill(value);
        let loaded = slots.acquire().unwrap().upload(&copies, lease.ready(), BYTES).unwrap();
        let reader = loaded.wait_on(&compute).unwrap();
        assert_eq!(reader.host_bytes().unwrap(), [value; BYTES], "read before the copy");
        opener.join().unwrap();
    }
}

#[test]
fn another_device_does_not_give_its_bytes() {
    let (device, _) = feedline_sim::device(1).unwrap();
    let (compute, copies) = (device.stream().unwrap(), device.stream().unwrap());
    let host: Ring<_> = Ring::new(vec![Pinned::new(&device, BYTES).unwrap()]);
    let slots = SlotRing::new(&device, 1, BYTES).unwrap();
    let ready = host.acquire().unwrap().ready();
    let loaded = slots.acquire().unwrap().upload(&copies, ready, BYTES).unwrap();
    let reader = loaded.wait_on(&compute).unwrap();
    let error = reader.host_bytes().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.message().contains("on sim (seed 1)"), "{error}");
}
