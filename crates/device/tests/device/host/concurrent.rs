//! Concurrent calls on one stream.

use feedline_device::Device;
use feedline_testkit::with_watchdog;

use super::LIMIT;

/// `all`, or a few under miri.
fn calls(all: u32) -> u32 {
    if cfg!(miri) { 100 } else { all }
}

#[test]
fn record_and_wait_from_two_threads_do_not_deadlock() {
    with_watchdog(LIMIT, || {
        let device = Device::new_host();
        let stream = device.stream().unwrap();
        let event = device.event().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..calls(50_000)).for_each(|_| stream.record(&event).unwrap()));
            scope.spawn(|| (0..calls(50_000)).for_each(|_| stream.wait(&event).unwrap()));
        });
        stream.synchronize().unwrap();
        assert!(event.query().unwrap());
    });
}

#[test]
fn streams_that_wait_for_each_other_do_not_deadlock() {
    with_watchdog(LIMIT, || {
        let device = Device::new_host();
        let streams = [device.stream().unwrap(), device.stream().unwrap()];
        let event = device.event().unwrap();
        std::thread::scope(|scope| {
            for (mine, other) in [(0, 1), (1, 0)] {
                let (streams, event) = (&streams, &event);
                scope.spawn(move || {
                    for _ in 0..calls(20_000) {
                        streams[mine].record(event).unwrap();
                        streams[other].wait(event).unwrap();
                    }
                });
            }
        });
        streams.iter().for_each(|stream| stream.synchronize().unwrap());
    });
}
