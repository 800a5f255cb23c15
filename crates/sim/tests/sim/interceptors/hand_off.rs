//! The hand-off under test: two rings, a copy stream, and two compute streams that check every byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use feedline_core::Result;
use feedline_device::device_slots::{Loaded, SlotRing};
use feedline_device::slots::Ring;
use feedline_device::{Device, Input, Pinned, Priority, Stream, launch_host};
use feedline_testkit::pattern;

use super::{BYTES, SLOTS};

/// The rings and streams of a hand-off.
pub(crate) struct HandOff {
    pub(crate) host: Ring<Pinned>,
    pub(crate) slots: Arc<SlotRing>,
    pub(crate) copier: Stream,
    pub(crate) compute: Stream,
    pub(crate) branch: Stream,
    pub(crate) wrong: Arc<AtomicU64>,
}

impl HandOff {
    /// All streams are called `name`, so that a test can recognise their threads.
    pub(crate) fn new(device: &Device, name: &str) -> Result<Self> {
        Ok(Self {
            copier: device.named_stream(name, Priority::High)?,
            compute: device.named_stream(name, Priority::Normal)?,
            branch: device.named_stream(name, Priority::Normal)?,
            host: Ring::new((0..SLOTS).map(|_| Pinned::new(device, BYTES)).collect::<Result<_>>()?),
            slots: SlotRing::new(device, SLOTS, BYTES)?,
            wrong: Arc::default(),
        })
    }

    /// Feeds batch `id` to one or two compute streams, which check every byte.
    pub(crate) fn step(&self, id: u64, both: bool) -> Result<()> {
        self.read(self.load(id)?, id, both)
    }

    pub(crate) fn load(&self, id: u64) -> Result<Loaded> {
        let mut lease = self.host.acquire()?;
        pattern::fill(lease.bytes_mut(), 0, id);
        self.slots.acquire()?.upload(&self.copier, lease.ready(), BYTES)
    }

    pub(crate) fn read(&self, loaded: Loaded, id: u64, both: bool) -> Result<()> {
        let reader = loaded.wait_on(&self.compute)?;
        if both {
            let second = reader.also_on(&self.branch)?;
            self.check(&self.branch, second.view::<u8>(0, BYTES)?.into(), id)?;
        }
        self.check(&self.compute, reader.view::<u8>(0, BYTES)?.into(), id)
    }

    pub(crate) fn check(&self, stream: &Stream, batch: Input<'_>, id: u64) -> Result<()> {
        let wrong = self.wrong.clone();
        launch_host(stream, "check", [batch], [], move |memory| {
            if pattern::check(memory.input(0), 0, id).is_err() {
                wrong.fetch_add(1, Ordering::Relaxed);
            }
        })
    }

    /// Waits for all steps, and returns the number of wrong batches.
    pub(crate) fn finish(self) -> Result<u64> {
        self.compute.synchronize()?;
        self.branch.synchronize()?;
        Ok(self.wrong.load(Ordering::Relaxed))
    }
}
