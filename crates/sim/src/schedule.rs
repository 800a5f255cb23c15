//! Which stream runs next, and how long work takes: the seed's business, and as unkind as the contract allows.

use std::sync::{Condvar, Mutex, MutexGuard};

use feedline_backend::Task;
use feedline_core::{Error, Result};

use super::lane::Command;
use super::memory::misuse;
use super::report;
use super::state::State;

/// A simulated device: its state, and a bell for the end of a task, which runs outside the lock.
pub(super) struct Shared {
    state: Mutex<State>,
    ended: Condvar,
}

impl Shared {
    pub(super) fn new(state: State) -> Self {
        Self { state: Mutex::new(state), ended: Condvar::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Runs work on the calling thread until `done`.
    ///
    /// An error when nothing can run any more, so that `done` will never be.
    pub(super) fn run_until<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        done: impl Fn(&State) -> bool,
    ) -> Result<MutexGuard<'a, State>> {
        while !done(&state) {
            if let Some(runner) = state.running {
                if runner == std::thread::current().id() {
                    return Err(state.found(misuse(
                        "work on a stream waited for the device, which runs one piece of work at a time here"
                            .to_owned(),
                    )));
                }
                state = self.ended.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
            } else if let Some(lane) = state.pick() {
                state = self.step(state, lane);
            } else {
                let error = state.stuck();
                return Err(state.found(error));
            }
        }
        Ok(state)
    }

    /// Runs a few commands, as many as the seed says: what a device may have done since it was asked last.
    pub(super) fn run_some<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let steps = if state.random.below(2) == 0 { 0 } else { state.random.below(8) + 1 };
        for _ in 0..steps {
            if state.running.is_some() {
                break;
            }
            let Some(lane) = state.pick() else { break };
            state = self.step(state, lane);
        }
        state
    }

    /// Runs the first command of a lane.
    fn step<'a>(&'a self, mut state: MutexGuard<'a, State>, lane: usize) -> MutexGuard<'a, State> {
        let Some((command, given_at)) = state.lanes[lane].queue.pop_front() else { return state };
        let works = state.lost.is_none();
        let mut start = state.lanes[lane].time.max(given_at);
        if let Command::Wait(mark) = &command {
            start = start.max(mark.reached.get().copied().unwrap_or(0));
        }
        let end = start + state.duration(&command);
        match command {
            Command::Copy { from, to, bytes } if works => {
                // SAFETY: both ranges lay in live blocks at the call, and a block is given back only when the host has
                // seen the end of all that touches it (`State::free`); commands run one at a time, under the lock.
                unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) }
            }
            Command::Fill { to, value, bytes } if works => {
                // SAFETY: as above.
                unsafe { std::ptr::write_bytes(to as *mut u8, value, bytes) }
            }
            Command::Gather(gather) if works => {
                // SAFETY: as above; registered memory is the caller's, who unregisters it when its readers have ended.
                unsafe { gather.execute() }
            }
            Command::Run(task) => state = self.run_task(state, *task, works),
            Command::Record(mark) => drop(mark.reached.set(end)),
            Command::Copy { .. } | Command::Fill { .. } | Command::Gather(_) | Command::Wait(_) => {}
        }
        state.lanes[lane].time = end;
        state.lanes[lane].ended += 1;
        state.latest = state.latest.max(end);
        state
    }

    /// Runs a task outside the lock: it may give work, and drop handles; nothing else runs meanwhile.
    fn run_task<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        task: Task,
        works: bool,
    ) -> MutexGuard<'a, State> {
        state.running = Some(std::thread::current().id());
        drop(state);
        // SAFETY: as for copies in `step`; while `running` is set no other command runs.
        let ended = if works { unsafe { task.execute() } } else { task.skip() };
        let mut state = self.lock();
        state.running = None;
        self.ended.notify_all();
        if let Err(error) = ended {
            state.lost.get_or_insert(error);
        }
        state
    }
}

impl State {
    /// Whether the lane's first command can run now.
    fn ready(&self, lane: usize) -> bool {
        let lane = &self.lanes[lane];
        !lane.held
            && lane.queue.front().is_some_and(|(command, _)| match command {
                Command::Wait(mark) => mark.reached.get().is_some(),
                _ => true,
            })
    }

    /// The lane that runs next; `None` when none can.
    fn pick(&mut self) -> Option<usize> {
        let ready: Vec<usize> = (0..self.lanes.len()).filter(|&lane| self.ready(lane)).collect();
        if ready.is_empty() {
            return None;
        }
        if self.random.uniform() < self.options.starve {
            let unlucky = ready[self.random.below(ready.len() as u64) as usize];
            self.lanes[unlucky].starved = true;
        }
        let fed: Vec<usize> = ready.iter().copied().filter(|&lane| !self.lanes[lane].starved).collect();
        let of = if fed.is_empty() { &ready } else { &fed };
        let lane = of[self.random.below(of.len() as u64) as usize];
        if std::mem::take(&mut self.lanes[lane].starved) {
            // It stood still while the others ran.
            self.lanes[lane].time = self.lanes[lane].time.max(self.latest);
        }
        Some(lane)
    }

    /// Virtual nanoseconds that a command takes: spread over two orders of magnitude, and now and then far more.
    fn duration(&mut self, command: &Command) -> u64 {
        let base = match command {
            Command::Record(_) | Command::Wait(_) => 200.0,
            // About what PCIe 4.0 x16 moves: 25 GB/s.
            Command::Copy { bytes, .. } | Command::Fill { bytes, .. } => 2_000.0 + *bytes as f64 / 25.0,
            Command::Gather(gather) => 2_000.0 + gather.target().bytes as f64 / 25.0,
            Command::Run(_) => 10_000.0,
        };
        let slow = if self.random.below(16) == 0 { 1_000.0 } else { 1.0 };
        (base * slow * self.random.range(-3.0, 3.0).exp2()) as u64
    }

    /// Why no stream can run.
    fn stuck(&self) -> Error {
        let waits = self.lanes.iter().enumerate().filter_map(|(index, lane)| {
            let stream = report::stream(&self.lanes, index);
            match lane.queue.front() {
                None => None,
                Some(_) if lane.held => Some(format!("{stream} is held")),
                Some((Command::Wait(mark), _)) => Some(format!(
                    "{stream} waits for an event recorded on {} by call {}",
                    report::stream(&self.lanes, mark.stream),
                    mark.call
                )),
                Some(_) => Some(format!("{stream} has work")),
            }
        });
        let waits: Vec<_> = waits.collect();
        misuse(format!("the host waits for work that can never run: {}", waits.join("; ")))
    }
}
