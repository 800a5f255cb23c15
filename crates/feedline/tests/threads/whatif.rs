//! Compares the model's predictions for other settings with runs in those settings.

use std::time::{Duration, Instant};

use crate::common::{LONG, alone_in_parts, on_four_threads};
use feedline::{Loader, Workers};
use feedline_device::host::Host;
use feedline_report::{Profile, WhatIf};
use feedline_sim::interceptors::SlowCopies;
use feedline_testkit::OtherWork;
use feedline_testkit::fixtures::{Before, Fine};

const BATCH: u64 = 8;
const STEPS: u64 = 60;
/// A machine with other work is slower than predicted: the best of this number of runs counts.
const RUNS: usize = 4;

/// A pipeline; times in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Run {
    decode: u64,
    copy: u64,
    step: u64,
    workers: usize,
    depth: usize,
}

impl Run {
    /// Runs an epoch; returns batches per second and the service times.
    fn run(self) -> (f64, Profile) {
        let Self { decode, copy, step, workers, depth } = self;
        let backend = SlowCopies::slow_copies(Host::new(), Duration::ZERO, Duration::from_millis(copy));
        let device = feedline_device::with_backend(backend);
        // Sleeps in all rows, so that a batch can be split among the workers.
        let data = Before::new(Fine::new(BATCH * STEPS, 100).unwrap(), move |_| {
            std::thread::sleep(Duration::from_micros(1000 * decode / BATCH));
            Ok(())
        });
        let builder = Loader::builder(data).batch_size(BATCH as usize).depth(depth).epochs(1);
        let mut loader = builder.workers(Workers::Count(workers)).build(&device).unwrap();
        let compute = device.stream().unwrap();
        let start = Instant::now();
        for batch in loader.epoch(0).unwrap() {
            drop(batch.unwrap().wait_on(&compute).unwrap());
            std::thread::sleep(Duration::from_millis(step));
        }
        let rate = STEPS as f64 / start.elapsed().as_secs_f64();
        let profile = Profile::new(&loader);
        loader.stop(LONG).unwrap();
        (rate, profile)
    }
}

#[test]
fn predictions_are_within_a_tenth_of_what_is_obtained() {
    alone_in_parts(|| {
        let other_work = OtherWork::watch();
        let pipelines = [(8, 0, 1), (8, 0, 3), (4, 3, 1), (4, 1, 6)];
        let wrong = on_four_threads(&pipelines, |&(decode, copy, step)| {
            let mut wrong = Vec::new();
            // Measured with one worker and a depth of 3; the rest is predicted.
            let measured = Run { decode, copy, step, workers: 1, depth: 3 };
            let (_, profile) = measured.run();
            for (workers, depth, step) in [(1, 3, step), (2, 3, step), (4, 3, step), (4, 8, step), (2, 2, 5)]
            {
                let what = WhatIf {
                    workers: Some(workers),
                    depth: Some(depth),
                    step: (step != measured.step).then(|| Duration::from_millis(step)),
                    ..WhatIf::default()
                };
                let predicted = what.predict(&profile, STEPS as usize).batches_per_s();
                let grade = || {
                    let (obtained, _) = Run { workers, depth, step, ..measured }.run();
                    (obtained, predicted / obtained - 1.0)
                };
                let mut graded: Vec<(f64, f64)> = Vec::new();
                while graded.last().is_none_or(|last| last.1.abs() > 0.1)
                    && graded.len() < RUNS
                    && (graded.is_empty() || !other_work.is_present())
                {
                    graded.push(grade());
                }
                let (obtained, error) = graded[graded.len() - 1];
                let line = format!(
                    "decode {decode} ms, copy {copy} ms, step {step} ms, {workers} workers, depth {depth}: \
                     predicted {predicted:6.1}, obtained {obtained:6.1} batches/s ({:+.1} %)",
                    100.0 * error
                );
                println!("{line}");
                if error.abs() > 0.1 {
                    wrong.push(line);
                }
            }
            wrong
        })
        .concat();
        assert!(wrong.is_empty() || other_work.not_run("predictions"), "{wrong:#?}");
    });
}
