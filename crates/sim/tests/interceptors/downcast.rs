//! The way to what only one backend has, past the interceptors in front of it.

use feedline_device::host::Host;
use feedline_device::{Backend, Device};
use feedline_sim::interceptors::chaos::Options;
use feedline_sim::interceptors::faults::BatchSampler;
use feedline_sim::interceptors::{Chaos, Count, Faults, Op};
use feedline_sim::{Sim, SimOptions};

#[test]
fn a_backend_is_found_behind_interceptors_and_no_other_is() {
    let count = Count::new(Host::new());
    let calls = count.handle();
    let chaos = Chaos::new(count, Options { probability: 0.0, ..Options::default() }).expect("options");
    let device = Device::with_backend(Faults::new(chaos, BatchSampler::NONE));
    let host: &Host = device.backend().downcast_ref().expect("the host below three interceptors");
    assert!(device.backend().downcast_ref::<Count<Host>>().is_some(), "an interceptor on the way");
    assert!(device.backend().downcast_ref::<Sim>().is_none());
    // Past them: what is called on it is not counted.
    let before = calls.snapshot();
    host.alloc_host(64).map(|block| free(host, block)).expect("a block");
    assert_eq!((calls.snapshot() - before).of(Op::AllocHost), 0);

    let (sim, _) = Sim::new(SimOptions::seed(1)).expect("a device");
    assert!(Device::with_backend(sim).backend().downcast_ref::<Sim>().is_some());
}

fn free(host: &Host, block: *mut u8) {
    // SAFETY: allocated just now with this size, and used by nothing.
    unsafe { host.free_host(block, 64) }.expect("freed");
}
