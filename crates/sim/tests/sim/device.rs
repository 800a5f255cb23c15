//! Features of the simulated device: virtual time, held streams, and the report.

use std::sync::mpsc;
use std::time::Duration;

use feedline_device::{Event, Memory, Pinned, Priority, launch_host};
use feedline_sim::SimOptions;
use feedline_testkit::{watchdog::LIMIT, with_watchdog};

#[test]
fn two_simulated_streams_overlap_in_virtual_time() {
    for seed in 0..25 {
        let options = SimOptions { starve: 0.0, ..SimOptions::seed(seed) };
        let (device, _sim) = feedline_sim::device_with(options).expect("a device");
        let spans = [(); 2].map(|()| {
            let stream = device.stream().expect("a stream");
            let (start, end) =
                (device.timing_event().expect("an event"), device.timing_event().expect("an event"));
            stream.record(&start).expect("record");
            (0..100).for_each(|_| launch_host(&stream, "work", [], [], |_| {}).expect("run"));
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
    let [timed, plain] = [true, false]
        .map(|timing| if timing { device.timing_event() } else { device.event() }.expect("an event"));
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
    let (a, b, event) = (stream("a"), stream("b"), device.event().expect("an event"));
    sim.hold(&a).expect("a stream of this device");
    a.record(&event).and_then(|()| b.wait(&event)).expect("submitted");
    let error = b.synchronize().expect_err("a is held");
    let text = error.message();
    assert!(text.contains("can never run") && text.contains("stream 0 \"a\" is held"), "{text}");
    let waits = "stream 1 \"b\" waits for an event recorded on stream 0 \"a\" by call 4 at \
                 crates/sim/tests/sim/device.rs:";
    assert!(text.contains(waits), "{text}");
    sim.release(&a).and_then(|()| b.synchronize()).expect("released");
}

#[test]
fn work_that_waits_for_the_simulator_returns_an_error() {
    let (device, sim) = feedline_sim::device(1).expect("a device");
    let (a, b) = (device.stream().expect("a stream"), device.stream().expect("a stream"));
    let (say, said) = mpsc::channel();
    let inner = b.clone();
    let body = move |_: &mut Memory<'_>| {
        let submitted = launch_host(&inner, "inner", [], [], |_| {});
        drop(say.send((submitted, inner.synchronize())));
    };
    launch_host(&a, "outer", [], [], body).and_then(|()| a.synchronize()).expect("run");
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
    let (pinned, event) = (Pinned::new(&device, 100).expect("memory"), device.event().expect("an event"));
    launch_host(&stream, "late", [], [], |_| {}).expect("run");
    let left = sim.finish().expect_err("three things leaked");
    for part in
        ["stream 0 \"kept\"", "pinned block 1 (100 bytes", "from call 2 at crates/sim/tests/sim", "1 event"]
    {
        assert!(left.message().contains(part), "\"{part}\" is not in: {left}");
    }
    drop((stream, pinned, event));
    sim.finish().expect("nothing leaked");
}

/// Only the simulator could end such a wait, but the waiting thread makes no call.
#[test]
fn a_host_that_waits_on_a_channel_is_reported_as_stuck_and_goes_on() {
    let stuck = |seed| {
        let options = SimOptions { stuck_after: Duration::from_millis(200), ..SimOptions::seed(seed) };
        let (device, sim) = feedline_sim::device_with(options).expect("a device");
        let stream = device.named_stream("training", Priority::Normal).expect("a stream");
        let late = device.named_stream("late", Priority::Normal).expect("a stream");
        let (say, said) = mpsc::channel();
        let event = device.event().expect("an event");
        let line = line!() + 1;
        launch_host(&stream, "step", [], [], move |_| say.send(7).expect("the host waits")).expect("run");
        stream.record(&event).and_then(|()| late.wait(&event)).expect("submitted");
        assert_eq!(said.recv(), Ok(7), "seed {seed}: the work is run all the same");
        let error = sim.check().expect_err("reported");
        for part in [
            "stuck: nobody has called the device for 0.",
            &format!("stream 0 \"training\" has \"step\" (call 4 at {}:{line}) to run", file!()),
            "stream 1 \"late\" waits for an event recorded on stream 0 \"training\" by call 5 at ",
            "wait by an event or Stream::synchronize",
        ] {
            assert!(error.message().contains(part), "seed {seed}: \"{part}\" is not in: {error}");
        }
    };
    with_watchdog(LIMIT, || {
        std::thread::scope(|scope| (0..25).for_each(|seed| drop(scope.spawn(move || stuck(seed)))));
    });
}

#[test]
fn a_host_without_queued_work_is_not_stuck() {
    let options = SimOptions { stuck_after: Duration::ZERO, ..SimOptions::seed(1) };
    let (device, sim) = feedline_sim::device_with(options).expect("a device");
    let (stream, held) = (device.stream().expect("a stream"), device.stream().expect("a stream"));
    sim.hold(&held).expect("a stream of this device");
    launch_host(&held, "held", [], [], |_| {}).expect("run");
    stream.synchronize().expect("nothing to do");
    // Nothing can happen; the thread that watches looks every 50 ms.
    let (_say, nobody) = mpsc::channel::<()>();
    nobody.recv_timeout(Duration::from_millis(200)).expect_err("nothing is sent");
    sim.release(&held).and_then(|()| held.synchronize()).expect("released");
    sim.check().expect("nothing was found");
}
