//! The state of a simulated device, and the analysis: who knows what, and which access is not ordered.
//!
//! All of it happens at the call, in the order of the calls, so that no choice of the schedule can hide a missing wait.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

use feedline_backend::{Access, EventId, StreamId};
use feedline_core::{Error, Random, Result};

use super::SimOptions;
use super::clocks::{Actor, Clock, HOST};
use super::lane::{Command, Lane, Mark};
use super::memory::{Memory, Place, Space, misuse};
use super::report;
use super::shadow::Touch;

/// Findings that are kept; a loop that races in every step would fill the memory otherwise.
const KEPT: usize = 256;

struct EventState {
    timing: bool,
    mark: Option<Arc<Mark>>,
}

/// Memory that a piece of work touches, and how.
pub(super) type Touches<'a> = &'a [(Place, Access)];

pub(super) struct State {
    pub(super) options: SimOptions,
    pub(super) random: Random,
    /// The upper half of this device's handles, so that another device's are not taken for its own.
    number: u64,
    /// Calls so far, without queries.
    pub(super) calls: u64,
    /// What the host knows.
    host: Clock,
    /// Virtual nanoseconds: on the host, and the latest end of any work.
    pub(super) host_time: u64,
    pub(super) latest: u64,
    pub(super) lanes: Vec<Lane>,
    events: HashMap<u64, EventState>,
    next_event: u64,
    pub(super) memory: Memory,
    pub(super) findings: Vec<Error>,
    pub(super) lost: Option<Error>,
    /// The thread that runs a task, outside the lock.
    pub(super) running: Option<ThreadId>,
}

impl State {
    pub(super) fn new(options: SimOptions, number: u64) -> Self {
        let random = Random::from_key(options.seed);
        Self {
            options,
            random,
            number,
            calls: 0,
            host: Clock::default(),
            host_time: 0,
            latest: 0,
            lanes: Vec::new(),
            events: HashMap::new(),
            next_event: 0,
            memory: Memory::default(),
            findings: Vec::new(),
            lost: None,
            running: None,
        }
    }

    /// Keeps an error for the report, and gives it back.
    pub(super) fn found(&mut self, error: Error) -> Error {
        if self.findings.len() < KEPT {
            self.findings.push(error.clone());
        }
        error
    }

    /// Counts a call; it costs the host a microsecond.
    pub(super) fn call(&mut self) {
        self.calls += 1;
        self.host_time += 1_000;
    }

    pub(super) fn check_lost(&self) -> Result<()> {
        self.lost.clone().map_or(Ok(()), Err)
    }

    // Handles.

    fn handle(&self, index: u64) -> u64 {
        self.number << 32 | index
    }

    fn index(&self, handle: u64) -> Option<usize> {
        (handle >> 32 == self.number).then_some((handle & 0xFFFF_FFFF) as usize)
    }

    pub(super) fn create_stream(&mut self, name: &str) -> StreamId {
        self.lanes.push(Lane {
            name: name.to_owned(),
            clock: Clock::default(),
            queue: VecDeque::new(),
            given: 0,
            ended: 0,
            time: 0,
            starved: false,
            held: false,
            destroyed: false,
        });
        StreamId(self.handle(self.lanes.len() as u64 - 1))
    }

    /// The number of a live stream.
    pub(super) fn lane(&mut self, stream: StreamId) -> Result<usize> {
        let why = match self.index(stream.0).and_then(|index| Some((index, self.lanes.get(index)?))) {
            Some((index, lane)) if !lane.destroyed => return Ok(index),
            Some((index, _)) => {
                format!("{} is used after it was destroyed", report::stream(&self.lanes, index))
            }
            None => format!("{:#x} is no stream of this device", stream.0),
        };
        Err(self.found(misuse(why)))
    }

    pub(super) fn create_event(&mut self, timing: bool) -> EventId {
        self.next_event += 1;
        let id = self.handle(self.next_event);
        self.events.insert(id, EventState { timing, mark: None });
        EventId(id)
    }

    fn event(&mut self, event: EventId) -> Result<&mut EventState> {
        if !self.events.contains_key(&event.0) {
            let why = match self.index(event.0) {
                Some(index) if (1..=self.next_event).contains(&(index as u64)) => {
                    format!("event {index} is used after it was destroyed")
                }
                _ => format!("{:#x} is no event of this device", event.0),
            };
            return Err(self.found(misuse(why)));
        }
        self.events.get_mut(&event.0).ok_or_else(|| misuse(format!("no event {:#x}", event.0)))
    }

    pub(super) fn destroy_event(&mut self, event: EventId) -> Result<()> {
        self.event(event)?;
        self.events.remove(&event.0);
        Ok(())
    }

    /// The mark that `event` stands for now.
    pub(super) fn mark(&mut self, event: EventId) -> Result<Option<Arc<Mark>>> {
        self.event(event).map(|state| state.mark.clone())
    }

    /// When the mark of an event with timing was reached.
    pub(super) fn time(&mut self, event: EventId) -> Result<u64> {
        let state = self.event(event)?;
        if !state.timing {
            return Err(misuse("an event without timing was asked for its time".to_owned()));
        }
        state.mark.as_ref().and_then(|mark| mark.reached.get()).copied().ok_or_else(|| {
            misuse("an event was asked for its time before it was recorded and done".to_owned())
        })
    }

    pub(super) fn live_events(&self) -> usize {
        self.events.len()
    }

    // Order.

    /// Gives `stream` a command that touches memory; refused when an access is not ordered.
    pub(super) fn give(
        &mut self,
        stream: StreamId,
        what: &'static str,
        touches: Touches<'_>,
    ) -> Result<usize> {
        self.check_lost()?;
        let lane = self.lane(stream)?;
        // What the host knows at the call comes before all that it gives to a stream.
        self.lanes[lane].clock.join(&self.host);
        self.touch(lane + 1, what, touches)?;
        Ok(lane)
    }

    pub(super) fn push(&mut self, lane: usize, command: Command) {
        let now = self.host_time;
        let lane = &mut self.lanes[lane];
        lane.queue.push_back((command, now));
        lane.given += 1;
    }

    pub(super) fn record(&mut self, event: EventId, stream: StreamId) -> Result<()> {
        self.event(event)?;
        let lane = self.give(stream, "record", &[])?;
        let clock = self.lanes[lane].clock.clone();
        let mark = Arc::new(Mark { clock, stream: lane, call: self.calls, reached: OnceLock::new() });
        self.event(event)?.mark = Some(mark.clone());
        self.push(lane, Command::Record(mark));
        Ok(())
    }

    pub(super) fn wait(&mut self, stream: StreamId, event: EventId) -> Result<()> {
        let mark = self.mark(event)?;
        let lane = self.lane(stream)?;
        let Some(mark) = mark else { return Ok(()) };
        self.give(stream, "wait", &[])?;
        self.lanes[lane].clock.join(&mark.clock);
        self.push(lane, Command::Wait(mark));
        Ok(())
    }

    /// The host has seen the end of work that knew `clock`, at virtual time `at`.
    pub(super) fn host_learns(&mut self, clock: &Clock, at: u64) {
        self.host.join(clock);
        self.host_time = self.host_time.max(at);
    }

    /// Checks and notes accesses of `actor`, all or none.
    pub(super) fn touch(&mut self, actor: Actor, what: &'static str, touches: Touches<'_>) -> Result<()> {
        let (places, races) = self.check(actor, what, touches)?;
        let mut first = None;
        for race in races {
            let race = self.found(race);
            first.get_or_insert(race);
        }
        if let Some(race) = first
            && self.options.fail_fast
        {
            return Err(race);
        }
        let clock = if actor == HOST { &mut self.host } else { &mut self.lanes[actor - 1].clock };
        let step = clock.tick(actor);
        for (address, bytes, access) in places {
            if let Some(shadow) = self.memory.shadow(address) {
                shadow.note(&bytes, Touch { actor, step, call: self.calls, what, access });
            }
        }
        Ok(())
    }

    /// Where the accesses go, and an error for each earlier one that they are not ordered after.
    #[expect(clippy::type_complexity, reason = "taken apart at once, by the one caller")]
    fn check(
        &mut self,
        actor: Actor,
        what: &'static str,
        touches: Touches<'_>,
    ) -> Result<(Vec<(u64, Range<usize>, Access)>, Vec<Error>)> {
        let clock = if actor == HOST { &self.host } else { &self.lanes[actor - 1].clock };
        let mut places = Vec::new();
        let mut races = Vec::new();
        for (place, access) in touches.iter().filter(|(place, _)| place.bytes > 0) {
            let (allocation, bytes) = match self.memory.find(place) {
                Ok(found) => found,
                Err(error) => {
                    let side = report::side(&self.lanes, actor, what, self.calls);
                    return Err(self.found(misuse(format!("{side}: {}", error.message()))));
                }
            };
            let now = Touch { actor, step: 0, call: self.calls, what, access: *access };
            let conflicts = allocation.shadow.conflicts(&bytes, *access, clock);
            races.extend(conflicts.iter().map(|c| report::race(&self.lanes, allocation, &now, c)));
            places.push((allocation.address(), bytes, *access));
        }
        Ok((places, races))
    }

    // Memory.

    /// Ends the registration of the memory at `address`, which work must not read any more.
    pub(super) fn unregister(&mut self, address: u64, bytes: usize) -> Result<()> {
        let race = self.freed(address, bytes, Space::Registered)?;
        self.memory.unregister(address);
        race.map_or(Ok(()), |race| Err(self.found(race)))
    }

    pub(super) fn free(&mut self, address: u64, bytes: usize, space: Space) -> Result<()> {
        let race = self.freed(address, bytes, space)?;
        self.memory.free(address, self.calls, race.is_some());
        race.map_or(Ok(()), |race| Err(self.found(race)))
    }

    /// What races with the end of a whole allocation.
    fn freed(&mut self, address: u64, bytes: usize, space: Space) -> Result<Option<Error>> {
        let place = Place { address, bytes, space: Some(space) };
        let found = self.memory.find(&place).and_then(|(allocation, range)| {
            let whole = range == (0..allocation.bytes());
            let conflicts = allocation.shadow.conflicts(&range, Access::Write, &self.host);
            let error = conflicts.first().map(|c| report::freed(&self.lanes, allocation, self.calls, c));
            let refuse =
                || misuse(format!("{bytes} bytes at {address:#x} are not the whole of {allocation}"));
            if whole { Ok(error) } else { Err(refuse()) }
        });
        found.map_err(|error| self.found(error))
    }
}
