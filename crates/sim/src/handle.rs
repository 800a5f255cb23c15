//! The test handle of a simulated device: its findings, and control over its schedule.

use std::sync::Arc;

use feedline_core::{Error, ErrorKind, Result};

use super::report;
use super::schedule::Shared;
use super::state::State;
use feedline_device::Stream;
use feedline_device::backend::{BackendKind, StreamId};

/// A handle to a simulated device, from [`device`](crate::device). Clones refer to the same device.
#[derive(Clone)]
pub struct SimHandle {
    shared: Arc<Shared>,
}

impl SimHandle {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The seed of the schedule. The same seed and the same calls give the same run.
    pub fn seed(&self) -> u64 {
        self.shared.lock().options.seed
    }

    /// All findings, oldest first; at most 256.
    pub fn findings(&self) -> Vec<Error> {
        self.shared.lock().findings.clone()
    }

    /// The races among the findings: accesses and frees that are not ordered after earlier accesses.
    pub fn races(&self) -> Vec<Error> {
        let mut all = self.findings();
        all.retain(|error| error.kind() == ErrorKind::Race);
        all
    }

    /// Checks that there are no findings so far.
    ///
    /// # Errors
    /// The first finding.
    pub fn check(&self) -> Result<()> {
        self.shared.lock().findings.first().cloned().map_or(Ok(()), Err)
    }

    /// Runs all work to its end, and checks that there are no findings and no leaks. Call it when everything
    /// created from the device is dropped.
    ///
    /// # Errors
    /// The first finding. Otherwise the loss of the device. Otherwise a list of the streams, events and
    /// memory that were not dropped.
    pub fn finish(&self) -> Result<()> {
        let state = self.shared.lock();
        let idle = |state: &State| state.running.is_none() && state.lanes.iter().all(|l| l.queue.is_empty());
        let state = self.shared.run_until(state, idle)?;
        state.findings.first().cloned().map_or(Ok(()), Err)?;
        state.check_lost()?;
        let left = left(&state);
        if left.is_empty() {
            return Ok(());
        }
        let why = format!("leaked: {}; drop them before finish", left.join(", "));
        Err(Error::new(ErrorKind::Device, why))
    }

    /// Blocks `stream` until [`release`](Self::release). This is the only delay that a test can request
    /// directly.
    ///
    /// The host must not wait for held work. Such a wait is an error, because nothing else could release the
    /// work.
    ///
    /// # Errors
    /// A stream of another device.
    pub fn hold(&self, stream: &Stream) -> Result<()> {
        self.set_held(stream, true)
    }

    /// Releases a held stream.
    ///
    /// # Errors
    /// A stream of another device.
    pub fn release(&self, stream: &Stream) -> Result<()> {
        self.set_held(stream, false)
    }

    fn set_held(&self, stream: &Stream, held: bool) -> Result<()> {
        if stream.device().kind() != BackendKind::Sim {
            return Err(Error::new(ErrorKind::Config, "only a stream of a simulated device can be held"));
        }
        let mut state = self.shared.lock();
        let lane = state.lane(StreamId::from(stream))?;
        state.lanes[lane].held = held;
        Ok(())
    }
}

fn left(state: &State) -> Vec<String> {
    let lanes = state.lanes.iter().enumerate().filter(|(_, lane)| !lane.destroyed);
    let mut left: Vec<String> = lanes.map(|(index, _)| report::stream(&state.lanes, index)).collect();
    left.extend(state.memory.alive().map(ToString::to_string));
    match state.live_events() {
        0 => {}
        1 => left.push("1 event".to_owned()),
        events => left.push(format!("{events} events")),
    }
    left
}

impl std::fmt::Debug for SimHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.shared.lock();
        write!(f, "SimHandle(seed {}, {} findings)", state.options.seed, state.findings.len())
    }
}
