//! Features of the simulated device: virtual time, held streams, and the report.

use std::sync::mpsc;

use feedline_device::{Event, Memory, Priority};
use feedline_sim::SimOptions;

#[test]
fn two_simulated_streams_overlap_in_virtual_time() {
    for seed in 0..25 {
        let options = SimOptions { starve: 0.0, ..SimOptions::seed(seed) };
        let (device, _sim) = feedline_sim::device_with(options).expect("a device");
        let spans = [(); 2].map(|()| {
            let stream = device.stream().expect("a stream");
            let (start, end) = (device.event(true).expect("an event"), device.event(true).expect("an event"));
            stream.record(&start).expect("record");
            (0..100).for_each(|_| stream.run("work", [], [], |_| {}).expect("run"));
            stream.record(&end).expect("record");
            (stream, start, end)
        });
        let [(a, start_a, end_a), (b, start_b, end_b)] = &spans;
        a.synchronize().and_then(|()| b.synchronize()).expect("synchronize");
        let apart = |end: &Event, start: &Event| start.elapsed_ms_since(end).expect("a time");
        assert!(apart(end_a, start_b) < 0.0, "seed {seed}: b starts before a ends");
        assert!(apart(end_b, start_a) < 0.0, "seed {seed}: a starts before b ends");
        assert!(apart(start_a, end_a) > 0.1, "seed {seed}: 100 tasks take time");
    }
}

#[test]
fn an_event_without_timing_has_no_time() {
    let name = "an_event_without_timing_has_no_time";
    let (device, sim) = feedline_sim::device(1).expect("a device");
    let stream = device.stream().expect("a stream");
    let [timed, plain] = [true, false].map(|timing| device.event(timing).expect("an event"));
    assert!(timed.elapsed_ms_since(&timed).is_err(), "{name}: not recorded");
    stream.record(&timed).and_then(|()| stream.record(&plain)).expect("record");
    sim.hold(&stream).expect("a stream of this device");
    assert!(timed.elapsed_ms_since(&timed).is_err(), "{name}: not reached");
    sim.release(&stream).and_then(|()| stream.synchronize()).expect("synchronize");
    assert_eq!(timed.elapsed_ms_since(&timed).expect("a time"), 0.0);
    assert!(plain.elapsed_ms_since(&timed).is_err(), "{name}: no timing");
}

#[test]
fn waiting_for_work_that_cannot_run_is_an_error() {
    let (device, sim) = feedline_sim::device(1).expect("a device");
    let stream = |name: &str| device.named_stream(name, Priority::Normal).expect("a stream");
    let (a, b, event) = (stream("a"), stream("b"), device.event(false).expect("an event"));
    sim.hold(&a).expect("a stream of this device");
    a.record(&event).and_then(|()| b.wait(&event)).expect("submitted");
    let error = b.synchronize().expect_err("a is held");
    let text = error.message();
    assert!(text.contains("can never run") && text.contains("stream 0 \"a\" is held"), "{text}");
    assert!(
        text.contains("stream 1 \"b\" waits for an event recorded on stream 0 \"a\" by call 4"),
        "{text}"
    );
    sim.release(&a).and_then(|()| b.synchronize()).expect("released");
}

#[test]
fn work_that_waits_for_the_simulator_returns_an_error() {
    let (device, sim) = feedline_sim::device(1).expect("a device");
    let (a, b) = (device.stream().expect("a stream"), device.stream().expect("a stream"));
    let (say, said) = mpsc::channel();
    let inner = b.clone();
    let body = move |_: &mut Memory<'_>| {
        let submitted = inner.run("inner", [], [], |_| {});
        drop(say.send((submitted, inner.synchronize())));
    };
    a.run("outer", [], [], body).and_then(|()| a.synchronize()).expect("run");
    let (submitted, waited) = said.recv().expect("the work ran");
    submitted.expect("work may submit work");
    let error = waited.expect_err("work must not wait");
    assert!(error.message().contains("waited for the device"), "{error}");
    b.synchronize().expect("the submitted work runs");
    assert_eq!(sim.findings().len(), 1);
}

#[test]
fn finish_lists_leaks() {
    let (device, sim) = feedline_sim::device(1).expect("a device");
    let stream = device.named_stream("kept", Priority::Normal).expect("a stream");
    let (pinned, event) = (device.pinned(100).expect("memory"), device.event(false).expect("an event"));
    stream.run("late", [], [], |_| {}).expect("run");
    let left = sim.finish().expect_err("three things leaked");
    for part in ["stream 0 \"kept\"", "pinned block 1 (100 bytes", "1 event"] {
        assert!(left.message().contains(part), "\"{part}\" is not in: {left}");
    }
    drop((stream, pinned, event));
    sim.finish().expect("nothing leaked");
}
