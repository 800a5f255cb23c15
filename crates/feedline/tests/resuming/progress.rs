//! The handles that a loop uses while an epoch borrows its loader: progress, checkpoints, and stopping from
//! another thread.

use crate::common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::small::{BATCH, LEN, STEPS, builder, fine, on_a_device, take_epoch};
use crate::common::{
    LONG, alone, assert_empty, hush_planned_panics, this_thread, wait_until, wait_until_asleep,
};
use feedline::{
    Checkpoint, Context, DType, Dataset, Device, ErrorKind, LastBatch, Loader, Progress, ReadError, Ready,
    Result, Row, Spec, StopHandle, Stream, TryNext, check_dataset,
};
use feedline_core::Cursor;
use feedline_device::host::Host;
use feedline_device::{Backend, launch_host};
use feedline_sim::interceptors::{Call, Intercepted, Interceptor, Op};
use feedline_testkit::fixtures;
use feedline_testkit::fixtures::streams::Generator;

const fn is_shared_by_threads<T: Clone + Send + Sync + 'static>() {}
const _: () = {
    is_shared_by_threads::<Progress>();
    is_shared_by_threads::<StopHandle>();
};

/// A model whose state depends on every sample and on their order.
type Model = Arc<Mutex<u64>>;

/// Queues a step that updates the model.
fn step(compute: &Stream, batch: &Ready, model: &Model) -> Result<()> {
    let model = model.clone();
    launch_host(compute, "step", [batch.field::<i64>("id")?.into()], [], move |memory| {
        std::thread::sleep(Duration::from_millis(1));
        let mut model = model.lock().unwrap();
        for &id in memory.input::<i64>(0) {
            *model = model.wrapping_mul(31).wrapping_add(id as u64 + 1);
        }
    })
}

/// Trains two epochs as the documentation of `Progress` shows, with a checkpoint after every step.
fn train(from: Option<(Cursor, u64)>, stop_after: usize) -> Result<(Vec<(Checkpoint, u64)>, u64)> {
    let device = Device::new_host();
    let compute = device.stream()?;
    let model = Model::new(Mutex::new(from.as_ref().map_or(0, |from| from.1)));
    let mut saved = Vec::new();
    let mut loader = builder(fine()).shuffle().seed(7).epochs(2).build(&device)?;
    let progress = loader.progress();
    let first = from.as_ref().map_or(0, |from| from.0.epoch());
    'run: for epoch in first..2 {
        let batches = match &from {
            Some((cursor, _)) if epoch == first => loader.resume(*cursor)?,
            _ => loader.epoch(epoch)?,
        };
        for batch in batches {
            let batch = batch?.wait_on(&compute)?;
            step(&compute, &batch, &model)?;
            drop(batch);
            let checkpoint = progress.checkpoint(&compute)?;
            saved.push((checkpoint, *model.lock().unwrap()));
            if saved.len() == stop_after {
                break 'run;
            }
        }
    }
    compute.synchronize()?;
    let model = *model.lock().unwrap();
    Ok((saved, model))
}

#[test]
fn a_checkpoint_in_a_for_loop_resumes_with_the_same_model() {
    alone(|| {
        let all = 2 * STEPS as usize;
        let (saved, model) = train(None, all).unwrap();
        assert_eq!(saved.len(), all);
        for (number, (checkpoint, at)) in saved.iter().enumerate() {
            assert_eq!(checkpoint.cursor.proof().count(), ((number + 1) * BATCH) as u64);
            let (rest, end) = train(Some((checkpoint.cursor, *at)), all).unwrap();
            assert_eq!((rest.len(), end), (all - number - 1, model), "saved after step {number}");
        }
    });
}

#[test]
fn progress_refuses_a_checkpoint_while_a_batch_is_held_and_outlives_the_loader() {
    alone(|| {
        on_a_device(|device, compute| {
            let mut loader = builder(fine()).build(device).unwrap();
            let progress = loader.progress();
            let mut batches = loader.epoch(0).unwrap();
            let held = batches.next().unwrap().unwrap();
            let error = progress.clone().checkpoint(compute).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BatchHeld, "{error}");
            assert_eq!((progress.cursor(), progress.cursor().proof().count()), (batches.cursor(), 8));
            drop(held);
            let before = progress.checkpoint(compute).unwrap();
            assert_eq!(batches.count() as u64, STEPS - 1);
            assert_eq!(loader.checkpoint(compute).unwrap().cursor.proof().count(), LEN);
            drop(loader);
            // The handle keeps no memory of the device, which `on_a_device` checks.
            let last = progress.checkpoint(compute).unwrap();
            assert_eq!((last.cursor.proof().count(), before.cursor.proof().count()), (LEN, 8));
        });
    });
}

/// Tells when the thread "saver" is about to wait for its stream, and then holds it up.
struct HoldsSaver(Mutex<(Sender<()>, Receiver<()>)>);

impl Interceptor for HoldsSaver {
    fn intercept<R>(&self, _: &dyn Backend, call: Call, make: impl FnOnce() -> Result<R>) -> Result<R> {
        if call.op == Op::SynchronizeStream && std::thread::current().name() == Some("saver") {
            let (waiting, go_on) = &*self.0.lock().unwrap();
            waiting.send(()).unwrap();
            go_on.recv().unwrap();
        }
        make()
    }
}

/// A checkpoint on another thread waits for the stream while the loop goes on: the model may have seen a
/// batch that the cursor did not count before the wait.
#[test]
fn a_checkpoint_during_which_a_batch_is_delivered_is_refused() {
    alone(|| {
        let ((tell, waiting), (go_on, hold)) = (channel(), channel());
        let hold = HoldsSaver(Mutex::new((tell, hold)));
        let device = feedline_device::with_backend(Intercepted::with(Host::new(), hold));
        {
            let compute = device.stream().unwrap();
            let mut loader = builder(fine()).build(&device).unwrap();
            let progress = loader.progress();
            let mut batches = loader.epoch(0).unwrap();
            std::thread::scope(|scope| {
                let name = std::thread::Builder::new().name("saver".to_owned());
                let saver = name.spawn_scoped(scope, || progress.checkpoint(&compute)).unwrap();
                waiting.recv().unwrap();
                drop(batches.next().unwrap().unwrap());
                go_on.send(()).unwrap();
                let error = saver.join().unwrap().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::BatchHeld, "{error}");
                assert!(error.message().contains("between two batches"), "{error}");
            });
            assert_eq!(progress.checkpoint(&compute).unwrap().cursor.proof().count(), BATCH as u64);
        }
        assert_empty(&device);
    });
}

#[test]
fn a_stop_handle_ends_a_next_that_blocks() {
    alone(|| {
        on_a_device(|device, _| {
            let (data, gate) = fixtures::blocking(fine(), [0]);
            let mut loader = builder(data).build(device).unwrap();
            let stop = loader.stop_handle();
            let mut batches = loader.epoch(0).unwrap();
            let consumer = this_thread();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    assert!(gate.wait_until_waiting(1, LONG));
                    // Waits until the consumer is in `next`; a stop before that would be found without a
                    // wait.
                    wait_until_asleep(&consumer);
                    stop.clone().stop();
                });
                // The first batch cannot be read, so this blocks until the stop.
                let error = batches.next().unwrap().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Stopped, "{error}");
            });
            assert!(batches.is_over() && batches.next().is_none());
            assert!(matches!(batches.try_next().unwrap(), TryNext::Over));
            assert_eq!(loader.epoch(1).unwrap_err().kind(), ErrorKind::Stopped);
            gate.open();
            loader.stop(LONG).unwrap();
            drop(loader);
            stop.stop(); // nothing is left to stop
        });
    });
}

/// Counts the copies to the device.
struct CountsCopies(Arc<AtomicUsize>);

impl Interceptor for CountsCopies {
    fn intercept<R>(&self, _: &dyn Backend, call: Call, make: impl FnOnce() -> Result<R>) -> Result<R> {
        if call.op == Op::CopyToDevice {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        make()
    }
}

#[test]
fn a_stop_drops_the_batches_that_were_read_ahead() {
    alone(|| {
        let copies = Arc::new(AtomicUsize::new(0));
        let device =
            feedline_device::with_backend(Intercepted::with(Host::new(), CountsCopies(copies.clone())));
        {
            let compute = device.stream().unwrap();
            let mut loader = builder(fine()).depth(3).build(&device).unwrap();
            let stop = loader.stop_handle();
            let mut batches = loader.epoch(0).unwrap();
            let held = batches.next().unwrap().unwrap().wait_on(&compute).unwrap();
            // When the third copy begins, the second batch can be taken.
            wait_until("three copies", || copies.load(Ordering::Relaxed) >= 3);
            stop.stop();
            stop.stop();
            assert_eq!(batches.next().unwrap().unwrap_err().kind(), ErrorKind::Stopped);
            common::assert_intact(&fine(), &held); // what was delivered stays valid
        }
        assert_empty(&device);
    });
}

#[test]
fn a_stop_at_any_moment_leaves_nothing_behind() {
    alone(|| {
        for delay in (0..40).map(|number| Duration::from_micros(number * 50)) {
            on_a_device(|device, compute| {
                let mut loader = builder(fine()).build(device).unwrap();
                let stop = loader.stop_handle();
                std::thread::scope(|scope| {
                    scope.spawn(move || {
                        std::thread::sleep(delay);
                        stop.stop();
                    });
                    'run: for epoch in 0.. {
                        let Ok(batches) = loader.epoch(epoch) else { break };
                        for batch in batches {
                            match batch {
                                Ok(batch) => drop(batch.wait_on(compute).unwrap()),
                                Err(error) => {
                                    assert_eq!(error.kind(), ErrorKind::Stopped, "{error}");
                                    break 'run;
                                }
                            }
                        }
                    }
                });
            });
        }
    });
}

#[test]
fn an_error_before_the_stop_stays_the_cause() {
    hush_planned_panics();
    alone(|| {
        let device = Device::new_host();
        {
            let data = fixtures::failing(fine(), [9]);
            let mut loader = builder(data).build(&device).unwrap();
            let stop = loader.stop_handle();
            let mut batches = loader.epoch(0).unwrap();
            let error = batches.find_map(|batch| batch.err()).expect("an error");
            assert_eq!(error.kind(), ErrorKind::Sample);
            stop.stop();
            assert_eq!(loader.epoch(0).unwrap_err().kind(), ErrorKind::Sample);
        }
        assert_empty(&device);
    });
}

#[test]
fn steps_per_epoch_is_the_number_of_batches() {
    alone(|| {
        on_a_device(|device, compute| {
            for (batch, last_batch, wanted) in [
                (8, LastBatch::Keep, 5),
                (7, LastBatch::Keep, 6),
                (7, LastBatch::Drop, 5),
                (7, LastBatch::Pad, 6),
            ] {
                let builder = builder(fine()).batch_size(batch).last_batch(last_batch).skip(1, 1..3);
                let mut loader = builder.build(device).unwrap();
                assert_eq!(loader.steps_per_epoch(), Some(wanted));
                let counts = [0, 1].map(|epoch| {
                    loader.epoch(epoch).unwrap().map(|batch| drop(batch.unwrap().wait_on(compute))).count()
                });
                assert_eq!(counts.map(|count| count as u64), [wanted, wanted - 2]);
            }
            let source = Loader::source_builder(Generator::new([10, 10]).unwrap()).batch_size(4);
            assert_eq!(source.build(device).unwrap().steps_per_epoch(), None);
            let mut loader = builder(fine()).build(device).unwrap();
            take_epoch(&mut loader, 0, compute);
        });
    });
}

/// A data set that borrows two fields of its row at once.
struct Pairs(Spec);

impl Dataset for Pairs {
    fn len(&self) -> u64 {
        20
    }

    fn spec(&self) -> &Spec {
        &self.0
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> std::result::Result<(), ReadError> {
        let mut fields = row.split();
        let (values, sum) = (fields.take::<u8>(0)?, fields.take::<i64>(1)?);
        values.fill(id as u8);
        sum[0] = values.iter().map(|&value| i64::from(value)).sum();
        Ok(())
    }
}

#[test]
fn a_data_set_can_write_two_fields_at_once() {
    let spec = Spec::new().field("values", DType::U8, [6]).unwrap().field("sum", DType::I64, []).unwrap();
    let report = check_dataset(&Pairs(spec), &Default::default()).unwrap();
    assert!(report.is_clean(), "{report}");
}
