//! `stop`, the drop of a loader, and `next` with and without a limit wait no longer than allowed, whatever
//! the data set, the device or other threads do meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use crate::common::small::{builder, fine, on_a_device, take_epoch};
use crate::common::{LONG, alone, hush_planned_panics, one_at_a_time, wait_until_gone};
use feedline::dataset::StridedColumn;
use feedline::{
    Context, Dataset, Device, ErrorKind, Loader, LoaderBuilder, ReadError, Ready, Row, Spec, Stream,
    TransferMode, TryNext,
};
use feedline_core::Storage;
use feedline_device::host::Host;
use feedline_device::{Backend, launch_host};
use feedline_sim::interceptors::{Call, Intercepted, Interceptor, Op};
use feedline_testkit::fixtures::{Before, Laid, blocking};

/// A limit much shorter than the watchdog's.
const SHORT: Duration = Duration::from_millis(100);

/// Queues work on `stream` that reads `batch` and runs until the sender is dropped.
fn endless_work(stream: &Stream, batch: &Ready) -> Sender<()> {
    let (end, ended) = channel::<()>();
    let bytes = batch.field::<u8>("bytes").unwrap();
    let wait = move |_: &mut feedline_device::Memory<'_>| while ended.recv().is_ok() {};
    launch_host(stream, "endless", [bytes.into()], [], wait).unwrap();
    end
}

/// Staged and zero-copy loaders with one device slot and with several. Their copies wait for the slot's
/// readers.
fn loaders() -> impl Iterator<Item = LoaderBuilder> {
    let laid = || {
        Loader::builder(Laid::columns(&fine(), 0).unwrap())
            .batch_size(8)
            .transfer_mode(TransferMode::ZeroCopy)
    };
    let builders = [1, 3].map(|depth| [builder(fine()).depth(depth), laid().depth(depth)]);
    builders.into_iter().flatten()
}

#[test]
fn stop_reports_work_on_the_device_that_does_not_end() {
    alone(|| {
        for builder in loaders() {
            on_a_device(|device, compute| {
                let mut loader = builder.build(device).unwrap();
                let batch = loader.epoch(0).unwrap().next().unwrap().unwrap().wait_on(compute).unwrap();
                let work = endless_work(compute, &batch);
                drop(batch);
                let error = loader.stop(SHORT).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
                assert!(error.to_string().contains("device slot"), "{error}");
                drop(work);
                loader.stop(LONG).unwrap();
            });
        }
    });
}

#[test]
fn the_drop_of_a_loader_leaks_the_slots_of_work_that_does_not_end() {
    // The test leaks a copy stream, so a census would differ afterwards.
    let _one = one_at_a_time();
    for builder in loaders() {
        let device = Device::new_host();
        let compute = device.stream().unwrap();
        let mut loader = builder.drop_timeout(SHORT).build(&device).unwrap();
        let batch = loader.epoch(0).unwrap().next().unwrap().unwrap().wait_on(&compute).unwrap();
        let work = endless_work(&compute, &batch);
        drop(batch);
        drop(loader);
        // The work still runs. Its memory is leaked, and the device stats say why.
        let errors = device.stats().take_errors();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(errors[0].kind(), ErrorKind::Timeout);
        assert!(errors[0].to_string().contains("device slot"), "{}", errors[0]);
        assert!(device.stats().device_bytes.get() > 0);
        drop(work);
    }
    wait_until_gone("fl-decode");
    wait_until_gone("fl-transfer");
}

/// A data set whose drop panics.
struct PanicsInDrop<D>(D);

impl<D> Drop for PanicsInDrop<D> {
    fn drop(&mut self) {
        // A second panic while a test fails would hide the first.
        assert!(std::thread::panicking(), "planned panic in a drop");
    }
}

impl<D: Dataset> Dataset for PanicsInDrop<D> {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn spec(&self) -> &Spec {
        self.0.spec()
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        self.0.read(id, row, context)
    }

    fn storage(&self) -> &dyn Storage {
        self
    }
}

impl<D: Dataset> Storage for PanicsInDrop<D> {
    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        self.0.storage().column(field)
    }
}

/// Loaders of both transfer modes, of a data set whose drop panics.
fn panicking_loaders() -> [LoaderBuilder; 2] {
    let laid = Loader::builder(PanicsInDrop(Laid::columns(&fine(), 0).unwrap()));
    [builder(PanicsInDrop(fine())), laid.batch_size(8).transfer_mode(TransferMode::ZeroCopy)]
}

#[test]
fn a_panic_in_the_drop_of_a_data_set_is_reported_as_a_panic() {
    hush_planned_panics();
    alone(|| {
        for with_stop in [true, false] {
            for builder in panicking_loaders() {
                let device = Device::new_host();
                let compute = device.stream().unwrap();
                let mut loader = builder.build(&device).unwrap();
                loader.epoch(0).unwrap().for_each(|batch| drop(batch.unwrap().wait_on(&compute).unwrap()));
                let stopped = if with_stop { loader.stop(Duration::MAX) } else { Ok(()) };
                drop(loader);
                let mut errors = device.stats().take_errors();
                errors.extend(stopped.err());
                let texts: Vec<_> = errors.iter().map(|error| (error.kind(), error.to_string())).collect();
                let text = "the data set panicked when it was dropped: planned panic in a drop".to_owned();
                assert_eq!(texts, [(ErrorKind::Panic, text)]);
            }
        }
    });
}

thread_local! {
    /// Counts each thread that touches it, once at the first touch and once when the thread exits.
    static COUNTS_EXIT: CountsExit = {
        TOUCHED.fetch_add(1, Ordering::Relaxed);
        CountsExit
    };
}

/// The number of threads that have touched [`COUNTS_EXIT`], and how many of them have exited.
static TOUCHED: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);

struct CountsExit;

impl Drop for CountsExit {
    fn drop(&mut self) {
        // Longer than a thread takes to exit after it has reported its end: only a join waits for this.
        std::thread::sleep(SHORT / 2);
        ENDED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts the exit of the thread that copies.
struct CountsCopier;

impl Interceptor for CountsCopier {
    fn intercept<R>(
        &self,
        _: &dyn Backend,
        call: Call,
        make: impl FnOnce() -> feedline::Result<R>,
    ) -> feedline::Result<R> {
        if call.op == Op::CopyToDevice {
            COUNTS_EXIT.with(|_| {});
        }
        make()
    }
}

/// Takes an epoch, ends the loader, and checks that every thread that touched [`COUNTS_EXIT`] has exited.
fn assert_joined(device: &Device, builder: LoaderBuilder, with_stop: bool) {
    let compute = device.stream().unwrap();
    let before = TOUCHED.load(Ordering::Relaxed);
    let mut loader = builder.build(device).unwrap();
    take_epoch(&mut loader, 0, &compute);
    if with_stop {
        loader.stop(LONG).unwrap();
        assert_eq!(ENDED.load(Ordering::Relaxed), TOUCHED.load(Ordering::Relaxed), "stop");
    }
    drop(loader);
    assert_eq!(ENDED.load(Ordering::Relaxed), TOUCHED.load(Ordering::Relaxed), "drop");
    assert!(TOUCHED.load(Ordering::Relaxed) > before);
}

#[test]
fn stop_and_the_drop_join_the_threads() {
    alone(|| {
        for with_stop in [true, false] {
            // The transfer thread and the workers separately, so that joining one cannot hide a missing
            // join of the other.
            let copies = feedline_device::with_backend(Intercepted::with(Host::new(), CountsCopier));
            assert_joined(&copies, builder(fine()), with_stop);
            let data = Before::new(fine(), |_| {
                COUNTS_EXIT.with(|_| {});
                Ok(())
            });
            assert_joined(&Device::new_host(), builder(data), with_stop);
        }
    });
}

#[test]
fn the_longest_duration_is_a_valid_limit() {
    alone(|| {
        on_a_device(|device, compute| {
            let mut loader = builder(fine()).build(device).unwrap();
            let mut batches = loader.epoch(0).unwrap();
            while let TryNext::Batch(batch) = batches.next_timeout(Duration::MAX).unwrap() {
                drop(batch.wait_on(compute).unwrap());
            }
            assert!(batches.is_over());
            take_epoch(&mut loader, 1, compute);
            loader.stop(Duration::MAX).unwrap();
            let event = device.event().unwrap();
            compute.record(&event).unwrap();
            assert!(event.synchronize_timeout(Duration::MAX).unwrap());
            let (_, gate) = blocking(fine(), [1]);
            assert!(gate.wait_until_waiting(0, Duration::MAX));
        });
    });
}

#[test]
fn an_epoch_beyond_the_last_is_refused() {
    alone(|| {
        on_a_device(|device, compute| {
            let mut loader = builder(fine()).epochs(2).build(device).unwrap();
            take_epoch(&mut loader, 1, compute);
            let cursor = loader.cursor();
            for epoch in [2, 5, u64::MAX] {
                let error = loader.epoch(epoch).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Config);
                assert!(error.to_string().contains(&format!("epoch {epoch}")), "{error}");
                assert!(error.to_string().contains("2 epochs"), "{error}");
                assert_eq!(loader.cursor(), cursor, "a refused epoch changes nothing");
            }
            take_epoch(&mut loader, 0, compute);
            let mut later = builder(fine()).build(device).unwrap();
            assert!(later.epoch(2).unwrap().next().unwrap().is_ok());
            let error = loader.resume(later.cursor()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        });
    });
}
