//! Epochs without a gap: while the caller still holds the last batch of an epoch, the same threads already
//! decode the first batches of the next.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use crate::common::{LONG, alone, wait_for_threads, wait_until};
use feedline::{Context, DType, Dataset, Device, Loader, LoaderBuilder, ReadError, Row, Spec, Workers};

const EPOCHS: usize = 4;
const WORKERS: usize = 3;

/// A data set that records the reads of each epoch and the threads that made them.
struct Watched {
    len: u64,
    spec: Spec,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    reads: [AtomicU64; EPOCHS + 1],
    threads: Mutex<HashSet<(ThreadId, String)>>,
}

impl Seen {
    fn reads(&self, epoch: usize) -> u64 {
        self.reads[epoch].load(Ordering::SeqCst)
    }
}

impl Watched {
    fn new(len: u64, seen: &Arc<Seen>) -> Self {
        Self { len, spec: Spec::new().field("id", DType::I64, []).unwrap(), seen: seen.clone() }
    }
}

impl Dataset for Watched {
    fn len(&self) -> u64 {
        self.len
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("unnamed").to_owned();
        self.seen.threads.lock().unwrap().insert((thread.id(), name));
        self.seen.reads[context.epoch() as usize].fetch_add(1, Ordering::SeqCst);
        row.field_mut::<i64>(0)?[0] = id as i64;
        Ok(())
    }
}

fn builder(len: u64, seen: &Arc<Seen>) -> LoaderBuilder {
    let data = Watched::new(len, seen);
    Loader::builder(data).batch_size(WORKERS).workers(Workers::Count(WORKERS)).epochs(EPOCHS as u64)
}

#[test]
fn the_next_epoch_is_read_while_the_last_batch_of_this_one_is_held() {
    alone(|| {
        for depth in [2, 3, 8] {
            let seen = Arc::new(Seen::default());
            let device = Device::new_host();
            let compute = device.stream().unwrap();
            let mut loader = builder(20, &seen).depth(depth).build(&device).unwrap();
            for epoch in 0..EPOCHS {
                let batches = loader.epoch(epoch as u64).unwrap();
                let steps = batches.size_hint().1.expect("a known number");
                let mut held = None;
                for batch in batches {
                    held = Some(batch.unwrap().wait_on(&compute).unwrap());
                }
                let held = held.expect("a last batch");
                assert_eq!((held.epoch(), held.step()), (epoch as u64, steps as u64 - 1));
                if epoch + 1 < EPOCHS {
                    // All free slots fill with batches of the next epoch.
                    let ahead = (depth * WORKERS).min(20) as u64;
                    wait_until("the next epoch is read ahead", || seen.reads(epoch + 1) >= ahead);
                } else {
                    assert_eq!(seen.reads(EPOCHS), 0, "read beyond the last epoch");
                }
                drop(held);
            }
            let reads: Vec<u64> = (0..EPOCHS).map(|epoch| seen.reads(epoch)).collect();
            assert_eq!(reads, [20; EPOCHS], "each sample once per epoch");
        }
    });
}

#[test]
fn the_first_batch_of_the_next_epoch_is_on_the_device_before_it_is_requested() {
    alone(|| {
        let seen = Arc::new(Seen::default());
        let mut loader = builder(20, &seen).depth(3).build(&Device::new_host()).unwrap();
        for epoch in 0..EPOCHS as u64 {
            let mut batches = loader.epoch(epoch).unwrap();
            let mut last = None;
            while !batches.is_over() {
                drop(last.take());
                last = batches.next_timeout(LONG).unwrap().batch();
            }
            let _last = last.expect("a last batch");
            if epoch + 1 < EPOCHS as u64 {
                let mut next = loader.epoch(epoch + 1).unwrap();
                let mut first = None;
                // `try_next` does not block: the batch arrives without a waiting consumer.
                wait_until("the first batch has arrived", || {
                    first = next.try_next().unwrap().batch();
                    first.is_some()
                });
                assert!(first.is_some_and(|batch| (batch.epoch(), batch.step()) == (epoch + 1, 0)));
            }
        }
    });
}

#[test]
fn the_same_threads_read_all_epochs() {
    alone(|| {
        let seen = Arc::new(Seen::default());
        let mut loader = builder(500, &seen).depth(2).build(&Device::new_host()).unwrap();
        // The workers, the transfer thread, and the stream of the copies.
        wait_for_threads("fl-", WORKERS + 2);
        let mut first = None;
        for epoch in 0..EPOCHS as u64 {
            assert_eq!(loader.epoch(epoch).unwrap().filter(|batch| batch.is_ok()).count(), 167);
            let now = task_ids();
            assert_eq!(*first.get_or_insert(now.clone()), now, "threads of the process after epoch {epoch}");
        }
        let threads = seen.threads.lock().unwrap();
        assert!((1..=WORKERS).contains(&threads.len()), "{threads:?}");
        assert!(threads.iter().all(|(_, name)| name.starts_with("fl-decode-")), "{threads:?}");
    });
}

/// The kernel's ids of the pipeline's threads.
fn task_ids() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc").map(|task| task.unwrap().path());
    let name = |task: &PathBuf| std::fs::read_to_string(task.join("comm")).unwrap_or_default();
    let mut ids: Vec<String> =
        tasks.filter(|task| name(task).starts_with("fl-")).map(|task| task.display().to_string()).collect();
    ids.sort();
    ids
}
