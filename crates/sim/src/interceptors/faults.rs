//! Fail the n-th call: the loop that finds every path an error can take.
//!
//! The method is SQLite's (<https://www.sqlite.org/testing.html>, "Out-Of-Memory Testing"): for n = 1, 2, 3, ... run the
//! same work with its n-th call failing, until a run passes in which no fault fired; once with a fault that passes, once
//! with one that stays. Every fallible call of [`Backend`] counts, `bind` and `host_access` too.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use feedline_backend::Backend;
use feedline_core::{Error, ErrorKind, Result};

use super::count::{Counters, Snapshot};
use super::{Call, Intercepted, Interceptor, Op};

/// A backend whose n-th call fails.
///
/// A call that fails is not made, except one that gives something back (a destroy or a free): that is made, and then
/// reported as failed, so that what is still held below after a run is what its users leaked.
///
/// ```
/// use feedline_core::ErrorKind;
/// use feedline_sim::interceptors::faults::{Fault, Faults, Mode, BatchSampler};
/// use feedline_device::{Device, host::Host};
///
/// let backend = Faults::new(Host::new(), BatchSampler { nth: 2, mode: Mode::Once, fault: Fault::Error });
/// let faults = backend.handle();
/// let device = Device::with_backend(backend);
/// let stream = device.stream()?; // call 1
/// let error = device.event(false).unwrap_err(); // call 2
/// assert_eq!(error.kind(), ErrorKind::Device);
/// assert_eq!(error.to_string(), "planned fault: call 2 (CreateEvent) failed");
/// assert!(faults.fired() && device.event(false).is_ok());
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub type Faults<B> = Intercepted<B, FaultHandle>;

impl<B: Backend> Intercepted<B, FaultHandle> {
    /// `below`, failing as planned.
    pub fn new(below: B, plan: BatchSampler) -> Self {
        let handle = FaultHandle::default();
        handle.arm(plan);
        Self::with(below, handle)
    }

    /// The switch and the counters, to use while the device is in use and after its end.
    pub fn handle(&self) -> FaultHandle {
        self.interceptor.clone()
    }
}

/// Which calls fail, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSampler {
    /// The first call that fails, counted from 1; 0 for none.
    pub nth: u64,
    /// Whether later calls fail too.
    pub mode: Mode,
    /// What a failing call does.
    pub fault: Fault,
}

impl BatchSampler {
    /// Nothing fails.
    pub const NONE: Self = Self { nth: 0, mode: Mode::Once, fault: Fault::Error };
}

/// How long a fault stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One call fails.
    Once,
    /// That call fails, and all after it.
    Forever,
}

/// What a failing call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails with [`ErrorKind::Device`], and is not made.
    Error,
    /// It is made, and fails with [`ErrorKind::Device`] all the same, as a call does that reports the failure of earlier
    /// work: a copy runs on although its caller was told that it failed. Creating calls are not made.
    Late,
    /// It fails with [`ErrorKind::DeviceLost`] and is not made; the device is lost, so every later call fails with the
    /// same error, in either [`Mode`].
    DeviceLost,
}

/// The switch of a [`Faults`]; clones are the same switch.
#[derive(Clone, Debug, Default)]
pub struct FaultHandle(Arc<Switch>);

#[derive(Debug, Default)]
struct Switch {
    armed: Mutex<Armed>,
    fired: AtomicBool,
    calls: AtomicU64,
    by_op: Counters,
    lost: OnceLock<Error>,
}

#[derive(Debug)]
struct Armed {
    plan: BatchSampler,
    /// Calls since it was armed.
    seen: u64,
}

impl Default for Armed {
    fn default() -> Self {
        Self { plan: BatchSampler::NONE, seen: 0 }
    }
}

impl FaultHandle {
    /// Follows `plan` from now on; the next call is its first. A lost device stays lost.
    pub fn arm(&self, plan: BatchSampler) {
        let mut armed = self.armed();
        *armed = Armed { plan, seen: 0 };
        self.0.fired.store(false, Ordering::Release);
    }

    /// Lets later calls pass; a lost device stays lost.
    pub fn disarm(&self) {
        self.armed().plan = BatchSampler::NONE;
    }

    /// Whether a call has failed since the last [`arm`](Self::arm).
    pub fn fired(&self) -> bool {
        self.0.fired.load(Ordering::Acquire)
    }

    /// Calls made so far, failed ones too.
    pub fn calls(&self) -> u64 {
        self.0.calls.load(Ordering::Relaxed)
    }

    /// The same by operation.
    pub fn snapshot(&self) -> Snapshot {
        self.0.by_op.snapshot()
    }

    fn armed(&self) -> MutexGuard<'_, Armed> {
        self.0.armed.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// What happens to this call: the fault and its error, when it is due.
    fn due(&self, op: Op) -> Option<(Fault, Error)> {
        let number = self.0.calls.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.by_op.add(op);
        // Under the lock, so that a device is lost by one call, and no other fails for a cause of its own.
        let mut armed = self.armed();
        if let Some(first) = self.0.lost.get() {
            return Some((Fault::DeviceLost, first.clone()));
        }
        armed.seen += 1;
        let Armed { plan, seen } = *armed;
        let due = plan.nth > 0 && if plan.mode == Mode::Once { seen == plan.nth } else { seen >= plan.nth };
        if !due {
            return None;
        }
        self.0.fired.store(true, Ordering::Release);
        let kind = if plan.fault == Fault::DeviceLost { ErrorKind::DeviceLost } else { ErrorKind::Device };
        let error = Error::new(kind, format!("planned fault: call {number} ({op:?}) failed"));
        if plan.fault == Fault::DeviceLost {
            return Some((plan.fault, self.0.lost.get_or_init(|| error).clone()));
        }
        Some((plan.fault, error))
    }
}

impl Interceptor for FaultHandle {
    fn intercept<R>(&self, _: &dyn Backend, call: Call, make: impl FnOnce() -> Result<R>) -> Result<R> {
        let Some((fault, error)) = self.due(call.op) else { return make() };
        if call.op.releases() || (fault == Fault::Late && !call.op.creates()) {
            // Its own outcome is second to the planned one.
            let _ = make();
        }
        Err(error)
    }

    fn lost(&self) -> Option<Error> {
        self.0.lost.get().cloned()
    }
}
