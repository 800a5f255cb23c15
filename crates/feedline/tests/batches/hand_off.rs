//! The hand-off: several streams read one batch, and its slot is overwritten only after all of them have
//! finished.
//!
//! A stream that did not wait for the batch, or that belongs to another device, is refused.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::common::small::{builder, fine, on_a_device, take_epoch};
use crate::common::{LONG, alone, assert_empty, assert_intact, wait_until};
use feedline::{Device, ErrorKind, Loader, Ready, Stream, TryNext};
use feedline_device::{Buffer, launch_host};
use feedline_testkit::fixtures::Fine;

/// How long to watch for a copy that must not happen: some hundred times what a copy takes.
const WINDOW: Duration = Duration::from_millis(100);

/// Work that holds a batch until it is released, then reports whether the bytes stayed the same.
struct SlowReader {
    go: Sender<()>,
    same: Receiver<bool>,
}

impl SlowReader {
    fn start(batch: &Ready) -> Self {
        let ((go, wait), (report, same)) = (channel::<()>(), channel());
        let read = move |memory: &mut feedline_device::Memory<'_>| {
            let first = memory.input::<u8>(0).to_vec();
            let _ = wait.recv_timeout(LONG);
            let _ = report.send(memory.input::<u8>(0) == first);
        };
        launch_host(batch.stream(), "slow reader", [batch.field::<u8>("bytes").unwrap().into()], [], read)
            .unwrap();
        Self { go, same }
    }

    fn finish(self) {
        self.go.send(()).expect("the reader is waiting");
        assert!(
            self.same.recv_timeout(LONG).expect("the reader has finished"),
            "the batch changed under its reader"
        );
    }
}

/// Asserts that the next batch, which is queued for the only slot, does not arrive while the last one is
/// being read.
#[track_caller]
fn assert_held_back(next: &feedline::Batch) {
    let start = Instant::now();
    while start.elapsed() < WINDOW {
        assert!(!next.is_copied().unwrap(), "the slot was overwritten under a reader");
        std::thread::yield_now();
    }
}

/// A loader with one device slot, so each batch overwrites the last.
fn one_slot(device: &Device) -> Loader {
    builder(fine()).depth(1).build(device).unwrap()
}

/// Reads the first batch on two streams, one of them slow, and drops the two readers in the given order.
fn two_readers(first_is_slow: bool, drop_first_first: bool) {
    on_a_device(|device, compute| {
        let branch = device.stream().unwrap();
        let mut loader = one_slot(device);
        let mut batches = loader.epoch(0).unwrap();
        let on_compute = batches.next().unwrap().unwrap().wait_on(compute).unwrap();
        let on_branch = on_compute.also_on(&branch).unwrap();
        let slow = if first_is_slow { SlowReader::start(&on_compute) } else { SlowReader::start(&on_branch) };
        if first_is_slow {
            assert_intact(&fine(), &on_branch);
        } else {
            assert_intact(&fine(), &on_compute);
        }
        if drop_first_first {
            drop(on_compute);
            drop(on_branch);
        } else {
            drop(on_branch);
            drop(on_compute);
        }
        let next = batches.next().unwrap().unwrap();
        assert_held_back(&next);
        slow.finish();
        wait_until("the next batch arrives", || next.is_copied().unwrap());
        assert_intact(&fine(), &next.wait_on(&branch).unwrap());
    });
}

#[test]
fn a_slot_is_overwritten_only_after_both_readers() {
    alone(|| {
        for first_is_slow in [false, true] {
            for drop_first_first in [false, true] {
                two_readers(first_is_slow, drop_first_first);
            }
        }
    });
}

#[test]
fn no_copy_into_a_slot_is_queued_while_a_reader_is_held() {
    alone(|| {
        on_a_device(|device, compute| {
            let branch = device.stream().unwrap();
            let mut loader = one_slot(device);
            let mut batches = loader.epoch(0).unwrap();
            let on_compute = batches.next().unwrap().unwrap().wait_on(compute).unwrap();
            let on_branch = on_compute.also_on(&branch).unwrap();
            drop(on_compute);
            let next = batches.next_timeout(WINDOW).unwrap();
            assert!(matches!(next, TryNext::NotYet), "the slot was released while a reader was held");
            assert_intact(&fine(), &on_branch);
            drop(on_branch);
            let next = batches.next_timeout(LONG).unwrap().batch().expect("a batch");
            assert_intact(&fine(), &next.wait_on(compute).unwrap());
        });
    });
}

#[test]
fn readers_on_three_streams_join_and_leave_during_epochs() {
    alone(|| {
        on_a_device(|device, compute| {
            let branch = device.stream().unwrap();
            let third = device.stream().unwrap();
            let mut loader = builder(fine()).depth(2).build(device).unwrap();
            for epoch in 0..20 {
                let mut last = None;
                for batch in loader.epoch(epoch).unwrap() {
                    let on_compute = batch.unwrap().wait_on(compute).unwrap();
                    let on_branch = on_compute.also_on(&branch).unwrap();
                    // A reader joins through any other reader and may outlive it. A stream may join twice.
                    let on_third = on_branch.also_on(&third).unwrap();
                    let again = on_third.also_on(&branch).unwrap();
                    drop(on_branch);
                    assert_intact(&fine(), &on_third);
                    assert_intact(&fine(), &again);
                    assert_intact(&fine(), &on_compute);
                    // This one is dropped one batch later.
                    last = Some(on_third);
                }
                drop(last);
            }
        });
    });
}

#[test]
fn a_batch_takes_eight_readers_and_refuses_a_ninth() {
    alone(|| {
        on_a_device(|device, compute| {
            let mut loader = one_slot(device);
            let mut batches = loader.epoch(0).unwrap();
            let first = batches.next().unwrap().unwrap().wait_on(compute).unwrap();
            let more: Vec<_> = (1..8).map(|_| first.also_on(compute).unwrap()).collect();
            let error = first.also_on(compute).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains("at most 8 readers"), "{error}");
            drop(first);
            more.iter().for_each(|reader| assert_intact(&fine(), reader));
            drop(more);
            // The slot's next batch starts with no readers.
            let next = batches.next().unwrap().unwrap().wait_on(compute).unwrap();
            let all: Vec<_> = (1..8).map(|_| next.also_on(compute).unwrap()).collect();
            all.iter().for_each(|reader| assert_intact(&fine(), reader));
        });
    });
}

#[test]
fn a_stream_that_did_not_wait_is_refused() {
    alone(|| {
        on_a_device(|device, compute| {
            let other = device.stream().unwrap();
            let mut loader = one_slot(device);
            let mut batches = loader.epoch(0).unwrap();
            let batch = batches.next().unwrap().unwrap().wait_on(compute).unwrap();
            let view = batch.field::<u8>("bytes").unwrap();
            let error = launch_host(&other, "wrong stream", [view.into()], [], |_| {}).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains("also_on"), "{error}");
            for stream in [compute, &other] {
                assert!(error.to_string().contains(&stream.to_string()), "no {stream} in: {error}");
            }
            assert_intact(&fine(), &batch.also_on(&other).unwrap());
        });
    });
}

#[test]
fn a_stream_of_another_device_is_refused() {
    alone(|| {
        let elsewhere = Device::new_host();
        {
            let foreign = elsewhere.stream().unwrap();
            on_a_device(|device, compute| {
                let mut loader = one_slot(device);
                let mut batches = loader.epoch(0).unwrap();
                let batch = batches.next().unwrap().unwrap();
                let error = batch.wait_on(&foreign).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Config, "{error}");
                let both = format!("belongs to {elsewhere}, not to {device}");
                assert!(error.to_string().contains(&both), "no {both:?} in: {error}");
                // The batch is lost but its slot was released, so the epoch continues.
                let batch = batches
                    .next_timeout(LONG)
                    .unwrap()
                    .batch()
                    .expect("the slot was released")
                    .wait_on(compute)
                    .unwrap();
                let error = batch.also_on(&foreign).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Config);
                assert!(error.to_string().contains(&both), "no {both:?} in: {error}");
                assert_intact(&fine(), &batch);
            });
        }
        assert_empty(&elsewhere);
    });
}

#[test]
fn a_wrong_field_name_index_or_type_is_refused() {
    alone(|| {
        on_a_device(|device, compute| {
            let mut loader = one_slot(device);
            let batch = loader.epoch(0).unwrap().next().unwrap().unwrap().wait_on(compute).unwrap();
            for (error, part) in [
                (
                    batch.field::<u8>("pixels").unwrap_err(),
                    "no field \"pixels\"; the fields are [\"id\", \"bytes\"]",
                ),
                (batch.field::<f32>("bytes").unwrap_err(), "field \"bytes\" is u8, not f32"),
                (batch.field_at::<u8>(2).unwrap_err(), "no field 2: the spec has 2"),
            ] {
                assert_eq!(error.kind(), ErrorKind::Config);
                assert!(error.to_string().contains(part), "no {part:?} in: {error}");
            }
        });
    });
}

/// Every batch goes through the same slot, and its copy is always queued while a kernel of the last batch
/// still runs.
#[test]
fn every_copy_waits_for_the_kernels_of_the_batch_before() {
    alone(|| {
        on_a_device(|device, compute| {
            let mut loader = one_slot(device);
            for epoch in 0..4 {
                let mut slow: Option<SlowReader> = None;
                for batch in loader.epoch(epoch).unwrap() {
                    let batch = batch.unwrap();
                    if let Some(slow) = slow.take() {
                        assert!(!batch.is_copied().unwrap());
                        slow.finish();
                    }
                    let batch = batch.wait_on(compute).unwrap();
                    assert_intact(&fine(), &batch);
                    slow = Some(SlowReader::start(&batch));
                }
                slow.unwrap().finish();
            }
            take_epoch(&mut loader, 4, compute);
        });
    });
}

/// The same on a GPU: kernels on two streams spin before they check every byte, and every batch overwrites
/// the slot.
#[test]
fn on_a_gpu_every_byte_is_right_for_two_slow_readers() {
    use feedline_kernels::ops::Kernels;
    const ROWS: u64 = 4;
    const STEPS: u64 = 12;
    let Some(device) = feedline_testkit::gpu("a batch with two slow readers") else { return };
    alone(|| {
        for width in [1 << 10, 64 << 10, 256 << 10] {
            let fine = Fine::new(ROWS * STEPS, width).unwrap();
            let compute = device.stream().unwrap();
            let branch = device.stream().unwrap();
            let kernels = (Kernels::new(&compute).unwrap(), Kernels::new(&branch).unwrap());
            let mut reports =
                (Buffer::<i64>::new(&compute, 3).unwrap(), Buffer::<i64>::new(&branch, 3).unwrap());
            reports.0.write(&[0, -1, 0]).unwrap();
            reports.1.write(&[0, -1, 0]).unwrap();
            let mut loader =
                Loader::builder(fine.clone()).batch_size(ROWS as usize).depth(1).build(&device).unwrap();
            for epoch in 0..2 {
                for batch in loader.epoch(epoch).unwrap() {
                    let one = batch.unwrap().wait_on(&compute).unwrap();
                    let two = one.also_on(&branch).unwrap();
                    let (key, first) = (fine.key(epoch), one.ids()[0]);
                    // The slower one alternates.
                    let (a, b) =
                        if first % 2 == 0 { (10_000_000, 1_000_000) } else { (1_000_000, 10_000_000) };
                    kernels.0.spin(a).unwrap();
                    kernels.1.spin(b).unwrap();
                    let view = one.field::<u8>("bytes").unwrap();
                    kernels.0.pattern_check(view, width, key, first, reports.0.view_mut()).unwrap();
                    let view = two.field::<u8>("bytes").unwrap();
                    kernels.1.pattern_check(view, width, key, first, reports.1.view_mut()).unwrap();
                }
            }
            let bytes = (2 * ROWS * STEPS) as i64 * width as i64;
            assert_eq!(
                reports.0.read().unwrap(),
                [0, -1, bytes],
                "wrong bytes, first wrong byte, bytes checked"
            );
            assert_eq!(
                reports.1.read().unwrap(),
                [0, -1, bytes],
                "wrong bytes, first wrong byte, bytes checked"
            );
        }
        assert_empty(&device);
    });
}

/// Runs a hundred schedules of the simulated device.
#[test]
fn two_readers_do_not_race_on_the_simulator() {
    alone(|| {
        for seed in 0..100 {
            let (device, sim) = feedline_sim::device(seed).unwrap();
            {
                let compute = device.stream().unwrap();
                let branch = device.stream().unwrap();
                let mut loader = builder(fine()).depth(1 + seed as usize % 3).build(&device).unwrap();
                for epoch in 0..2 {
                    for batch in loader.epoch(epoch).unwrap() {
                        let one = batch.unwrap().wait_on(&compute).unwrap();
                        let two = one.also_on(&branch).unwrap();
                        read(&compute, &one);
                        drop(one);
                        read(&branch, &two);
                    }
                }
            }
            sim.finish().unwrap();
        }
    });
}

/// Queues work that reads a batch.
fn read(stream: &Stream, batch: &Ready) {
    launch_host(stream, "read", [batch.field::<u8>("bytes").unwrap().into()], [], |_| {}).unwrap();
}
