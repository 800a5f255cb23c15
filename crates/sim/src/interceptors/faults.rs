//! Fails the n-th call, to test every error path.
//!
//! The method is SQLite's (<https://www.sqlite.org/testing.html>, "Out-Of-Memory Testing"). For n = 1, 2, 3,
//! ... run the same work with its n-th call failing, until a run passes in which no fault fired. Do this once
//! with a transient fault, and once with a permanent fault. Every fallible call of [`Backend`] counts,
//! including `bind` and `host_access`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use feedline_core::{Error, ErrorKind, Result};
use feedline_device::backend::Backend;

use super::count::{Counters, Snapshot};
use super::{Call, Intercepted, Interceptor, Op};

/// A backend whose n-th call fails.
///
/// A failing call is not made, unless it releases something (a destroy or a free). A releasing call is made
/// and then reported as failed. So anything that the backend below still holds after a run is a leak of the
/// tested code.
///
/// ```
/// use feedline_core::ErrorKind;
/// use feedline_sim::interceptors::faults::{Fault, Faults, Mode, FaultPlan};
/// use feedline_device::{Device, host::Host};
///
/// let backend = Faults::new(Host::new(), FaultPlan { nth: 2, mode: Mode::Once, fault: Fault::Error });
/// let faults = backend.handle();
/// let device = feedline_device::with_backend(backend);
/// let stream = device.stream()?; // call 1
/// let error = device.event().unwrap_err(); // call 2
/// assert_eq!(error.kind(), ErrorKind::Device);
/// assert_eq!(error.to_string(), "planned fault: call 2 (CreateEvent) failed");
/// assert!(faults.fired() && device.event().is_ok());
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub type Faults<B> = Intercepted<B, FaultHandle>;

impl<B: Backend> Intercepted<B, FaultHandle> {
    /// Wraps `below`, whose calls fail as planned.
    pub fn new(below: B, plan: FaultPlan) -> Self {
        let handle = FaultHandle::default();
        handle.arm(plan);
        Self::with(below, handle)
    }

    /// The switch and the counters, usable while the device is in use and afterwards.
    pub fn handle(&self) -> FaultHandle {
        self.interceptor.clone()
    }
}

/// The calls that fail, and the kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// The first call that fails, counted from 1; 0 for no call.
    pub nth: u64,
    /// Whether later calls fail too.
    pub mode: Mode,
    /// The kind of failure.
    pub fault: Fault,
}

impl FaultPlan {
    /// No call fails.
    pub const NONE: Self = Self { nth: 0, mode: Mode::Once, fault: Fault::Error };
}

/// How long a fault lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One call fails.
    Once,
    /// That call and all later ones fail.
    Forever,
}

/// The kind of failure of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails with [`ErrorKind::Device`] and is not made.
    Error,
    /// The call is made but still fails with [`ErrorKind::Device`], like a call that reports the failure of
    /// earlier work. So a copy continues although its caller got an error. Calls that create something are
    /// not made.
    Late,
    /// The call fails with [`ErrorKind::DeviceLost`] and is not made. The device is then lost: every later
    /// call fails with the same error, in either [`Mode`].
    DeviceLost,
}

/// The switch of a [`Faults`]. Clones share it.
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
    plan: FaultPlan,
    /// The number of calls since the last [`arm`](FaultHandle::arm).
    seen: u64,
}

impl Default for Armed {
    fn default() -> Self {
        Self { plan: FaultPlan::NONE, seen: 0 }
    }
}

impl FaultHandle {
    /// Follows `plan` from now on. The next call is call 1. A lost device stays lost.
    pub fn arm(&self, plan: FaultPlan) {
        let mut armed = self.armed();
        *armed = Armed { plan, seen: 0 };
        self.0.fired.store(false, Ordering::Release);
    }

    /// Stops failing calls. A lost device stays lost.
    pub fn disarm(&self) {
        self.armed().plan = FaultPlan::NONE;
    }

    /// Whether a call has failed since the last [`arm`](Self::arm).
    pub fn fired(&self) -> bool {
        self.0.fired.load(Ordering::Acquire)
    }

    /// The calls made so far, including failed ones.
    pub fn calls(&self) -> u64 {
        self.0.calls.load(Ordering::Relaxed)
    }

    /// The calls made so far, by operation.
    pub fn snapshot(&self) -> Snapshot {
        self.0.by_op.snapshot()
    }

    fn armed(&self) -> MutexGuard<'_, Armed> {
        self.0.armed.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The fault of this call and its error, if the call must fail.
    fn next_fault(&self, op: Op) -> Option<(Fault, Error)> {
        let number = self.0.calls.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.by_op.add(op);
        // This runs under the lock, so that only one call loses the device and all others report the same
        // cause.
        let mut armed = self.armed();
        if let Some(first) = self.0.lost.get() {
            return Some((Fault::DeviceLost, first.clone()));
        }
        armed.seen += 1;
        let Armed { plan, seen } = *armed;
        let fails = plan.nth > 0 && if plan.mode == Mode::Once { seen == plan.nth } else { seen >= plan.nth };
        if !fails {
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
        let Some((fault, error)) = self.next_fault(call.op) else { return make() };
        if call.op.releases() || (fault == Fault::Late && !call.op.creates()) {
            // The planned error replaces the result of the call.
            let _ = make();
        }
        Err(error)
    }

    fn lost(&self) -> Option<Error> {
        self.0.lost.get().cloned()
    }
}
