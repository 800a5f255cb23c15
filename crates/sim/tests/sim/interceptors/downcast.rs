//! `downcast_ref` finds a backend behind interceptors.

use feedline_device::Backend;
use feedline_device::host::Host;
use feedline_sim::interceptors::chaos::Options;
use feedline_sim::interceptors::faults::FaultPlan;
use feedline_sim::interceptors::{Chaos, Count, Faults, Op};
use feedline_sim::{Sim, SimOptions};

#[test]
fn only_the_backends_in_the_chain_are_found() {
    let count = Count::new(Host::new());
    let calls = count.handle();
    let chaos = Chaos::new(count, Options { probability: 0.0, ..Options::default() }).expect("options");
    let device = feedline_device::with_backend(Faults::new(chaos, FaultPlan::NONE));
    let host: &Host =
        feedline_device::backend(&device).downcast_ref().expect("the host below three interceptors");
    assert!(
        feedline_device::backend(&device).downcast_ref::<Count<Host>>().is_some(),
        "an interceptor in the chain"
    );
    assert!(feedline_device::backend(&device).downcast_ref::<Sim>().is_none());
    // Calls on the result bypass the interceptors, so they are not counted.
    let before = calls.snapshot();
    host.alloc_host(64).map(|block| free(host, block)).expect("a block");
    assert_eq!((calls.snapshot() - before).of(Op::AllocHost), 0);

    let (sim, _) = Sim::new(SimOptions::seed(1)).expect("a device");
    assert!(feedline_device::backend(&feedline_device::with_backend(sim)).downcast_ref::<Sim>().is_some());
}

fn free(host: &Host, block: *mut u8) {
    // SAFETY: just allocated with this size, and not used by anything.
    unsafe { host.free_host(block, 64) }.expect("freed");
}
