//! A communicator of NCCL: one per rank, ended when the run fails.

mod library;

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use feedline_core::{Error, ErrorKind, Result, deadline};
use feedline_device::{Device, Input, Output, Stream, StreamId};

use super::{Call, Reduce};
use crate::Group;
use crate::group::Shared;
use library::{Handle, Library, RawStream, UniqueId, library};

/// The interval at which the errors of NCCL's own threads are polled.
const POLL: Duration = Duration::from_millis(200);

/// The max wait for two things: for a rank to report that it caused an error of NCCL, and for a running call
/// to end before an abort.
const CAUSE_LIMIT: Duration = Duration::from_secs(1);

/// The connection of this rank with the GPUs of the others.
pub(super) struct Communicator {
    core: Arc<Core>,
}

struct Core {
    library: &'static Library,
    handle: Handle,
    /// Held during every call on the handle: an abort waits for it.
    calls: Mutex<()>,
    /// Set before the handle is closed.
    ended: AtomicBool,
    /// Held while the handle is closed: a second caller waits.
    ending: Mutex<()>,
    shared: Arc<Shared>,
    device: Device,
}

// SAFETY: NCCL's handles may be used from any thread, by one at a time (`calls`); only `ncclCommAbort` and
// `ncclCommGetAsyncError` may run during another call, which NCCL allows.
unsafe impl Send for Core {}
// SAFETY: as above.
unsafe impl Sync for Core {}

impl Communicator {
    /// Connects the GPUs of all ranks; blocks until all have called it, for at most the group's limit.
    pub(super) fn new(group: &Group, device: &Device) -> Result<Self> {
        let library = library()?;
        let (world, limit) = (group.world(), group.limit());
        let id = unique_id(library, group)?;
        let (done, awaited) = channel();
        let bound = device.clone();
        // `ncclCommInitRank` has no timeout. After the group's limit, this thread is abandoned.
        let connect = move || {
            let connected = feedline_device::backend(&bound).bind().and_then(|()| {
                let mut handle: Handle = std::ptr::null_mut();
                let (size, rank) = (world.size() as c_int, world.rank() as c_int);
                // SAFETY: the target is a live local; the device is bound to this thread.
                let status = unsafe { (library.comm_init_rank)(&mut handle, size, id, rank) };
                library.check(status, "ncclCommInitRank").map(|()| handle as usize)
            });
            let _ = done.send(connected);
        };
        std::thread::Builder::new().name("fl-dist-nccl".to_owned()).spawn(connect).map_err(|error| {
            Error::new(ErrorKind::Unavailable, "cannot start a thread to connect the GPUs").with_source(error)
        })?;
        let until = deadline(limit);
        let handle = loop {
            match awaited.recv_timeout(POLL) {
                Ok(connected) => break connected? as Handle,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::new(ErrorKind::Device, "ncclCommInitRank ended without an answer"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(error) = group.error() {
                return Err(error);
            }
            if Instant::now() > until {
                let why = format!(
                    "NCCL did not connect the GPUs within {limit:?}: NCCL_DEBUG=INFO says what it waits for"
                );
                return Err(Error::new(ErrorKind::Timeout, why));
            }
        };
        let communicator = Self {
            core: Arc::new(Core {
                library,
                handle,
                calls: Mutex::new(()),
                ended: AtomicBool::new(false),
                ending: Mutex::default(),
                shared: group.shared().clone(),
                device: device.clone(),
            }),
        };
        // A kernel of NCCL waits for the other ranks without a limit: only an abort ends it.
        let weak = Arc::downgrade(&communicator.core);
        group.on_failure(move |_| {
            if let Some(core) = weak.upgrade() {
                core.end();
            }
        });
        watch(Arc::downgrade(&communicator.core))?;
        Ok(communicator)
    }

    pub(super) fn describe(&self) -> String {
        format!("NCCL {}", self.core.library.release())
    }

    /// Whether the run has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.core.shared.error().is_some()
    }

    /// Queues a collective on `stream`. The caller keeps the memory until the stream has run it.
    pub(super) fn call(
        &self,
        stream: &Stream,
        call: Call,
        inputs: &[Input<'_>],
        outputs: &[Output<'_>],
    ) -> Result<()> {
        let core = &*self.core;
        let _calling = core.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if core.ended.load(Ordering::Acquire) {
            return Err(core.shared.error().unwrap_or_else(|| {
                Error::new(ErrorKind::Rank, "the ranks are no longer connected: the run has failed")
            }));
        }
        feedline_device::backend(&core.device).bind()?;
        let stream = StreamId::from(stream).0 as RawStream;
        match call {
            Call::Reduce(reduce) => core.all_reduce(reduce, outputs, stream),
            Call::Broadcast(root) => {
                let span = outputs[0].span();
                let memory = span.address.0 as *mut c_void;
                let root = root as c_int;
                // SAFETY: the span is device memory that the caller keeps; the handle is live (`calls`).
                let status = unsafe {
                    (core.library.broadcast)(
                        memory,
                        memory,
                        span.bytes,
                        library::U8,
                        root,
                        core.handle,
                        stream,
                    )
                };
                core.library.check(status, "ncclBroadcast")
            }
            Call::Gather => {
                let (part, all) = (inputs[0].span(), outputs[0].span());
                let (from, to) = (part.address.0 as *const c_void, all.address.0 as *mut c_void);
                // SAFETY: as above; `all` has room for the parts of all ranks (`Overlap::all_gather`).
                let status = unsafe {
                    (core.library.all_gather)(from, to, part.bytes, library::U8, core.handle, stream)
                };
                core.library.check(status, "ncclAllGather")
            }
        }
    }
}

impl Core {
    fn all_reduce(&self, reduce: Reduce, outputs: &[Output<'_>], stream: RawStream) -> Result<()> {
        let library = self.library;
        let how = if reduce == Reduce::Sum { library::SUM } else { library::AVERAGE };
        // SAFETY: the function has no arguments.
        library.check(unsafe { (library.group_start)() }, "ncclGroupStart")?;
        let mut queued = Ok(());
        for output in outputs {
            let span = output.span();
            let memory = span.address.0 as *mut c_void;
            let count = span.bytes / size_of::<f32>();
            // SAFETY: the span is device memory of f32 that the caller keeps; the handle is live (`calls`).
            let status = unsafe {
                (library.all_reduce)(memory, memory, count, library::F32, how, self.handle, stream)
            };
            queued = queued.and(library.check(status, "ncclAllReduce"));
        }
        // SAFETY: ends the group that was started above, also after an error.
        let ended = library.check(unsafe { (library.group_end)() }, "ncclGroupEnd");
        queued.and(ended)
    }

    /// Closes the handle, once, and blocks until it is closed. If the run has failed, this ends all
    /// collectives, also those that wait for another rank on the device.
    fn end(&self) {
        let _ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        if self.ended.swap(true, Ordering::AcqRel) {
            return;
        }
        // A call in progress usually ends at once. The abort ends one that waits for another rank.
        let until = deadline(CAUSE_LIMIT);
        let _calling = loop {
            match self.calls.try_lock() {
                Ok(guard) => break Some(guard),
                Err(TryLockError::Poisoned(guard)) => break Some(guard.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() > until => break None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        let bound = feedline_device::backend(&self.device).bind();
        // Collectives that another rank never joins would make `ncclCommDestroy` wait.
        let end =
            if self.shared.error().is_some() { self.library.comm_abort } else { self.library.comm_destroy };
        // SAFETY: `ended` was false, so the handle is live, and no later call uses it. Its work has ended
        // (`Inner::drop`), or is aborted.
        let status = unsafe { end(self.handle) };
        drop(bound.and(self.library.check(status, "the end of a communicator of NCCL")));
    }

    /// The error of NCCL's own threads, if any.
    fn async_error(&self) -> Option<Error> {
        let Ok(_calling) = self.calls.try_lock() else { return None };
        if self.ended.load(Ordering::Acquire) {
            return None;
        }
        let mut status = library::SUCCESS;
        // SAFETY: the handle is live (`calls`), and the target a live local.
        let asked = unsafe { (self.library.comm_get_async_error)(self.handle, &mut status) };
        let found = if asked == library::SUCCESS { status } else { asked };
        self.library.check(found, "a collective of NCCL").err()
    }
}

impl Drop for Communicator {
    /// Ends the communicator here, not in the drop of the last reference. A thread of the group may hold that
    /// reference, and the process could end while NCCL is still at work in it.
    fn drop(&mut self) {
        self.core.end();
    }
}

/// The id of the communicator: rank 0 makes it, the others read it from the store.
fn unique_id(library: &Library, group: &Group) -> Result<UniqueId> {
    let key = format!("nccl-{}", group.next_collectives());
    let Some(store) = group.store() else {
        return Err(Error::new(ErrorKind::Config, "a world of one needs no NCCL"));
    };
    let mut id = UniqueId([0; 128]);
    if group.world().rank() == 0 {
        // SAFETY: the target is a live local.
        library.check(unsafe { (library.get_unique_id)(&mut id) }, "ncclGetUniqueId")?;
        store.set(&key, &id.0.map(|byte| byte as u8))?;
        return Ok(id);
    }
    let bytes = store.get(&key, group.limit()).map_err(|error| group.error().unwrap_or(error))?;
    let bytes: [u8; 128] = bytes.try_into().map_err(|bytes: Vec<u8>| {
        Error::new(ErrorKind::Rank, format!("rank 0 sent {} bytes as the id of NCCL, not 128", bytes.len()))
    })?;
    id.0 = bytes.map(|byte| byte as std::ffi::c_char);
    Ok(id)
}

/// Polls the errors of NCCL's own threads while the communicator lives.
fn watch(core: Weak<Core>) -> Result<()> {
    let watch = move || {
        while let Some(core) = core.upgrade() {
            if let Some(error) = core.async_error() {
                // The error is often the consequence of a rank that has ended. The group then names that
                // rank.
                let until = deadline(CAUSE_LIMIT);
                while core.shared.error().is_none() && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(10));
                }
                let rank = core.shared.world.rank();
                core.shared.fail(error.clone(), &format!("rank {rank} failed: {error}"), None);
                return;
            }
            drop(core);
            // NCCL has no event for this, so it is polled.
            std::thread::sleep(POLL);
        }
    };
    std::thread::Builder::new().name("fl-dist-errors".to_owned()).spawn(watch).map(drop).map_err(|error| {
        Error::new(ErrorKind::Unavailable, "cannot start a thread that watches NCCL").with_source(error)
    })
}
