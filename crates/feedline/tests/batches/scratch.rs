//! Scratch memory: each worker makes a value once and keeps it, until its thread ends or a read panics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{LONG, alone, assert_empty};
use feedline::bad_samples::Budget;
use feedline::{
    BadSamples, Context, DType, Dataset, Device, ErrorKind, Loader, ReadError, Row, Spec, WorkerPool, Workers,
};

/// How many values the workers have made, and dropped.
static MADE: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);

struct Buffer(Vec<u8>);

impl Default for Buffer {
    fn default() -> Self {
        MADE.fetch_add(1, Ordering::SeqCst);
        Self(Vec::new())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::SeqCst);
    }
}

/// Samples that are written through scratch memory. One of them may panic, and one may fail.
struct ThroughScratch {
    spec: Spec,
    panics_at: Option<u64>,
    fails_at: Option<u64>,
    half_written: Arc<AtomicU64>,
}

impl ThroughScratch {
    fn new() -> Self {
        let spec = Spec::new().field("x", DType::U8, [64]).expect("a spec");
        Self { spec, panics_at: None, fails_at: None, half_written: Arc::default() }
    }
}

impl Dataset for ThroughScratch {
    fn len(&self) -> u64 {
        400
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let Buffer(bytes) = context.scratch();
        // A read that returns leaves an empty buffer. A buffer with content is half written, from a read that
        // panicked.
        self.half_written.fetch_add(u64::from(!bytes.is_empty()), Ordering::SeqCst);
        bytes.resize(64, id as u8);
        assert!(self.panics_at != Some(id), "planned panic");
        if self.fails_at == Some(id) {
            bytes.clear();
            return Err("planned failure".into());
        }
        row.write(0, bytes);
        bytes.clear();
        Ok(())
    }
}

fn counts() -> (u64, u64) {
    (MADE.load(Ordering::SeqCst), DROPPED.load(Ordering::SeqCst))
}

#[test]
fn a_worker_makes_a_value_once_and_drops_it_when_its_thread_ends() {
    alone(|| {
        for workers in [1, 4] {
            let before = counts();
            let device = Device::new_host();
            let builder = Loader::builder(ThroughScratch::new()).batch_size(16);
            let builder = builder.workers(Workers::Count(workers));
            let mut loader = builder.build(&device).expect("a loader");
            for epoch in 0..3 {
                assert_eq!(loader.epoch(epoch).expect("an epoch").filter(Result::is_ok).count(), 25);
            }
            let made = counts().0 - before.0;
            assert!((1..=workers as u64).contains(&made), "{made} values by {workers} workers");
            loader.stop(LONG).expect("a clean end");
            assert_eq!(counts().1 - before.1, made, "every value is dropped");
            drop(loader);
            assert_empty(&device);
        }
    });
}

#[test]
fn a_failed_read_keeps_the_scratch_and_a_panic_loses_it() {
    alone(|| {
        let device = Device::new_host();
        {
            let pool = WorkerPool::new(Workers::Count(1)).expect("a pool");
            let before = counts().0;
            let set = ThroughScratch { fails_at: Some(40), ..ThroughScratch::new() };
            let builder = Loader::builder(set).batch_size(16).pool(&pool);
            let builder = builder.bad_samples(BadSamples::Substitute { budget: Budget::Count(1) });
            let mut loader = builder.build(&device).expect("a loader");
            assert_eq!(loader.epoch(0).expect("an epoch").filter(Result::is_ok).count(), 25);
            assert_eq!(counts().0 - before, 1, "one worker, one value");
            loader.stop(LONG).expect("a clean end");

            let set = ThroughScratch { panics_at: Some(40), ..ThroughScratch::new() };
            let builder = Loader::builder(set).batch_size(16).pool(&pool);
            let mut loader = builder.build(&device).expect("a loader");
            let ends = loader.epoch(0).expect("an epoch").find_map(Result::err).expect("the panic");
            assert_eq!(ends.kind(), ErrorKind::Panic);
            loader.stop(LONG).expect("a clean end");

            let set = ThroughScratch::new();
            let half_written = set.half_written.clone();
            let mut loader =
                Loader::builder(set).batch_size(16).pool(&pool).build(&device).expect("a loader");
            assert_eq!(loader.epoch(0).expect("an epoch").filter(Result::is_ok).count(), 25);
            assert_eq!(half_written.load(Ordering::SeqCst), 0, "a read finds what the panic has left");
            assert_eq!(counts().0 - before, 2, "a new value after the panic, and no other");
        }
        assert_empty(&device);
    });
}
