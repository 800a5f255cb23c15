//! The null device. Its calls do nothing, so a test can measure the cost of the loader itself.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use feedline_core::Result;
use feedline_device::host::Host;
use feedline_device::{Address, Backend, BackendKind, EventId, Gather, Priority, StreamId, Task};

/// A device whose streams do nothing: copies move no bytes, and host functions run at once.
#[derive(Default)]
pub struct NullDevice {
    memory: Host,
    next_id: AtomicU64,
    gpu: Option<Gpu>,
    late: Duration,
    /// When each event was recorded, if events are late.
    recorded: Mutex<HashMap<EventId, Instant>>,
}

/// The properties that a null device reports when it counts as a GPU.
struct Gpu {
    is_coherent: bool,
}

impl NullDevice {
    /// On a null device that counts as a GPU, the copy engine gathers rows of this many bytes or more.
    pub const LONG_ROW: usize = 64 << 10;

    /// A new null device.
    pub fn new() -> Self {
        Self::default()
    }

    /// A null device that counts as a GPU and can read any host memory. With `is_coherent`, it reads this
    /// memory through the host's page tables, like a GPU beside a Grace CPU. Its PCI address is
    /// `0000:1b:00.0`. Batches hold no data.
    pub fn gpu(is_coherent: bool) -> Self {
        Self { gpu: Some(Gpu { is_coherent }), ..Self::default() }
    }

    /// The device with events that pass only so long after they were recorded, as if copies took that long.
    pub fn late(self, late: Duration) -> Self {
        Self { late, ..self }
    }

    /// The time until `event` passes.
    fn left(&self, event: EventId) -> Duration {
        if self.late.is_zero() {
            return Duration::ZERO;
        }
        let recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        recorded.get(&event).map_or(Duration::ZERO, |at| self.late.saturating_sub(at.elapsed()))
    }

    fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed) + 1
    }
}

// SAFETY: memory comes from the host backend, zeroed and valid until it is freed. A call completes all its
// work before it returns, so every wait may return at once, and the work of a stream runs in order.
unsafe impl Backend for NullDevice {
    fn kind(&self) -> BackendKind {
        if self.gpu.is_some() { BackendKind::Cuda } else { BackendKind::Host }
    }

    fn name(&self) -> String {
        "no device".to_owned()
    }

    fn pci_address(&self) -> Option<String> {
        self.gpu.is_some().then(|| "0000:1b:00.0".to_owned())
    }

    fn has_coherent_host_memory(&self) -> bool {
        self.gpu.as_ref().is_some_and(|gpu| gpu.is_coherent)
    }

    fn copies_rows_of(&self, row_bytes: usize) -> bool {
        self.gpu.is_some() && row_bytes >= Self::LONG_ROW
    }

    fn bind(&self) -> Result<()> {
        Ok(())
    }

    fn create_stream(&self, _: &str, _: Priority) -> Result<StreamId> {
        Ok(StreamId(self.next_id()))
    }

    unsafe fn destroy_stream(&self, _: StreamId) -> Result<()> {
        Ok(())
    }

    unsafe fn synchronize_stream(&self, _: StreamId) -> Result<()> {
        Ok(())
    }

    fn create_event(&self, _: bool) -> Result<EventId> {
        Ok(EventId(self.next_id()))
    }

    unsafe fn destroy_event(&self, _: EventId) -> Result<()> {
        Ok(())
    }

    unsafe fn record(&self, event: EventId, _: StreamId) -> Result<()> {
        if !self.late.is_zero() {
            let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
            recorded.insert(event, Instant::now());
        }
        Ok(())
    }

    unsafe fn wait(&self, _: StreamId, _: EventId) -> Result<()> {
        Ok(())
    }

    unsafe fn query(&self, event: EventId) -> Result<bool> {
        Ok(self.left(event).is_zero())
    }

    unsafe fn synchronize(&self, event: EventId) -> Result<()> {
        std::thread::sleep(self.left(event));
        Ok(())
    }

    unsafe fn elapsed_ms(&self, _: EventId, _: EventId) -> Result<f32> {
        Ok(0.0)
    }

    fn alloc_host(&self, bytes: usize) -> Result<*mut u8> {
        self.memory.alloc_host(bytes)
    }

    unsafe fn free_host(&self, ptr: *mut u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's contract; `alloc_host` of this backend returned the memory.
        unsafe { self.memory.free_host(ptr, bytes) }
    }

    fn alloc_device(&self, bytes: usize) -> Result<Address> {
        self.memory.alloc_device(bytes)
    }

    unsafe fn free_device(&self, address: Address, bytes: usize) -> Result<()> {
        // SAFETY: the caller's contract; `alloc_device` of this backend returned the memory.
        unsafe { self.memory.free_device(address, bytes) }
    }

    unsafe fn copy_to_device(&self, _: StreamId, _: *const u8, _: Address, _: usize) -> Result<()> {
        Ok(())
    }

    unsafe fn copy_to_host(&self, _: StreamId, _: Address, _: *mut u8, _: usize) -> Result<()> {
        Ok(())
    }

    unsafe fn copy_on_device(&self, _: StreamId, _: Address, _: Address, _: usize) -> Result<()> {
        Ok(())
    }

    unsafe fn fill(&self, _: StreamId, _: Address, _: u8, _: usize) -> Result<()> {
        Ok(())
    }

    unsafe fn register_host(&self, ptr: *const u8, _: usize) -> Result<Option<Address>> {
        Ok(self.gpu.is_some().then_some(Address(ptr.addr() as u64)))
    }

    unsafe fn gather(&self, _: StreamId, _: &Gather) -> Result<()> {
        Ok(())
    }

    unsafe fn run(&self, _: StreamId, task: Task) -> Result<()> {
        // SAFETY: the caller's contract; no earlier work is pending, because every call completes its work.
        unsafe { task.execute() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_events_pass_later() {
        for (late, passes) in [(Duration::ZERO, true), (Duration::from_secs(3600), false)] {
            let device = feedline_device::with_backend(NullDevice::gpu(false).late(late));
            let (stream, event) = (device.stream().expect("a stream"), device.event().expect("an event"));
            stream.record(&event).expect("a record");
            assert_eq!(event.query().expect("a query"), passes, "{late:?}");
        }
    }
}
