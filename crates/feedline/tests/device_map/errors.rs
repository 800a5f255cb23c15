//! Failures of a device map end the run at their batch, after the batches before it, and leave nothing
//! behind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use feedline::batch::{BatchInfo, DeviceBatch, PinnedBatch};
use feedline::{
    DType, Device, Error, ErrorKind, Loader, LoaderBuilder, Result, Spec, Stage, Stream, Workers,
};
use feedline_device::host::Host;
use feedline_device::launch_host;
use feedline_sim::interceptors::faults::{Fault, Mode};
use feedline_testkit::fixtures::failing;
use feedline_testkit::nth::every_fault;

use crate::common::{
    LONG, alone, alone_in_parts, assert_empty, hush_planned_panics, one_at_a_time_in_parts, wait_until,
};
use crate::inverted::{WAYS, Way, check, each_way, each_way_in_parts, fine, invert, spec};

const LEN: u64 = 80;
const BATCH: usize = 8;

fn builder() -> LoaderBuilder {
    Loader::builder(fine(LEN)).batch_size(BATCH).epochs(1)
}

/// Runs an epoch; returns the number of whole batches before the error.
fn fails(builder: LoaderBuilder) -> (u64, Error) {
    let (device, fine) = (Device::new_host(), fine(LEN));
    let compute = device.stream().unwrap();
    let mut loader = builder.build(&device).unwrap();
    let mut batches = loader.epoch(0).unwrap();
    let mut whole = 0;
    let error = loop {
        match batches.next().expect("an error ends the epoch") {
            Ok(batch) => {
                assert_eq!(batch.step(), whole);
                check(&fine, &batch.wait_on(&compute).unwrap());
                whole += 1;
            }
            Err(error) => break error,
        }
    };
    let again = match loader.epoch(0) {
        Ok(mut batches) => batches.next().expect("an item").expect_err("an error"),
        Err(error) => error,
    };
    assert_eq!(again.to_string(), error.to_string(), "for good");
    loader.stop(LONG).unwrap();
    drop((loader, compute));
    assert_empty(&device);
    (whole, error)
}

#[test]
fn an_error_and_a_panic_name_their_batch_and_come_after_the_batches_before_it() {
    hush_planned_panics();
    each_way_in_parts(|way| {
        for (lanes, depth, bad) in [(1, 1, 0), (1, 3, 4), (2, 1, 5), (2, 3, 9), (4, 2, 3)] {
            for panics in [false, true] {
                let failing = move |batch: &BatchInfo| {
                    if batch.step() != bad {
                        return Ok(());
                    }
                    assert!(!panics, "planned panic of a map");
                    Err(Error::new(ErrorKind::Sample, "planned failure of a map"))
                };
                let builder = way.before_invert(builder().depth(depth), lanes, failing);
                let (whole, error) = fails(builder);
                let kind = if panics { ErrorKind::Panic } else { ErrorKind::Sample };
                assert_eq!(
                    (error.kind(), error.batch(), error.stage()),
                    (kind, Some(bad), Some(Stage::DeviceMap))
                );
                assert_eq!(whole, bad, "{lanes} lanes, depth {depth}");
                assert!(error.to_string().contains("planned"), "{error}");
            }
        }
    });
}

/// An earlier batch fails on a slow lane, long after the read of a later batch has failed. The error of the
/// earlier batch counts.
#[test]
fn a_late_error_of_a_lane_comes_before_an_early_one_of_a_later_batch() {
    each_way_in_parts(|way| {
        for lanes in [1, 2] {
            for bad_map in [2, 4] {
                let reads = Arc::new(AtomicBool::new(false));
                // Sample 40 is one of batch 5.
                let seen = reads.clone();
                let set = feedline_testkit::fixtures::Before::new(failing(fine(LEN), [40]), move |id| {
                    seen.fetch_or(id == 40, Ordering::SeqCst);
                    Ok(())
                });
                let builder = Loader::builder(set).batch_size(BATCH).epochs(1).depth(3);
                let late = move |batch: &BatchInfo| {
                    if batch.step() != bad_map {
                        return Ok(());
                    }
                    let start = Instant::now();
                    while !reads.load(Ordering::SeqCst) && start.elapsed() < LONG {
                        std::thread::yield_now();
                    }
                    // By then the decoder's error has long reached the transfer thread.
                    std::thread::sleep(Duration::from_millis(20));
                    Err(Error::new(ErrorKind::Data, "planned failure of a map"))
                };
                let builder = way.before_invert(builder.workers(Workers::Count(2)), lanes, late);
                let (whole, error) = fails(builder);
                assert_eq!((whole, error.batch(), error.kind()), (bad_map, Some(bad_map), ErrorKind::Data));
            }
        }
    });
}

#[test]
fn a_sample_that_cannot_be_read_ends_the_run_after_the_mapped_batches_before_it() {
    each_way(|way| {
        for lanes in [1, 3] {
            let set = failing(fine(LEN), [40]);
            let slow = |_: &BatchInfo| {
                std::thread::sleep(Duration::from_millis(3));
                Ok(())
            };
            let builder = Loader::builder(set).batch_size(BATCH).epochs(1);
            let (whole, error) = fails(way.before_invert(builder, lanes, slow));
            assert_eq!((whole, error.kind(), error.sample()), (5, ErrorKind::Sample, Some(40)));
            assert_eq!(error.stage(), Some(Stage::Decode));
        }
    });
}

#[test]
fn wrong_uses_of_the_fields_are_refused_by_name() {
    type Use = fn(&Stream, &mut DeviceBatch<'_>) -> Result<()>;
    let uses: [(Use, &str); 8] = [
        (|_, batch| batch.copy("id"), "field \"inverted\" is not written by the device map"),
        (
            |stream, batch| {
                invert(stream, batch)?;
                batch.copy("id")
            },
            "field \"id\" was handed out before",
        ),
        (|_, batch| batch.output::<f32>("inverted").map(drop), "field \"inverted\" is u8, not f32"),
        (|_, batch| batch.output::<u8>("bytes").map(drop), "bytes"),
        (|_, batch| batch.field::<u8>("inverted").map(drop), "inverted"),
        (|_, batch| batch.copy("inverted"), "inverted"),
        (|_, batch| batch.copy("nothing"), "nothing"),
        (|_, batch| batch.ragged::<u8>("bytes").map(drop), "field \"bytes\" is not ragged"),
    ];
    alone_in_parts(|| {
        for (wrong, why) in uses {
            let builder = builder().device_map(spec(), move |stream: &Stream| {
                let stream = stream.clone();
                Ok(move |batch: &mut DeviceBatch<'_>| wrong(&stream, batch))
            });
            let (whole, error) = fails(builder);
            assert_eq!((whole, error.kind(), error.batch()), (0, ErrorKind::Config, Some(0)), "{error}");
            assert!(error.to_string().contains(why), "{error}, not {why}");
        }
        type UseFilled = fn(&mut PinnedBatch<'_>) -> Result<()>;
        let uses: [(UseFilled, &str); 8] = [
            (|batch| batch.copy("id"), "field \"inverted\" is not written by the device map"),
            (
                |batch| {
                    batch.copy("id")?;
                    batch.output::<i64>("id").map(drop)
                },
                "field \"id\" was handed out before",
            ),
            (|batch| batch.output::<f32>("inverted").map(drop), "field \"inverted\" is u8, not f32"),
            (|batch| batch.field::<i64>("bytes").map(drop), "field \"bytes\" is u8, not i64"),
            (|batch| batch.copy("inverted"), "inverted"),
            (|batch| batch.field::<u8>("nothing").map(drop), "nothing"),
            (|batch| batch.ragged::<u8>("bytes").map(drop), "field \"bytes\" is not ragged"),
            (|batch| batch.padded::<u8>("bytes").map(drop), "field \"bytes\" is not ragged"),
        ];
        for (wrong, why) in uses {
            let (whole, error) = fails(builder().produce(spec(), move |_: &Stream| Ok(wrong)));
            assert_eq!((whole, error.kind(), error.batch()), (0, ErrorKind::Config, Some(0)), "{error}");
            assert!(error.to_string().contains(why), "{error}, not {why}");
        }
        // The same name, but another shape.
        let spec = Spec::new().field("bytes", DType::U8, [1]).unwrap();
        let copied = builder().device_map(spec, |_| Ok(|batch: &mut DeviceBatch<'_>| batch.copy("bytes")));
        let (_, error) = fails(copied);
        assert!(error.to_string().contains("has another type or shape in the batch"), "{error}");
    });
}

/// The views of a batch are for the stream of its own lane.
#[test]
fn work_on_the_stream_of_another_lane_is_refused() {
    alone(|| {
        let streams = Arc::new(Mutex::new(Vec::new()));
        let builder = builder().device_lanes(2).device_map(spec(), move |stream: &Stream| {
            streams.lock().unwrap().push(stream.clone());
            let streams = streams.clone();
            Ok(move |batch: &mut DeviceBatch<'_>| {
                let other = streams.lock().unwrap().iter().find(|other| *other != batch.stream()).cloned();
                let (bytes, other) = (batch.field::<u8>("bytes")?, other.expect("two lanes"));
                launch_host(&other, "read", [bytes.into()], [], |_| {})
            })
        });
        let (_, error) = fails(builder);
        assert!(error.to_string().contains("belongs to stream"), "{error}");
    });
}

#[test]
fn options_that_cannot_work_are_refused_by_build() {
    hush_planned_panics();
    each_way(|way| {
        let device = Device::new_host();
        let ragged = Spec::new().ragged("text", DType::U8, [], 9).unwrap();
        let mapped = |spec| builder().device_map(spec, |_| Ok(|_: &mut DeviceBatch<'_>| Ok(())));
        let refused = |builder: LoaderBuilder| builder.build(&device).expect_err("an error").to_string();
        for (builder, why) in [
            (way.inverted(builder(), 0), "device_lanes is 0"),
            (way.inverted(builder(), 17), "device_lanes is 17: it must be from 1 to 16"),
            (mapped(ragged), "field \"text\" is ragged, and device_map cannot write it"),
        ] {
            let error = refused(builder);
            assert!(error.contains(why), "{error}");
        }
        type Never = fn(&mut DeviceBatch<'_>) -> Result<()>;
        let failed =
            builder().device_map(spec(), |_| Err::<Never, _>(Error::new(ErrorKind::Data, "no kernel")));
        assert!(refused(failed).contains("no kernel"));
        let panicked =
            builder().device_map(spec(), |_| -> Result<Never> { panic!("planned panic of a factory") });
        assert!(refused(panicked).contains("the factory of device_map panicked: planned"));
        assert_empty(&device);
    });
}

/// A lock that a map waits for.
type Gate = Arc<(Mutex<bool>, Condvar)>;

fn wait_for(gate: &Gate) {
    drop(gate.1.wait_while(gate.0.lock().unwrap(), |is_open| !*is_open).unwrap());
}

#[test]
fn a_stop_names_a_lane_that_does_not_return_and_ends_when_it_does() {
    each_way(|way| {
        let (gate, began) = (Gate::default(), Arc::new(AtomicBool::new(false)));
        let (closed, begin) = (gate.clone(), began.clone());
        let builder = way.before_invert(builder(), 2, move |_| {
            begin.store(true, Ordering::SeqCst);
            wait_for(&closed);
            Ok(())
        });
        let device = Device::new_host();
        let mut loader = builder.build(&device).unwrap();
        let _ = loader.epoch(0).unwrap();
        wait_until("a lane has a batch", || began.load(Ordering::SeqCst));
        let error = loader.stop(Duration::from_millis(50)).expect_err("the lane does not return");
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(error.to_string().contains("still running: device map"), "{error}");
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        loader.stop(LONG).unwrap();
        drop(loader);
        assert_empty(&device);
    });
}

#[test]
fn a_stop_from_outside_and_a_drop_end_lanes_that_wait_for_a_slot_or_a_batch() {
    each_way_in_parts(|way| {
        for lanes in [1, 3] {
            for held in [0, 1, 2] {
                let device = Device::new_host();
                let compute = device.stream().unwrap();
                let mut loader = way.inverted(builder().depth(2), lanes).build(&device).unwrap();
                let stop = loader.stop_handle();
                let mut batches = loader.epoch(0).unwrap();
                let kept: Vec<_> = batches.by_ref().take(held).map(|batch| batch.unwrap()).collect();
                if held == 1 {
                    stop.stop();
                    assert_eq!(batches.next().unwrap().expect_err("a stop").kind(), ErrorKind::Stopped);
                }
                drop(loader);
                // Batches that are held stay valid.
                for batch in kept {
                    check(&fine(LEN), &batch.wait_on(&compute).unwrap());
                }
                drop(compute);
                assert_empty(&device);
            }
        }
    });
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("planned panic of a drop");
    }
}

#[test]
fn a_panic_in_the_drop_of_a_map_is_reported() {
    hush_planned_panics();
    alone(|| {
        let device = Device::new_host();
        let builder = builder().device_map(spec(), |stream: &Stream| {
            let (stream, bomb) = (stream.clone(), Bomb);
            Ok(move |batch: &mut DeviceBatch<'_>| {
                let _ = &bomb;
                invert(&stream, batch)
            })
        });
        let mut loader = builder.build(&device).unwrap();
        assert_eq!(loader.epoch(0).unwrap().count() as u64, LEN / BATCH as u64);
        let error = loader.stop(LONG).expect_err("the panic");
        assert!(
            error.to_string().contains("the device map panicked when it was dropped: planned"),
            "{error}"
        );
        drop(loader);
        assert_empty(&device);
    });
}

/// Three batches, checked to the last byte.
fn three_batches(device: &Device, way: Way, lanes: usize) -> Result<()> {
    let fine = fine(3 * BATCH as u64);
    let compute = device.stream()?;
    let builder = Loader::builder(fine.clone()).batch_size(BATCH).epochs(1).depth(2);
    let mut loader = way.inverted(builder.workers(Workers::Count(2)), lanes).build(device)?;
    let mut steps = 0;
    for batch in loader.epoch(0)? {
        let batch = batch?.wait_on(&compute)?;
        let (bytes, key, ids) = (batch.field::<u8>("inverted")?, fine.key(0), batch.ids().to_vec());
        let wrong = Arc::new(AtomicBool::new(false));
        let seen = wrong.clone();
        launch_host(&compute, "check", [bytes.into()], [], move |memory| {
            let row = |row: &[u8]| row.iter().map(|byte| !byte).collect::<Vec<_>>();
            let rows = memory.input::<u8>(0).chunks(crate::inverted::ROW).map(row);
            let is_bad = |(row, id): (Vec<u8>, u64)| feedline_testkit::pattern::check(&row, key, id).is_err();
            seen.fetch_or(rows.zip(ids).any(is_bad), Ordering::SeqCst);
        })?;
        compute.synchronize()?;
        assert!(!wrong.load(Ordering::SeqCst), "wrong rows");
        steps += 1;
    }
    assert_eq!(steps, 3, "a short epoch without an error");
    loader.stop(LONG)
}

#[test]
fn every_device_call_can_fail_and_the_run_ends_with_the_error() {
    let _one = one_at_a_time_in_parts();
    let mut calls = 0;
    for (fault, mode) in [
        (Fault::Error, Mode::Once),
        (Fault::Error, Mode::Forever),
        (Fault::Late, Mode::Once),
        (Fault::DeviceLost, Mode::Once),
    ] {
        for (way, lanes) in WAYS.into_iter().flat_map(|way| [(way, 1), (way, 2)]) {
            let work = |device: &Device| three_batches(device, way, lanes);
            calls += every_fault(fault, mode, LONG, "fl-", Host::new, work).calls;
        }
    }
    assert!(calls >= 1_000, "{calls} calls");
}
