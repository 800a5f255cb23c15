//! Checks the diagnosis, and the account against a stopwatch, in every transfer mode.

use std::time::{Duration, Instant};

use feedline::report::{Cause, ChosenMode};
use feedline::{Device, Loader, TransferMode, TryNext};
use feedline_device::host::Host;
use feedline_device::{Memory, launch_host};
use feedline_report::{Bound, Diagnosis};
use feedline_sim::interceptors::SlowCopies;
use feedline_testkit::OtherWork;
use feedline_testkit::fixtures::{Before, Fine, Laid};

use crate::common::{LONG, alone_in_parts, on_four_threads};

const BATCH: u64 = 4;
const STEPS: u64 = 60;
const TIME: Duration = Duration::from_millis(8);
/// A machine with other work sometimes wakes a thread late: the best of this number of runs counts.
const RUNS: usize = 4;

/// The stage that takes 8 ms per batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slow {
    /// The copy of the batch, or the gather by which the device reads its rows.
    Copy,
    /// The consumer's work on the device.
    Kernel,
    Consumer,
}

impl Slow {
    fn expected(self) -> (Cause, Bound) {
        match self {
            Self::Copy => (Cause::Copy, Bound::Copy),
            Self::Kernel => (Cause::NoDeviceSlot, Bound::Compute),
            Self::Consumer => (Cause::Consumer, Bound::Compute),
        }
    }
}

/// Runs an epoch; returns the first mistake of the report.
fn check(mode: TransferMode, slow: Slow) -> Option<String> {
    let on_stream = if slow == Slow::Copy { TIME } else { Duration::ZERO };
    let device =
        feedline_device::with_backend(SlowCopies::slow_copies(Host::new(), Duration::ZERO, on_stream));
    let rows = Laid::columns(&Fine::new(BATCH * STEPS, 100).unwrap(), 1).unwrap();
    let builder = Loader::builder(rows).batch_size(BATCH as usize).depth(3).epochs(1).transfer_mode(mode);
    let mut loader = builder.build(&device).unwrap();
    let is_asked = match loader.transfer_mode() {
        ChosenMode::Staged { .. } => mode == TransferMode::Staged,
        ChosenMode::ZeroCopy => mode == TransferMode::ZeroCopy,
        ChosenMode::Resident => mode == TransferMode::Resident,
        _ => false,
    };
    assert!(is_asked, "{mode:?}: {:?}", loader.transfer_mode());
    let compute = device.stream().unwrap();
    let (start, mut stepped) = (Instant::now(), Duration::ZERO);
    for batch in loader.epoch(0).unwrap() {
        let ready = batch.unwrap().wait_on(&compute).unwrap();
        if slow == Slow::Kernel {
            launch_host(&compute, "kernel", [], [], |_: &mut Memory<'_>| std::thread::sleep(TIME)).unwrap();
        }
        drop(ready);
        if slow == Slow::Consumer {
            let start = Instant::now();
            std::thread::sleep(TIME);
            stepped += start.elapsed();
        }
    }
    let wall = start.elapsed();
    let report = loader.report();
    loader.stop(LONG).unwrap();
    let (cause, bound) = slow.expected();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let charged = ms(report.epoch.time(cause));
    let sum: f64 = Cause::ALL.map(|cause| ms(report.epoch.time(cause))).iter().sum();
    let expected = ms(if slow == Slow::Consumer { stepped } else { wall });
    let diagnosis = Diagnosis::new(&report);
    let is_right = diagnosis.bound == bound
        && (charged / expected - 1.0).abs() < 0.1
        && (sum / ms(wall) - 1.0).abs() < 0.01
        && report.epoch.batches == STEPS;
    (!is_right).then(|| {
        let wall = ms(wall);
        format!(
            "{mode:?}, {slow:?}: {charged:.1} of {expected:.1} ms, sum {sum:.1} of {wall:.1} ms; \
             {diagnosis}\n{}",
            report.epoch
        )
    })
}

#[test]
fn the_account_and_the_diagnosis_name_the_slow_stage_in_every_transfer_mode() {
    let mut cases = Vec::new();
    for mode in [TransferMode::Staged, TransferMode::ZeroCopy, TransferMode::Resident] {
        cases.extend([Slow::Copy, Slow::Kernel, Slow::Consumer].map(|slow| (mode, slow)));
    }
    let other_work = OtherWork::watch();
    let mut wrong = Vec::new();
    alone_in_parts(|| {
        wrong = on_four_threads(&cases, |&(mode, slow)| {
            let mut wrong = Vec::new();
            while let Some(line) = check(mode, slow) {
                println!("{line}");
                wrong.push(line);
                if wrong.len() == RUNS || other_work.is_present() {
                    return wrong;
                }
            }
            Vec::new()
        })
        .concat();
    });
    assert!(wrong.is_empty() || other_work.not_run("the modes' account"), "{}", wrong.join("\n"));
}

/// A thread takes batches, maps them itself and polls for the next one: its time is charged to the device
/// map, and the account equals a stopwatch.
#[test]
fn a_map_on_the_consumers_thread_is_charged_to_the_device_map() {
    alone_in_parts(|| {
        let rows = Before::new(Fine::new(BATCH * STEPS, 100).unwrap(), |id| {
            std::thread::sleep(if id % BATCH == 0 { Duration::from_millis(3) } else { Duration::ZERO });
            Ok(())
        });
        let mut loader =
            Loader::builder(rows).batch_size(BATCH as usize).epochs(1).build(&Device::new_host()).unwrap();
        let progress = loader.progress();
        let (start, mut mapped) = (Instant::now(), Duration::ZERO);
        let mut batches = loader.epoch(0).unwrap();
        while !batches.is_over() {
            // More polls than the ledger keeps one by one, with a map after each.
            let batch = batches.try_next().unwrap();
            let start = Instant::now();
            let time = if matches!(batch, TryNext::Batch(_)) { TIME } else { Duration::from_micros(20) };
            std::thread::sleep(time);
            drop(batch);
            progress.add_device_map_time(start.elapsed());
            mapped += start.elapsed();
        }
        drop(batches);
        let wall = start.elapsed();
        let report = loader.report();
        loader.stop(LONG).unwrap();
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let sum: f64 = Cause::ALL.map(|cause| ms(report.epoch.time(cause))).iter().sum();
        let (charged, mapped) = (ms(report.epoch.time(Cause::DeviceMap)), ms(mapped));
        let told =
            format!("{charged:.1} of {mapped:.1} ms, sum {sum:.1} of {:.1} ms\n{}", ms(wall), report.epoch);
        // Time between many polls is waiting.
        assert!(charged > 0.8 * ms(TIME) * STEPS as f64 && charged <= mapped, "{told}");
        assert!(sum <= ms(wall) && sum > 0.9 * ms(wall), "{told}");
        assert_eq!(Diagnosis::new(&report).bound, Bound::DeviceMap, "{told}");
    });
}
