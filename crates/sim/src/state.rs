//! The state of a simulated device, and the analysis. The analysis keeps the vector clocks of the actors, and
//! finds accesses that are not ordered.
//!
//! The analysis runs at each call, in the order of the calls. So no schedule can hide a missing wait.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;
use std::time::Instant;

use feedline_core::{Error, Random, Result};
use feedline_device::backend::{Access, CallSite, EventId, StreamId};

use super::SimOptions;
use super::clocks::{Actor, Clock, HOST};
use super::lane::{Call, Command, Lane, Queued, Recording};
use super::memory::{Memory, Region, Space, misuse};
use super::report;
use super::shadow::Touch;

/// The max number of stored findings. Without a limit, a loop that races in every step would exhaust the
/// memory.
const KEPT: usize = 256;

struct EventState {
    timing: bool,
    recording: Option<Arc<Recording>>,
}

/// The memory that a call accesses, and the kind of access.
pub(super) type Touches<'a> = &'a [(Region, Access)];

pub(super) struct State {
    pub(super) options: SimOptions,
    pub(super) random: Random,
    /// The upper half of this device's handles, so that handles of another device are recognised.
    number: u64,
    /// The last call that was not a query.
    pub(super) call: Call,
    /// The time of the host's last call. Queries count too.
    pub(super) called_at: Instant,
    /// The host's vector clock.
    host: Clock,
    /// Virtual time in nanoseconds: of the host, and of the latest end of any work.
    pub(super) host_time: u64,
    pub(super) latest: u64,
    pub(super) lanes: Vec<Lane>,
    events: HashMap<u64, EventState>,
    next_event: u64,
    pub(super) memory: Memory,
    pub(super) findings: Vec<Error>,
    pub(super) lost: Option<Error>,
    /// The thread that is running a task outside the lock.
    pub(super) running: Option<ThreadId>,
}

impl State {
    pub(super) fn new(options: SimOptions, number: u64) -> Self {
        let random = Random::from_key(options.seed);
        Self {
            options,
            random,
            number,
            call: Call { number: 0, site: None },
            called_at: Instant::now(),
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

    /// Adds an error to the findings and returns it.
    pub(super) fn found(&mut self, error: Error) -> Error {
        if self.findings.len() < KEPT {
            self.findings.push(error.clone());
        }
        error
    }

    /// Counts a call. A call takes a microsecond of the host's virtual time.
    pub(super) fn call(&mut self) {
        self.call = Call { number: self.call.number + 1, site: CallSite::current() };
        self.called_at = Instant::now();
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
            submitted: 0,
            ended: 0,
            time: 0,
            starved: false,
            held: false,
            destroyed: false,
        });
        StreamId(self.handle(self.lanes.len() as u64 - 1))
    }

    /// The lane index of a live stream.
    pub(super) fn lane(&mut self, stream: StreamId) -> Result<usize> {
        let why = match self.index(stream.0).and_then(|index| Some((index, self.lanes.get(index)?))) {
            Some((index, lane)) if !lane.destroyed => return Ok(index),
            Some((index, _)) => {
                format!("{} is used after it was destroyed", report::stream(&self.lanes, index))
            }
            None => format!("{:#x} is not a stream of this device", stream.0),
        };
        Err(self.found(misuse(why)))
    }

    pub(super) fn create_event(&mut self, timing: bool) -> EventId {
        self.next_event += 1;
        let id = self.handle(self.next_event);
        self.events.insert(id, EventState { timing, recording: None });
        EventId(id)
    }

    fn event(&mut self, event: EventId) -> Result<&mut EventState> {
        if !self.events.contains_key(&event.0) {
            let why = match self.index(event.0) {
                Some(index) if (1..=self.next_event).contains(&(index as u64)) => {
                    format!("event {index} is used after it was destroyed")
                }
                _ => format!("{:#x} is not an event of this device", event.0),
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

    /// The current recording of `event`.
    pub(super) fn recording(&mut self, event: EventId) -> Result<Option<Arc<Recording>>> {
        self.event(event).map(|state| state.recording.clone())
    }

    /// The virtual time at which an event with timing completed.
    pub(super) fn time(&mut self, event: EventId) -> Result<u64> {
        let state = self.event(event)?;
        if !state.timing {
            return Err(misuse("the time of an event without timing was requested".to_owned()));
        }
        state.recording.as_ref().and_then(|recording| recording.completed_at.get()).copied().ok_or_else(
            || misuse("the time of an event was requested before it was recorded and done".to_owned()),
        )
    }

    pub(super) fn live_events(&self) -> usize {
        self.events.len()
    }

    // Order.

    /// Checks a command of `stream` that accesses memory. Returns the race if an access is not ordered.
    pub(super) fn submit(
        &mut self,
        stream: StreamId,
        what: &'static str,
        touches: Touches<'_>,
    ) -> Result<usize> {
        self.check_lost()?;
        let lane = self.lane(stream)?;
        // Work that the host has seen complete comes before all work that the host submits afterwards.
        self.lanes[lane].clock.join(&self.host);
        self.touch(lane + 1, what, touches)?;
        Ok(lane)
    }

    pub(super) fn push(&mut self, lane: usize, what: &'static str, command: Command) {
        let (submitted_at, call) = (self.host_time, self.call);
        let lane = &mut self.lanes[lane];
        lane.queue.push_back(Queued { command, submitted_at, what, call });
        lane.submitted += 1;
    }

    pub(super) fn record(&mut self, event: EventId, stream: StreamId) -> Result<()> {
        self.event(event)?;
        let lane = self.submit(stream, "record", &[])?;
        let clock = self.lanes[lane].clock.clone();
        let recording =
            Arc::new(Recording { clock, stream: lane, call: self.call, completed_at: OnceLock::new() });
        self.event(event)?.recording = Some(recording.clone());
        self.push(lane, "record", Command::Record(recording));
        Ok(())
    }

    pub(super) fn wait(&mut self, stream: StreamId, event: EventId) -> Result<()> {
        let recording = self.recording(event)?;
        let lane = self.lane(stream)?;
        let Some(recording) = recording else { return Ok(()) };
        self.submit(stream, "wait", &[])?;
        self.lanes[lane].clock.join(&recording.clock);
        self.push(lane, "wait", Command::Wait(recording));
        Ok(())
    }

    /// Notes that the host has seen the end of work with `clock`, at virtual time `at`.
    pub(super) fn host_learns(&mut self, clock: &Clock, at: u64) {
        self.host.join(clock);
        self.host_time = self.host_time.max(at);
    }

    /// Checks the accesses of `actor`, and records them if none of them is rejected.
    pub(super) fn touch(&mut self, actor: Actor, what: &'static str, touches: Touches<'_>) -> Result<()> {
        let (ranges, races) = self.check(actor, what, touches)?;
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
        for (address, bytes, access) in ranges {
            if let Some(shadow) = self.memory.shadow(address) {
                shadow.note(&bytes, Touch { actor, step, call: self.call, what, access });
            }
        }
        Ok(())
    }

    /// Resolves the accesses, and finds a race for each earlier access that is not ordered before them.
    #[expect(clippy::type_complexity, reason = "destructured at once by the only caller")]
    fn check(
        &mut self,
        actor: Actor,
        what: &'static str,
        touches: Touches<'_>,
    ) -> Result<(Vec<(u64, Range<usize>, Access)>, Vec<Error>)> {
        let clock = if actor == HOST { &self.host } else { &self.lanes[actor - 1].clock };
        let mut ranges = Vec::new();
        let mut races = Vec::new();
        for (region, access) in touches.iter().filter(|(region, _)| region.bytes > 0) {
            let (allocation, bytes) = match self.memory.find(region) {
                Ok(found) => found,
                Err(error) => {
                    let side = report::side(&self.lanes, actor, what, self.call);
                    return Err(self.found(misuse(format!("{side}: {}", error.message()))));
                }
            };
            let now = Touch { actor, step: 0, call: self.call, what, access: *access };
            let conflicts = allocation.shadow.conflicts(&bytes, *access, clock);
            races.extend(conflicts.iter().map(|c| report::race(&self.lanes, allocation, &now, c)));
            ranges.push((allocation.address(), bytes, *access));
        }
        Ok((ranges, races))
    }

    // Memory.

    /// Ends the registration of the memory at `address`. It is a race if work may still read it.
    pub(super) fn unregister(&mut self, address: u64, bytes: usize) -> Result<()> {
        let race = self.freed(address, bytes, Space::Registered)?;
        self.memory.unregister(address);
        race.map_or(Ok(()), |race| Err(self.found(race)))
    }

    pub(super) fn free(&mut self, address: u64, bytes: usize, space: Space) -> Result<()> {
        let race = self.freed(address, bytes, space)?;
        self.memory.free(address, self.call, race.is_some());
        race.map_or(Ok(()), |race| Err(self.found(race)))
    }

    /// The race between earlier accesses and the end of a whole allocation, if there is one.
    fn freed(&mut self, address: u64, bytes: usize, space: Space) -> Result<Option<Error>> {
        let region = Region { address, bytes, space: Some(space) };
        let found = self.memory.find(&region).and_then(|(allocation, range)| {
            let whole = range == (0..allocation.bytes());
            let conflicts = allocation.shadow.conflicts(&range, Access::Write, &self.host);
            let error = conflicts.first().map(|c| report::freed(&self.lanes, allocation, self.call, c));
            let refuse =
                || misuse(format!("{bytes} bytes at {address:#x} are not the whole of {allocation}"));
            if whole { Ok(error) } else { Err(refuse()) }
        });
        found.map_err(|error| self.found(error))
    }
}
