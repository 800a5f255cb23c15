//! Calls are counted exactly, by operation and by thread.

use std::sync::mpsc::channel;

use feedline_device::backend::{Grid, KernelId, Launch};
use feedline_device::host::Host;
use feedline_device::{StreamId, launch_host};
use feedline_sim::interceptors::count::Snapshot;
use feedline_sim::interceptors::{Count, Op};

use super::hand_off::HandOff;
use super::{LIMIT, SLOTS};

/// The calls of ten batches. Each is read before its copy has ended (`early`), or after it.
fn ten_batches(early: bool, both: bool) -> Snapshot {
    let backend = Count::new(Host::new());
    let count = backend.handle();
    let hand_off = HandOff::new(&feedline_device::with_backend(backend), "count").unwrap();
    let step = |batch| {
        // With `early`, each step blocks the copy stream until the batch is opened.
        let (open, opened) = channel::<()>();
        launch_host(&hand_off.copier, "gate", [], [], move |_| {
            let _ = opened.recv_timeout(LIMIT);
        })
        .unwrap();
        let open = early.then_some(open);
        let loaded = hand_off.load(batch).unwrap();
        if !early {
            hand_off.copier.synchronize().unwrap();
        }
        hand_off.read(loaded, batch, both).unwrap();
        drop(open);
        hand_off.copier.synchronize().unwrap();
    };
    (0..2 * SLOTS as u64).for_each(step);
    let before = count.snapshot();
    (0..10).for_each(step);
    count.snapshot() - before
}

#[test]
fn the_calls_of_a_hand_off_are_counted_exactly() {
    for early in [true, false] {
        let one = ten_batches(early, false);
        let waits = u64::from(early);
        let calls = [
            (Op::HostWrite, 1),
            (Op::Synchronize, 1),  // the host slot's last copy
            (Op::Wait, 1 + waits), // the last reader; the copy, if it was not complete
            (Op::Query, 1),        // whether the copy was complete
            (Op::CopyToDevice, 1),
            (Op::Record, 2), // the copy, the reader
        ];
        for (op, calls) in calls {
            assert_eq!(one.of(op), 10 * calls, "{op:?} in {one:?}");
        }
        assert_eq!((one.created(), one.released()), (0, 0));
        // The test's own calls are not counted: the gate, the checks, and the wait for the copy stream.
        let own = one.of(Op::Run) + one.of(Op::SynchronizeStream);
        assert_eq!(one.total() - own, 10 * (6 + waits), "{one:?}, at most seven calls per batch");

        // A second reader adds the query, the wait, its end, and the copy's wait for that end.
        let both = ten_batches(early, true) - one;
        assert_eq!(both.total() - both.of(Op::Run), 10 * (3 + waits), "{both:?}");
    }
}

#[test]
fn calls_are_counted_by_thread() {
    let backend = Count::by_thread(Host::new());
    let count = backend.handle();
    let device = feedline_device::with_backend(backend);
    let bind = |name: &str, times: usize| {
        let device = device.clone();
        let work = move || (0..times).for_each(|_| feedline_device::backend(&device).bind().unwrap());
        std::thread::Builder::new().name(name.into()).spawn(work).unwrap().join().unwrap();
    };
    bind("fl-decode-0", 3);
    bind("fl-decode-1", 4);
    bind("fl-transfer", 5);
    assert_eq!(count.of_threads("fl-decode").of(Op::Bind), 7);
    assert_eq!(count.of_threads("fl-transfer").total(), 5);
    assert_eq!(count.of_threads("fl-compute").total(), 0);
    assert_eq!(count.snapshot(), count.of_threads(""));
}

#[test]
fn a_kernel_launch_is_counted_and_named_on_a_backend_without_kernels() {
    let backend = Count::new(Host::new());
    let count = backend.handle();
    let device = feedline_device::with_backend(backend);
    let stream = device.stream().unwrap();
    let grid = Grid::linear(1, 32, 1);
    let mut launch = Launch { kernel: KernelId(1), name: "scale", grid, parameters: &mut [] };
    // SAFETY: the host launches nothing.
    let launched = unsafe { feedline_device::backend(&device).launch(StreamId::from(&stream), &mut launch) };
    let error = launched.unwrap_err();
    assert!(error.to_string().contains("\"scale\": Host runs host code, not kernels"), "{error}");
    assert_eq!(count.snapshot().of(Op::Launch), 1);
}
