//! The data of a batch on the host: copied from any device, read in place, and the loader without a device.

use crate::common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::small::{BATCH, LEN, STEPS, builder, fine, on_a_device};
use crate::common::{LONG, alone, assert_empty, hush_planned_panics};
use feedline::{Device, ErrorKind, HostBatch, HostLoader, LastBatch, Loader, TransferMode, Workers};
use feedline_device::host::Host;
use feedline_device::launch_host;
use feedline_sim::interceptors::chaos::{Chaos, Options};
use feedline_testkit::fixtures::{self, Fine, Laid};
use feedline_testkit::{NullDevice, pattern};

const fn is_send<T: Send + Sync>() {}
const _: () = {
    is_send::<HostLoader>();
    is_send::<HostBatch>();
};

/// A device whose copies and other work take up to a millisecond.
fn late(seed: u64) -> Device {
    let options = Options {
        seed,
        host_delay: Duration::ZERO..Duration::from_micros(100),
        device_delay: Duration::ZERO..Duration::from_millis(1),
        ..Options::default()
    };
    feedline_device::with_backend(Chaos::new(Host::new(), options).unwrap())
}

/// Checks ids and bytes of a batch against the data set.
#[track_caller]
fn assert_rows(fine: &Fine, epoch: u64, wanted: &[u64], ids: &[i64], bytes: &[u8]) {
    assert!(ids.iter().map(|&id| id as u64).eq(wanted.iter().copied()), "{ids:?}, not {wanted:?}");
    assert_eq!(bytes.len() % ids.len(), 0);
    for (&id, row) in wanted.iter().zip(bytes.chunks(bytes.len() / ids.len())) {
        pattern::check(row, fine.key(epoch), id).unwrap_or_else(|wrong| panic!("sample {id}: {wrong}"));
    }
}

#[test]
fn to_vec_and_into_host_have_the_bytes_of_the_batch_however_late_its_copy_is() {
    alone(|| {
        for seed in 0..20 {
            let device = late(seed);
            {
                let compute = device.stream().unwrap();
                let mut loader = builder(fine()).shuffle().seed(seed).build(&device).unwrap();
                let mut steps = 0;
                for epoch in 0..2 {
                    for batch in loader.epoch(epoch).unwrap() {
                        let batch = batch.unwrap().wait_on(&compute).unwrap();
                        if seed % 2 == 0 {
                            let (ids, bytes) = (batch.to_vec("id").unwrap(), batch.to_vec("bytes").unwrap());
                            assert_rows(&fine(), epoch, batch.ids(), &ids, &bytes);
                            steps += 1;
                        } else {
                            let batch = batch.into_host().unwrap();
                            let (ids, bytes) = (batch.field("id").unwrap(), batch.field("bytes").unwrap());
                            assert_rows(&fine(), epoch, batch.ids(), ids, bytes);
                            steps += 1;
                        }
                    }
                }
                assert_eq!(steps, 2 * STEPS);
            }
            assert_empty(&device);
        }
    });
}

#[test]
fn into_host_waits_for_the_work_queued_before_it() {
    alone(|| {
        on_a_device(|device, compute| {
            let mut loader = builder(fine()).build(device).unwrap();
            let has_run = Arc::new(AtomicBool::new(false));
            let batch = loader.epoch(0).unwrap().next().unwrap().unwrap().wait_on(compute).unwrap();
            let done = has_run.clone();
            launch_host(compute, "slow", [batch.field::<u8>("bytes").unwrap().into()], [], move |_| {
                std::thread::sleep(Duration::from_millis(20));
                done.store(true, Ordering::Relaxed);
            })
            .unwrap();
            let batch = batch.into_host().unwrap();
            assert!(has_run.load(Ordering::Relaxed), "opened before earlier work of the stream");
            assert_eq!(batch.field_at::<i64>(0).unwrap().iter().sum::<i64>(), 28);
        });
    });
}

#[test]
fn a_view_is_read_in_place_from_its_own_batch_only() {
    alone(|| {
        for seed in 0..20 {
            let device = late(seed);
            let compute = device.stream().unwrap();
            let mut loader = builder(fine()).build(&device).unwrap();
            let mut batches = loader.epoch(0).unwrap().map(|batch| batch.unwrap().wait_on(&compute).unwrap());
            let (first, second) = (batches.next().unwrap(), batches.next().unwrap());
            for batch in [&first, &second] {
                let ids = batch.read_in_place(&batch.field("id").unwrap()).unwrap();
                let bytes = batch.read_in_place(&batch.field("bytes").unwrap()).unwrap();
                assert_rows(&fine(), 0, batch.ids(), ids, bytes);
            }
            let error = first.read_in_place(&second.field::<i64>("id").unwrap()).unwrap_err();
            assert_eq!(
                (error.kind(), error.message()),
                (ErrorKind::Config, "the view is one of another batch")
            );
            assert!(second.read_in_place(&first.field::<u8>("bytes").unwrap()).is_err());
        }
    });
}

#[test]
fn a_panic_beside_an_open_batch_leaves_the_batch_and_the_device_intact() {
    hush_planned_panics();
    alone(|| {
        on_a_device(|device, compute| {
            let mut loader = builder(fine()).build(device).unwrap();
            for batch in loader.epoch(0).unwrap() {
                let batch = batch.unwrap().wait_on(compute).unwrap();
                let also = batch.also_on(compute).unwrap();
                let panic = catch_unwind(AssertUnwindSafe(|| {
                    let _held = batch.into_host().unwrap();
                    panic!("planned")
                }));
                assert!(panic.is_err());
                common::assert_intact(&fine(), &also);
            }
            assert!(feedline_device::backend(device).lost().is_none());
        });
    });
}

#[test]
fn wrong_fields_and_devices_are_refused() {
    alone(|| {
        on_a_device(|device, compute| {
            let mut loader = builder(fine()).build(device).unwrap();
            let batch = loader.epoch(0).unwrap().next().unwrap().unwrap().wait_on(compute).unwrap();
            let kind = |result: feedline::Result<()>| {
                let error = result.unwrap_err();
                (error.kind(), error.message().to_owned())
            };
            let wanted = (ErrorKind::Config, "field \"id\" is i64, not u8".to_owned());
            assert_eq!(kind(batch.to_vec::<u8>("id").map(drop)), wanted);
            let batch = batch.into_host().unwrap();
            assert_eq!(kind(batch.field::<u8>("id").map(drop)), wanted);
            assert!(kind(batch.field::<u8>("ids").map(drop)).1.contains("no field \"ids\""));
            assert!(kind(batch.field_at::<u8>(2).map(drop)).1.contains("no field 2"));
        });
        let (sim, _) = feedline_sim::device(3).unwrap();
        for device in [sim, feedline_device::with_backend(NullDevice::new())] {
            let compute = device.stream().unwrap();
            let mut loader = builder(fine()).build(&device).unwrap();
            let batch = loader.epoch(0).unwrap().next().unwrap().unwrap().wait_on(&compute).unwrap();
            let error = batch.into_host().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            for part in ["to_vec", "build_host"] {
                assert!(error.message().contains(part), "no {part} in: {error}");
            }
        }
    });
}

#[test]
fn to_vec_works_on_the_simulated_device_without_a_race() {
    alone(|| {
        for seed in 0..10 {
            let (device, sim) = feedline_sim::device(seed).unwrap();
            {
                let compute = device.stream().unwrap();
                let mut loader = builder(fine()).build(&device).unwrap();
                for batch in loader.epoch(0).unwrap() {
                    let batch = batch.unwrap().wait_on(&compute).unwrap();
                    let (ids, bytes) = (batch.to_vec("id").unwrap(), batch.to_vec("bytes").unwrap());
                    assert_rows(&fine(), 0, batch.ids(), &ids, &bytes);
                }
            }
            sim.finish().unwrap();
        }
    });
}

/// The ids of an epoch, batch by batch, as a loader on a device delivers them.
fn on_device(epoch: u64) -> Vec<Vec<u64>> {
    let device = Device::new_host();
    let mut loader = builder(fine()).batch_size(7).shuffle().seed(5).build(&device).unwrap();
    loader.epoch(epoch).unwrap().map(|batch| batch.unwrap().ids().to_vec()).collect()
}

#[test]
fn a_host_loader_delivers_the_batches_of_the_loader_in_its_order() {
    alone(|| {
        for (workers, depth) in [(1, 1), (2, 3)] {
            let builder = builder(fine()).batch_size(7).shuffle().seed(5);
            let builder = builder.workers(Workers::Count(workers)).depth(depth);
            let mut loader = builder.build_host().unwrap();
            for epoch in 0..3 {
                let batches = loader.epoch(epoch).unwrap();
                assert_eq!((batches.steps(), batches.size_hint()), (Some(6), (0, Some(6))));
                let mut all = Vec::new();
                for (step, batch) in (0..).zip(batches) {
                    let batch = batch.unwrap();
                    assert_eq!((batch.epoch(), batch.step(), batch.valid_rows()), (epoch, step, batch.len()));
                    let (ids, bytes) = (batch.field("id").unwrap(), batch.field_at(1).unwrap());
                    assert_rows(&fine(), epoch, batch.ids(), ids, bytes);
                    all.push(batch.ids().to_vec());
                }
                assert_eq!(all, on_device(epoch));
            }
            let proof = *loader.cursor().proof();
            assert_eq!(proof, feedline::sampler::Proof::expected(loader.batch_sampler(), 0..3));
            loader.stop(LONG).unwrap();
        }
    });
}

#[test]
fn a_host_loader_has_the_bytes_of_its_batches_however_late_their_copies_are() {
    alone(|| {
        for seed in 0..10 {
            let device = late(seed);
            let mut loader = builder(fine()).shuffle().seed(seed).build_host_on(&device).unwrap();
            let mut steps = 0;
            for epoch in 0..2 {
                for batch in loader.epoch(epoch).unwrap() {
                    let batch = batch.unwrap();
                    let (ids, bytes) = (batch.field("id").unwrap(), batch.field("bytes").unwrap());
                    assert_rows(&fine(), epoch, batch.ids(), ids, bytes);
                    steps += 1;
                }
            }
            assert_eq!(steps, 2 * STEPS);
            drop(loader);
            assert_empty(&device);
        }
    });
}

#[test]
fn held_host_batches_keep_their_bytes_while_others_come() {
    alone(|| {
        let mut loader = builder(fine()).depth(4).build_host().unwrap();
        let mut held = std::collections::VecDeque::new();
        for batch in loader.epoch(0).unwrap() {
            held.push_back(batch.unwrap());
            if held.len() > 3 {
                held.pop_front();
            }
            for batch in &held {
                let (ids, bytes) = (batch.field("id").unwrap(), batch.field("bytes").unwrap());
                assert_rows(&fine(), 0, batch.ids(), ids, bytes);
            }
        }
        drop(loader);
        // Delivered batches outlive their loader.
        for batch in held {
            assert_rows(&fine(), 0, batch.ids(), batch.field("id").unwrap(), batch.field("bytes").unwrap());
        }
    });
}

#[test]
fn a_host_loader_resumes_at_any_step() {
    alone(|| {
        let builder = || builder(fine()).batch_size(7).shuffle().seed(5);
        let whole = on_device(1);
        for steps in 0..=whole.len() {
            let mut loader = builder().build_host().unwrap();
            let mut batches = loader.epoch(1).unwrap();
            for _ in 0..steps {
                let batch = batches.next().unwrap().unwrap();
                assert_eq!(batches.checkpoint().unwrap_err().kind(), ErrorKind::BatchHeld);
                drop(batch);
            }
            let saved = batches.checkpoint().unwrap();
            assert_eq!(saved, loader.checkpoint().unwrap());
            let mut loader = builder().build_host().unwrap();
            loader.set_bad_sample_report(saved.bad_sample_report);
            let rest: Vec<_> =
                loader.resume(saved.cursor).unwrap().map(|batch| batch.unwrap().ids().to_vec()).collect();
            assert_eq!(rest, whole[steps..]);
        }
    });
}

#[test]
fn a_bad_sample_ends_a_host_epoch_with_an_error_and_then_none() {
    alone(|| {
        let mut loader = builder(fixtures::failing(fine(), [19])).build_host().unwrap();
        let mut batches = loader.epoch(0).unwrap();
        for _ in 0..2 {
            drop(batches.next().unwrap().unwrap());
        }
        let error = batches.next().unwrap().unwrap_err();
        assert_eq!((error.kind(), error.sample()), (ErrorKind::Sample, Some(19)));
        assert!(batches.next().is_none() && batches.next().is_none());
        assert_eq!(batches.size_hint(), (0, Some(0)));
    });
}

#[test]
fn a_lost_device_ends_a_host_epoch_with_one_error() {
    hush_planned_panics();
    alone(|| {
        let mut loader = builder(fine()).build_host().unwrap();
        let stream = loader.device().stream().unwrap();
        let mut batches = loader.epoch(0).unwrap();
        let held = batches.next().unwrap().unwrap();
        launch_host(&stream, "fails", [], [], |_| panic!("planned")).unwrap();
        assert_eq!(stream.synchronize().unwrap_err().kind(), ErrorKind::DeviceLost);
        assert_eq!(held.field::<i64>("id").unwrap_err().kind(), ErrorKind::DeviceLost);
        let errors: Vec<_> = batches.map(|batch| batch.map(drop).unwrap_err().kind()).collect();
        assert_eq!(errors, [ErrorKind::DeviceLost]);
    });
}

#[test]
fn a_host_loader_pads_gathers_and_stops() {
    alone(|| {
        let laid = Laid::records(&fine(), 0, 0).unwrap();
        let builder = Loader::builder(laid).batch_size(BATCH + 1).last_batch(LastBatch::Pad);
        let mut loader =
            builder.shuffle().seed(2).transfer_mode(TransferMode::ZeroCopy).build_host().unwrap();
        let mut valid = 0;
        for batch in loader.epoch(0).unwrap() {
            let batch = batch.unwrap();
            let (ids, bytes) = (batch.field("id").unwrap(), batch.field("bytes").unwrap());
            assert_rows(&fine(), 0, batch.ids(), ids, bytes);
            assert_eq!((batch.len(), batch.spec().fields().len()), (BATCH + 1, 2));
            valid += batch.valid_rows() as u64;
        }
        assert_eq!(valid, LEN);
        let stop = loader.stop_handle();
        let mut batches = loader.epoch(1).unwrap();
        stop.stop();
        assert_eq!(batches.next().unwrap().unwrap_err().kind(), ErrorKind::Stopped);
    });
}

#[test]
fn a_checkpoint_is_taken_within_a_for_loop_over_an_epoch() {
    alone(|| {
        let [mut loader, mut resumed] = [(); 2].map(|()| builder(fine()).build_host().unwrap());
        let progress = loader.progress();
        let mut saved = None;
        for batch in loader.epoch(0).unwrap() {
            let batch = batch.unwrap();
            let step = batch.step();
            assert_eq!(progress.checkpoint().unwrap_err().kind(), ErrorKind::BatchHeld);
            drop(batch);
            let checkpoint = progress.checkpoint().unwrap();
            assert_eq!(checkpoint.cursor.proof().count(), BATCH as u64 * (step + 1));
            saved = saved.or((step == 1).then_some(checkpoint));
        }
        let left = resumed.resume(saved.unwrap().cursor).unwrap().count() as u64;
        assert_eq!(left, STEPS - 2);
        // The rest of a progress is there too.
        assert_eq!(progress.report().run.batches, STEPS);
    });
}
