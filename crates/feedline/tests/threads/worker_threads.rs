//! The threads that call a data set end with their loader, and do nothing else while a read waits.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::small::{BATCH, LEN, STEPS, builder, fine, on_a_device, take_epoch};
use crate::common::{LONG, alone};
use feedline::report::MAX_WORKERS;
use feedline::{
    Context, DType, Dataset, ErrorKind, Loader, ReadError, Row, Spec, WorkerPool, Workers, from_fn,
};
use feedline_device::Backend;
use feedline_device::host::Host;
use feedline_sim::interceptors::{Call, Intercepted, Interceptor};
use feedline_testkit::fixtures::{self, Fine};
use rayon::prelude::*;

/// The number of threads registered by [`register`], and how many of them have exited.
static REGISTERED: AtomicUsize = AtomicUsize::new(0);
static ENDED: AtomicUsize = AtomicUsize::new(0);

/// Dropped when its thread exits. The drop is slow, so that only a join sees the thread end.
struct CountsExit(Cell<bool>);

impl Drop for CountsExit {
    fn drop(&mut self) {
        if self.0.get() {
            std::thread::sleep(Duration::from_millis(50));
            ENDED.fetch_add(1, Ordering::SeqCst);
        }
    }
}

thread_local! {
    static COUNTS_EXIT: CountsExit = const { CountsExit(Cell::new(false)) };
}

/// Registers the calling thread if it belongs to a loader.
fn register() {
    let is_of_loader = std::thread::current()
        .name()
        .is_some_and(|name| name.starts_with("fl-decode") || name.starts_with("fl-transfer"));
    if is_of_loader && !COUNTS_EXIT.with(|exit| exit.0.replace(true)) {
        REGISTERED.fetch_add(1, Ordering::SeqCst);
    }
}

struct RegistersThreads;

impl Interceptor for RegistersThreads {
    fn intercept<R>(
        &self,
        _: &dyn Backend,
        _: Call,
        make: impl FnOnce() -> feedline::Result<R>,
    ) -> feedline::Result<R> {
        register();
        make()
    }
}

#[test]
fn stop_and_the_drop_return_after_every_thread_has_exited() {
    alone(|| {
        for round in 1..4 {
            let device = feedline_device::with_backend(Intercepted::with(Host::new(), RegistersThreads));
            let compute = device.stream().unwrap();
            let data = fixtures::Before::new(fine(), |_| {
                register();
                Ok(())
            });
            let mut loader = builder(data).build(&device).unwrap();
            take_epoch(&mut loader, 0, &compute);
            if round == 3 {
                drop(loader);
            } else {
                loader.stop(LONG).unwrap();
            }
            let (registered, ended) = (REGISTERED.load(Ordering::SeqCst), ENDED.load(Ordering::SeqCst));
            // The transfer thread and at least one worker.
            assert!(registered >= 2 * round, "{registered} threads in {round} rounds");
            assert_eq!(ended, registered, "threads that have exited, and threads that worked");
        }
    });
}

/// Waits for work that it has given to other threads; for every second sample it holds a lock meanwhile.
struct Locks {
    inner: Fine,
    lock: Mutex<u64>,
    wait: fn() -> u64,
}

impl Dataset for Locks {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn spec(&self) -> &Spec {
        self.inner.spec()
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        if id.is_multiple_of(2) {
            let mut total = self.lock.lock().map_err(|error| error.to_string())?;
            *total += (self.wait)();
        }
        self.inner.read(id, row, context)
    }
}

/// Work that is long enough for another thread to steal a part of it.
fn work(size: u64) -> u64 {
    (0..size).fold(0, |sum, n| std::hint::black_box(sum + n % 2))
}

/// A thread that waits inside a read must not start another read, which would deadlock on the lock.
#[test]
fn a_thread_that_waits_for_rayon_inside_a_read_starts_no_other_read() {
    // Without own names, rayon's threads would inherit the name of the first thread that uses them.
    let name = |index| format!("rayon-{index}");
    rayon::ThreadPoolBuilder::new().num_threads(4).thread_name(name).build_global().unwrap();
    alone(|| {
        let by_iterator: fn() -> u64 = || (0..16).into_par_iter().map(|_| work(20_000)).sum();
        let by_join: fn() -> u64 = || {
            let is_taken = AtomicBool::new(false);
            // Another thread takes the second part, if one is free, so that this one waits for it.
            let first =
                || (0..10_000).take_while(|_| !is_taken.load(Ordering::SeqCst)).map(|_| work(1000)).sum();
            let second = || {
                is_taken.store(true, Ordering::SeqCst);
                work(1_000_000)
            };
            let (one, two): (u64, u64) = rayon::join(first, second);
            one + two
        };
        for wait in [by_iterator, by_join] {
            on_a_device(|device, compute| {
                let data = Locks { inner: fine(), lock: Mutex::new(0), wait };
                let builder = Loader::builder(data).batch_size(BATCH).workers(Workers::Count(4)).depth(3);
                let mut loader = builder.build(device).unwrap();
                (0..10).for_each(|epoch| take_epoch(&mut loader, epoch, compute));
            });
        }
    });
}

#[test]
fn a_read_may_spawn_threads_and_wait_for_them() {
    alone(|| {
        on_a_device(|device, compute| {
            let wait: fn() -> u64 =
                || std::thread::scope(|scope| scope.spawn(|| work(100)).join().unwrap_or(0));
            let data = Locks { inner: fine(), lock: Mutex::new(0), wait };
            let builder = Loader::builder(data).batch_size(BATCH).workers(Workers::Count(3)).depth(2);
            take_epoch(&mut builder.build(device).unwrap(), 0, compute);
        });
    });
}

#[test]
fn too_many_workers_are_refused_before_a_thread_is_started() {
    alone(|| {
        for count in [MAX_WORKERS + 1, 65_535, usize::MAX] {
            on_a_device(|device, _| {
                let error = builder(fine()).workers(Workers::Count(count)).build(device).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Config);
                assert!(error.to_string().contains(&format!("at most {MAX_WORKERS}")), "{error}");
            });
            assert_eq!(WorkerPool::new(Workers::Count(count)).unwrap_err().kind(), ErrorKind::Config);
        }
    });
}

/// Uses `bytes` bytes of stack, and returns a sum that depends on all of them.
fn uses_stack(bytes: usize) -> u64 {
    let piece = std::hint::black_box([1_u8; 16 << 10]);
    let below = if bytes > piece.len() { uses_stack(bytes - piece.len()) } else { 0 };
    below + std::hint::black_box(&piece).iter().map(|&byte| u64::from(byte)).sum::<u64>()
}

#[test]
fn workers_have_the_stack_that_a_loader_or_a_pool_is_given() {
    let deep = || {
        from_fn(4, Spec::new().field("sum", DType::I64, []).unwrap(), |_, row, _| {
            row.field_mut::<i64>("sum")?[0] = uses_stack(8 << 20) as i64;
            Ok(())
        })
    };
    alone(|| {
        let pool = WorkerPool::with_stack(Workers::Count(1), 64 << 20).unwrap();
        for builder in [Loader::builder(deep()).worker_stack(64 << 20), Loader::builder(deep()).pool(&pool)] {
            let mut loader = builder.batch_size(2).build_host().unwrap();
            for batch in loader.epoch(0).unwrap() {
                assert!(batch.unwrap().field::<i64>("sum").unwrap().iter().all(|&sum| sum >= 8 << 20));
            }
        }
        let error = Loader::builder(deep()).worker_stack(1 << 20).build_host().unwrap_err();
        assert!(error.to_string().contains("give at least 2097152"), "{error}");
        // No system has room for this one.
        let error = Loader::builder(deep()).worker_stack(1 << 60).build_host().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("a smaller stack, or raise the limit of memory"), "{error}");
    });
}

#[test]
fn a_set_nested_beyond_the_limit_is_refused_by_the_loader_and_one_at_the_limit_is_read() {
    let nested = |levels| {
        let first = Arc::new(fine()) as Arc<dyn Dataset>;
        (0..levels).fold(first, |set, _| Arc::new(set.take(LEN)) as Arc<dyn Dataset>)
    };
    alone(|| {
        let mut loader = Loader::builder(nested(256)).batch_size(BATCH).build_host().unwrap();
        assert_eq!(loader.epoch(0).unwrap().count() as u64, STEPS);
        let error = Loader::builder(nested(257)).batch_size(BATCH).build_host().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("a loader: the sets are nested 257 deep"), "{error}");
    });
}
