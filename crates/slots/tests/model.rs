//! Random moves against a model: a ring is a list of states and a line of numbers, and nothing more.
#![cfg(not(loom))]

mod common;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use common::{Gate, TestMemory, gone, keep, quiet_panic, sized};
use feedline_core::{ErrorKind, Result};
use feedline_slots::{Counts, FillLease, ReadyLease, Ring};
use proptest::prelude::*;

/// One move. The number picks a lease, or a slot, of those for which the move makes sense; without one, nothing moves.
#[derive(Clone, Copy, Debug)]
enum Move {
    Acquire,
    TryAcquire,
    Write(usize, u8),
    Ready(usize),
    DropFill(usize),
    DropReady(usize),
    Submit(usize),
    SubmitFails(usize),
    SubmitPanics(usize),
    Land(usize),
    Break(usize),
    Close,
}

fn any_move() -> impl Strategy<Value = Move> {
    let pick = 0..8_usize;
    prop_oneof![
        6 => Just(Move::Acquire),
        6 => Just(Move::TryAcquire),
        4 => (pick.clone(), any::<u8>()).prop_map(|(lease, byte)| Move::Write(lease, byte)),
        8 => pick.clone().prop_map(Move::Ready),
        2 => pick.clone().prop_map(Move::DropFill),
        2 => pick.clone().prop_map(Move::DropReady),
        8 => pick.clone().prop_map(Move::Submit),
        1 => pick.clone().prop_map(Move::SubmitFails),
        1 => pick.clone().prop_map(Move::SubmitPanics),
        8 => pick.clone().prop_map(Move::Land),
        1 => pick.prop_map(Move::Break),
        1 => Just(Move::Close),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Free,
    Filling,
    Ready,
    InFlight { landed: bool },
    Lost,
}

/// What the ring should be.
struct Model {
    states: Vec<State>,
    bytes: Vec<u8>,
    broken: Vec<bool>,
    line: VecDeque<usize>,
    closed: bool,
}

/// What an acquire should say.
#[derive(Debug, PartialEq)]
enum Answer {
    Slot(usize),
    Nothing,
    Refused(ErrorKind),
}

impl Model {
    fn new(slots: usize) -> Self {
        Self {
            states: vec![State::Free; slots],
            bytes: vec![0; slots],
            broken: vec![false; slots],
            line: (0..slots).collect(),
            closed: false,
        }
    }

    /// `None` where a blocking acquire would not return.
    fn acquire(&mut self, blocking: bool) -> Option<Answer> {
        if self.closed {
            return Some(Answer::Refused(ErrorKind::Stopped));
        }
        if self.states.iter().all(|&state| state == State::Lost) {
            return Some(Answer::Refused(ErrorKind::Device));
        }
        let Some(&index) = self.line.front() else { return (!blocking).then_some(Answer::Nothing) };
        match (self.states[index], self.broken[index]) {
            (State::InFlight { .. }, true) if blocking => {
                self.line.pop_front();
                self.states[index] = State::Lost;
                return Some(Answer::Refused(ErrorKind::Device));
            }
            (State::InFlight { .. }, true) => return Some(Answer::Refused(ErrorKind::Device)),
            (State::InFlight { landed: false }, false) => return (!blocking).then_some(Answer::Nothing),
            _ => self.line.pop_front(),
        };
        self.states[index] = State::Filling;
        Some(Answer::Slot(index))
    }

    fn come_home(&mut self, index: usize, state: State) {
        self.states[index] = state;
        self.line.push_back(index);
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for state in &self.states {
            match state {
                State::Free => counts.free += 1,
                State::Filling => counts.filling += 1,
                State::Ready => counts.ready += 1,
                State::InFlight { .. } => counts.in_flight += 1,
                State::Lost => counts.lost += 1,
            }
        }
        counts
    }
}

/// The ring, the leases out of it, and the model of both.
struct Run {
    ring: Ring<TestMemory>,
    gates: Vec<Arc<Gate>>,
    fills: Vec<FillLease<TestMemory>>,
    readies: Vec<ReadyLease<TestMemory>>,
    model: Model,
}

/// Takes the lease that `pick` names out of `leases`.
fn take<L>(leases: &mut Vec<L>, pick: usize) -> Option<L> {
    (!leases.is_empty()).then(|| leases.remove(pick % leases.len()))
}

impl Run {
    fn new(slots: usize) -> Self {
        let (ring, gates) = common::ring::<()>(slots);
        Self { ring, gates, fills: Vec::new(), readies: Vec::new(), model: Model::new(slots) }
    }

    fn acquire(&mut self, blocking: bool) {
        let Some(expected) = self.model.acquire(blocking) else { return };
        let taken = if blocking { self.ring.acquire().map(Some) } else { self.ring.try_acquire() };
        let answer = match taken {
            Ok(Some(lease)) => {
                let index = lease.index();
                self.fills.push(lease);
                Answer::Slot(index)
            }
            Ok(None) => Answer::Nothing,
            Err(error) => Answer::Refused(error.kind()),
        };
        assert_eq!(answer, expected);
    }

    /// Submits the lease that `pick` names; returns the slot's number, and whether `copy` worked.
    fn submit(&mut self, pick: usize, copy: fn(&TestMemory, &()) -> Result<()>) -> Option<(usize, bool)> {
        let ready = take(&mut self.readies, pick)?;
        let index = ready.index();
        assert!(ready.bytes().iter().all(|&byte| byte == self.model.bytes[index]), "bytes of slot {index}");
        let submitted = catch_unwind(AssertUnwindSafe(|| ready.submit(copy)));
        Some((index, matches!(submitted, Ok(Ok(())))))
    }

    fn lose(&mut self, pick: usize, copy: fn(&TestMemory, &()) -> Result<()>) {
        if let Some((index, worked)) = self.submit(pick, copy) {
            assert!(!worked);
            self.model.states[index] = State::Lost;
        }
    }

    fn step(&mut self, step: Move) {
        let slots = self.gates.len();
        match step {
            Move::Acquire => self.acquire(true),
            Move::TryAcquire => self.acquire(false),
            Move::Write(pick, byte) if !self.fills.is_empty() => {
                let pick = pick % self.fills.len();
                self.fills[pick].bytes_mut().fill(byte);
                self.model.bytes[self.fills[pick].index()] = byte;
            }
            Move::Write(..) => {}
            Move::Ready(pick) => {
                if let Some(fill) = take(&mut self.fills, pick) {
                    self.model.states[fill.index()] = State::Ready;
                    self.readies.push(fill.ready());
                }
            }
            Move::DropFill(pick) => {
                if let Some(fill) = take(&mut self.fills, pick) {
                    self.model.come_home(fill.index(), State::Free);
                }
            }
            Move::DropReady(pick) => {
                if let Some(ready) = take(&mut self.readies, pick) {
                    self.model.come_home(ready.index(), State::Free);
                }
            }
            Move::Submit(pick) => {
                let start = |memory: &TestMemory, _: &()| {
                    memory.0.start();
                    Ok(())
                };
                if let Some((index, worked)) = self.submit(pick, start) {
                    assert!(worked);
                    self.model.come_home(index, State::InFlight { landed: false });
                }
            }
            Move::SubmitFails(pick) => self.lose(pick, |_, _| Err(gone())),
            Move::SubmitPanics(pick) => self.lose(pick, |_, _| quiet_panic()),
            Move::Land(pick) => {
                let index = pick % slots;
                if self.model.states[index] == (State::InFlight { landed: false }) {
                    self.gates[index].land();
                    self.model.states[index] = State::InFlight { landed: true };
                }
            }
            Move::Break(pick) => {
                self.gates[pick % slots].fail();
                self.model.broken[pick % slots] = true;
            }
            Move::Close => {
                self.ring.close();
                self.model.closed = true;
            }
        }
        assert_eq!(self.ring.counts(), self.model.counts(), "after {step:?}");
    }

    /// Ends the run: what can be freed is freed once, and what a broken device may still read is leaked.
    fn end(self) {
        let Self { ring, gates, fills, readies, model } = self;
        let leaked: Vec<_> = (0..gates.len())
            .map(|index| {
                let state = model.states[index];
                model.broken[index] && matches!(state, State::InFlight { .. } | State::Lost)
            })
            .collect();
        for (gate, state) in gates.iter().zip(&model.states) {
            if *state == (State::InFlight { landed: false }) {
                gate.land();
            }
        }
        drop((fills, readies, ring));
        for (gate, leaked) in gates.into_iter().zip(leaked) {
            assert_eq!(gate.drops(), usize::from(!leaked));
            if leaked {
                keep(gate);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: sized(2_000, 10) as u32,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_ring_does_what_the_model_does(
        slots in 1..5_usize,
        moves in prop::collection::vec(any_move(), 0..sized(200, 40)),
    ) {
        let mut run = Run::new(slots);
        for step in moves {
            run.step(step);
        }
        run.end();
    }
}
