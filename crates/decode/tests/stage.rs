//! The decode stage by itself: what enters by its channels, what leaves, and every way its loop ends.

mod rig;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use feedline_core::{Context, Dataset, ErrorKind, Order, ReadError, Result, Row, Spec, Ticket};
use feedline_decode::{Input, Run, Workers};
use feedline_device::slot::Visits;
use feedline_slots::HostMemory;
use feedline_testkit::zoo::{self, Fine};
use feedline_testkit::{watchdog::LIMIT, with_watchdog};
use rig::{Filled, Rig, Setting};

const LEN: u64 = 20;
const BATCH: usize = 4;
const STEPS: u64 = 5;
const SLOTS: usize = 2;

impl Rig {
    fn start(dataset: impl Dataset) -> Self {
        Self::of(Input::Dataset(Arc::new(dataset)), BATCH, Order::Sequential, None)
    }

    fn of(input: Input, batch: usize, order: Order, slot_bytes: Option<usize>) -> Self {
        Self::new(input, Setting { batch, workers: 2, slots: SLOTS, order, slot_bytes, asked: None })
    }

    fn ask(&self, number: u64, epoch: u64, end: u64) {
        self.runs.send(Run { number, epoch, start: 0, offset: 0, end }).unwrap();
    }

    /// How it ended.
    fn end(&self) -> Result<()> {
        self.over.recv_timeout(LIMIT).expect("the stage ends")
    }
}

fn fine() -> Fine {
    Fine::new(LEN, 100).unwrap()
}

/// Checks a filled slot to the last byte, and returns its run, epoch and step.
#[track_caller]
fn check(rig: &Rig, filled: &Filled) -> (u64, u64, u64) {
    rig.check(&fine(), filled)
}

#[test]
fn a_run_fills_slots_in_order_and_in_place() {
    with_watchdog(LIMIT, || {
        let rig = Rig::start(fine());
        rig.ask(7, 3, 5);
        let mut places = BTreeSet::new();
        for epoch in 3..5 {
            for step in 0..STEPS {
                let filled = rig.next();
                assert_eq!(check(&rig, &filled), (7, epoch, step));
                places.insert(filled.memory().as_ptr() as usize);
            }
        }
        assert_eq!(places.len(), SLOTS, "slots are used again");
        // Epoch 5 was not asked for.
        assert!(rig.filled.recv_timeout(Duration::from_millis(20)).is_err());
        let Rig { runs, over, .. } = rig;
        drop(runs);
        assert!(over.recv_timeout(LIMIT).expect("no more can be asked for").is_ok());
    });
}

/// A slot of the direct road: the ids in the order of the visits, and the places of those that have an order of their own.
#[test]
fn on_the_direct_road_a_slot_holds_the_visits_of_its_batch() {
    with_watchdog(LIMIT, || {
        const ROWS: usize = 512;
        let data = Arc::new(Fine::new(5 * ROWS as u64 + 100, 8).unwrap());
        for (bytes, ordered) in [(1 << 30, true), (1 << 20, false)] {
            let input = Input::Direct(data.clone(), Visits::new(data.len(), bytes));
            let rig = Rig::of(input, ROWS, Order::Shuffle, Some(Visits::slot_bytes(ROWS)));
            rig.ask(1, 0, 1);
            for step in 0..6 {
                let filled = rig.next();
                let ids = &filled.note().as_ref().expect("a ticket").ids;
                assert_eq!(ids.len(), if step < 5 { ROWS } else { 100 });
                let (visited, places) = filled.bytes().split_at(8 * ids.len());
                let visited: Vec<_> =
                    visited.as_chunks().0.iter().map(|id| u64::from_ne_bytes(*id)).collect();
                // The last batch is too short for an order.
                if !ordered || step == 5 {
                    assert_eq!(&visited, ids);
                    continue;
                }
                let places = places.as_chunks().0.iter().map(|place| u32::from_ne_bytes(*place) as usize);
                let places: Vec<_> = places.take(ids.len()).collect();
                assert!(visited.iter().zip(&places).all(|(&id, &place)| ids[place] == id));
                assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), ids.len(), "each place once");
                // 2,660 samples have 512 buckets of 8, not all of them in use.
                assert!(visited.iter().map(|id| id / 8).is_sorted());
            }
        }
    });
}

#[test]
fn a_new_run_comes_before_the_rest_of_the_old_one() {
    with_watchdog(LIMIT, || {
        let rig = Rig::start(fine());
        rig.ask(1, 0, 1);
        // Both slots are full of run 1, and the loop waits for one.
        let (one, two) = (rig.next(), rig.next());
        rig.ask(2, 9, 10);
        assert_eq!((check(&rig, &one), check(&rig, &two)), ((1, 0, 0), (1, 0, 1)));
        drop((one, two));
        for step in 0..STEPS {
            assert_eq!(check(&rig, &rig.next()), (2, 9, step));
        }
    });
}

#[test]
fn a_ticket_that_came_home_is_used_again() {
    with_watchdog(LIMIT, || {
        let rig = Rig::start(fine());
        let ticket = Arc::new(Ticket { ids: Vec::with_capacity(BATCH), ..Ticket::default() });
        let known = Arc::as_ptr(&ticket);
        rig.tickets.send(ticket).unwrap();
        rig.ask(1, 0, 3);
        for _ in 0..2 * STEPS {
            let mut filled = rig.next();
            let ticket = filled.note_mut().take().unwrap();
            if Arc::as_ptr(&ticket) == known {
                rig.tickets.send(ticket).unwrap();
            }
        }
        // It goes round: one of the next slots has it.
        let again =
            (0..STEPS).any(|_| rig.next().note().as_ref().is_some_and(|ticket| Arc::as_ptr(ticket) == known));
        assert!(again);
    });
}

#[test]
fn the_loop_ends_when_nobody_takes_what_it_fills() {
    with_watchdog(LIMIT, || {
        let (data, gate) = zoo::blocking(fine(), [6]);
        let rig = Rig::start(data);
        rig.ask(1, 0, u64::MAX);
        assert!(gate.wait_until_waiting(1, LIMIT));
        let Rig { filled, over, runs, .. } = rig;
        drop(filled);
        gate.open();
        assert!(over.recv_timeout(LIMIT).expect("the stage ends").is_ok());
        drop(runs);
    });
}

#[test]
fn the_loop_ends_when_its_slots_are_closed() {
    with_watchdog(LIMIT, || {
        let rig = Rig::start(fine());
        rig.ask(1, 0, 1);
        let held = (rig.next(), rig.next());
        rig.ring.close();
        assert_eq!(rig.end().unwrap_err().kind(), ErrorKind::Stopped);
        drop(held);
    });
}

#[test]
fn the_loop_ends_with_the_first_bad_sample() {
    with_watchdog(LIMIT, || {
        let rig = Rig::start(zoo::failing(fine(), [9]));
        rig.ask(1, 0, 1);
        for step in 0..2 {
            assert_eq!(check(&rig, &rig.next()), (1, 0, step));
        }
        let error = rig.end().unwrap_err();
        assert_eq!((error.kind(), error.batch(), error.sample()), (ErrorKind::Sample, Some(2), Some(9)));
        assert_eq!(
            error.to_string(),
            "cannot read a sample: planned failure of sample 9 (stage decode, batch 2, sample 9)"
        );
    });
}

/// Fails, and panics when it is asked for the file.
struct NoPath(Fine);

impl Dataset for NoPath {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn spec(&self) -> &Spec {
        self.0.spec()
    }

    fn read(&self, _: u64, _: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        Err("planned failure".into())
    }

    fn path(&self, _: u64) -> Option<&Path> {
        panic!("planned panic")
    }
}

#[test]
fn a_panic_outside_of_a_read_ends_the_loop_with_an_error() {
    with_watchdog(LIMIT, || {
        let rig = Rig::start(NoPath(fine()));
        rig.ask(1, 0, 1);
        assert_eq!(rig.end().unwrap_err().kind(), ErrorKind::Panic);
    });
}

#[test]
fn who_reads_what_since_when_is_told() {
    with_watchdog(LIMIT, || {
        let (data, gate) = zoo::blocking(fine(), [6]);
        let rig = Rig::start(data);
        assert_eq!(rig.activity.readings(), []);
        rig.ask(1, 0, 1);
        // The batch before it is read at the same time, maybe: it is there first. Its slot is kept, so that none comes after.
        let first = rig.next();
        assert!(gate.wait_until_waiting(1, LIMIT));
        // Other rows of the batch may be read still, by the other worker.
        let reading = loop {
            match rig.activity.readings()[..] {
                [reading] => break reading,
                _ => std::thread::yield_now(),
            }
        };
        assert_eq!((reading.step, reading.sample), (1, 6));
        assert!(reading.worker < 2);
        let text = reading.to_string();
        assert!(
            text.starts_with(&format!("worker fl-decode-{} reads sample 6 of batch 1 since", reading.worker)),
            "{text}"
        );
        assert!(rig.activity.readings()[0].time >= reading.time);
        gate.open();
        drop(first);
        for _ in 1..STEPS {
            drop(rig.next());
        }
        drop(rig.runs);
        rig.over.recv_timeout(LIMIT).expect("the stage ends").unwrap();
        assert_eq!(rig.activity.readings(), []);
    });
}

#[test]
fn no_workers_are_refused_and_auto_is_at_least_one() {
    assert_eq!(Workers::Count(0).count().unwrap_err().kind(), ErrorKind::Config);
    assert_eq!(Workers::Count(3).count().unwrap(), 3);
    let (auto, cores) =
        (Workers::Auto.count().unwrap(), std::thread::available_parallelism().map_or(1, usize::from));
    assert!(auto >= 1 && auto <= cores);
}
