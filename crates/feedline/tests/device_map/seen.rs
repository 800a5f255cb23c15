//! The account charges the device map with the time that a stopwatch measures, and a trace shows its lanes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use feedline::batch::{DeviceBatch, PinnedBatch};
use feedline::report::{Account, Cause};
use feedline::trace::Trace;
use feedline::{DType, Device, Loader, Spec, Stream};
use feedline_device::host::Host;
use feedline_device::{Memory, launch_host};
use feedline_report::{Bound, Diagnosis, Kind, Table, WhatIf};
use feedline_sim::interceptors::SlowCopies;
use feedline_testkit::OtherWork;
use feedline_testkit::fixtures::Before;

use crate::common::{LONG, alone, alone_in_parts, on_four_threads};
use crate::inverted::{WAYS, Way, fine, invert, spec};

const BATCH: u64 = 4;
/// Many steps, because the copies and maps of the first few are not timed.
const STEPS: u64 = 100;
/// A machine with other work sometimes wakes a thread late: the best of this number of runs counts.
const RUNS: usize = 4;

/// The stage that takes a few milliseconds per batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slow {
    Decode,
    Copy,
    /// The closure of the map, on the lane's thread.
    Lane,
    /// The work that it queues.
    Map,
    /// The consumer's work on the device.
    Kernel,
    Consumer,
}

const ALL: [Slow; 6] = [Slow::Decode, Slow::Copy, Slow::Lane, Slow::Map, Slow::Kernel, Slow::Consumer];

impl Slow {
    fn cause(self) -> Cause {
        match self {
            Self::Decode => Cause::Decode,
            Self::Copy => Cause::Copy,
            Self::Lane | Self::Map => Cause::DeviceMap,
            Self::Kernel => Cause::NoDeviceSlot,
            Self::Consumer => Cause::Consumer,
        }
    }

    fn bound(self) -> Bound {
        match self {
            Self::Decode => Bound::Decode,
            Self::Copy => Bound::Copy,
            Self::Lane | Self::Map => Bound::DeviceMap,
            Self::Kernel | Self::Consumer => Bound::Compute,
        }
    }
}

/// One case of the grid; times in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Case {
    slow: Slow,
    time: u64,
    /// The time of the consumer's step in every case.
    step: u64,
    /// Whether the consumer blocks until each batch has arrived.
    waits: bool,
    /// The memory that the lanes read.
    way: Way,
}

fn sleep_on(stream: &Stream, ms: u64) -> feedline::Result<()> {
    let sleep = move |_: &mut Memory<'_>| std::thread::sleep(Duration::from_millis(ms));
    launch_host(stream, "sleep", [], [], sleep)
}

impl Case {
    /// Runs an epoch. Returns its account; its wall time and the expected time of the cause, in milliseconds;
    /// and whether the diagnosis names the stage.
    fn run(&self) -> (Account, f64, f64, bool) {
        let of = |slow: Slow| if self.slow == slow { self.time } else { 0 };
        let copies =
            SlowCopies::slow_copies(Host::new(), Duration::ZERO, Duration::from_millis(of(Slow::Copy)));
        let device = feedline_device::with_backend(copies);
        let decode = of(Slow::Decode);
        let set = Before::new(fine(BATCH * STEPS), move |id| {
            if decode > 0 && id % BATCH == 0 {
                std::thread::sleep(Duration::from_millis(decode));
            }
            Ok(())
        });
        let (lane, map) = (of(Slow::Lane), of(Slow::Map));
        let builder = Loader::builder(set).batch_size(BATCH as usize).depth(3).epochs(1);
        let builder = builder.workers(feedline::Workers::Count(1));
        let builder = match self.way {
            Way::Map => builder.device_map(spec(), move |stream: &Stream| {
                let stream = stream.clone();
                Ok(move |batch: &mut DeviceBatch<'_>| {
                    if lane > 0 {
                        std::thread::sleep(Duration::from_millis(lane));
                    }
                    if map > 0 {
                        sleep_on(&stream, map)?;
                    }
                    invert(&stream, batch)
                })
            }),
            // A lane that decodes blocks: for its own work and for the device.
            Way::Produce => Way::Produce.before_invert(builder, 1, move |_| {
                std::thread::sleep(Duration::from_millis(lane + map));
                Ok(())
            }),
        };
        let mut loader = builder.build(&device).unwrap();
        let compute = device.stream().unwrap();
        let stepped = Arc::new(AtomicU64::new(0));
        let start = Instant::now();
        for batch in loader.epoch(0).unwrap() {
            let ready = batch.unwrap().wait_on(&compute).unwrap();
            if self.waits {
                ready.wait_until_copied().unwrap();
            }
            if of(Slow::Kernel) > 0 {
                sleep_on(&compute, of(Slow::Kernel)).unwrap();
            }
            drop(ready);
            let step = self.step + of(Slow::Consumer);
            if step > 0 {
                let start = Instant::now();
                std::thread::sleep(Duration::from_millis(step));
                stepped.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
            }
        }
        let wall = start.elapsed().as_secs_f64() * 1e3;
        let report = loader.report();
        let bound = Diagnosis::new(&report).bound;
        let stepped = stepped.load(Ordering::Relaxed) as f64 / 1e6;
        loader.stop(LONG).unwrap();
        // Nothing else takes time once the slots are full.
        let expected = if self.slow == Slow::Consumer { stepped } else { wall - stepped };
        let is_named = bound == self.slow.bound();
        if !is_named {
            println!("{self:?}: {}, {:?}", Diagnosis::new(&report), report.service);
        }
        (report.epoch, wall, expected, is_named)
    }

    fn check(&self) -> (String, bool) {
        let (account, wall, expected, is_named) = self.run();
        let ms = |cause| account.time(cause).as_secs_f64() * 1e3;
        let (charged, sum) = (ms(self.slow.cause()), Cause::ALL.map(ms).iter().sum::<f64>());
        let is_right = (charged / expected - 1.0).abs() < 0.1
            && (sum / wall - 1.0).abs() < 0.01
            && account.batches == STEPS
            && is_named;
        let line = format!(
            "{self:?}: {charged:.1} of {expected:.1} ms, sum {sum:.1} of {wall:.1} ms, named {is_named}"
        );
        (if is_right { line } else { format!("{line}\n{account}") }, is_right)
    }
}

#[test]
fn the_account_and_the_diagnosis_name_the_slow_stage_before_in_and_behind_a_device_map() {
    let mut cases = Vec::new();
    for slow in ALL {
        for (step, waits) in [(0, false), (2, false), (2, true)] {
            // A step that blocks for its batch hides nothing from its own thread.
            for way in WAYS {
                let waits = waits && slow != Slow::Kernel;
                // Nothing is copied before a lane that reads host slots.
                if (way, slow) != (Way::Produce, Slow::Copy) {
                    cases.push(Case { slow, time: 8, step, waits, way });
                }
            }
        }
    }
    let other_work = OtherWork::watch();
    let mut wrong = Vec::new();
    alone_in_parts(|| {
        wrong = on_four_threads(&cases, |case| {
            let mut lines = Vec::new();
            loop {
                let (line, is_right) = case.check();
                println!("{line}{}", if is_right { "" } else { "  WRONG" });
                if is_right {
                    return Vec::new();
                }
                lines.push(line);
                if lines.len() == RUNS || other_work.is_present() {
                    return lines;
                }
            }
        })
        .concat();
    });
    assert!(wrong.is_empty() || other_work.not_run("the account of a device map"), "{}", wrong.join("\n"));
}

#[test]
fn a_trace_shows_each_lane_and_a_prediction_replays_it() {
    alone(|| {
        let trace = Trace::new();
        let builder = Loader::builder(fine(80)).batch_size(4).epochs(1).trace(&trace).device_lanes(2);
        let both = Arc::new(Barrier::new(2));
        let builder = builder.device_map(spec(), move |stream: &Stream| {
            let (stream, mut both) = (stream.clone(), Some(both.clone()));
            Ok(move |batch: &mut DeviceBatch<'_>| {
                // No lane takes a second batch before the other has one.
                both.take().map(|both| both.wait());
                sleep_on(&stream, 2)?;
                invert(&stream, batch)
            })
        });
        let device = Device::new_host();
        let compute = device.stream().unwrap();
        let mut loader = builder.build(&device).unwrap();
        for batch in loader.epoch(0).unwrap() {
            drop(batch.unwrap().wait_on(&compute).unwrap());
        }
        let report = loader.report();
        assert_eq!(report.setup.map_lanes, 2);
        assert!(report.service.map_ns >= 2_000_000, "{:?}", report.service);
        let profile = feedline_report::Profile::new(&loader);
        let times = |what: WhatIf| what.predict(&profile, 400).batches_per_s();
        let slow = WhatIf { device_map: Some(Duration::from_millis(40)), ..WhatIf::default() };
        assert!((times(slow) / 50.0 - 1.0).abs() < 0.05, "two lanes of 40 ms: {}", times(slow));
        loader.stop(LONG).unwrap();
        let table = Table::new(&trace);
        let row = |kind, name: &str| table.rows.iter().find(|row| row.kind == kind && row.name == name);
        let mapped = row(Kind::Kernel, "device map").expect("the map on the device");
        assert!(mapped.count >= 4 && mapped.p50 >= Duration::from_millis(2), "{table}");
        assert_eq!(row(Kind::Host, "queue the device map").map(|row| row.count), Some(20), "{table}");
        let json = feedline_report::trace_json(&trace);
        for lane in ["fl-map-0", "fl-map-1", "stream of map 0", "stream of map 1"] {
            assert!(json.contains(lane), "no {lane}");
        }
    });
}

#[test]
fn the_report_of_lanes_that_read_host_slots_has_their_time_and_no_copy() {
    alone(|| {
        let trace = Trace::new();
        let builder = Loader::builder(fine(160)).batch_size(4).epochs(1).trace(&trace);
        let builder = Way::Produce.before_invert(builder, 2, |_| {
            std::thread::sleep(Duration::from_millis(20));
            Ok(())
        });
        let device = Device::new_host();
        let compute = device.stream().unwrap();
        let mut loader = builder.build(&device).unwrap();
        for batch in loader.epoch(0).unwrap() {
            drop(batch.unwrap().wait_on(&compute).unwrap());
        }
        let (report, profile) = (loader.report(), feedline_report::Profile::new(&loader));
        loader.stop(LONG).unwrap();
        assert!(report.setup.lanes_read_host && report.setup.map_lanes == 2);
        let service = report.service;
        assert!(
            (service.copy_ns, service.submit_ns) == (0, 0) && service.map_ns >= 20_000_000,
            "{service:?}"
        );
        let diagnosis = Diagnosis::new(&report);
        assert_eq!(diagnosis.bound, Bound::DeviceMap, "{diagnosis}");
        assert!(diagnosis.text.starts_with("lane-bound: "), "{diagnosis}");
        let slow = WhatIf { device_map: Some(Duration::from_millis(40)), ..WhatIf::default() };
        let rate = slow.predict(&profile, 400).batches_per_s();
        assert!((rate / 50.0 - 1.0).abs() < 0.05, "two lanes of 40 ms: {rate}");
        let table = Table::new(&trace);
        let made = table.rows.iter().find(|row| row.kind == Kind::Host && row.name == "make the batch");
        assert!(made.is_some_and(|row| row.count == 40 && row.p50 >= Duration::from_millis(20)), "{table}");
    });
}

/// One of three stages takes 5 ms per batch. Compares the shares of batches for which a lane asked for the
/// CPU's help.
#[test]
fn a_lane_asks_for_the_help_of_the_cpu_only_while_it_is_what_the_others_wait_for() {
    let share = |slow: Slow| {
        let time = |of: Slow| Duration::from_millis(if of == slow { 5 } else { 0 });
        let (decode, lane, step) = (time(Slow::Decode), time(Slow::Lane), time(Slow::Consumer));
        let set = Before::new(fine(BATCH * STEPS), move |id| {
            std::thread::sleep(if id % BATCH == 0 { decode } else { Duration::ZERO });
            Ok(())
        });
        let asked = Arc::new(AtomicU64::new(0));
        let counted = asked.clone();
        let ids = Spec::new().field("id", DType::I64, []).unwrap();
        let builder = Loader::builder(set).batch_size(BATCH as usize).depth(3).epochs(1);
        let builder = builder.workers(feedline::Workers::Count(1)).produce(ids, move |_: &Stream| {
            let asked = counted.clone();
            Ok(move |batch: &mut PinnedBatch<'_>| {
                std::thread::sleep(lane);
                asked.fetch_add(u64::from(batch.needs_help()()), Ordering::Relaxed);
                batch.copy("id")
            })
        });
        let device = Device::new_host();
        let compute = device.stream().unwrap();
        let mut loader = builder.build(&device).unwrap();
        for batch in loader.epoch(0).unwrap() {
            drop(batch.unwrap().wait_on(&compute).unwrap());
            std::thread::sleep(step);
        }
        loader.stop(LONG).unwrap();
        asked.load(Ordering::Relaxed) as f64 / STEPS as f64
    };
    alone_in_parts(|| {
        let right = |[decode, lane, step]: [f64; 3]| decode < 0.2 && lane > 0.8 && step < 0.2;
        let mut found = Vec::new();
        let is_right = (0..RUNS).any(|_| {
            found.push([Slow::Decode, Slow::Lane, Slow::Consumer].map(share));
            found.last().is_some_and(|found| right(*found))
        });
        println!("{found:?}");
        assert!(is_right, "{found:?}");
    });
}
