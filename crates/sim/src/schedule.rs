//! The schedule: which stream runs next and how long work takes. Both are drawn from the seed, and are as
//! adversarial as the contract allows.

use std::sync::{Condvar, Mutex, MutexGuard};

use feedline_core::{Error, Result};
use feedline_device::backend::Task;

use super::lane::{Command, Queued};
use super::memory::misuse;
use super::report;
use super::state::State;

/// A simulated device: its state, and a condition variable for the end of a task. A task runs outside the
/// lock.
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

    /// Runs work on the calling thread until `done` returns true.
    ///
    /// Returns an error if no work can run any more. Then `done` can never become true.
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

    /// Runs a random number of commands. They stand for the progress of a device since the last query.
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

    /// Runs all work that can run.
    pub(super) fn run_all(&self) {
        let mut state = self.lock();
        while state.running.is_none()
            && let Some(lane) = state.pick()
        {
            state = self.step(state, lane);
        }
    }

    /// Runs the first command of a lane.
    fn step<'a>(&'a self, mut state: MutexGuard<'a, State>, lane: usize) -> MutexGuard<'a, State> {
        let Some(queued) = state.lanes[lane].queue.pop_front() else { return state };
        let Queued { command, submitted_at, .. } = queued;
        let live = state.lost.is_none();
        let mut start = state.lanes[lane].time.max(submitted_at);
        if let Command::Wait(recording) = &command {
            start = start.max(recording.completed_at.get().copied().unwrap_or(0));
        }
        let end = start + state.duration(&command);
        match command {
            Command::Copy { from, to, bytes } if live => {
                // SAFETY: both ranges lay in live blocks at the call, and a block is released only when
                // the host has seen the end of all work that accesses it (`State::free`); commands run
                // one at a time, under the lock.
                unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) }
            }
            Command::Fill { to, value, bytes } if live => {
                // SAFETY: as above.
                unsafe { std::ptr::write_bytes(to as *mut u8, value, bytes) }
            }
            Command::Gather(gather) if live => {
                // SAFETY: as above; the caller owns registered memory, and unregisters it only when its
                // readers have ended.
                unsafe { gather.execute() }
            }
            Command::Run(task) => state = self.run_task(state, *task, live),
            Command::Record(recording) => drop(recording.completed_at.set(end)),
            Command::Copy { .. } | Command::Fill { .. } | Command::Gather(_) | Command::Wait(_) => {}
        }
        state.lanes[lane].time = end;
        state.lanes[lane].ended += 1;
        state.latest = state.latest.max(end);
        state
    }

    /// Runs a task outside the lock, because it may submit work and drop handles. Nothing else runs
    /// meanwhile.
    fn run_task<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        task: Task,
        live: bool,
    ) -> MutexGuard<'a, State> {
        state.running = Some(std::thread::current().id());
        drop(state);
        // SAFETY: as for copies in `step`; while `running` is set no other command runs.
        let ended = if live { unsafe { task.execute() } } else { task.skip() };
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
            && lane.queue.front().is_some_and(|queued| match &queued.command {
                Command::Wait(recording) => recording.completed_at.get().is_some(),
                _ => true,
            })
    }

    /// The lane that runs next; `None` if no lane can run.
    fn pick(&mut self) -> Option<usize> {
        let ready: Vec<usize> = (0..self.lanes.len()).filter(|&lane| self.ready(lane)).collect();
        if ready.is_empty() {
            return None;
        }
        if self.random.uniform() < self.options.starve {
            let starved = ready[self.random.below(ready.len() as u64) as usize];
            self.lanes[starved].starved = true;
        }
        let preferred: Vec<usize> = ready.iter().copied().filter(|&lane| !self.lanes[lane].starved).collect();
        let candidates = if preferred.is_empty() { &ready } else { &preferred };
        let lane = candidates[self.random.below(candidates.len() as u64) as usize];
        if std::mem::take(&mut self.lanes[lane].starved) {
            // The stream was blocked while the others ran, so its time continues at the latest end.
            self.lanes[lane].time = self.lanes[lane].time.max(self.latest);
        }
        Some(lane)
    }

    /// The duration of a command in virtual nanoseconds. Durations are spread over two orders of magnitude,
    /// and a few are much longer.
    fn duration(&mut self, command: &Command) -> u64 {
        let base = match command {
            Command::Record(_) | Command::Wait(_) => 200.0,
            // About the bandwidth of PCIe 4.0 x16: 25 GB/s.
            Command::Copy { bytes, .. } | Command::Fill { bytes, .. } => 2_000.0 + *bytes as f64 / 25.0,
            Command::Gather(gather) => 2_000.0 + gather.target().bytes as f64 / 25.0,
            Command::Run(_) => 10_000.0,
        };
        let slow = if self.random.below(16) == 0 { 1_000.0 } else { 1.0 };
        (base * slow * self.random.range(-3.0, 3.0).exp2()) as u64
    }

    /// The error that says why no stream can run.
    fn stuck(&self) -> Error {
        misuse(format!("the host waits for work that can never run: {}", self.waits()))
    }

    /// Whether work could run now, but no call runs it.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_none() && (0..self.lanes.len()).any(|lane| self.ready(lane))
    }

    /// The awaited event of each stream with work.
    pub(super) fn waits(&self) -> String {
        let waits = self.lanes.iter().enumerate().filter_map(|(index, lane)| {
            let stream = report::stream(&self.lanes, index);
            let Queued { command, what, call, .. } = lane.queue.front()?;
            Some(match command {
                _ if lane.held => format!("{stream} is held before \"{what}\" ({call})"),
                Command::Wait(recording) if recording.completed_at.get().is_none() => format!(
                    "{stream} waits for an event recorded on {} by {}",
                    report::stream(&self.lanes, recording.stream),
                    recording.call
                ),
                _ => format!("{stream} has \"{what}\" ({call}) to run"),
            })
        });
        waits.collect::<Vec<_>>().join("; ")
    }
}
