//! A host device that fails the call that the cycle asks for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use feedline::{Device, Error, ErrorKind, Result};
use feedline_device::Backend;
use feedline_device::host::Host;
use feedline_sim::interceptors::faults::{self, FaultHandle, FaultPlan, Faults, Mode};
use feedline_sim::interceptors::{Call, Intercepted, Interceptor, Op};

use super::{Cycle, Fault, Moment, STEPS};

/// Fails the n-th call of one kind. Counts the calls of the transfer thread, or those of the other threads.
#[derive(Clone)]
pub struct Switch(Arc<Planned>);

struct Planned {
    op: Option<Op>,
    by_transfer: bool,
    /// Number of such calls before the one that fails.
    nth: u64,
    seen: AtomicU64,
    fired: AtomicBool,
    /// Whether the transfer thread has copied since its last event. Only the event after a copy counts, not
    /// the events that time some copies.
    has_copied: AtomicBool,
}

impl Switch {
    fn new(cycle: &Cycle) -> Self {
        let (epoch, step) = cycle.target();
        let batch = epoch * STEPS + step;
        let (op, by_transfer, nth) = match cycle.fault {
            Fault::CopyError => (Some(Op::CopyToDevice), true, batch),
            Fault::RecordError => (Some(Op::Record), true, batch),
            // The read of the target batch is blocked, so the call that fails is the end of the reader before
            // it.
            Fault::EndError if cycle.moment == Moment::Blocked => (Some(Op::Record), false, batch - 1),
            Fault::EndError => (Some(Op::Record), false, batch),
            _ => (None, false, 0),
        };
        let (seen, fired, has_copied) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        Self(Arc::new(Planned { op, by_transfer, nth, seen, fired, has_copied }))
    }

    /// Whether `fault` is a fault of the device.
    pub fn fails(fault: Fault) -> bool {
        matches!(fault, Fault::CopyError | Fault::RecordError | Fault::EndError | Fault::DeviceLost)
    }
}

impl Interceptor for Switch {
    fn intercept<R>(&self, _: &dyn Backend, call: Call, make: impl FnOnce() -> Result<R>) -> Result<R> {
        let planned = &*self.0;
        let is_transfer = std::thread::current().name() == Some("fl-transfer");
        if is_transfer && call.op == Op::CopyToDevice {
            planned.has_copied.store(true, Ordering::Release);
        }
        if planned.op != Some(call.op) || planned.by_transfer != is_transfer {
            return make();
        }
        if is_transfer && call.op == Op::Record && !planned.has_copied.swap(false, Ordering::AcqRel) {
            return make();
        }
        if planned.seen.fetch_add(1, Ordering::AcqRel) != planned.nth {
            return make();
        }
        planned.fired.store(true, Ordering::Release);
        Err(Error::new(ErrorKind::Device, format!("planned fault in {:?}", call.op)))
    }
}

/// The device of a cycle, with its planned faults.
pub struct Rig {
    pub device: Device,
    switch: Switch,
    losses: FaultHandle,
}

impl Rig {
    pub fn new(cycle: &Cycle) -> Self {
        let switch = Switch::new(cycle);
        let driver = Faults::new(Intercepted::with(Host::new(), switch.clone()), FaultPlan::NONE);
        let losses = driver.handle();
        Self { device: feedline_device::with_backend(driver), switch, losses }
    }

    /// Makes the next call find the device lost.
    pub fn lose_device(&self) {
        self.losses.arm(FaultPlan { nth: 1, mode: Mode::Once, fault: faults::Fault::DeviceLost });
    }

    /// Whether the planned call has failed.
    pub fn fired(&self) -> bool {
        self.switch.0.fired.load(Ordering::Acquire)
    }

    /// Checks that the device holds nothing, and that drops reported no errors other than those of the fault.
    pub fn assert_empty(&self, fault: Fault) {
        let stats = self.device.stats();
        let held = [&stats.pinned_bytes, &stats.device_bytes, &stats.streams, &stats.events];
        assert_eq!(held.map(|gauge| gauge.get()), [0; 4], "pinned bytes, device bytes, streams, events");
        let errors = stats.take_errors();
        let fits = |error: &Error| matches!(error.kind(), ErrorKind::Device | ErrorKind::DeviceLost);
        assert!(
            errors.is_empty() || Switch::fails(fault) && errors.iter().all(fits),
            "errors in drops: {errors:?}"
        );
    }
}
