//! `Workers::Auto`: finds a good number of workers, and changes nothing else.

use std::time::{Duration, Instant};

use crate::common::on_four_threads;
use feedline::report::Tuning;
use feedline::{Device, Loader, LoaderBuilder, TransferMode, WorkerPool, Workers};
use feedline_device::host::Host;
use feedline_report::to_json;
use feedline_sim::interceptors::SlowCopies;
use feedline_testkit::fixtures::{Before, Fine};
use feedline_testkit::{OtherWork, watchdog::LIMIT, with_watchdog};

const BATCH: usize = 4;
const BUDGET: usize = 8;

/// A workload: milliseconds of sleep for decoding a row, for a copy, and for the consumer.
#[derive(Clone, Copy, Debug)]
struct Load {
    name: &'static str,
    decode: u64,
    copy: u64,
    step: u64,
}

const LOADS: [Load; 3] = [
    Load { name: "decode-bound", decode: 2, copy: 0, step: 1 },
    Load { name: "copy-bound", decode: 1, copy: 4, step: 1 },
    Load { name: "compute-bound", decode: 1, copy: 1, step: 6 },
];

fn sleep(ms: u64) {
    if ms > 0 {
        std::thread::sleep(Duration::from_millis(ms));
    }
}

impl Load {
    fn device(&self) -> Device {
        let copy = Duration::from_millis(self.copy);
        feedline_device::with_backend(SlowCopies::slow_copies(Host::new(), Duration::ZERO, copy))
    }

    fn builder(&self, steps: u64) -> LoaderBuilder {
        let decode = self.decode;
        let fine = Fine::new(BATCH as u64 * steps, 100).expect("a set");
        let slow = Before::new(fine, move |_| {
            sleep(decode);
            Ok(())
        });
        Loader::builder(slow).batch_size(BATCH).transfer_mode(TransferMode::Staged)
    }

    /// Runs an epoch; returns batches per second, without the first ones.
    fn rate(&self, loader: &mut Loader, device: &Device, epoch: u64) -> f64 {
        const START: usize = 10;
        let stream = device.stream().expect("a stream");
        let (mut from, mut count) = (Instant::now(), 0);
        for (step, batch) in loader.epoch(epoch).expect("an epoch").enumerate() {
            drop(batch.and_then(|batch| batch.wait_on(&stream)).expect("a batch"));
            sleep(self.step);
            if step == START {
                (from, count) = (Instant::now(), 0);
            }
            count += 1;
        }
        f64::from(count) / from.elapsed().as_secs_f64()
    }

    /// The rate with a number of workers.
    fn rate_of(&self, workers: usize) -> f64 {
        let device = self.device();
        let builder = self.builder(60).workers(Workers::Count(workers));
        self.rate(&mut builder.build(&device).expect("a loader"), &device, 0)
    }

    /// The number of workers with the best rate.
    fn sweep(&self) -> usize {
        let all: Vec<usize> = (1..=BUDGET).collect();
        let rates = on_four_threads(&all, |&workers| (self.rate_of(workers), workers));
        rates.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).expect("a number").1
    }

    /// Tunes until it settles.
    fn tuned(&self) -> Tuning {
        let device = self.device();
        let mut loader =
            self.builder(60).workers(Workers::AutoUpTo(BUDGET)).build(&device).expect("a loader");
        let settled = (0..200).find(|&epoch| {
            self.rate(&mut loader, &device, epoch);
            loader.report().tuning.expect("tuned").is_settled
        });
        settled.expect("settles within 200 epochs");
        loader.report().tuning.expect("tuned")
    }

    /// How much quicker `a` workers are than `b`: the median of several pairs, measured in turn.
    fn compare(&self, a: usize, b: usize) -> f64 {
        let mut ratios = on_four_threads(&[(); 7], |()| self.rate_of(a) / self.rate_of(b));
        ratios.sort_by(f64::total_cmp);
        ratios[3]
    }
}

/// The best of four tries counts, because tuning and measuring depend on the machine's load; a try beside
/// other work does not count. The tests of `tune.rs` have a grid of workloads in virtual time, which runs
/// anywhere.
#[test]
fn the_tuner_reaches_95_percent_of_the_best_setting_of_a_sweep() {
    let _one = crate::common::one_at_a_time();
    with_watchdog(LIMIT, || {
        on_four_threads(&LOADS, |load| {
            let other_work = OtherWork::watch();
            let mut tries: Vec<(f64, usize, Tuning)> = Vec::new();
            loop {
                let (best, tuning) = (load.sweep(), load.tuned());
                let share = load.compare(tuning.workers, best);
                println!("{}: {share:.3} of the best, {best} workers; {tuning}", load.name);
                assert!(tuning.workers <= BUDGET, "{tuning}");
                let some_sleep = load.name != "compute-bound" || tuning.workers < BUDGET;
                if share >= 0.95 && some_sleep {
                    break;
                }
                if other_work.not_run(load.name) {
                    break;
                }
                tries.push((share, best, tuning));
                assert!(tries.len() < 4, "{load:?}: {tries:#?}");
            }
        });
    });
}

/// The ids of `epochs` epochs, with the bytes checked.
fn ids(loader: &mut Loader, device: &Device, epochs: u64) -> Vec<u64> {
    let stream = device.stream().expect("a stream");
    let mut ids = Vec::new();
    for epoch in 0..epochs {
        for batch in loader.epoch(epoch).expect("an epoch") {
            let batch = batch.and_then(|batch| batch.wait_on(&stream)).expect("a batch");
            let stored = batch.field::<i64>("id").and_then(|view| view.to_vec()).expect("the ids");
            assert!(stored.iter().zip(batch.ids()).all(|(stored, id)| *stored as u64 == *id));
            ids.extend_from_slice(batch.ids());
        }
    }
    ids
}

#[test]
fn the_order_is_the_same_while_workers_go_to_sleep_and_wake_up() {
    let _one = crate::common::one_at_a_time();
    with_watchdog(LIMIT, || {
        let load = Load { name: "", decode: 1, copy: 0, step: 0 };
        let host = Device::new_host();
        let fixed = load.builder(50).shuffle().seed(3).workers(Workers::Count(2)).build(&host);
        let wanted = ids(&mut fixed.expect("a loader"), &host, 30);
        let device = Device::new_host();
        let tuned = load.builder(50).shuffle().seed(3).workers(Workers::AutoUpTo(BUDGET)).build(&device);
        let mut tuned = tuned.expect("a loader");
        let used = tuned.memory_use();
        assert_eq!(ids(&mut tuned, &device, 30), wanted);
        assert_eq!(tuned.memory_use(), used);
    });
}

#[test]
fn on_the_simulator_no_change_makes_a_race() {
    let _one = crate::common::one_at_a_time();
    with_watchdog(LIMIT, || {
        for seed in 0..10 {
            let (device, sim) = feedline_sim::device(seed).expect("a device");
            let builder = LOADS[0].builder(20).workers(Workers::AutoUpTo(BUDGET));
            let mut loader = builder.build(&device).expect("a loader");
            assert_eq!(ids(&mut loader, &device, 2), (0..80).chain(0..80).collect::<Vec<_>>());
            drop(loader);
            sim.finish().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    });
}

/// A consumer that takes longer than all the decoding needs few workers.
#[test]
fn workers_sleep_while_the_step_is_longer_and_the_report_says_so() {
    let _one = crate::common::one_at_a_time();
    with_watchdog(LIMIT, || {
        let (device, load) = (LOADS[2].device(), LOADS[2]);
        let mut loader =
            load.builder(40).workers(Workers::AutoUpTo(BUDGET)).build(&device).expect("a loader");
        let all = Tuning { workers: BUDGET, max_workers: BUDGET, is_settled: false };
        assert_eq!(loader.report().tuning, Some(all));
        for epoch in 0.. {
            load.rate(&mut loader, &device, epoch);
            if loader.report().tuning.expect("tuned").workers < BUDGET {
                break;
            }
        }
        let (tuning, report) = (loader.report().tuning.expect("tuned"), loader.report());
        assert_eq!(report.setup.workers, tuning.workers);
        assert!(report.to_string().contains(&tuning.to_string()), "{report}");
        let json = to_json(&report);
        assert!(json.contains(&format!("\"tuning\":{{\"workers\":{}", tuning.workers)), "{json}");
    });
}

#[test]
fn a_shared_pool_is_not_tuned_and_without_auto_nothing_is() {
    let _one = crate::common::one_at_a_time();
    let (device, pool) = (Device::new_host(), WorkerPool::new(Workers::Count(2)).expect("a pool"));
    let shared =
        LOADS[0].builder(2).workers(Workers::AutoUpTo(BUDGET)).pool(&pool).build(&device).expect("a loader");
    assert_eq!(shared.report().tuning, None);
    let plain = LOADS[0].builder(2).build(&device).expect("a loader");
    assert_eq!(plain.report().tuning, None);
}

#[test]
fn a_loader_that_tunes_itself_stops_at_any_time() {
    let _one = crate::common::one_at_a_time();
    with_watchdog(LIMIT, || {
        for batches in [0, 1, 5, 40] {
            let device = LOADS[1].device();
            let mut loader =
                LOADS[1].builder(60).workers(Workers::AutoUpTo(BUDGET)).build(&device).expect("a loader");
            loader.epoch(0).expect("an epoch").take(batches).for_each(|batch| drop(batch.expect("a batch")));
            loader.stop(LIMIT).expect("stops");
            drop(loader);
            let stats = device.stats();
            assert_eq!((stats.pinned_bytes.get(), stats.device_bytes.get()), (0, 0), "{batches} batches");
        }
    });
}
