//! Random operations on a ring and on a model of it: a list of slot states and a queue of slot indices.

use crate::common;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::common::{Gate, TestMemory, device_failure, keep, quiet_panic, sized};
use feedline_core::{ErrorKind, Result};
use feedline_device::slots::{Counts, FillLease, ReadyLease, Ring};
use proptest::prelude::*;

/// One operation. The number picks a lease or slot to which it applies; if there is none, nothing happens.
#[derive(Clone, Copy, Debug)]
enum Operation {
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

fn any_operation() -> impl Strategy<Value = Operation> {
    let pick = 0..8_usize;
    prop_oneof![
        6 => Just(Operation::Acquire),
        6 => Just(Operation::TryAcquire),
        4 => (pick.clone(), any::<u8>()).prop_map(|(lease, byte)| Operation::Write(lease, byte)),
        8 => pick.clone().prop_map(Operation::Ready),
        2 => pick.clone().prop_map(Operation::DropFill),
        2 => pick.clone().prop_map(Operation::DropReady),
        8 => pick.clone().prop_map(Operation::Submit),
        1 => pick.clone().prop_map(Operation::SubmitFails),
        1 => pick.clone().prop_map(Operation::SubmitPanics),
        8 => pick.clone().prop_map(Operation::Land),
        1 => pick.prop_map(Operation::Break),
        1 => Just(Operation::Close),
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

/// The expected state of the ring.
struct Model {
    states: Vec<State>,
    bytes: Vec<u8>,
    broken: Vec<bool>,
    free_list: VecDeque<usize>,
    closed: bool,
}

/// The expected result of an acquire.
#[derive(Debug, PartialEq)]
enum Answer {
    Slot(usize),
    Nothing,
    Failed(ErrorKind),
}

impl Model {
    fn new(slots: usize) -> Self {
        Self {
            states: vec![State::Free; slots],
            bytes: vec![0; slots],
            broken: vec![false; slots],
            free_list: (0..slots).collect(),
            closed: false,
        }
    }

    /// The expected result; `None` if a blocking acquire would not return.
    fn acquire(&mut self, blocking: bool) -> Option<Answer> {
        if self.closed {
            return Some(Answer::Failed(ErrorKind::Stopped));
        }
        if self.states.iter().all(|&state| state == State::Lost) {
            return Some(Answer::Failed(ErrorKind::Device));
        }
        let Some(&index) = self.free_list.front() else { return (!blocking).then_some(Answer::Nothing) };
        match (self.states[index], self.broken[index]) {
            (State::InFlight { .. }, true) if blocking => {
                self.free_list.pop_front();
                self.states[index] = State::Lost;
                return Some(Answer::Failed(ErrorKind::Device));
            }
            (State::InFlight { .. }, true) => return Some(Answer::Failed(ErrorKind::Device)),
            (State::InFlight { landed: false }, false) => return (!blocking).then_some(Answer::Nothing),
            _ => self.free_list.pop_front(),
        };
        self.states[index] = State::Filling;
        Some(Answer::Slot(index))
    }

    fn release(&mut self, index: usize, state: State) {
        self.states[index] = state;
        self.free_list.push_back(index);
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

/// The ring, its leases, and the model of both.
struct Run {
    ring: Ring<TestMemory>,
    gates: Vec<Arc<Gate>>,
    fills: Vec<FillLease<TestMemory>>,
    readies: Vec<ReadyLease<TestMemory>>,
    model: Model,
}

/// Removes the lease that `pick` selects.
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
            Err(error) => Answer::Failed(error.kind()),
        };
        assert_eq!(answer, expected);
    }

    /// Submits the lease that `pick` selects; returns the slot's index, and whether `copy` succeeded.
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

    fn step(&mut self, step: Operation) {
        let slots = self.gates.len();
        match step {
            Operation::Acquire => self.acquire(true),
            Operation::TryAcquire => self.acquire(false),
            Operation::Write(pick, byte) if !self.fills.is_empty() => {
                let pick = pick % self.fills.len();
                self.fills[pick].bytes_mut().fill(byte);
                self.model.bytes[self.fills[pick].index()] = byte;
            }
            Operation::Write(..) => {}
            Operation::Ready(pick) => {
                if let Some(fill) = take(&mut self.fills, pick) {
                    self.model.states[fill.index()] = State::Ready;
                    self.readies.push(fill.ready());
                }
            }
            Operation::DropFill(pick) => {
                if let Some(fill) = take(&mut self.fills, pick) {
                    self.model.release(fill.index(), State::Free);
                }
            }
            Operation::DropReady(pick) => {
                if let Some(ready) = take(&mut self.readies, pick) {
                    self.model.release(ready.index(), State::Free);
                }
            }
            Operation::Submit(pick) => {
                let start = |memory: &TestMemory, _: &()| {
                    memory.0.start();
                    Ok(())
                };
                if let Some((index, worked)) = self.submit(pick, start) {
                    assert!(worked);
                    self.model.release(index, State::InFlight { landed: false });
                }
            }
            Operation::SubmitFails(pick) => self.lose(pick, |_, _| Err(device_failure())),
            Operation::SubmitPanics(pick) => self.lose(pick, |_, _| quiet_panic()),
            Operation::Land(pick) => {
                let index = pick % slots;
                if self.model.states[index] == (State::InFlight { landed: false }) {
                    self.gates[index].land();
                    self.model.states[index] = State::InFlight { landed: true };
                }
            }
            Operation::Break(pick) => {
                self.gates[pick % slots].fail();
                self.model.broken[pick % slots] = true;
            }
            Operation::Close => {
                self.ring.close();
                self.model.closed = true;
            }
        }
        assert_eq!(self.ring.counts(), self.model.counts(), "after {step:?}");
    }

    /// Ends the run: memory that a broken device may still read is leaked, all other memory is freed once.
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
    fn the_ring_matches_the_model(
        slots in 1..5_usize,
        operations in prop::collection::vec(any_operation(), 0..sized(200, 40)),
    ) {
        let mut run = Run::new(slots);
        for step in operations {
            run.step(step);
        }
        run.end();
    }
}
