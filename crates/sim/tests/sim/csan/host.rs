//! The host's own accesses of pinned memory, which PyTorch's sanitizer does not see.

use feedline_core::ErrorKind;
use feedline_device::Access;
use feedline_sim::SimOptions;

use super::bench::Bench;

#[test]
fn a_refill_during_the_copy_out_races() {
    let bench = Bench::new();
    bench.host_races(0, Access::Write);
    bench.copy_out_of_pinned(1, 1).expect("copy");
    bench.record(1, 1);
    bench.host_races(0, Access::Read); // two reads are fine
    bench.host_races(1, Access::Write);
    let text = bench.sim.races()[0].message().to_owned();
    for part in [
        "of pinned block 13",
        "bytes 0..64",
        "the host (call",
        "what \"copy to device\" on stream 1 \"s1\"",
        "may still read",
        "synchronize first with an event recorded on stream 1 \"s1\" after call",
    ] {
        assert!(text.contains(part), "\"{part}\" is not in: {text}");
    }
}

#[test]
fn a_refill_after_the_copy_out_does_not_race() {
    let bench = Bench::new();
    bench.copy_out_of_pinned(1, 1).expect("copy");
    bench.record(1, 1);
    bench.synchronize_event(1);
    bench.host_races(0, Access::Write);
    bench.copy_out_of_pinned(2, 2).expect("host writes come before all work submitted later");
    bench.sim.check().expect("no race");
}

#[test]
fn a_refill_after_a_successful_query_does_not_race() {
    let bench = Bench::new();
    bench.copy_out_of_pinned(1, 1).expect("copy");
    bench.record(1, 1);
    let mut queries = 0;
    // SAFETY: the event is alive.
    while !unsafe { feedline_device::backend(&bench.device).query(bench.events[1]) }.expect("query") {
        bench.sim.check().expect("a query is not an access");
        queries += 1;
        assert!(queries < 10_000, "the copy does not end");
    }
    bench.host_races(0, Access::Write);
}

/// Work that the host submits is ordered after everything that the host has seen complete, without a wait.
#[test]
fn work_submitted_after_a_successful_query_does_not_race() {
    let bench = Bench::new();
    bench.good(1, &[], &[1]);
    bench.record(1, 1);
    bench.bad(2, &[1], &[]);
    // SAFETY: the event is alive.
    let done = || unsafe { feedline_device::backend(&bench.device).query(bench.events[1]) }.expect("query");
    assert!((0..10_000).any(|_| done()), "the work does not end");
    bench.good(2, &[1], &[]);
}

#[test]
fn a_refill_after_waiting_for_an_older_copy_races() {
    let bench = Bench::new();
    bench.copy_out_of_pinned(1, 1).expect("copy");
    bench.record(1, 1);
    bench.copy_out_of_pinned(1, 2).expect("copy");
    bench.synchronize_event(1);
    bench.host_races(1, Access::Write);
}

#[test]
fn reading_a_result_before_it_has_arrived_races() {
    let bench = Bench::new();
    bench.good(1, &[], &[1]);
    bench.copy_into_pinned(1, 1).expect("copy");
    bench.record(1, 1);
    bench.host_races(1, Access::Read);
    bench.synchronize_event(1);
    bench.host_races(0, Access::Read);
}

#[test]
fn a_racing_refill_is_rejected_before_the_bytes_change() {
    let bench = Bench::with(SimOptions::seed(1));
    bench.copy_out_of_pinned(1, 1).expect("copy");
    assert_eq!(bench.host(Access::Write).expect_err("the copy reads it").kind(), ErrorKind::Race);
    bench.synchronize_stream(1);
    bench.host(Access::Write).expect("the copy is over");
}
