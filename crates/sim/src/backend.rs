//! The simulator's implementation of [`Backend`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use feedline_core::{Error, Result};
use feedline_device::backend::{
    Access, Address, Backend, BackendKind, EventId, Gather, Priority, Span, StreamId, Task,
};

use super::clocks::HOST;
use super::lane::Command;
use super::memory::{Region, Space};
use super::schedule::Shared;
use super::state::{State, Touches};
use super::{SimHandle, SimOptions, watch};

/// The backend of a simulated device. Most programs use [`device`](crate::device) instead.
pub struct Sim {
    shared: Arc<Shared>,
}

impl Sim {
    /// Creates a simulated device, and the handle that reports its findings.
    ///
    /// # Errors
    /// `Config` for an invalid option.
    pub fn new(options: SimOptions) -> Result<(Self, SimHandle)> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        options.check()?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::new(Shared::new(State::new(options, number)));
        watch::add(&shared);
        Ok((Self { shared: shared.clone() }, SimHandle::new(shared)))
    }

    fn submit(
        &self,
        stream: StreamId,
        what: &'static str,
        touches: Touches<'_>,
        command: Command,
    ) -> Result<()> {
        let mut state = self.shared.lock();
        state.call();
        let lane = state.submit(stream, what, touches)?;
        state.push(lane, what, command);
        Ok(())
    }

    fn alloc(&self, bytes: usize, space: Space) -> Result<u64> {
        let mut state = self.shared.lock();
        state.call();
        // Host memory starts zeroed; device memory starts non-zero.
        let value = if space == Space::Host { 0 } else { state.random.below(255) as u8 + 1 };
        let call = state.call;
        state.memory.alloc(bytes, space, value, call)
    }

    fn free(&self, address: u64, bytes: usize, space: Space) -> Result<()> {
        let mut state = self.shared.lock();
        state.call();
        state.free(address, bytes, space)
    }
}

fn host(ptr: *const u8, bytes: usize) -> Region {
    Region { address: ptr as u64, bytes, space: Some(Space::Host) }
}

fn device(address: Address, bytes: usize) -> Region {
    Region { address: address.0, bytes, space: Some(Space::Device) }
}

// SAFETY: `Block::new` initialises the memory; a stream's commands are taken from its queue one by one,
// in order (`Shared::step`); `synchronize` and `synchronize_stream` return Ok only when the awaited work
// has run (`Shared::run_until`).
unsafe impl Backend for Sim {
    fn kind(&self) -> BackendKind {
        BackendKind::Sim
    }

    fn name(&self) -> String {
        format!("sim (seed {})", self.shared.lock().options.seed)
    }

    fn bind(&self) -> Result<()> {
        Ok(())
    }

    fn create_stream(&self, name: &str, _: Priority) -> Result<StreamId> {
        let mut state = self.shared.lock();
        state.call();
        Ok(state.create_stream(name))
    }

    unsafe fn destroy_stream(&self, stream: StreamId) -> Result<()> {
        let mut state = self.shared.lock();
        state.call();
        let lane = state.lane(stream)?;
        // As in CUDA, the call returns at once, and the earlier work of the stream still runs.
        state.lanes[lane].destroyed = true;
        Ok(())
    }

    unsafe fn synchronize_stream(&self, stream: StreamId) -> Result<()> {
        let mut state = self.shared.lock();
        state.call();
        let lane = state.lane(stream)?;
        let submitted = state.lanes[lane].submitted;
        let clock = state.lanes[lane].clock.clone();
        let mut state = self.shared.run_until(state, |state| state.lanes[lane].ended >= submitted)?;
        let at = state.lanes[lane].time;
        state.host_learns(&clock, at);
        state.check_lost()
    }

    fn create_event(&self, timing: bool) -> Result<EventId> {
        let mut state = self.shared.lock();
        state.call();
        Ok(state.create_event(timing))
    }

    unsafe fn destroy_event(&self, event: EventId) -> Result<()> {
        let mut state = self.shared.lock();
        state.call();
        state.destroy_event(event)
    }

    unsafe fn record(&self, event: EventId, stream: StreamId) -> Result<()> {
        let mut state = self.shared.lock();
        state.call();
        state.record(event, stream)
    }

    unsafe fn wait(&self, stream: StreamId, event: EventId) -> Result<()> {
        let mut state = self.shared.lock();
        state.call();
        state.wait(stream, event)
    }

    unsafe fn query(&self, event: EventId) -> Result<bool> {
        let mut state = self.shared.lock();
        state.called_at = Instant::now();
        let Some(recording) = state.recording(event)? else { return state.check_lost().map(|()| true) };
        state.host_time += 1_000;
        let mut state = self.shared.run_some(state);
        state.check_lost()?;
        let Some(&at) = recording.completed_at.get() else { return Ok(false) };
        state.host_learns(&recording.clock, at);
        Ok(true)
    }

    unsafe fn synchronize(&self, event: EventId) -> Result<()> {
        let mut state = self.shared.lock();
        state.call();
        let Some(recording) = state.recording(event)? else { return state.check_lost() };
        let mut state = self.shared.run_until(state, |_| recording.completed_at.get().is_some())?;
        let at = recording.completed_at.get().copied().unwrap_or(0);
        state.host_learns(&recording.clock, at);
        state.check_lost()
    }

    unsafe fn elapsed_ms(&self, start: EventId, end: EventId) -> Result<f32> {
        let mut state = self.shared.lock();
        let (start, end) = (state.time(start)?, state.time(end)?);
        Ok((end as f64 - start as f64) as f32 / 1e6)
    }

    fn alloc_host(&self, bytes: usize) -> Result<*mut u8> {
        self.alloc(bytes, Space::Host).map(|address| address as *mut u8)
    }

    unsafe fn free_host(&self, ptr: *mut u8, bytes: usize) -> Result<()> {
        self.free(ptr as u64, bytes, Space::Host)
    }

    fn alloc_device(&self, bytes: usize) -> Result<Address> {
        self.alloc(bytes, Space::Device).map(Address)
    }

    unsafe fn free_device(&self, address: Address, bytes: usize) -> Result<()> {
        self.free(address.0, bytes, Space::Device)
    }

    unsafe fn copy_to_device(
        &self,
        stream: StreamId,
        from: *const u8,
        to: Address,
        bytes: usize,
    ) -> Result<()> {
        let touches = [(host(from, bytes), Access::Read), (device(to, bytes), Access::Write)];
        self.submit(stream, "copy to device", &touches, Command::Copy { from: from as u64, to: to.0, bytes })
    }

    unsafe fn copy_to_host(&self, stream: StreamId, from: Address, to: *mut u8, bytes: usize) -> Result<()> {
        let touches = [(device(from, bytes), Access::Read), (host(to, bytes), Access::Write)];
        self.submit(stream, "copy to host", &touches, Command::Copy { from: from.0, to: to as u64, bytes })
    }

    unsafe fn copy_on_device(
        &self,
        stream: StreamId,
        from: Address,
        to: Address,
        bytes: usize,
    ) -> Result<()> {
        let touches = [(device(from, bytes), Access::Read), (device(to, bytes), Access::Write)];
        self.submit(stream, "copy on the device", &touches, Command::Copy { from: from.0, to: to.0, bytes })
    }

    unsafe fn fill(&self, stream: StreamId, to: Address, value: u8, bytes: usize) -> Result<()> {
        let touches = [(device(to, bytes), Access::Write)];
        self.submit(stream, "fill", &touches, Command::Fill { to: to.0, value, bytes })
    }

    unsafe fn register_host(&self, ptr: *const u8, bytes: usize) -> Result<Option<Address>> {
        let mut state = self.shared.lock();
        state.call();
        let call = state.call;
        Ok(state.memory.register(ptr as u64, bytes, call).then_some(Address(ptr as u64)))
    }

    unsafe fn unregister_host(&self, ptr: *const u8, bytes: usize) -> Result<()> {
        let mut state = self.shared.lock();
        state.call();
        state.unregister(ptr as u64, bytes)
    }

    unsafe fn gather(&self, stream: StreamId, gather: &Gather) -> Result<()> {
        let at =
            |span: Span, space| Region { address: span.address.0, bytes: span.bytes, space: Some(space) };
        let ids = if gather.has_device_ids() { Space::Device } else { Space::Host };
        let mut touches = vec![(at(gather.ids(), ids), Access::Read)];
        touches.extend(gather.places().map(|places| (at(places, Space::Host), Access::Read)));
        let source = if gather.is_from_device() { Space::Device } else { Space::Registered };
        for field in gather.fields() {
            touches.push((at(field.source(), source), Access::Read));
            touches.push((at(field.target(gather.rows()), Space::Device), Access::Write));
        }
        self.submit(stream, "gather", &touches, Command::Gather(Box::new(gather.clone())))
    }

    unsafe fn run(&self, stream: StreamId, task: Task) -> Result<()> {
        let reads = task.inputs().iter().map(|span| (span, Access::Read));
        let writes = task.outputs().iter().map(|span| (span, Access::Write));
        // Both kinds of memory are allowed, because kernels can also access pinned memory.
        let touches: Vec<_> = reads
            .chain(writes)
            .map(|(s, access)| {
                (Region { address: s.span.address.0, bytes: s.span.bytes, space: None }, access)
            })
            .collect();
        self.submit(stream, task.name(), &touches, Command::Run(Box::new(task)))
    }

    unsafe fn host_access(&self, ptr: *const u8, bytes: usize, access: Access) -> Result<()> {
        let mut state = self.shared.lock();
        state.call();
        let what = match access {
            Access::Read => "read",
            Access::Write => "write",
        };
        state.touch(HOST, what, &[(host(ptr, bytes), access)])
    }

    fn name_memory(&self, address: u64, name: &str) {
        self.shared.lock().memory.name(address, name);
    }

    fn lost(&self) -> Option<Error> {
        self.shared.lock().lost.clone()
    }
}
