//! A simulated device with numbered streams, events and blocks.

use feedline_core::{DType, Result};
use feedline_device::{Access, Address, Device, EventId, Priority, Span, StreamId, Task};
use feedline_sim::{SimHandle, SimOptions};

pub(crate) const BYTES: usize = 64;

/// Races are reported but not returned, unless the options say otherwise.
pub(crate) struct Bench {
    pub(crate) device: Device,
    pub(crate) sim: SimHandle,
    pub(crate) streams: Vec<StreamId>,
    pub(crate) events: Vec<EventId>,
    pub(crate) blocks: Vec<Address>,
    pub(crate) pinned: *mut u8,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(SimOptions { fail_fast: false, ..SimOptions::seed(1) })
    }

    pub(crate) fn with(options: SimOptions) -> Self {
        let (device, sim) = feedline_sim::device_with(options).expect("the options are valid");
        let backend = feedline_device::backend(&device);
        let stream = |i| backend.create_stream(&format!("s{i}"), Priority::Normal).expect("a stream");
        Self {
            streams: (0..12).map(stream).collect(),
            events: (0..12).map(|_| backend.create_event(false).expect("an event")).collect(),
            blocks: (0..12).map(|_| backend.alloc_device(BYTES).expect("memory")).collect(),
            pinned: backend.alloc_host(BYTES).expect("memory"),
            device,
            sim,
        }
    }

    pub(crate) fn work(&self, stream: usize, reads: &[usize], writes: &[usize]) -> Result<()> {
        let span = |&block: &usize| Span { address: self.blocks[block], bytes: BYTES }.of(DType::U8);
        let task = Task::new("work", reads.iter().map(span), writes.iter().map(span), |_| {})?;
        // SAFETY: the blocks live as long as the bench, and the tasks access nothing.
        unsafe { feedline_device::backend(&self.device).run(self.streams[stream], task) }
    }

    /// Submits work, and asserts that it causes `races` races.
    #[track_caller]
    pub(crate) fn expect(&self, races: usize, stream: usize, reads: &[usize], writes: &[usize]) {
        let before = self.sim.races().len();
        self.work(stream, reads, writes).expect("races are reported, not returned");
        let found = self.sim.races();
        assert_eq!(found.len() - before, races, "{found:#?}");
    }

    #[track_caller]
    pub(crate) fn good(&self, stream: usize, reads: &[usize], writes: &[usize]) {
        self.expect(0, stream, reads, writes);
    }

    #[track_caller]
    pub(crate) fn bad(&self, stream: usize, reads: &[usize], writes: &[usize]) {
        self.expect(1, stream, reads, writes);
    }

    pub(crate) fn record(&self, event: usize, stream: usize) {
        // SAFETY: both are alive and belong to this backend.
        unsafe { feedline_device::backend(&self.device).record(self.events[event], self.streams[stream]) }
            .expect("record");
    }

    pub(crate) fn wait(&self, stream: usize, event: usize) {
        // SAFETY: as above.
        unsafe { feedline_device::backend(&self.device).wait(self.streams[stream], self.events[event]) }
            .expect("wait");
    }

    pub(crate) fn synchronize_event(&self, event: usize) {
        // SAFETY: as above.
        unsafe { feedline_device::backend(&self.device).synchronize(self.events[event]) }
            .expect("synchronize");
    }

    pub(crate) fn synchronize_stream(&self, stream: usize) {
        // SAFETY: as above.
        unsafe { feedline_device::backend(&self.device).synchronize_stream(self.streams[stream]) }
            .expect("synchronize");
    }

    pub(crate) fn synchronize_all(&self) {
        (0..self.streams.len()).for_each(|stream| self.synchronize_stream(stream));
    }

    pub(crate) fn destroy_event(&self, event: usize) {
        // SAFETY: as above; the event is replaced, or its use is expected to be rejected.
        unsafe { feedline_device::backend(&self.device).destroy_event(self.events[event]) }.expect("destroy");
    }

    pub(crate) fn renew_event(&mut self, event: usize) {
        self.events[event] = feedline_device::backend(&self.device).create_event(false).expect("an event");
    }

    pub(crate) fn copy_out_of_pinned(&self, stream: usize, block: usize) -> Result<()> {
        let backend = feedline_device::backend(&self.device);
        // SAFETY: both live as long as the bench; the order is under test, on one thread.
        unsafe { backend.copy_to_device(self.streams[stream], self.pinned, self.blocks[block], BYTES) }
    }

    pub(crate) fn copy_into_pinned(&self, stream: usize, block: usize) -> Result<()> {
        let backend = feedline_device::backend(&self.device);
        // SAFETY: as above.
        unsafe { backend.copy_to_host(self.streams[stream], self.blocks[block], self.pinned, BYTES) }
    }

    pub(crate) fn host(&self, access: Access) -> Result<()> {
        // SAFETY: the block is `BYTES` long; a simulator without chaos writes nothing into it.
        unsafe { feedline_device::backend(&self.device).host_access(self.pinned, BYTES, access) }
    }

    #[track_caller]
    pub(crate) fn host_races(&self, races: usize, access: Access) {
        let before = self.sim.races().len();
        self.host(access).expect("races are reported, not returned");
        assert_eq!(self.sim.races().len() - before, races, "{:#?}", self.sim.races());
    }
}
