//! The baselines of the benchmarks: raw calls of the backend, without leases, channels or checks.
//!
//! | part | file |
//! | --- | --- |
//! | slots and the bare loops over them | `mod.rs` |
//! | a kernel that does nothing | `empty.rs` |

mod empty;

use feedline_core::{Error, ErrorKind, Result};
use feedline_device::slots::HostMemory;
use feedline_device::{Address, Backend, Buffer, Device, Event, EventId, Pinned, Priority, Stream, StreamId};

pub use empty::Empty;

/// Slots of pinned memory, each with a device buffer and two events; and two streams.
pub struct Bare {
    slots: Vec<Slot>,
    copier: Stream,
    compute: Stream,
    empty: Empty,
    bytes: usize,
    /// Set when work may still run that no event covers: nothing may then be written or freed.
    lost: bool,
    device: Device,
}

struct Slot {
    host: Pinned,
    target: Buffer<u8>,
    copied: Event,
    consumed: Event,
}

impl Bare {
    /// Allocates `slots` slots of `bytes` bytes.
    ///
    /// # Errors
    /// A device failure.
    pub fn new(device: &Device, slots: usize, bytes: usize) -> Result<Self> {
        let copier = device.named_stream("baseline-copy", Priority::High)?;
        let slot = |_| {
            Ok(Slot {
                host: Pinned::new(device, bytes)?,
                target: Buffer::new(&copier, bytes)?,
                copied: device.event()?,
                consumed: device.event()?,
            })
        };
        let slots = (0..slots.max(1)).map(slot).collect::<Result<_>>()?;
        let (compute, empty) = (device.stream()?, Empty::new(device)?);
        Ok(Self { slots, copier, compute, empty, bytes, lost: false, device: device.clone() })
    }

    /// Runs `steps` batches: wait(consumed), copy, record(copied), wait(copied), empty kernel,
    /// record(consumed). Blocks until all have finished.
    ///
    /// # Errors
    /// A device failure.
    pub fn hand_over(&mut self, steps: usize) -> Result<()> {
        let (copier, compute) = (StreamId::from(&self.copier), StreamId::from(&self.compute));
        let backend = feedline_device::backend(&self.device);
        let outcome = self.slots.iter().cycle().take(steps).try_for_each(|slot| {
            // SAFETY: streams and events belong to this value, are alive and of one backend; likewise below.
            unsafe { backend.wait(copier, slot.consumed()) }?;
            // SAFETY: as in `copies`.
            unsafe { slot.copy(backend, copier, self.bytes) }?;
            // SAFETY: see above.
            unsafe { backend.record(slot.copied(), copier) }?;
            // SAFETY: see above.
            unsafe { backend.wait(compute, slot.copied()) }?;
            self.empty.raw(backend, compute)?;
            // SAFETY: see above.
            unsafe { backend.record(slot.consumed(), compute) }
        });
        self.wait_for_copies(outcome)
    }

    /// Runs `steps` batches with every backend call that leases make: as [`hand_over`](Self::hand_over),
    /// plus the host's wait for the slot's last copy, and without the wait for a copy that a query shows
    /// finished. Blocks until all have finished.
    ///
    /// # Errors
    /// A device failure.
    pub fn leased_calls(&mut self, steps: usize) -> Result<()> {
        let (copier, compute) = (StreamId::from(&self.copier), StreamId::from(&self.compute));
        let backend = feedline_device::backend(&self.device);
        let outcome = self.slots.iter().cycle().take(steps).try_for_each(|slot| {
            // SAFETY: streams and events belong to this value, are alive and of one backend; likewise below.
            unsafe { backend.synchronize(slot.copied()) }?;
            // SAFETY: see above.
            unsafe { backend.wait(copier, slot.consumed()) }?;
            // SAFETY: as in `copies`.
            unsafe { slot.copy(backend, copier, self.bytes) }?;
            // SAFETY: see above.
            unsafe { backend.record(slot.copied(), copier) }?;
            // SAFETY: see above.
            if !unsafe { backend.query(slot.copied()) }? {
                // SAFETY: see above.
                unsafe { backend.wait(compute, slot.copied()) }?;
            }
            self.empty.raw(backend, compute)?;
            // SAFETY: see above.
            unsafe { backend.record(slot.consumed(), compute) }
        });
        self.wait_for_copies(outcome)
    }

    /// Runs `steps` copies and nothing else. Blocks until all have finished.
    ///
    /// # Errors
    /// A device failure.
    pub fn copies(&mut self, steps: usize) -> Result<()> {
        let copier = StreamId::from(&self.copier);
        let backend = feedline_device::backend(&self.device);
        let outcome = self.slots.iter().cycle().take(steps).try_for_each(|slot| {
            // SAFETY: `wait_for_copies` waits for the copies before anything else touches the blocks.
            unsafe { slot.copy(backend, copier, self.bytes) }
        });
        self.wait_for_copies(outcome)
    }

    /// The minimum of driver calls on the consumer's side of `steps` batches: wait(copied), record(consumed).
    ///
    /// # Errors
    /// A device failure.
    pub fn consumer_calls(&mut self, steps: usize) -> Result<()> {
        let compute = StreamId::from(&self.compute);
        let backend = feedline_device::backend(&self.device);
        self.slots.iter().cycle().take(steps).try_for_each(|slot| {
            // SAFETY: stream and event belong to this value, are alive and of one backend.
            unsafe { backend.wait(compute, slot.copied()) }?;
            // SAFETY: see above.
            unsafe { backend.record(slot.consumed(), compute) }
        })
    }

    /// The pinned block of slot `index % slots`. Blocks until its last copy has finished.
    ///
    /// # Errors
    /// A device failure.
    pub fn fill(&mut self, index: usize) -> Result<&mut [u8]> {
        if self.lost {
            return Err(Error::new(
                ErrorKind::Device,
                "the baseline's copies failed earlier: start it again",
            ));
        }
        let index = index % self.slots.len();
        let slot = &mut self.slots[index];
        slot.copied.synchronize()?;
        // SAFETY: initialised memory of this length that belongs to this value. Every copy out of it was
        // either waited for by `wait_for_copies` or is covered by `copied`, which `send` records and which
        // was waited for just above.
        Ok(unsafe { std::slice::from_raw_parts_mut(slot.host.as_ptr(), self.bytes) })
    }

    /// Queues the copy of the block of slot `index % slots`.
    ///
    /// # Errors
    /// A device failure.
    pub fn send(&mut self, index: usize) -> Result<()> {
        let copier = StreamId::from(&self.copier);
        let backend = feedline_device::backend(&self.device);
        let slot = &self.slots[index % self.slots.len()];
        // SAFETY: nothing writes the block before the copy has ended: `fill` waits for `copied`, recorded
        // next.
        let sent = unsafe { slot.copy(backend, copier, self.bytes) }.and_then(|()| {
            // SAFETY: event and stream belong to this value, are alive and of one backend.
            unsafe { backend.record(slot.copied(), copier) }
        });
        if sent.is_ok() { sent } else { self.wait_for_copies(sent) }
    }

    /// Blocks until all queued work has finished.
    ///
    /// # Errors
    /// A device failure.
    pub fn finish(&mut self) -> Result<()> {
        self.wait_for_copies(Ok(()))
    }

    fn wait_for_copies(&mut self, outcome: Result<()>) -> Result<()> {
        let waited = self.copier.synchronize().and_then(|()| self.compute.synchronize());
        self.lost |= waited.is_err();
        outcome.and(waited)
    }
}

impl Slot {
    fn copied(&self) -> EventId {
        EventId::from(&self.copied)
    }

    fn consumed(&self) -> EventId {
        EventId::from(&self.consumed)
    }

    /// Queues the copy of the whole block.
    ///
    /// # Safety
    /// Until the copy has ended, the block must not be written and the slot must not be dropped.
    unsafe fn copy(&self, backend: &dyn Backend, stream: StreamId, bytes: usize) -> Result<()> {
        let to: Address = self.target.view().address();
        // SAFETY: both ranges are `bytes` long; the target is used on this stream only, in order.
        unsafe { backend.copy_to_device(stream, self.host.as_ptr(), to, bytes) }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        if self.wait_for_copies(Ok(())).is_err() || self.lost {
            std::mem::forget(std::mem::take(&mut self.slots));
        }
    }
}

impl std::fmt::Debug for Bare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bare({} slots of {} bytes)", self.slots.len(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;
    use feedline_device::Memory;
    use feedline_device::launch_host;

    #[test]
    fn fill_waits_for_the_last_copy_of_its_block() {
        let mut bare = Bare::new(&Device::new_host(), 2, 1 << 16).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        for step in 0..20 {
            bare.fill(step).unwrap().fill(step as u8 + 1);
            // The copy starts late: without the wait, the next fill would overwrite the block before it
            // is read.
            launch_host(&bare.copier, "late", [], [], |_| std::thread::sleep(Duration::from_millis(1)))
                .unwrap();
            bare.send(step).unwrap();
            let (seen, arrived) = (seen.clone(), bare.slots[step % 2].target.view().into());
            let look = move |memory: &mut Memory<'_>| {
                let bytes = memory.input::<u8>(0);
                seen.lock().unwrap().push(bytes.iter().all(|&byte| byte == step as u8 + 1));
            };
            launch_host(&bare.copier, "look", [arrived], [], look).unwrap();
        }
        bare.finish().unwrap();
        assert_eq!(*seen.lock().unwrap(), [true; 20]);
    }

    #[test]
    fn the_bare_loops_copy_every_block() {
        let mut bare = Bare::new(&Device::new_host(), 3, 1000).unwrap();
        for run in [Bare::hand_over, Bare::copies] {
            for slot in 0..3 {
                bare.fill(slot).unwrap().fill(slot as u8 + 1);
                bare.slots[slot].target.write(&[0; 1000]).unwrap();
            }
            run(&mut bare, 3).unwrap();
            for slot in 0..3 {
                assert_eq!(bare.slots[slot].target.read().unwrap(), [slot as u8 + 1; 1000]);
            }
        }
        bare.consumer_calls(3).unwrap();
    }
}
