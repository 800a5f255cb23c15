//! Host operators wait for threads of their own pool, never for a pool of the caller.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use feedline_device::{Buffer, Device};
use feedline_kernels::host;
use feedline_kernels::ops::{AdamW, Kernels, Linear, Sgd};
use feedline_testkit::with_watchdog;

/// A case takes less than a second.
const LIMIT: Duration = Duration::from_secs(60);

/// Elements of a large piece of work.
const LARGE: usize = 1 << 20;

/// Runs every multithreaded operator, at a size that uses several threads, on a new stream.
fn train() {
    let stream = Device::new_host().stream().unwrap();
    let kernels = Kernels::new(&stream).unwrap();
    let bytes = Buffer::<u8>::new(&stream, LARGE).unwrap();
    let mut floats = [(); 4].map(|()| Buffer::<f32>::new(&stream, LARGE).unwrap());
    let mut steps = Buffer::<u32>::new(&stream, 1).unwrap();
    let [wide, weights, mean, square] = &mut floats;
    kernels.cast(bytes.view(), 1.0, wide.view_mut()).unwrap();
    let rule = Sgd { lr: 0.1, momentum: 0.9 };
    kernels.sgd(weights.view_mut(), mean.view_mut(), wide.view(), rule).unwrap();
    let (weights_mut, mean_mut, square_mut) = (weights.view_mut(), mean.view_mut(), square.view_mut());
    kernels
        .adamw(weights_mut, mean_mut, square_mut, wide.view(), AdamW::default(), steps.view_mut())
        .unwrap();
    let shape = Linear { rows: 1024, inputs: 1024, outputs: 1024 };
    kernels.weight_gradient(wide.view(), mean.view(), weights.view_mut(), shape).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn training_on_every_thread_of_the_global_pool_does_not_deadlock() {
    with_watchdog(LIMIT, || {
        rayon::broadcast(|_| train());
    });
}

#[test]
fn training_on_every_thread_of_another_pool_does_not_deadlock() {
    with_watchdog(LIMIT, || {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        pool.broadcast(|_| train());
    });
}

#[test]
fn an_operator_does_not_run_other_work_of_its_callers_pool() {
    with_watchdog(LIMIT, || {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let (bytes, lock, done) = (vec![1; LARGE], Mutex::new(()), AtomicBool::new(false));
        pool.in_place_scope(|scope| {
            scope.spawn(|_| {
                let mut wide = vec![0.0; LARGE];
                for _ in 0..1000 {
                    let _held = lock.lock().unwrap();
                    host::cast(&bytes, 2.0, &mut wide);
                }
                done.store(true, Ordering::Release);
            });
            // Other work of the pool: inside an operator it would wait for the lock that its own thread
            // holds.
            while !done.load(Ordering::Acquire) {
                scope.spawn(|_| drop(lock.lock().unwrap()));
                std::thread::yield_now();
            }
        });
    });
}
