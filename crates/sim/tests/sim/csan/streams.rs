//! Work on several streams.
//!
//! The cases come from PyTorch's CUDA Sanitizer (test/test_cuda_sanitizer.py, class TestEventHandler: the 15
//! of its first release, and five later ones on host waits).

use feedline_core::ErrorKind;
use feedline_device::Priority;
use feedline_sim::SimOptions;

use super::bench::Bench;

// The first 15.

#[test]
fn work_without_memory_does_not_race() {
    Bench::new().good(0, &[], &[]);
}

#[test]
fn two_streams_may_read_the_same_block() {
    let bench = Bench::new();
    bench.good(1, &[1], &[]);
    bench.good(2, &[1], &[]);
}

#[test]
fn an_unordered_write_after_a_read_races() {
    let bench = Bench::new();
    bench.good(1, &[1], &[]);
    bench.bad(2, &[], &[1]);
}

#[test]
fn an_event_orders_a_write_after_a_read() {
    let bench = Bench::new();
    bench.good(1, &[1], &[]);
    bench.record(0, 1);
    bench.wait(2, 0);
    bench.good(2, &[], &[1]);
}

#[test]
fn every_read_is_checked_against_the_last_write() {
    let bench = Bench::new();
    bench.good(1, &[], &[1]);
    bench.record(0, 1);
    bench.wait(2, 0);
    bench.good(2, &[1], &[]);
    bench.bad(3, &[1], &[]);
}

#[test]
fn two_branches_may_read_after_a_fork_but_not_write() {
    let bench = Bench::new();
    bench.good(1, &[], &[1]);
    bench.record(0, 1);
    bench.wait(2, 0);
    bench.wait(3, 0);
    bench.good(2, &[1], &[]);
    bench.good(3, &[1], &[]);
    bench.bad(2, &[], &[1]);
}

#[test]
fn order_is_transitive_along_a_chain_of_streams() {
    let bench = Bench::new();
    bench.good(0, &[1], &[]);
    for i in 0..10 {
        bench.record(i, i);
        bench.wait(i + 1, i);
    }
    bench.good(10, &[], &[1]);
}

#[test]
fn an_event_does_not_cover_work_submitted_after_it() {
    let bench = Bench::new();
    bench.good(1, &[1], &[]);
    bench.record(0, 1);
    bench.good(1, &[1], &[]);
    bench.wait(2, 0);
    bench.bad(2, &[], &[1]);
}

#[test]
fn a_destroyed_or_fresh_event_orders_nothing() {
    for (destroy, renew) in [(true, true), (true, false), (false, true)] {
        let mut bench = Bench::new();
        bench.good(1, &[1], &[]);
        bench.record(0, 1);
        if destroy {
            bench.destroy_event(0);
        }
        if renew {
            bench.renew_event(0);
            bench.wait(2, 0);
        } else {
            // SAFETY: handles are numbers here, and the simulator rejects this one.
            let waited =
                unsafe { feedline_device::backend(&bench.device).wait(bench.streams[2], bench.events[0]) };
            let error = waited.expect_err("the event was destroyed");
            assert!(error.message().contains("used after it was destroyed"), "{error}");
        }
        bench.bad(2, &[], &[1]);
    }
}

#[test]
fn a_write_that_waits_for_all_reads_but_one_races() {
    let bench = Bench::new();
    for reader in 1..=10 {
        bench.good(reader, &[1], &[]);
        bench.record(reader, reader);
    }
    (1..10).for_each(|reader| bench.wait(0, reader));
    bench.bad(0, &[], &[1]);
    let text = bench.sim.races()[0].message().to_owned();
    assert!(text.contains("what \"work\" on stream 10 \"s10\""), "the missing reader is named: {text}");
}

#[test]
fn a_write_that_waits_for_all_reads_does_not_race() {
    let bench = Bench::new();
    for reader in 1..=10 {
        bench.good(reader, &[1], &[]);
        bench.record(reader, reader);
    }
    (1..=10).for_each(|reader| bench.wait(0, reader));
    bench.good(0, &[], &[1]);
}

#[test]
fn each_block_races_separately() {
    let bench = Bench::new();
    let blocks = [0, 1, 2, 3, 4, 5, 6, 7];
    bench.good(0, &[], &blocks);
    bench.expect(blocks.len(), 1, &[], &blocks);
}

#[test]
fn a_wait_merges_both_clocks() {
    let bench = Bench::new();
    bench.good(1, &[], &[1]);
    bench.good(2, &[], &[2]);
    bench.record(1, 1);
    bench.record(2, 2);
    bench.good(1, &[], &[1]);
    bench.good(2, &[], &[2]);
    // Each stream learns an old state of the other, and must not forget its own newer state.
    bench.wait(2, 1);
    bench.wait(1, 2);
    bench.record(3, 2);
    bench.wait(1, 3);
    bench.good(1, &[], &[1, 2]);
}

#[test]
fn a_record_on_another_stream_replaces_the_recording() {
    let bench = Bench::new();
    bench.good(1, &[1], &[]);
    bench.good(2, &[2], &[]);
    bench.record(1, 1);
    bench.record(1, 2);
    bench.wait(3, 1);
    bench.good(3, &[], &[2]);
    bench.bad(3, &[], &[1]);
}

#[test]
fn several_streams_may_wait_for_one_event() {
    let bench = Bench::new();
    bench.good(1, &[], &[1]);
    bench.record(1, 1);
    bench.wait(2, 1);
    bench.wait(3, 1);
    bench.good(2, &[1], &[]);
    bench.good(3, &[1], &[]);
}

// The five on host waits.

#[test]
fn waiting_for_all_streams_orders_later_work() {
    let bench = Bench::new();
    (1..=8).for_each(|i| bench.good(i, &[], &[i]));
    bench.synchronize_all();
    bench.good(0, &[], &[1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn waiting_for_all_streams_does_not_order_work_submitted_after_it() {
    let bench = Bench::new();
    bench.good(1, &[], &[1]);
    bench.synchronize_all();
    bench.good(1, &[], &[1]);
    bench.bad(2, &[], &[1]);
}

#[test]
fn a_new_stream_starts_after_what_the_host_has_seen() {
    let mut bench = Bench::new();
    bench.good(1, &[], &[1]);
    bench.synchronize_all();
    bench.streams[2] =
        feedline_device::backend(&bench.device).create_stream("new", Priority::Normal).expect("a stream");
    bench.good(2, &[], &[1]);
}

#[test]
fn waiting_for_one_stream_orders_only_that_stream() {
    let bench = Bench::new();
    bench.good(0, &[], &[1]);
    bench.good(1, &[], &[2]);
    bench.synchronize_stream(0);
    bench.good(2, &[1], &[]);
    bench.good(3, &[1], &[]);
    bench.bad(4, &[2], &[]);
}

#[test]
fn waiting_for_an_event_orders_the_recorded_work() {
    let bench = Bench::new();
    bench.good(1, &[], &[1]);
    bench.record(1, 1);
    bench.good(1, &[], &[2]);
    bench.synchronize_event(1);
    bench.good(2, &[], &[1]);
    bench.bad(2, &[], &[2]);
}

// With `fail_fast`.

#[test]
fn a_rejected_call_submits_nothing() {
    let bench = Bench::with(SimOptions::seed(1));
    bench.work(1, &[], &[1]).expect("first write");
    let race = bench.work(2, &[1], &[2]).expect_err("not ordered");
    assert_eq!(race.kind(), ErrorKind::Race);
    bench.record(2, 2);
    bench.wait(3, 2);
    bench.work(3, &[], &[2]).expect("the rejected work did not write block 2");
    bench.record(1, 1);
    bench.wait(2, 1);
    bench.work(2, &[1], &[]).expect("ordered now");
    assert_eq!(bench.sim.races().len(), 1);
    assert_eq!(bench.sim.check().expect_err("the report stays").message(), race.message());
}
