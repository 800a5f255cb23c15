//! A host device that fails the call that the cycle says.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use feedline::{Device, Error, ErrorKind, Result};
use feedline_device::Backend;
use feedline_device::host::Host;
use feedline_sim::interceptors::faults::{self, FaultHandle, FaultPlan, Faults, Mode};
use feedline_sim::interceptors::{Call, Intercepted, Interceptor, Op};

use super::{Cycle, Fault, Moment, STEPS};

/// Fails the n-th call of one kind, made by the copying thread or by the others.
#[derive(Clone)]
pub struct Switch(Arc<Planned>);

struct Planned {
    op: Option<Op>,
    by_the_copier: bool,
    /// Calls of that kind before it fails.
    nth: u64,
    seen: AtomicU64,
    fired: AtomicBool,
}

impl Switch {
    fn new(cycle: &Cycle) -> Self {
        let (epoch, step) = cycle.target();
        let batch = epoch * STEPS + step;
        let (op, by_the_copier, nth) = match cycle.fault {
            Fault::CopyError => (Some(Op::CopyToDevice), true, batch),
            Fault::MarkError => (Some(Op::Record), true, batch),
            // While the batch after it is held back, the reader before it ends.
            Fault::EndError if cycle.moment == Moment::Blocked => (Some(Op::Record), false, batch - 1),
            Fault::EndError => (Some(Op::Record), false, batch),
            _ => (None, false, 0),
        };
        let (seen, fired) = (AtomicU64::new(0), AtomicBool::new(false));
        Self(Arc::new(Planned { op, by_the_copier, nth, seen, fired }))
    }

    /// Whether a fault is one of the device.
    pub fn fails(fault: Fault) -> bool {
        matches!(fault, Fault::CopyError | Fault::MarkError | Fault::EndError | Fault::DeviceLost)
    }
}

impl Interceptor for Switch {
    fn intercept<R>(&self, _: &dyn Backend, call: Call, make: impl FnOnce() -> Result<R>) -> Result<R> {
        let planned = &*self.0;
        let copier = std::thread::current().name() == Some("fl-transfer");
        if planned.op != Some(call.op) || planned.by_the_copier != copier {
            return make();
        }
        if planned.seen.fetch_add(1, Ordering::AcqRel) != planned.nth {
            return make();
        }
        planned.fired.store(true, Ordering::Release);
        Err(Error::new(ErrorKind::Device, format!("planned fault in {:?}", call.op)))
    }
}

/// The device of a cycle, and the ways to break it.
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
        Self { device: Device::with_backend(driver), switch, losses }
    }

    /// The next call finds the device lost.
    pub fn lose_device(&self) {
        self.losses.arm(FaultPlan { nth: 1, mode: Mode::Once, fault: faults::Fault::DeviceLost });
    }

    /// Whether the planned call has failed.
    pub fn fired(&self) -> bool {
        self.switch.0.fired.load(Ordering::Acquire)
    }

    /// Checks that nothing of the device is held, and that drops had no error to tell, or one of the fault.
    pub fn assert_empty(&self, fault: Fault) {
        let stats = self.device.stats();
        let held = [&stats.pinned_bytes, &stats.device_bytes, &stats.streams, &stats.events];
        assert_eq!(held.map(|gauge| gauge.now()), [0; 4], "pinned bytes, device bytes, streams, events");
        let errors = stats.take_errors();
        let fits = |error: &Error| matches!(error.kind(), ErrorKind::Device | ErrorKind::DeviceLost);
        assert!(errors.is_empty() || Switch::fails(fault) && errors.iter().all(fits), "in drops: {errors:?}");
    }
}
