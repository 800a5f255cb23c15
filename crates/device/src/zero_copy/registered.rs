//! Host memory of someone else that the device may read: a mapped file, a table.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use feedline_backend::Address;
use feedline_core::{Dataset, Error, ErrorKind, Result, catch_panic};

use crate::device_core::Core;
use crate::stream::StreamCore;

/// Data sets whose memory a device may still read, or may still have registered. They are never freed.
static KEPT: Mutex<Vec<Arc<dyn Dataset>>> = Mutex::new(Vec::new());

fn keep(owner: Option<Arc<dyn Dataset>>) {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).extend(owner);
}

/// Bytes of a data set, readable by the device until this is dropped. They count as page-locked.
pub(crate) struct Registered {
    device: Arc<Core>,
    bytes: *const [u8],
    /// Where the device finds the first byte.
    address: Address,
    /// Keeps the bytes.
    owner: Option<Arc<dyn Dataset>>,
    /// The one stream that reads the bytes, once it was given work.
    reader: OnceLock<Arc<StreamCore>>,
}

impl Registered {
    /// Makes `bytes` readable; `None` when this device cannot read host memory.
    ///
    /// # Safety
    /// The bytes stay where and what they are as long as `owner` lives.
    pub(crate) unsafe fn new(
        device: &Arc<Core>,
        owner: Arc<dyn Dataset>,
        bytes: *const [u8],
    ) -> Result<Option<Self>> {
        // SAFETY: the caller's promise; `owner` is dropped only when they are unregistered.
        let registered = unsafe { device.backend.register_host(bytes.cast(), bytes.len()) };
        // After an error the memory may be registered.
        let address = registered.inspect_err(|_| keep(Some(owner.clone())))?;
        let Some(address) = address else { return Ok(None) };
        device.stats.pinned_bytes.add(bytes.len() as u64);
        let reader = OnceLock::new();
        Ok(Some(Self { device: device.clone(), bytes, address, owner: Some(owner), reader }))
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> *const [u8] {
        self.bytes
    }

    /// Where the host finds byte `offset`.
    pub(crate) fn host(&self, offset: usize) -> *const u8 {
        self.bytes.cast::<u8>().wrapping_add(offset)
    }

    /// Where the device finds byte `offset`.
    pub(crate) fn device(&self, offset: usize) -> Address {
        Address(self.address.0 + offset as u64)
    }

    /// Makes `stream` the one that reads the bytes; refuses another, and one of another device.
    pub(crate) fn accepts(&self, stream: &Arc<StreamCore>) -> Result<()> {
        self.device.same(&stream.device, "the copy stream")?;
        if Arc::ptr_eq(self.reader.get_or_init(|| stream.clone()), stream) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Config, "registered memory is read by one stream only"))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let drained = self.reader.get().map_or(Ok(()), |stream| stream.synchronize());
        let unregistered = drained.and_then(|()| {
            // SAFETY: registered by `new` with this size, unregistered once; the one stream that reads it was
            // drained.
            unsafe { self.device.backend.unregister_host(self.bytes.cast(), self.bytes.len()) }
        });
        if let Err(error) = unregistered {
            keep(self.owner.take());
            self.device.stats.report(error);
        }
        self.device.stats.pinned_bytes.subtract(self.bytes.len() as u64);
        // This may be the last owner, on any thread: a panic of the user's drop must not unwind through it.
        let owner = self.owner.take();
        if let Err(error) = catch_panic("the data set panicked when it was dropped", || drop(owner)) {
            self.device.stats.report(error);
        }
    }
}

// SAFETY: the bytes are the owner's, which is Send and Sync, and are read only.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}
