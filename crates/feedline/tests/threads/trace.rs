//! The trace: its spans, the links between the spans of a batch, and its bounded memory.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::common::{LONG, alone, wait_until};
use feedline::report::Cause;
use feedline::trace::Trace;
use feedline::{Device, Event, Loader, Workers};
use feedline_device::host::Host;
use feedline_device::launch_host;
use feedline_kernels::ops::Kernels;
use feedline_report::{Table, trace_json};
use feedline_sim::interceptors::SlowCopies;
use feedline_testkit::fixtures::{self, Fine};
use serde_json::Value;

const BATCH: usize = 4;

/// Name, start, end and step of a span.
type Span = (String, f64, f64, Option<u64>);

/// The events of `trace` with phase `phase`.
fn events(trace: &Trace, phase: &str) -> Vec<Value> {
    let whole: Value = serde_json::from_str(&trace_json(trace)).expect("JSON");
    let events = whole["traceEvents"].as_array().expect("events").clone();
    events.into_iter().filter(|event| event["ph"] == phase).collect()
}

/// Loads `batches` batches. Batch `slow` is decoded only after the consumer has waited for a while.
fn load(trace: &Trace, batches: u64, slow: Option<u64>) {
    let device = Device::new_host();
    let data = Fine::new(batches * BATCH as u64, 100).unwrap();
    let (data, gate) = fixtures::blocking(data, slow.map(|step| step * BATCH as u64));
    let builder = Loader::builder(data).batch_size(BATCH).workers(Workers::Count(2)).epochs(1);
    let mut loader = builder.trace(trace).build(&device).unwrap();
    let compute = device.stream().unwrap();
    let progress = loader.progress();
    let opens = std::thread::spawn(move || {
        if slow.is_some() {
            wait_until("the consumer waits", || {
                let waiting = progress.report().waiting;
                gate.waiting() > 0 && waiting.is_some_and(|time| time > Duration::from_millis(300))
            });
        }
        gate.open();
    });
    let mut steps = trace.stream(&compute, "compute").unwrap();
    for batch in loader.epoch(0).unwrap() {
        let ready = batch.unwrap().wait_on(&compute).unwrap();
        steps.begin("kernel").unwrap();
        let sleep = |_: &mut feedline_device::Memory<'_>| std::thread::sleep(Duration::from_millis(1));
        launch_host(&compute, "kernel", [ready.field_at::<u8>(1).unwrap().into()], [], sleep).unwrap();
        steps.end().unwrap();
        let _span = trace.annotate("mine \"quoted\"");
    }
    steps.finish().unwrap();
    opens.join().unwrap();
    loader.stop(LONG).unwrap();
}

#[test]
fn every_lane_is_drawn_and_the_spans_of_a_batch_are_linked() {
    alone(|| {
        let trace = Trace::new();
        load(&trace, 20, Some(13));
        let mut lanes = BTreeMap::new();
        for event in events(&trace, "M").iter().filter(|event| event["name"] == "thread_name") {
            let name = event["args"]["name"].as_str().unwrap().to_owned();
            lanes.insert((event["pid"].as_u64(), event["tid"].as_u64()), name);
        }
        let mut spans: BTreeMap<String, Vec<Span>> = BTreeMap::new();
        for event in events(&trace, "X") {
            let lane = &lanes[&(event["pid"].as_u64(), event["tid"].as_u64())];
            let (start, length) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
            let name = event["name"].as_str().unwrap().to_owned();
            let step = event["args"]["step"].as_u64();
            spans.entry(lane.clone()).or_default().push((name, start, start + length, step));
        }
        let test = std::thread::current().name().unwrap().to_owned();
        let expected =
            ["compute", "consumer", "copy stream", "fl-decode-0", "fl-decode-1", "fl-transfer", &test];
        assert_eq!(spans.keys().map(String::as_str).collect::<BTreeSet<_>>(), expected.into());
        let count = |lane: &str, name: &str| spans[lane].iter().filter(|span| span.0 == name).count();
        assert_eq!([count("consumer", "step"), count("fl-transfer", "queue the copy")], [20, 20]);
        assert_eq!([count("compute", "kernel"), count(&test, "mine \"quoted\"")], [20, 20]);
        // The other worker goes on, so the batches after the slow one wait for it.
        let is_the_wait = |span: &Span| span.0 == "wait: order wait" && span.3 == Some(13);
        assert!(spans["consumer"].iter().any(is_the_wait), "{:?}", spans["consumer"]);
        // If many spans end at once, a few may be missing, but not the last one.
        assert!(count("copy stream", "copy") > 10, "{:?}", spans["copy stream"]);
        assert!(spans["copy stream"].iter().any(|span| span.3 == Some(19)), "the last copy is not drawn");
        // A thread does one thing at a time; its spans may overlap by a few microseconds.
        for lane in ["consumer", "compute", "copy stream", "fl-decode-0", "fl-decode-1"] {
            spans.get_mut(lane).unwrap().sort_by(|a, b| a.1.total_cmp(&b.1));
            for pair in spans[lane].windows(2) {
                assert!(pair[0].2 <= pair[1].1 + 100.0, "{lane}: {pair:?}");
            }
        }
        // Each batch is decoded before its copy, and copied before its kernel.
        let when = |lane: &str, name: &str, step: u64| {
            let span = spans[lane].iter().find(|span| span.0 == name && span.3 == Some(step));
            span.map(|span| (span.1, span.2))
        };
        let mut copies = 0;
        for step in 0..20 {
            let queued = when("fl-transfer", "queue the copy", step).unwrap();
            for worker in ["fl-decode-0", "fl-decode-1"] {
                assert!(when(worker, "decode", step).is_none_or(|decoded| decoded.1 <= queued.0 + 1.0));
            }
            if let Some(copied) = when("copy stream", "copy", step) {
                // The clocks of host and device agree to half a millisecond on a busy machine.
                assert!(copied.0 >= queued.0 - 500.0, "step {step}: {copied:?} {queued:?}");
                copies += 1;
            }
        }
        assert!(copies > 5);
        let ids = |phase: &str| -> BTreeSet<_> {
            events(&trace, phase).iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!((ids("s").len(), ids("s")), (20, ids("f")));
    });
}

/// The table and the report show the same waits of the consumer.
#[test]
fn the_waits_in_the_table_are_those_of_the_report() {
    alone(|| {
        for host in [false, true] {
            let trace = Trace::new();
            let copy = Duration::from_millis(2);
            let device =
                feedline_device::with_backend(SlowCopies::slow_copies(Host::new(), Duration::ZERO, copy));
            let builder = Loader::builder(Fine::new(80, 100).unwrap()).batch_size(BATCH).epochs(1);
            let builder = builder.trace(&trace);
            let report = if host {
                let mut loader = builder.build_host_on(&device).unwrap();
                loader.epoch(0).unwrap().for_each(|batch| drop(batch.unwrap()));
                loader.report()
            } else {
                let mut loader = builder.build(&device).unwrap();
                let mut batches = loader.epoch(0).unwrap();
                // Polls are waits too.
                while !batches.is_over() {
                    drop(batches.next_timeout(Duration::from_micros(300)).unwrap());
                }
                loader.report()
            };
            let table = Table::new(&trace);
            let mut shares = 0.0;
            for cause in Cause::ALL.into_iter().filter(|&cause| cause != Cause::Consumer) {
                let rows = table.rows.iter().filter(|row| row.name == format!("wait: {cause}"));
                let (total, share) =
                    rows.fold((Duration::ZERO, 0.0), |sum, row| (sum.0 + row.total, sum.1 + row.share));
                assert_eq!(total, report.run.time(cause), "{cause}, host {host}\n{table}{report}");
                shares += if !matches!(cause, Cause::Consumer | Cause::NoDeviceSlot) { share } else { 0.0 };
            }
            assert!(
                (shares - report.run.wait_share()).abs() < 0.05,
                "{shares}, host {host}\n{table}{report}"
            );
            assert!(shares > 0.5, "{table}");
            assert!(table.rows.iter().all(|row| row.share <= 1.0), "{table}");
            let said = format!("waited for data      {:>5.1} %", 100.0 * report.run.wait_share());
            assert!(report.to_string().contains(&said), "{report}");
        }
    });
}

#[test]
fn a_long_run_keeps_whole_batches_within_the_limit() {
    alone(|| {
        const LIMIT: usize = 200;
        let trace = Trace::with_limit(LIMIT);
        load(&trace, 500, None);
        let spans = feedline::trace::content::recorded(&trace).spans.len();
        assert!(spans <= LIMIT && spans > LIMIT / 4, "{trace:?}");
        let steps: BTreeSet<_> =
            events(&trace, "X").iter().filter_map(|e| e["args"]["step"].as_u64()).collect();
        let stride = (1..).map(|power| 1 << power).find(|stride| steps.contains(stride)).unwrap();
        assert!(steps.iter().all(|step| step % stride == 0), "{steps:?}");
        assert!(steps.len() as u64 >= 500 / stride, "{steps:?}");
        assert_eq!(events(&trace, "s").len(), events(&trace, "f").len());
    });
}

/// The rules of Chrome's trace event format that Perfetto's parser checks.
#[test]
fn the_file_keeps_the_rules_of_the_trace_event_format() {
    alone(|| {
        let trace = Trace::new();
        load(&trace, 30, Some(7));
        let whole: Value = serde_json::from_str(&trace_json(&trace)).expect("JSON");
        let keys: BTreeSet<_> = whole.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(keys, ["displayTimeUnit", "traceEvents"].into());
        let mut named = BTreeSet::new();
        let mut open: BTreeMap<String, (f64, usize)> = BTreeMap::new();
        let (mut slices, mut flows): (BTreeMap<_, Vec<(f64, f64)>>, Vec<_>) = Default::default();
        for event in whole["traceEvents"].as_array().expect("an array") {
            let text =
                |key: &str| event[key].as_str().unwrap_or_else(|| panic!("{key} of {event}")).to_owned();
            let number = |key: &str| event[key].as_f64().unwrap_or_else(|| panic!("{key} of {event}"));
            let lane = (number("pid") as u64, number("tid") as u64);
            assert!(!text("name").is_empty(), "{event}");
            match text("ph").as_str() {
                "M" => {
                    let wanted = match text("name").as_str() {
                        "process_name" | "thread_name" => event["args"]["name"].is_string(),
                        "thread_sort_index" => event["args"]["sort_index"].is_u64(),
                        other => panic!("unknown metadata {other}"),
                    };
                    assert!(wanted, "{event}");
                    named.insert(lane);
                }
                "X" => {
                    let (start, length) = (number("ts"), number("dur"));
                    assert!(start >= 0.0 && length >= 0.0, "{event}");
                    assert!(named.contains(&lane), "a lane without a name: {event}");
                    slices.entry(lane).or_default().push((start, start + length));
                }
                phase @ ("s" | "t" | "f") => {
                    assert_eq!(text("cat"), "batch");
                    let (id, at) = (text("id"), number("ts"));
                    match phase {
                        "s" => assert!(open.insert(id, (at, 1)).is_none(), "begun twice: {event}"),
                        _ => {
                            let (before, steps) = open.get_mut(&id).expect("a flow begins with s");
                            assert!(*before <= at, "a flow goes back in time: {event}");
                            (*before, *steps) = (at, *steps + 1);
                            assert!(phase == "t" || event["bp"] == "e", "{event}");
                        }
                    }
                    flows.push((lane, at));
                }
                other => panic!("unknown phase {other}"),
            }
        }
        assert!(open.len() == 30 && open.values().all(|(_, steps)| *steps >= 2), "{open:?}");
        // An arrow binds to the slice that encloses its time.
        for (lane, at) in flows {
            assert!(slices[&lane].iter().any(|(start, end)| *start <= at && at <= *end), "{lane:?} {at}");
        }
    });
}

/// The spans called `name` in the lane `lane`, in order: start and end in microseconds.
fn spans_of(trace: &Trace, lane: &str, name: &str) -> Vec<(f64, f64)> {
    let is_lane = |event: &&Value| event["name"] == "thread_name" && event["args"]["name"] == lane;
    let lanes: BTreeSet<_> = events(trace, "M")
        .iter()
        .filter(is_lane)
        .map(|event| (event["pid"].as_u64(), event["tid"].as_u64()))
        .collect();
    let mut spans: Vec<_> = events(trace, "X")
        .iter()
        .filter(|event| event["name"] == name)
        .filter(|event| lanes.contains(&(event["pid"].as_u64(), event["tid"].as_u64())))
        .map(|event| {
            let start = event["ts"].as_f64().unwrap();
            (start, start + event["dur"].as_f64().unwrap())
        })
        .collect();
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    spans
}

/// Each kernel takes longer than the copy of a batch, and a copy waits for a free slot, so copies run beside
/// kernels.
///
/// Event times give the end of a copy by an event after a wait for the copy, on a stream without other work.
/// If the consumer wakes up late, the copy has ended before the event is recorded, and the event is only an
/// upper bound. So a copy counts as timed only if it was still running just before the event was recorded.
fn the_overlap_in_the_trace_is_that_of_event_times(device: &Device, kernel_ns: u64) {
    const STEPS: usize = 20;
    const DEPTH: usize = 3;
    // The difference of the two clocks, each compared with the host's clock, is less than this.
    const CLOCKS_US: f64 = 100.0;
    // The consumer was not held up between its look at the copy and the event.
    const AT_ONCE: Duration = Duration::from_micros(50);
    let trace = Trace::new();
    let (compute, idle) = (device.stream().unwrap(), device.stream().unwrap());
    let kernels = Kernels::new(&compute).unwrap();
    // Compiles the kernel, before the clocks are compared.
    kernels.spin(1).unwrap();
    let data = Fine::new((STEPS * BATCH) as u64, 1 << 20).unwrap();
    let builder = Loader::builder(data).batch_size(BATCH).depth(DEPTH).epochs(1);
    let mut loader = builder.trace(&trace).build(device).unwrap();
    let mut lane = trace.stream(&compute, "compute").unwrap();
    let recorded = |stream: &feedline::Stream| {
        let event = stream.device().timing_event().unwrap();
        stream.record(&event).unwrap();
        event
    };
    let (mut times, mut is_timed): (Vec<[Event; 3]>, Vec<bool>) = Default::default();
    for batch in loader.epoch(0).unwrap() {
        let (batch, copied) = (batch.unwrap(), device.timing_event().unwrap());
        let looked = Instant::now();
        let is_running = !batch.is_copied().unwrap();
        let arrived = batch.wait_on(&idle).unwrap();
        idle.record(&copied).unwrap();
        is_timed.push(is_running && looked.elapsed() < AT_ONCE);
        let ready = arrived.also_on(&compute).unwrap();
        drop(arrived);
        lane.begin("kernel").unwrap();
        let start = recorded(&compute);
        kernels.spin(kernel_ns).unwrap();
        times.push([copied, start, recorded(&compute)]);
        lane.end().unwrap();
        drop(ready);
    }
    lane.finish().unwrap();
    idle.synchronize().unwrap();
    loader.stop(LONG).unwrap();

    let first = &times[0][1];
    let us = |event: &Event| f64::from(event.elapsed_ms_since(first).unwrap()) * 1e3;
    let (drawn_kernels, copies) =
        (spans_of(&trace, "compute", "kernel"), spans_of(&trace, "copy stream", "copy"));
    assert_eq!([drawn_kernels.len(), copies.len()], [STEPS; 2], "every kernel and copy is drawn");
    let origin = drawn_kernels[0].0;
    let inside = |copied: f64, kernels: &[(f64, f64)]| kernels.iter().any(|k| k.0 <= copied && copied <= k.1);
    let timed: Vec<_> = times.iter().map(|[_, start, end]| (us(start), us(end))).collect();
    // Microseconds by the trace, and by event times.
    let all: String = (0..STEPS)
        .map(|step| {
            let ((drawn, copy), [copied, ..]) = ((drawn_kernels[step], copies[step]), &times[step]);
            let [start, end, copy_start, copy_end] = [drawn.0, drawn.1, copy.0, copy.1].map(|at| at - origin);
            let (copied, is_timed, timed) = (us(copied), is_timed[step], timed[step]);
            format!(
                "{step:2}: kernel {start:.0} to {end:.0}, by events {:.0} to {:.0}; copy {copy_start:.0} to \
                 {copy_end:.0}, by events to {copied:.0} ({:+.0}, {})\n",
                timed.0,
                timed.1,
                copied - copy_end,
                if is_timed { "timed" } else { "not timed" }
            )
        })
        .collect();
    println!("{all}");
    let mut beside = [0, 0];
    for (step, [copied, ..]) in times.iter().enumerate() {
        let (drawn, timed_span) = (drawn_kernels[step], timed[step]);
        let (drawn_start, drawn_end) = (drawn.0 - origin, drawn.1 - origin);
        assert!((drawn_start - timed_span.0).abs() < CLOCKS_US, "the start of kernel {step}\n{all}");
        assert!((drawn_end - timed_span.1).abs() < CLOCKS_US, "the end of kernel {step}\n{all}");
        let (drawn_copy, timed_copy) = (copies[step].1 - origin, us(copied));
        let late = if is_timed[step] { CLOCKS_US } else { f64::INFINITY };
        assert!((-CLOCKS_US..late).contains(&(timed_copy - drawn_copy)), "the end of copy {step}\n{all}");
        beside[0] +=
            usize::from(inside(copies[step].0, &drawn_kernels) && inside(copies[step].1, &drawn_kernels));
        beside[1] += usize::from(inside(timed_copy, &timed));
    }
    let count = is_timed.iter().filter(|is_timed| **is_timed).count();
    assert!(count >= STEPS / 2, "only {count} of {STEPS} copies were timed\n{all}");
    println!("{} of {STEPS} copies are drawn beside a kernel, {} by event times", beside[0], beside[1]);
    // The slots' first copies come before the first kernel; a copy may end within microseconds of a kernel.
    assert!(beside[0] >= STEPS - 5 && beside[0].abs_diff(beside[1]) <= 3, "{beside:?}\n{all}");
}

#[test]
fn on_a_gpu_the_trace_shows_copies_beside_kernels_as_event_times_do() {
    let Some(device) = feedline_testkit::gpu("the trace shows copies beside kernels") else { return };
    // Longer than the decoding of a batch on a busy machine, without optimisation: copies wait for kernels.
    alone(|| the_overlap_in_the_trace_is_that_of_event_times(&device, 20_000_000));
}
