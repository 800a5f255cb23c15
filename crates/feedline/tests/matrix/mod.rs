//! One cycle of the matrix: a pipeline, a fault at a moment, and the expected outcome.

mod data;
mod device;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use feedline::dataset::Random;
use feedline::{Batch, Epoch, Error, ErrorKind, Loader, Ready, Result, Stage, Stream, TryNext, Workers};
use feedline_testkit::fixtures::Fine;

use crate::common::{LONG, assert_intact, wait_until};
use data::{Data, Gate};
use device::{Rig, Switch};

const BATCH: usize = 4;
const STEPS: u64 = 5;
const EPOCHS: u64 = 2;

macro_rules! all {
    ($(#[$doc:meta])* $name:ident { $($(#[$case_doc:meta])* $case:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$case_doc])* $case,)* }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$case,)*];
        }
    };
}

all! {
    /// The fault.
    Fault {
        /// A sample cannot be read.
        ReadError,
        /// The data set panics.
        ReadPanic,
        /// A read blocks for a while.
        ReadBlocks,
        /// A copy to the device fails.
        CopyError,
        /// Recording the event after a copy fails.
        RecordError,
        /// Recording the end of a reader fails.
        EndError,
        /// The device is lost.
        DeviceLost,
        /// The consumer drops the epoch and starts it again.
        EpochDropped,
        /// The consumer drops the loader.
        LoaderDropped,
        /// The consumer's thread panics, while holding a batch if there is one.
        ConsumerPanics,
        /// The consumer stops the loader.
        Stopped,
    }
}

all! {
    /// When it goes wrong.
    Moment {
        /// Before the consumer asks for a batch.
        BeforeFirst,
        /// At the first batch.
        First,
        /// In the middle of an epoch.
        Middle,
        /// At the last batch of an epoch.
        Last,
        /// While the consumer is blocked in `next`, or would block.
        Blocked,
        /// Between two epochs.
        Between,
    }
}

/// A cell of the matrix, and the options of its pipeline.
#[derive(Clone, Copy, Debug)]
pub struct Cycle {
    fault: Fault,
    moment: Moment,
    workers: usize,
    depth: usize,
    row: u64,
    pause: Duration,
}

impl Cycle {
    pub fn draw(fault: Fault, moment: Moment, random: &mut Random) -> Self {
        // Holding a batch while requesting the next needs two slots.
        let holds = fault == Fault::EndError && matches!(moment, Moment::Blocked | Moment::Between);
        let min = if holds { 2 } else { 1 };
        Self {
            fault,
            moment,
            workers: 1 + random.below(3) as usize,
            depth: min + random.below(3) as usize,
            row: random.below(BATCH as u64),
            pause: Duration::from_micros(random.below(500)),
        }
    }

    /// The epoch and the step of the fault.
    fn target(&self) -> (u64, u64) {
        match self.moment {
            Moment::BeforeFirst | Moment::First => (0, 0),
            Moment::Middle | Moment::Blocked => (0, STEPS / 2),
            Moment::Last => (0, STEPS - 1),
            Moment::Between => (1, 0),
        }
    }

    /// Runs the cycle, and checks that its device holds nothing afterwards.
    pub fn run(&self) {
        let rig = Rig::new(self);
        {
            let compute = rig.device.stream().expect("a stream");
            let (data, gate) = Data::new(self);
            let fine = data.fine.clone();
            let builder = Loader::builder(data).batch_size(BATCH).workers(Workers::Count(self.workers));
            let loader = builder.depth(self.depth).epochs(EPOCHS).build(&rig.device).expect("a loader");
            let run = Run { cycle: self, rig: &rig, compute: &compute, fine, gate };
            match self.fault {
                Fault::ReadError
                | Fault::ReadPanic
                | Fault::CopyError
                | Fault::RecordError
                | Fault::DeviceLost => {
                    run.ends_with_the_cause(loader);
                }
                Fault::EndError => run.loses_a_slot(loader),
                Fault::ReadBlocks => run.continues(loader),
                Fault::EpochDropped => run.restarts_the_epoch(loader),
                Fault::LoaderDropped => run.drops(loader),
                Fault::ConsumerPanics => run.panics(loader),
                Fault::Stopped => run.stops(loader),
            }
        }
        rig.assert_empty(self.fault);
    }
}

/// A running cycle.
struct Run<'a> {
    cycle: &'a Cycle,
    rig: &'a Rig,
    compute: &'a Stream,
    fine: Fine,
    gate: Gate,
}

impl Run<'_> {
    fn open(&self, batch: Option<Result<Batch>>, step: u64) -> Ready {
        let batch =
            batch.expect("a batch").expect("a good batch").wait_on(self.compute).expect("a batch to read");
        assert_eq!(batch.step(), step, "in order");
        assert_intact(&self.fine, &batch);
        batch
    }

    /// Takes the batches before step `end` and returns the last one.
    fn take(&self, batches: &mut Epoch<'_>, end: u64) -> Option<Ready> {
        let mut held = None;
        for step in batches.steps().expect("a known number") - left(batches)..end {
            drop(held.take());
            held = Some(self.open(batches.next(), step));
        }
        held
    }

    fn take_epochs(&self, loader: &mut Loader, epochs: std::ops::Range<u64>) {
        for epoch in epochs {
            let mut batches = loader.epoch(epoch).expect("an epoch");
            drop(self.take(&mut batches, STEPS));
            assert!(batches.next().is_none() && batches.is_over());
        }
    }

    /// Loses the device, if that is the fault.
    fn lose_device(&self) {
        if self.cycle.fault == Fault::DeviceLost {
            self.rig.lose_device();
        }
    }

    /// Requests a batch whose read is blocked. Once `next` has been called, runs `before` and opens the gate.
    fn next_blocked(&self, batches: &mut Epoch<'_>, before: impl FnOnce() + Send) -> Option<Result<Batch>> {
        let asked = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                self.gate.wait();
                wait_until("next is called", || asked.load(Ordering::Acquire));
                std::thread::sleep(self.cycle.pause);
                before();
                self.gate.open();
            });
            asked.store(true, Ordering::Release);
            batches.next()
        })
    }

    fn is_blocked(&self) -> bool {
        self.cycle.moment == Moment::Blocked
    }

    /// Requests a batch whose read is blocked, with a short limit.
    fn next_gives_up(&self, batches: &mut Epoch<'_>) {
        self.gate.wait();
        let next = batches.next_timeout(self.cycle.pause).expect("no error");
        assert!(matches!(next, TryNext::NotYet), "the read is blocked");
    }

    /// Expects the batches before the fault, then its error, and the same error for later requests.
    fn ends_with_the_cause(&self, mut loader: Loader) {
        let (epoch, step) = self.cycle.target();
        self.take_epochs(&mut loader, 0..epoch);
        let mut batches = loader.epoch(epoch).expect("an epoch");
        if self.cycle.moment == Moment::BeforeFirst && self.cycle.fault != Fault::DeviceLost {
            wait_until("the fault", || self.gate.was_reached() || self.rig.fired());
        }
        drop(self.take(&mut batches, step));
        let next = if self.is_blocked() {
            self.next_blocked(&mut batches, || self.lose_device())
        } else {
            self.lose_device();
            batches.next()
        };
        let opened = next.expect("an error, not a short epoch").and_then(|batch| batch.wait_on(self.compute));
        let error = opened.expect_err("the fault ends the epoch");
        self.assert_names(&error, step);
        // An error of `wait_on` is not yet known to `next`: after a lost device the epoch ends only when
        // the pipeline meets the error itself.
        if self.cycle.fault != Fault::DeviceLost {
            assert!(batches.next().is_none() && batches.is_over());
        }
        let again = loader.epoch(0).and_then(|mut batches| batches.try_for_each(|batch| batch.map(drop)));
        let again = again.expect_err("a pipeline that has ended gives no batch");
        assert_eq!((again.kind(), again.message()), (error.kind(), error.message()), "the first cause");
        self.stop(&mut loader);
    }

    /// Checks that `error` has the kind of the fault and names its place.
    fn assert_names(&self, error: &Error, step: u64) {
        let (kind, stage) = match self.cycle.fault {
            Fault::ReadError => (ErrorKind::Sample, Some(Stage::Decode)),
            Fault::ReadPanic => (ErrorKind::Panic, Some(Stage::Decode)),
            Fault::DeviceLost => (ErrorKind::DeviceLost, error.stage()),
            _ => (ErrorKind::Device, Some(Stage::Transfer)),
        };
        assert_eq!((error.kind(), error.stage()), (kind, stage), "{error}");
        assert!(error.to_string().contains("planned"), "{error}");
        if self.cycle.fault != Fault::DeviceLost {
            assert_eq!(error.batch(), Some(step), "{error}");
        }
        if stage == Some(Stage::Decode) {
            assert_eq!(error.sample(), Some(step * BATCH as u64 + self.cycle.row), "{error}");
        }
    }

    /// Expects that a slot whose reader could not record its end is not reused, and that losing the last
    /// slot is an error.
    fn loses_a_slot(&self, mut loader: Loader) {
        let (epoch, step) = self.cycle.target();
        self.take_epochs(&mut loader, 0..epoch);
        let mut batches = loader.epoch(epoch).expect("an epoch");
        let next = if self.is_blocked() {
            let held = self.take(&mut batches, step);
            self.next_blocked(&mut batches, move || drop(held))
        } else {
            drop(self.take(&mut batches, step + 1));
            batches.next()
        };
        if self.cycle.depth == 1 {
            let error = next.map_or_else(
                || loader.epoch(1).and_then(|mut batches| batches.next().expect("no batch").map(drop)),
                |next| next.map(drop),
            );
            assert_eq!(error.expect_err("no slot is left").kind(), ErrorKind::Device);
        } else if next.is_some() {
            drop(self.open(next, step + u64::from(!self.is_blocked())));
            drop(self.take(&mut batches, STEPS));
            self.take_epochs(&mut loader, epoch + 1..EPOCHS);
        }
        assert!(self.rig.fired());
        self.stop(&mut loader);
    }

    /// Expects every batch, only later.
    fn continues(&self, mut loader: Loader) {
        let (epoch, step) = self.cycle.target();
        self.take_epochs(&mut loader, 0..epoch);
        let mut batches = loader.epoch(epoch).expect("an epoch");
        drop(self.take(&mut batches, step));
        let next = if self.is_blocked() {
            self.next_blocked(&mut batches, || ())
        } else {
            self.next_gives_up(&mut batches);
            self.gate.open();
            batches.next()
        };
        drop(self.open(next, step));
        drop(self.take(&mut batches, STEPS));
        assert!(batches.next().is_none());
        self.take_epochs(&mut loader, epoch + 1..EPOCHS);
        self.stop(&mut loader);
    }

    /// Runs the pipeline up to the moment. Returns the epoch and the batch that is held then.
    fn run_to_the_moment<'l>(&self, loader: &'l mut Loader) -> (Epoch<'l>, Option<Ready>) {
        let (epoch, step) = self.cycle.target();
        self.take_epochs(loader, 0..epoch);
        let mut batches = loader.epoch(epoch).expect("an epoch");
        let taken = match self.cycle.moment {
            Moment::First | Moment::Middle | Moment::Last => step + 1,
            Moment::BeforeFirst | Moment::Blocked | Moment::Between => step,
        };
        let held = self.take(&mut batches, taken);
        if self.is_blocked() {
            self.next_gives_up(&mut batches);
        }
        std::thread::sleep(self.cycle.pause);
        (batches, held)
    }

    /// Runs `work` while another thread opens the gate after the pause.
    fn while_opening(&self, work: impl FnOnce()) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(self.cycle.pause);
                self.gate.open();
            });
            work();
        });
    }

    fn restarts_the_epoch(&self, mut loader: Loader) {
        let (batches, held) = self.run_to_the_moment(&mut loader);
        drop((batches, held));
        self.while_opening(|| self.take_epochs(&mut loader, 0..EPOCHS));
        self.stop(&mut loader);
    }

    fn drops(&self, mut loader: Loader) {
        let (_, held) = self.run_to_the_moment(&mut loader);
        self.while_opening(|| drop(loader));
        if let Some(held) = &held {
            assert_intact(&self.fine, held);
        }
    }

    fn panics(&self, mut loader: Loader) {
        std::thread::scope(|scope| {
            let consumer = scope.spawn(move || {
                let (batches, held) = self.run_to_the_moment(&mut loader);
                self.gate.open();
                panic!("planned panic in {batches:?} while holding {held:?}");
            });
            let panic = consumer.join().expect_err("a panic");
            let text = panic.downcast_ref::<String>().expect("a text");
            assert!(text.starts_with("planned panic in"), "{text}");
        });
    }

    fn stops(&self, mut loader: Loader) {
        let (_, held) = self.run_to_the_moment(&mut loader);
        if self.is_blocked() {
            let error = loader.stop(Duration::from_millis(1)).expect_err("a read that does not return");
            let sample = format!("sample {}", STEPS / 2 * BATCH as u64 + self.cycle.row);
            assert_eq!(error.kind(), ErrorKind::Timeout);
            assert!(error.to_string().contains(&sample), "no {sample:?} in: {error}");
        }
        self.gate.open();
        self.stop(&mut loader);
        for epoch in 0..EPOCHS {
            assert_eq!(loader.epoch(epoch).expect_err("it was stopped").kind(), ErrorKind::Stopped);
        }
        if let Some(held) = &held {
            assert_intact(&self.fine, held);
        }
    }

    /// Stops the loader twice. A failing device may cause errors other than a timeout.
    fn stop(&self, loader: &mut Loader) {
        for _ in 0..2 {
            if let Err(error) = loader.stop(LONG) {
                assert!(Switch::fails(self.cycle.fault) && error.kind() != ErrorKind::Timeout, "{error}");
            }
        }
    }
}

/// The number of batches left in the epoch.
fn left(batches: &Epoch<'_>) -> u64 {
    batches.size_hint().1.unwrap_or(0) as u64
}
