//! Registered host memory: memory of a data set, such as a mapped file, that the device may read.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use feedline_core::{Dataset, Result, catch_panic};

use crate::backend::Address;
use crate::device_core::Core;
use crate::stream::StreamCore;

/// Data sets that are kept for the life of the process, because a device may still read their memory or have
/// it registered.
static KEPT: Mutex<Vec<Arc<dyn Dataset>>> = Mutex::new(Vec::new());

fn keep(owner: Option<Arc<dyn Dataset>>) {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).extend(owner);
}

/// Bytes of a data set, readable by the device until this is dropped. They count as pinned.
pub(crate) struct Registered {
    device: Arc<Core>,
    bytes: *const [u8],
    /// The device address of the first byte.
    address: Address,
    /// Keeps the bytes alive.
    owner: Option<Arc<dyn Dataset>>,
    /// The only stream that reads the bytes, set when it is first used.
    reader: OnceLock<Arc<StreamCore>>,
}

impl Registered {
    /// Makes `bytes` readable by the device; `None` if this device cannot read host memory.
    ///
    /// # Safety
    /// The bytes neither move nor change while `owner` lives.
    pub(crate) unsafe fn new(
        device: &Arc<Core>,
        owner: Arc<dyn Dataset>,
        bytes: *const [u8],
    ) -> Result<Option<Self>> {
        // SAFETY: the caller's contract; `owner` is dropped only after the memory is unregistered.
        let registered = unsafe { device.backend.register_host(bytes.cast(), bytes.len()) };
        // After an error it is unknown whether the memory is registered.
        let address = registered.inspect_err(|_| keep(Some(owner.clone())))?;
        let Some(address) = address else { return Ok(None) };
        device.stats.pinned_bytes.add(bytes.len() as u64);
        let reader = OnceLock::new();
        Ok(Some(Self { device: device.clone(), bytes, address, owner: Some(owner), reader }))
    }

    /// The registered bytes.
    pub(crate) fn bytes(&self) -> *const [u8] {
        self.bytes
    }

    /// The host address of byte `offset`.
    pub(crate) fn host(&self, offset: usize) -> *const u8 {
        self.bytes.cast::<u8>().wrapping_add(offset)
    }

    /// The device address of byte `offset`.
    pub(crate) fn device(&self, offset: usize) -> Address {
        Address(self.address.0 + offset as u64)
    }

    /// Makes `stream` the only stream that reads the bytes. Returns an error for a second stream, and for a
    /// stream of another device.
    pub(crate) fn accepts(&self, stream: &Arc<StreamCore>) -> Result<()> {
        stream.own(&self.reader, &self.device, "registered memory is read")
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let drained = self.reader.get().map_or(Ok(()), |stream| stream.synchronize());
        let unregistered = drained.and_then(|()| {
            // SAFETY: registered by `new` with this size, unregistered once; the only stream that reads
            // it has been drained.
            unsafe { self.device.backend.unregister_host(self.bytes.cast(), self.bytes.len()) }
        });
        if let Err(error) = unregistered {
            keep(self.owner.take());
            self.device.stats.report(error);
        }
        self.device.stats.pinned_bytes.subtract(self.bytes.len() as u64);
        // This may be the last owner, on any thread. A panic of the user's `Drop` must not unwind through
        // this drop.
        let owner = self.owner.take();
        if let Err(error) = catch_panic("the data set panicked when it was dropped", || drop(owner)) {
            self.device.stats.report(error);
        }
    }
}

// SAFETY: the bytes belong to `owner`, which is Send and Sync, and are only read.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}
