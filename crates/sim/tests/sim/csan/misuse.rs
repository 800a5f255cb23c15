//! Invalid calls.

use feedline_core::{Error, ErrorKind, Result};
use feedline_device::{Access, Address};

use super::bench::{BYTES, Bench};

#[track_caller]
fn rejected(result: Result<()>, part: &str) {
    let error: Error = result.expect_err(part);
    assert!(error.message().contains(part), "\"{part}\" is not in: {error}");
}

#[test]
fn use_after_free_is_rejected() {
    let bench = Bench::new();
    let backend = feedline_device::backend(&bench.device);
    // SAFETY: nothing uses the block; the later uses are rejected.
    unsafe { backend.free_device(bench.blocks[1], BYTES) }.expect("free");
    rejected(bench.work(1, &[1], &[]), "is used after it was freed by call");
    // SAFETY: as above.
    rejected(unsafe { backend.free_device(bench.blocks[1], BYTES) }, "is used after it was freed by call");
    assert_eq!(bench.sim.findings().len(), 2);
}

#[test]
fn memory_in_use_cannot_be_freed() {
    let bench = Bench::new();
    bench.work(1, &[1], &[]).expect("work");
    // SAFETY: the simulator keeps the block until the work has run.
    let freed = unsafe { feedline_device::backend(&bench.device).free_device(bench.blocks[1], BYTES) };
    let race = freed.expect_err("the work may still read it");
    assert_eq!(race.kind(), ErrorKind::Race);
    assert!(
        race.message().contains("is freed (call") && race.message().contains("on stream 1 \"s1\""),
        "{race}"
    );
    bench.synchronize_all();
}

#[test]
fn ranges_outside_their_block_are_rejected() {
    let bench = Bench::new();
    let (backend, stream) = (feedline_device::backend(&bench.device), bench.streams[1]);
    // SAFETY: rejected before a byte is accessed.
    rejected(unsafe { backend.fill(stream, bench.blocks[1], 0, BYTES + 1) }, "do not lie in device block 2");
    // SAFETY: as above.
    rejected(unsafe { backend.fill(stream, Address(bench.pinned as u64), 0, 1) }, "lies in no device block");
    let mine = [0u8; 8];
    // SAFETY: as above.
    let copy = unsafe { backend.copy_to_device(stream, mine.as_ptr(), bench.blocks[1], 8) };
    rejected(copy, "lies in no pinned block");
    // SAFETY: as above.
    rejected(unsafe { backend.free_device(bench.blocks[1], BYTES - 1) }, "are not the whole of");
    // SAFETY: rejected, since the range is a byte too long; nothing is read.
    let access = unsafe { backend.host_access(bench.pinned, BYTES + 1, Access::Read) };
    rejected(access, "do not lie in pinned block");
}

#[test]
fn foreign_and_destroyed_handles_are_rejected() {
    let (bench, other) = (Bench::new(), Bench::new());
    let backend = feedline_device::backend(&bench.device);
    // SAFETY: handles are numbers here, and these are rejected.
    rejected(unsafe { backend.record(other.events[0], bench.streams[0]) }, "is not an event of this device");
    // SAFETY: as above.
    rejected(unsafe { backend.record(bench.events[0], other.streams[0]) }, "is not a stream of this device");
    // SAFETY: as above.
    unsafe { backend.destroy_stream(bench.streams[3]) }.expect("destroy");
    rejected(bench.work(3, &[], &[1]), "stream 3 \"s3\" is used after it was destroyed");
    assert_eq!(bench.sim.findings().len(), 3);
}

#[test]
fn a_destroyed_stream_still_runs_its_work() {
    let bench = Bench::new();
    bench.good(1, &[], &[1]);
    bench.record(1, 1);
    // SAFETY: the stream is not used again.
    unsafe { feedline_device::backend(&bench.device).destroy_stream(bench.streams[1]) }.expect("destroy");
    bench.wait(2, 1);
    bench.good(2, &[], &[1]);
    bench.synchronize_stream(2);
}
