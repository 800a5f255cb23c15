//! Work that uses the stream on which it runs.

use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};

use feedline_core::ErrorKind;
use feedline_device::device_slots::SlotRing;
use feedline_device::slots::Ring;
use feedline_device::{Buffer, Device, Pinned, Readback, Stream, launch_host};
use feedline_testkit::with_watchdog;

use super::LIMIT;

/// The commands that a stream's queue holds before other threads block.
const QUEUE: usize = 1024;

/// The host device, and a simulated one.
fn devices() -> [Device; 2] {
    [Device::new_host(), feedline_sim::device(3).unwrap().0]
}

/// Runs `drops` on the stream's own thread, and asserts that it ends and that the leak is reported.
fn assert_ends_with_a_leak(device: &Device, stream: &Stream, drops: impl FnOnce() + Send + 'static) {
    launch_host(stream, "drop", [], [], move |_| drops()).unwrap();
    stream.synchronize().unwrap();
    let errors = device.stats().take_errors();
    assert!(!errors.is_empty(), "a leak is reported");
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Device, "{error}");
        assert!(error.message().contains("work on a stream"), "{error}");
    }
    assert_eq!(device.stats().device_bytes.get(), 0);
}

#[test]
fn work_may_drop_a_buffer_of_its_own_stream() {
    with_watchdog(LIMIT, || {
        for device in devices() {
            let stream = device.stream().unwrap();
            let buffer = Buffer::<u32>::new(&stream, 16).unwrap();
            assert_ends_with_a_leak(&device, &stream, move || drop(buffer));
        }
    });
}

#[test]
fn work_may_drop_a_readback_of_its_own_stream() {
    with_watchdog(LIMIT, || {
        for device in devices() {
            let stream = device.stream().unwrap();
            let mut results = Readback::<u32>::new(&stream, 1, 2).unwrap();
            let (come, came) = channel::<Readback<u32>>();
            // When it is dropped, a result is queued after this work.
            launch_host(&stream, "drop", [], [], move |_| drop(came.recv().unwrap())).unwrap();
            results.begin().unwrap();
            results.send().unwrap();
            come.send(results).unwrap();
            stream.synchronize().unwrap();
            let errors = device.stats().take_errors();
            assert!(!errors.is_empty() && errors.iter().all(|e| e.kind() == ErrorKind::Device), "{errors:?}");
            assert_eq!(device.stats().pinned_bytes.get(), 0);
        }
    });
}

#[test]
fn work_may_submit_more_work_than_its_stream_queue_holds() {
    with_watchdog(LIMIT, || {
        for device in devices() {
            let stream = device.stream().unwrap();
            let (ran, run) = channel();
            let own = stream.clone();
            launch_host(&stream, "submit", [], [], move |_| {
                for piece in 0..3 * QUEUE {
                    let ran = ran.clone();
                    launch_host(&own, "piece", [], [], move |_| ran.send(piece).unwrap()).unwrap();
                }
            })
            .unwrap();
            stream.synchronize().unwrap();
            // The first synchronize may have been queued before the pieces were.
            stream.synchronize().unwrap();
            assert!(run.try_iter().eq(0..3 * QUEUE), "all pieces, in order");
        }
    });
}

#[test]
fn two_streams_may_fill_the_queues_of_each_other() {
    with_watchdog(LIMIT, || {
        let device = Device::new_host();
        let streams = [device.stream().unwrap(), device.stream().unwrap()];
        let (ran, run) = channel();
        let both_run = Arc::new(Barrier::new(2));
        for (mine, other) in [(0, 1), (1, 0)] {
            let (other, ran, both_run) = (streams[other].clone(), ran.clone(), both_run.clone());
            launch_host(&streams[mine], "submit", [], [], move |_| {
                both_run.wait();
                for _ in 0..2 * QUEUE {
                    let ran = ran.clone();
                    launch_host(&other, "piece", [], [], move |_| ran.send(()).unwrap()).unwrap();
                }
            })
            .unwrap();
        }
        drop(ran);
        assert_eq!(run.iter().count(), 4 * QUEUE);
    });
}

#[test]
fn work_may_drop_its_batch_while_the_queue_is_full() {
    with_watchdog(LIMIT, || {
        let device = Device::new_host();
        let (stream, copier) = (device.stream().unwrap(), device.stream().unwrap());
        let host = Ring::<_, ()>::new(vec![Pinned::new(&device, 64).unwrap()]);
        let slots = SlotRing::new(&device, 1, 64).unwrap();
        let filled = host.acquire().unwrap().ready();
        let batch = slots.acquire().unwrap().upload(&copier, filled, 64).unwrap().wait_on(&stream).unwrap();
        let (started, start) = channel();
        let (open, opened) = channel::<()>();
        launch_host(&stream, "drop the batch", [], [], move |_| {
            started.send(()).unwrap();
            opened.recv().unwrap();
            drop(batch);
        })
        .unwrap();
        start.recv().unwrap();
        (0..QUEUE).for_each(|_| launch_host(&stream, "piece", [], [], |_| {}).unwrap());
        open.send(()).unwrap();
        stream.synchronize().unwrap();
        assert!(slots.acquire().is_ok(), "the slot was released");
        assert!(device.stats().take_errors().is_empty());
    });
}

#[test]
fn work_that_waits_for_the_device_returns_an_error() {
    with_watchdog(LIMIT, || {
        let device = Device::new_host();
        let stream = device.stream().unwrap();
        let event = Arc::new(device.event().unwrap());
        let (tell, told) = channel();
        let (own, behind) = (stream.clone(), event.clone());
        launch_host(&stream, "wait", [], [], move |_| {
            own.record(&behind).unwrap();
            tell.send((own.synchronize(), behind.synchronize())).unwrap();
        })
        .unwrap();
        let (stream_waited, event_waited) = told.recv().unwrap();
        for refused in [stream_waited, event_waited] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Device);
            assert!(error.message().contains("work on a stream"), "{error}");
        }
        stream.synchronize().unwrap();
        event.synchronize().unwrap();
    });
}

#[test]
fn work_may_wait_for_an_event_that_is_complete() {
    with_watchdog(LIMIT, || {
        let device = Device::new_host();
        let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
        let event = device.event().unwrap();
        other.record(&event).unwrap();
        event.synchronize().unwrap();
        let (tell, told) = channel();
        launch_host(&stream, "wait", [], [], move |_| tell.send(event.synchronize()).unwrap()).unwrap();
        told.recv().unwrap().unwrap();
    });
}
