//! Several batches are decoded at once: they leave in their order all the same, the first in that order is the error that is
//! told, and every end finds all makers.

mod rig;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use feedline_core::{Error, ErrorKind, Order, Result, source};
use feedline_decode::{Input, Run};
use feedline_testkit::zoo::streams::{Generator, Hooked};
use feedline_testkit::zoo::{self, Fine};
use feedline_testkit::{watchdog::LIMIT, with_watchdog};
use rig::{Rig, Setting};

/// Samples of the data sets, and rows of a batch unless a test says otherwise.
const LEN: u64 = 12;
const BATCH: usize = 4;

impl Rig {
    fn start(input: Input, batch: usize, workers: usize, slots: usize) -> Self {
        Self::start_with(input, batch, workers, slots, None)
    }

    /// Starts with a run that was asked for before.
    fn start_with(input: Input, batch: usize, workers: usize, slots: usize, asked: Option<Run>) -> Self {
        let order = Order::Sequential;
        Self::new(input, Setting { batch, workers, slots, order, slot_bytes: None, asked })
    }

    fn of(dataset: impl feedline_core::Dataset, workers: usize, slots: usize) -> Self {
        Self::start(Input::Dataset(Arc::new(dataset)), BATCH, workers, slots)
    }

    fn ask(&self, end: u64) {
        self.runs.send(first(end)).unwrap();
    }

    /// Checks the next filled slot to the last byte; its epoch and step.
    #[track_caller]
    fn take(&self) -> (u64, u64) {
        let (_, epoch, step) = self.check(&fine(), &self.next());
        (epoch, step)
    }

    /// Waits until some maker has met an end.
    fn wait_until_closed(&self) {
        until(|| self.ring.try_acquire().is_err_and(|error| error.kind() == ErrorKind::Stopped));
    }

    /// How it ended, told once.
    #[track_caller]
    fn end(&self) -> Result<()> {
        let end = self.over.recv_timeout(LIMIT).expect("the stage is over");
        assert!(self.over.recv().is_err(), "it is over once");
        self.ended.recv_timeout(LIMIT).expect("the stage ends");
        assert!(self.filled.try_recv().is_err(), "nothing more is delivered");
        assert_eq!(self.activity.readings(), []);
        end
    }

    #[track_caller]
    fn error(&self) -> (ErrorKind, Option<u64>, Option<u64>) {
        let error: Error = self.end().expect_err("an error");
        (error.kind(), error.batch(), error.sample())
    }
}

/// The run from the beginning to before epoch `end`.
fn first(end: u64) -> Run {
    Run { number: 1, epoch: 0, start: 0, offset: 0, end }
}

fn fine() -> Fine {
    Fine::new(LEN, 100).unwrap()
}

/// Waits for something that another thread does, and looks every millisecond; the watchdog bites when it does not.
fn until(done: impl Fn() -> bool) {
    while !done() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn batches_that_are_done_in_another_order_leave_in_theirs() {
    with_watchdog(LIMIT, || {
        // Many rounds, to find the makers at all places when the first batch is taken.
        for (workers, slots) in (0..20).flat_map(|_| [(2, 3), (3, 3), (4, 3)]) {
            let (data, gate) = zoo::blocking(fine(), [0]);
            let (data, reads) = zoo::counting(data);
            let rig = Rig::of(data, workers, slots);
            rig.ask(1);
            // The other batches are done before the first. Of this, samples may wait behind the one at the gate.
            until(|| (BATCH as u64..LEN).all(|id| reads.of(id) == 1) && gate.waiting() == 1);
            assert!(rig.filled.try_recv().is_err(), "a batch came before the first");
            gate.open();
            assert_eq!([rig.take(), rig.take(), rig.take()], [(0, 0), (0, 1), (0, 2)]);
        }
    });
}

#[test]
fn any_number_of_workers_and_slots_makes_all_batches_in_order() {
    with_watchdog(LIMIT, || {
        for (workers, slots) in [(1, 1), (1, 4), (4, 1), (4, 2), (2, 5), (3, 3), (8, 8)] {
            for batch in [1, BATCH] {
                let rig = Rig::start(Input::Dataset(Arc::new(fine())), batch, workers, slots);
                rig.ask(20);
                let steps = LEN / batch as u64;
                for at in 0..20 * steps {
                    assert_eq!(rig.take(), (at / steps, at % steps), "{workers} workers, {slots} slots");
                }
                let Rig { runs, over, .. } = rig;
                drop(runs);
                assert!(over.recv().unwrap().is_ok());
            }
        }
    });
}

/// Batches that are done in a moment wake no other maker. When one of them takes long after all, the others are not to sleep
/// until it is done: here each ends only once every maker reads one.
#[test]
fn a_read_that_takes_unexpectedly_long_leaves_no_maker_asleep() {
    const MAKERS: usize = 3;
    with_watchdog(LIMIT, || {
        let meeting = Arc::new((Mutex::new(MAKERS), Condvar::new()));
        let (place, met) = (meeting.clone(), move |missing: &mut usize| *missing > 0);
        let data = zoo::Before::new(fine(), move |id| {
            if id % BATCH as u64 == 0 {
                let mut missing = place.0.lock().unwrap();
                *missing = missing.saturating_sub(1);
                place.1.notify_all();
                drop(place.1.wait_while(missing, met).unwrap());
            }
            Ok(())
        });
        let rig = Rig::of(data, MAKERS, MAKERS + 1);
        rig.ask(u64::MAX);
        // From the second round on it is known how soon a batch is done.
        for round in 0..5 {
            for at in 0..100 {
                assert_eq!(rig.take().1, (100 * round + at) % (LEN / BATCH as u64));
            }
            *meeting.0.lock().unwrap() = MAKERS;
        }
    });
}

/// Pieces of the first batch are there to be taken before the last worker runs: none takes a maker in their place.
#[test]
fn no_maker_begins_within_the_batch_of_another() {
    with_watchdog(LIMIT, || {
        for _ in 0..300 {
            let input = Input::Dataset(Arc::new(fine()));
            let rig = Rig::start_with(input, LEN as usize, 4, 4, Some(first(6)));
            for epoch in 0..6 {
                assert_eq!(rig.take(), (epoch, 0));
            }
        }
    });
}

#[test]
fn the_first_error_in_order_is_told_though_a_later_batch_failed_first() {
    with_watchdog(LIMIT, || {
        let (data, gate) = zoo::blocking(zoo::failing(fine(), [0, 5]), [0]);
        let rig = Rig::of(data, 2, 3);
        rig.ask(1);
        rig.wait_until_closed(); // by sample 5: sample 0 waits
        assert!(gate.wait_until_waiting(1, LIMIT));
        gate.open();
        assert_eq!(rig.error(), (ErrorKind::Sample, Some(0), Some(0)));
    });
}

#[test]
fn batches_before_the_one_that_failed_are_delivered_and_none_after_it() {
    with_watchdog(LIMIT, || {
        let (data, gate) = zoo::blocking(zoo::failing(fine(), [6]), [0, 8]);
        let rig = Rig::of(data, 3, 3);
        rig.ask(1);
        rig.wait_until_closed();
        assert!(gate.wait_until_waiting(1, LIMIT));
        gate.open();
        assert_eq!(rig.take(), (0, 0));
        assert_eq!(rig.error(), (ErrorKind::Sample, Some(1), Some(6)));
    });
}

#[test]
fn of_a_panic_and_an_error_in_flight_the_first_in_order_is_told() {
    with_watchdog(LIMIT, || {
        for (panics, fails, told) in [(0, 4, ErrorKind::Panic), (4, 0, ErrorKind::Sample)] {
            let data = zoo::panicking(zoo::failing(fine(), [fails]), [panics]);
            // Both are met before either can be told.
            let (data, gate) = zoo::blocking(data, [0, 4]);
            let rig = Rig::of(data, 2, 3);
            rig.ask(1);
            assert!(gate.wait_until_waiting(2, LIMIT));
            gate.open();
            assert_eq!(rig.error(), (told, Some(0), Some(0)));
        }
    });
}

/// Three batches in flight, each at its first sample.
fn three_in_flight() -> (Rig, zoo::Gate) {
    let (data, gate) = zoo::blocking(fine(), [0, 4, 8]);
    let rig = Rig::of(data, 3, 3);
    rig.ask(u64::MAX);
    assert!(gate.wait_until_waiting(3, LIMIT));
    let mut steps: Vec<u64> = rig.activity.readings().iter().map(|reading| reading.step).collect();
    steps.sort_unstable();
    assert_eq!(steps, [0, 1, 2], "each is named");
    (rig, gate)
}

#[test]
fn a_stop_finds_all_that_are_in_flight() {
    with_watchdog(LIMIT, || {
        let (rig, gate) = three_in_flight();
        rig.ring.close();
        assert!(rig.ended.try_recv().is_err(), "reads go on");
        gate.open();
        assert_eq!([rig.take(), rig.take(), rig.take()], [(0, 0), (0, 1), (0, 2)]);
        assert_eq!(rig.error(), (ErrorKind::Stopped, None, None));
    });
}

#[test]
fn who_takes_no_more_ends_all_that_are_in_flight() {
    with_watchdog(LIMIT, || {
        let (rig, gate) = three_in_flight();
        let Rig { filled, over, ended, runs, ring, .. } = rig;
        drop(filled);
        gate.open();
        assert!(over.recv_timeout(LIMIT).expect("the stage is over").is_ok());
        ended.recv_timeout(LIMIT).expect("the stage ends");
        assert_eq!((ring.counts().free, ring.len()), (3, 3), "every slot came home");
        drop(runs);
    });
}

/// One row a batch, so that nobody has pieces to read: the other maker sleeps.
fn single_rows(data: impl feedline_core::Dataset, slots: usize) -> Rig {
    Rig::start(Input::Dataset(Arc::new(data)), 1, 2, slots)
}

#[test]
fn an_error_ends_a_maker_that_waits_for_a_run() {
    with_watchdog(LIMIT, || {
        // One sample is all there is: the maker that does not read it has nothing to take.
        let (data, gate) = zoo::blocking(zoo::failing(Fine::new(1, 100).unwrap(), [0]), [0]);
        let rig = single_rows(data, 2);
        rig.ask(1);
        assert!(gate.wait_until_waiting(1, LIMIT));
        gate.open();
        assert_eq!(rig.error(), (ErrorKind::Sample, Some(0), Some(0)));
    });
}

#[test]
fn an_error_ends_a_maker_that_waits_for_a_slot() {
    with_watchdog(LIMIT, || {
        // Many rounds: nobody tells that a maker waits.
        for _ in 0..50 {
            let (data, gate) = zoo::blocking(zoo::failing(fine(), [0]), [0]);
            let rig = single_rows(data, 2);
            let held = rig.ring.acquire().unwrap();
            rig.ask(1);
            assert!(gate.wait_until_waiting(1, LIMIT));
            gate.open();
            assert_eq!(rig.error(), (ErrorKind::Sample, Some(0), Some(0)));
            drop(held);
        }
    });
}

#[test]
fn a_new_run_is_taken_up_while_a_batch_of_the_old_one_is_read() {
    with_watchdog(LIMIT, || {
        let (data, reads) = zoo::counting(fine());
        let (data, gate) = zoo::blocking(data, [8]);
        let rig = Rig::of(data, 2, 4);
        rig.ask(1);
        assert!(gate.wait_until_waiting(1, LIMIT));
        assert_eq!([rig.take(), rig.take()], [(0, 0), (0, 1)]);
        rig.runs.send(Run { number: 2, epoch: 7, start: 0, offset: 0, end: 8 }).unwrap();
        until(|| reads.of(0) == 2 && reads.of(4) == 2);
        assert!(rig.filled.try_recv().is_err(), "a batch of the new run came before the last of the old one");
        gate.open();
        assert_eq!([rig.take(), rig.take(), rig.take()], [(0, 2), (7, 0), (7, 1)]);
        assert_eq!(rig.take(), (7, 2));
    });
}

#[test]
fn records_are_read_in_sequence_though_batches_are_decoded_at_once() {
    with_watchdog(LIMIT, || {
        const RECORDS: u64 = 40;
        let read = Arc::new(Mutex::new(Vec::new()));
        let (seen, second_began) = (read.clone(), Arc::new(AtomicBool::new(false)));
        let [first, second] = [0, BATCH as u64].map(|number| source::id(0, number).unwrap());
        let source = Hooked::new(Generator::new([RECORDS, 0, RECORDS]).unwrap())
            .before_read(move |place| {
                seen.lock().unwrap().push(place);
                Ok(())
            })
            // The first batch is not done before the second is decoded.
            .before_decode(move |id| {
                second_began.fetch_or(id == second, Ordering::SeqCst);
                if id == first {
                    until(|| second_began.load(Ordering::SeqCst));
                }
                Ok(())
            });
        let rig = Rig::start(Input::Source(Arc::new(source)), BATCH, 3, 3);
        rig.ask(1);
        let mut ids = Vec::new();
        for step in 0..2 * RECORDS / BATCH as u64 {
            let filled = rig.next();
            let ticket = filled.note().as_ref().expect("a ticket");
            assert_eq!(ticket.step, step);
            let places = filled.bytes()[..8 * ticket.ids.len()].chunks_exact(8);
            for (&id, place) in ticket.ids.iter().zip(places) {
                let (shard, number) = source::place(id);
                assert_eq!(
                    place,
                    [shard as u32, number as u32].map(u32::to_le_bytes).concat(),
                    "its own record"
                );
            }
            let last = source::place(*ticket.ids.last().expect("a row"));
            assert_eq!(ticket.reached.map(|reached| reached.offset), Some(last.1 + 1));
            ids.extend_from_slice(&ticket.ids);
        }
        let all = |shard| (0..RECORDS).map(move |number| source::id(shard, number).unwrap());
        assert!(ids.iter().copied().eq(all(0).chain(all(2))));
        let read = read.lock().unwrap();
        assert!(read.is_sorted(), "{read:?}");
        assert_eq!(read.iter().collect::<BTreeSet<_>>().len(), read.len(), "no record is read twice");
    });
}
