//! Calls are counted exactly, by operation and by thread.

use feedline_device::Device;
use feedline_device::host::Host;
use feedline_device::wrap::{Count, Op};

use crate::SLOTS;
use crate::hand_off::HandOff;

#[test]
fn the_calls_of_a_hand_off_are_counted_exactly() {
    let driver = Count::new(Host::new());
    let count = driver.handle();
    let hand_off = HandOff::new(&Device::with_driver(driver), "count").unwrap();
    let steps = |both| {
        (0..2 * SLOTS as u64).for_each(|batch| hand_off.step(batch, both).unwrap());
        let before = count.snapshot();
        (0..10).for_each(|batch| hand_off.step(batch, both).unwrap());
        count.snapshot() - before
    };
    let one = steps(false);
    let calls = [
        (Op::HostWrite, 1),
        (Op::Synchronize, 1), // the host slot's last copy
        (Op::Wait, 2),        // the last reader, the copy
        (Op::CopyToDevice, 1),
        (Op::Record, 2), // the copy, the reader
        (Op::Run, 1),    // the test's own check
    ];
    for (op, calls) in calls {
        assert_eq!(one.of(op), 10 * calls, "{op:?} in {one:?}");
    }
    // Six calls a batch of its own, of seven that are allowed; and the test's check.
    assert_eq!((one.total(), one.created(), one.released(), one.blocking()), (70, 0, 0, 10));

    let both = steps(true) - one;
    assert_eq!(both.total(), 40, "a second reader costs two waits, a record, and its own work: {both:?}");
}

#[test]
fn calls_are_counted_by_thread() {
    let driver = Count::by_thread(Host::new());
    let count = driver.handle();
    let device = Device::with_driver(driver);
    let bind = |name: &str, times: usize| {
        let device = device.clone();
        let work = move || (0..times).for_each(|_| device.bind().unwrap());
        std::thread::Builder::new().name(name.into()).spawn(work).unwrap().join().unwrap();
    };
    bind("fl-decode-0", 3);
    bind("fl-decode-1", 4);
    bind("fl-transfer", 5);
    assert_eq!(count.of_threads("fl-decode").of(Op::Bind), 7);
    assert_eq!(count.of_threads("fl-transfer").total(), 5);
    assert_eq!(count.of_threads("fl-compute").total(), 0);
    assert_eq!(count.snapshot(), count.of_threads(""));
}
