//! The ledger charges the consumer's time to the right cause: one stage at a time sleeps for a known time.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{LONG, alone, alone_in_parts, on_four_threads, wait_until};
use feedline::Progress;
use feedline::report::{Account, Cause};
use feedline::{Device, Loader, LoaderBuilder, Workers};
use feedline_core::{About, Context, Dataset, ErrorKind, ReadError, Row, Sampler, Spec};
use feedline_device::host::Host;
use feedline_device::launch_host;
use feedline_sim::SimOptions;
use feedline_sim::interceptors::SlowCopies;
use feedline_testkit::OtherWork;
use feedline_testkit::fixtures::{self, Fine, streams};

const BATCH: u64 = 4;
const STEPS: u64 = 30;
/// A machine with other work sometimes wakes a thread late: the best of this number of runs counts.
const RUNS: usize = 4;

/// A stage that can be slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slow {
    Source,
    Decode,
    /// The call that queues a copy.
    Submit,
    /// The copy on its stream.
    Copy,
    Consumer,
    /// The consumer's work on the device, which its thread does not wait for.
    Kernel,
}

/// One case of the grid; times in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Case {
    slow: Slow,
    time: u64,
    /// The time of the consumer's step in every case.
    step: u64,
    /// The time of decoding in every case.
    decode: u64,
    workers: usize,
    sim: bool,
    steps: u64,
}

/// A sleep, and how long the sleeps of a stage took.
#[derive(Clone, Default)]
struct Sleep(Arc<AtomicU64>);

impl Sleep {
    fn sleep(&self, ms: u64) {
        let start = Instant::now();
        std::thread::sleep(Duration::from_millis(ms));
        self.0.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }

    fn ms(&self) -> f64 {
        self.0.load(Ordering::Relaxed) as f64 / 1e6
    }
}

impl Case {
    /// The allowed deviation. If nobody waits for copies and kernels, decoding fills the slots at the start
    /// for an unknown time.
    fn tolerance(&self) -> f64 {
        let is_hidden = matches!(self.slow, Slow::Copy | Slow::Kernel) && self.step == 0 && self.decode > 0;
        if is_hidden { 0.1 } else { 0.05 }
    }

    fn cause(&self) -> Cause {
        match self.slow {
            Slow::Source => Cause::SourceRead,
            Slow::Decode => Cause::Decode,
            Slow::Submit | Slow::Copy => Cause::Copy,
            Slow::Consumer => Cause::Consumer,
            Slow::Kernel => Cause::NoDeviceSlot,
        }
    }

    fn time_of(&self, slow: Slow) -> u64 {
        if self.slow == slow { self.time } else { 0 }
    }

    fn device(&self) -> (Device, feedline_sim::interceptors::slow::SlowCopiesHandle) {
        let [submit, copy] = [Slow::Submit, Slow::Copy].map(|slow| Duration::from_millis(self.time_of(slow)));
        if self.sim {
            let (backend, _) = feedline_sim::Sim::new(SimOptions::seed(1)).unwrap();
            let backend = SlowCopies::slow_copies(backend, submit, copy);
            let delays = backend.delays();
            return (feedline_device::with_backend(backend), delays);
        }
        let backend = SlowCopies::slow_copies(Host::new(), submit, copy);
        let delays = backend.delays();
        (feedline_device::with_backend(backend), delays)
    }

    fn builder(&self, slept: &Sleep) -> LoaderBuilder<()> {
        let (read, decode) = (self.time_of(Slow::Source), self.decode + self.time_of(Slow::Decode));
        if read > 0 {
            let end = BATCH * self.steps;
            let (slept, records) = (slept.clone(), streams::Generator::new([end]).unwrap());
            // One sleep per batch, before its first record.
            let records = streams::Hooked::new(records).before_read(move |(_, offset)| {
                if offset % BATCH == 0 && offset < end {
                    slept.sleep(read);
                }
                Ok(())
            });
            return Loader::source_builder(records).either();
        }
        let (slept, fine) = (slept.clone(), Fine::new(BATCH * self.steps, 100).unwrap());
        (Loader::builder(fixtures::Before::new(fine, move |id| {
            if decode > 0 && id % BATCH == 0 {
                slept.sleep(decode);
            }
            Ok(())
        })))
        .either()
    }

    /// Runs an epoch. Returns the account, the wall time of the epoch in milliseconds, and the time in
    /// milliseconds that the cause is expected to have.
    fn run(&self) -> (Account, f64, f64) {
        let (device, delays) = self.device();
        let (slept, stepped) = (Sleep::default(), Sleep::default());
        let builder = self.builder(&slept).batch_size(BATCH as usize).depth(3).epochs(1);
        let mut loader = builder.workers(Workers::Count(self.workers)).build(&device).unwrap();
        let compute = device.stream().unwrap();
        let start = Instant::now();
        for batch in loader.epoch(0).unwrap() {
            let ready = batch.unwrap().wait_on(&compute).unwrap();
            let kernel = self.time_of(Slow::Kernel);
            if kernel > 0 {
                let sleep = move |_: &mut feedline_device::Memory<'_>| {
                    std::thread::sleep(Duration::from_millis(kernel));
                };
                launch_host(&compute, "kernel", [ready.field_at::<u8>(1).unwrap().into()], [], sleep)
                    .unwrap();
            }
            drop(ready);
            let step = self.step + self.time_of(Slow::Consumer);
            if step > 0 {
                stepped.sleep(step);
            }
        }
        let wall = start.elapsed().as_secs_f64() * 1e3;
        let account = loader.report().epoch;
        let stepped = stepped.ms();
        // After the last step no batch can come late.
        let hidden = stepped * (self.steps - 1) as f64 / self.steps as f64;
        let expected = match self.slow {
            Slow::Consumer => stepped,
            Slow::Source | Slow::Decode => slept.ms() / self.workers as f64 - hidden,
            Slow::Submit => delays.slept().as_secs_f64() * 1e3 - hidden,
            // Nothing else takes time once the slots are full: four on the host, three on the device. The
            // last copies or kernels are not waited for.
            Slow::Copy | Slow::Kernel if self.step > 0 => wall - stepped,
            Slow::Copy => wall - 4.0 * self.decode as f64,
            Slow::Kernel => wall - 7.0 * self.decode as f64,
        };
        loader.stop(LONG).unwrap();
        (account, wall, expected)
    }

    /// Runs the case; returns a line of the table, and whether the ledger is right.
    fn check(&self) -> (String, bool) {
        let (account, wall, expected) = self.run();
        let ms = |cause| account.time(cause).as_secs_f64() * 1e3;
        let (charged, sum) = (ms(self.cause()), charged(&account).as_secs_f64() * 1e3);
        let largest =
            Cause::ALL.into_iter().filter(|&cause| cause != Cause::Consumer || self.slow == Slow::Consumer);
        let largest = largest.max_by_key(|&cause| account.time(cause)).unwrap();
        let is_right = largest == self.cause()
            && (charged / expected - 1.0).abs() < self.tolerance()
            && (sum / wall - 1.0).abs() < 0.01
            && account.batches == self.steps;
        let (slow, time, step, decode) = (format!("{:?}", self.slow), self.time, self.step, self.decode);
        let (workers, device) = (self.workers, if self.sim { "sim" } else { "host" });
        let line = format!(
            "{slow:<9}{time:>3} ms, step {step} ms, decode {decode} ms, {workers} workers, {device:<5} \
             {largest:<20} \
             {charged:>7.1} of {expected:>6.1} ms ({:>+5.1} %), sum {sum:>6.1} of {wall:>6.1} ms \
             ({:>+5.2} %)",
            100.0 * (charged / expected - 1.0),
            100.0 * (sum / wall - 1.0),
        );
        let line = if is_right { line } else { format!("{line}\n{account}") };
        (line, is_right)
    }
}

#[test]
fn the_ledger_names_the_slow_stage_and_its_size_and_sums_to_the_wall_time() {
    let mut cases = Vec::new();
    for time in [5, 9] {
        for (step, workers, sim) in [(0, 1, false), (2, 1, false), (0, 2, false), (0, 1, true), (2, 1, true)]
        {
            for slow in [Slow::Source, Slow::Decode, Slow::Submit, Slow::Consumer] {
                // A source has one reader, and two workers share its batches.
                if workers == 1 || slow == Slow::Decode {
                    cases.push(Case { slow, time, step, decode: 0, workers, sim, steps: STEPS });
                }
            }
            for slow in [Slow::Copy, Slow::Kernel] {
                // Work of a simulated stream runs on the threads that look for its end.
                if workers == 1 && !sim {
                    cases.push(Case { slow, time, step, decode: 0, workers, sim, steps: STEPS });
                    cases.push(Case { slow, time, step, decode: 2, workers, sim, steps: 3 * STEPS });
                }
            }
        }
    }
    assert!(cases.len() >= 40, "{}", cases.len());
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
    assert!(wrong.is_empty() || other_work.not_run("the ledger's grid"), "{}", wrong.join("\n"));
}

/// How a consumer gets the bytes of its batches on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opens {
    /// Its kernels do.
    Never,
    /// The host loader opens them.
    Itself,
    InPlace,
    ToVec,
    /// As bridges to tensors in host memory do.
    Bridge,
}

/// The time charged to all causes.
fn charged(account: &Account) -> Duration {
    Cause::ALL.into_iter().map(|cause| account.time(cause)).sum()
}

/// A loop over batches: 4 ms of decoding or copying, then 2 ms of work of the consumer, which drops the
/// batch. Returns the account of the run and three times of a stopwatch in milliseconds: the loader's calls,
/// the consumer's work, and the excess of its sleeps.
fn stopwatch<B, O, E: std::fmt::Debug>(
    batches: impl Iterator<Item = Result<B, E>>,
    open: impl Fn(B) -> Result<O, E>,
    progress: &Progress,
) -> (Account, [f64; 3]) {
    const WORK: Duration = Duration::from_millis(2);
    let (mut called, mut worked, mut late) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let mut batches = batches;
    loop {
        let start = Instant::now();
        let Some(batch) = batches.next() else { break };
        let opened = open(batch.expect("a batch")).expect("an open batch");
        called += start.elapsed();
        let start = Instant::now();
        std::thread::sleep(WORK);
        late += start.elapsed().saturating_sub(WORK);
        drop(opened);
        worked += start.elapsed();
    }
    (progress.report().run, [called, worked, late].map(|time| time.as_secs_f64() * 1e3))
}

/// For every loader and every cause, the report's waits equal a stopwatch around the calls, up to the moment
/// at which the consumer has the batch.
#[test]
fn the_waits_are_those_of_a_stopwatch_for_every_loader() {
    let run = |opens: Opens, slow: Slow| {
        let case = Case { slow, time: 4, step: 2, decode: 0, workers: 1, sim: false, steps: STEPS };
        let (device, _) = case.device();
        let builder = case.builder(&Sleep::default()).batch_size(BATCH as usize).depth(3).epochs(1);
        let builder = builder.workers(Workers::Count(1));
        if opens == Opens::Itself {
            let mut loader = builder.build_host_on(&device).unwrap();
            let progress = loader.progress();
            return stopwatch(loader.epoch(0).unwrap(), Ok, &progress);
        }
        let mut loader = builder.build(&device).unwrap();
        let (compute, progress) = (device.stream().unwrap(), loader.progress());
        let open = |batch: feedline::Batch| {
            let ready = batch.wait_on(&compute)?;
            let opened: Box<dyn Any> = match opens {
                Opens::Itself | Opens::Never => Box::new(ready),
                Opens::InPlace => Box::new(ready.into_host()?),
                Opens::ToVec => {
                    ready.to_vec::<u8>("bytes")?;
                    Box::new(ready)
                }
                Opens::Bridge => {
                    ready.wait_until_copied()?;
                    Box::new(ready)
                }
            };
            Ok(opened)
        };
        stopwatch(loader.epoch(0).unwrap(), open, &progress)
    };
    alone_in_parts(|| {
        let all = [Opens::Never, Opens::Itself, Opens::InPlace, Opens::ToVec, Opens::Bridge];
        let slow = [Slow::Source, Slow::Decode, Slow::Submit, Slow::Copy];
        let cases = all.into_iter().flat_map(|opens| slow.map(|slow| (opens, slow)));
        on_four_threads(&cases.collect::<Vec<_>>(), |&(opens, slow)| {
            let mut wrong = String::new();
            let is_right = (0..RUNS).any(|_| {
                let (account, [called, worked, late]) = run(opens, slow);
                let all = called + worked;
                let waited = account.wait_share() * account.wall().as_secs_f64() * 1e3;
                let own = account.time(Cause::Consumer).as_secs_f64() * 1e3;
                wrong += &format!(
                    "{slow:?}, {opens:?}: waited {waited:.1} of {called:.1} ms, own {own:.1} of \
                     {worked:.1}, late {late:.1}\n{account}"
                );
                // The system takes the core between the two clocks as often as it wakes a sleeper late.
                let tolerance = 0.03 * all + late;
                (waited - called).abs() < tolerance && (own - worked).abs() < tolerance
            });
            assert!(is_right, "{wrong}");
        });
    });
}

/// The time between epochs belongs to the run, polls are waits, and a break loses nothing.
#[test]
fn a_run_is_charged_from_its_first_epoch_to_its_last_delivery() {
    alone(|| {
        let device = Device::new_host();
        let builder = Loader::builder(Fine::new(BATCH * STEPS, 100).unwrap()).batch_size(BATCH as usize);
        let mut loader = builder.build(&device).unwrap();
        let start = Instant::now();
        loader.epoch(0).unwrap().take(7).for_each(drop);
        let break_at = loader.report().epoch.wall();
        std::thread::sleep(Duration::from_millis(30)); // a validation between two epochs
        let mut batches = loader.epoch(1).unwrap();
        while !batches.is_over() {
            drop(batches.try_next().unwrap());
        }
        assert!(batches.next().is_none());
        let wall = start.elapsed();
        let report = loader.report();
        assert_eq!((report.run.batches, report.epoch.batches), (STEPS + 7, STEPS));
        assert_eq!((report.epoch.epoch, report.previous.unwrap().batches), (1, 7));
        for account in [report.run, report.epoch, report.previous.unwrap()] {
            assert_eq!(charged(&account), account.wall(), "{account}");
        }
        assert!(report.epoch.wall() + break_at < report.run.wall() - Duration::from_millis(30));
        // From outside, with the two calls around it.
        assert!(report.run.wall() <= wall && wall - report.run.wall() < Duration::from_secs(1));
        loader.stop(LONG).unwrap();
    });
}

#[test]
fn another_thread_reads_the_report_while_an_epoch_runs_and_sees_a_wait() {
    alone(|| {
        let device = Device::new_host();
        let (data, gate) = fixtures::blocking(Fine::new(40, 100).unwrap(), [20]);
        let builder = Loader::builder(data).batch_size(BATCH as usize).workers(Workers::Count(1));
        let mut loader = builder.build(&device).unwrap();
        let progress = loader.progress();
        let reader = std::thread::spawn(move || {
            wait_until("the consumer waits for batch 5", || {
                let report = progress.report();
                report.epoch.batches == 5
                    && report.waiting.is_some_and(|time| time > Duration::from_millis(20))
            });
            gate.open();
            progress
        });
        assert_eq!(loader.epoch(0).unwrap().count(), 10);
        let progress = reader.join().unwrap();
        let report = loader.report();
        assert_eq!((progress.report().epoch, report.waiting), (report.epoch, None));
        assert!(report.epoch.time(Cause::Decode) >= Duration::from_millis(20), "{report}");
        drop(loader);
        assert_eq!(progress.report().run, report.run);
    });
}

/// A set whose samples are decoded in groups that do not fit its cache, and how it is shuffled.
struct Grouped(Fine, Option<(u64, u64)>);

impl Dataset for Grouped {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn spec(&self) -> &Spec {
        self.0.spec()
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        self.0.read(id, row, context)
    }

    fn about(&self) -> About<'_> {
        About { block_shuffle: Some((10, 20)), plain_shuffle: self.1, ..About::default() }
    }
}

#[test]
fn the_setup_has_the_block_shuffle_of_a_set_that_is_shuffled_by_samples() {
    alone(|| {
        let device = Device::new_host();
        let builder = || Loader::builder(Grouped(Fine::new(40, 100).unwrap(), None)).batch_size(4);
        let blocks = Sampler::block(10, 20).unwrap();
        for (builder, expected) in [
            (builder().shuffle().seed(7), Some((10, 20))),
            (builder().sampler(blocks).seed(7), None),
            (builder(), None),
        ] {
            let mut loader = builder.epochs(1).build(&device).unwrap();
            let report = loader.report();
            assert_eq!(report.setup.block_shuffle, expected);
            assert_eq!(report.setup.groups_held, Some(4), "twice a window of two");
            let line = "write sampler(Sampler::block(10, 20)?) in place of shuffle()";
            assert_eq!(report.to_string().contains(line), expected.is_some(), "{report}");
            loader.stop(LONG).unwrap();
        }
    });
}

#[test]
fn a_large_set_is_shuffled_by_blocks_and_the_report_says_what_shuffles_all_at_once() {
    alone(|| {
        let builder = |plain| Loader::builder(Grouped(Fine::new(40, 100).unwrap(), plain)).batch_size(4);
        let large = || builder(Some((10, 30)));
        let run = |builder: LoaderBuilder| {
            let mut loader = builder.epochs(1).build_host().unwrap();
            let batches: Vec<_> =
                loader.epoch(0).unwrap().map(|batch| batch.unwrap().ids().to_vec()).collect();
            (batches.concat(), loader.report())
        };
        let blocks = |window| Sampler::block(10, window).unwrap();
        let (plain, report) = run(large().shuffle().seed(7));
        assert_eq!(plain, run(builder(None).sampler(blocks(30)).seed(7)).0);
        assert_eq!(
            (report.setup.plain_shuffle, report.setup.block_shuffle),
            (Some((10, 30)), Some((10, 20)))
        );
        let text = report.to_string();
        let line = "of 10 samples, in windows of 30, as the set is large; to shuffle all at once, write \
                    sampler(Sampler::Shuffle) in place of shuffle()";
        assert!(text.contains(line), "{text}");
        // Its cache holds two windows of 20 samples.
        let line = "decoded again and again: write sampler(Sampler::block(10, 20)?) in place";
        assert!(text.contains(line), "{text}");
        let (_, report) = run(builder(Some((10, 20))).shuffle().seed(7));
        assert_eq!((report.setup.plain_shuffle, report.setup.block_shuffle), (Some((10, 20)), None));
        // An order that the user asks for replaces the default order.
        let at_once = run(builder(None).shuffle().seed(7)).0;
        assert_ne!(plain, at_once);
        for builder in
            [large().sampler(Sampler::Shuffle).seed(7), large().shuffle().sampler(Sampler::Shuffle).seed(7)]
        {
            let (ids, report) = run(builder);
            assert_eq!((ids, report.setup.plain_shuffle), (at_once.clone(), None));
            assert!(!report.to_string().contains("shuffled by blocks"), "{report}");
        }
        let (ids, report) = run(large().sampler(blocks(20)).seed(7));
        assert_eq!(
            (ids, report.setup.plain_shuffle),
            (run(builder(None).sampler(blocks(20)).seed(7)).0, None)
        );
        assert_eq!(run(large()).0, Vec::from_iter(0..40), "in sequence");
    });
}

#[test]
fn a_cursor_of_a_shuffle_of_all_samples_is_refused_by_one_by_blocks_with_what_to_write() {
    alone(|| {
        let builder = |plain| Loader::builder(Grouped(Fine::new(40, 100).unwrap(), plain)).batch_size(4);
        // As before large sets were shuffled by blocks.
        let mut before = builder(None).shuffle().seed(7).build_host().unwrap();
        let batches: Vec<_> =
            before.epoch(0).unwrap().take(3).map(|batch| batch.unwrap().ids().to_vec()).collect();
        let (read, cursor) = (batches.concat(), before.cursor());
        let mut now = builder(Some((10, 20))).shuffle().seed(7).build_host().unwrap();
        let error = now.resume(cursor).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cursor);
        let advice = "shuffled all samples at once, and this one shuffles them by blocks; to go on with that \
                      run, write sampler(Sampler::Shuffle) in place of shuffle()";
        assert!(error.to_string().contains(advice), "{error}");
        let mut same = builder(Some((10, 20))).sampler(Sampler::Shuffle).seed(7).build_host().unwrap();
        let rest: Vec<_> = same.resume(cursor).unwrap().map(|batch| batch.unwrap().ids().to_vec()).collect();
        let mut whole = [read, rest.concat()].concat();
        whole.sort_unstable();
        assert_eq!(whole, Vec::from_iter(0..40), "every sample once");
        // Another order is no such run.
        let mut other = builder(Some((10, 30))).shuffle().seed(7).build_host().unwrap();
        let mut first = builder(Some((10, 20))).shuffle().seed(7).build_host().unwrap();
        assert!(first.epoch(0).unwrap().next().unwrap().is_ok());
        let error = other.resume(first.cursor()).unwrap_err();
        assert!(
            error.to_string().contains("another order") && !error.to_string().contains("all samples"),
            "{error}"
        );
    });
}
