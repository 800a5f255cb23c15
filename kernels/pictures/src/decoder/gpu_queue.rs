//! The queue of the batches that wait for the GPU. The GPU decodes one batch at a time.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};

use super::locked;

/// Batches in order of arrival. The GPU decodes the first batch. The CPU decodes pictures of the others.
///
/// The chip's JPEG engines serve one call after another, and concurrent calls slow each other down. Two
/// workers at once decoded 18,400 pictures/s, and one at a time decoded 19,600 (H200, bench `jpeg-gpu`,
/// chroma not interpolated).
#[derive(Debug, Default)]
pub(crate) struct GpuQueue {
    batches: Mutex<Batches>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Batches {
    waiting: VecDeque<u64>,
    next: u64,
}

/// A batch's entry in the queue. Its drop removes the batch.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    queue: &'a GpuQueue,
    number: u64,
}

impl GpuQueue {
    /// Adds a batch. Blocks until it is the first batch, or until `is_done` returns true.
    /// [`notify`](Self::notify) evaluates `is_done` again.
    pub(super) fn wait(&self, is_done: impl Fn() -> bool) -> Entry<'_> {
        let mut batches = locked(&self.batches);
        let number = batches.next;
        batches.next += 1;
        batches.waiting.push_back(number);
        let waits = |batches: &mut Batches| batches.waiting.front() != Some(&number) && !is_done();
        let batches = self.changed.wait_while(batches, waits).unwrap_or_else(PoisonError::into_inner);
        drop(batches);
        Entry { queue: self, number }
    }

    /// Makes the waiting threads evaluate their `is_done` again.
    pub(super) fn notify(&self) {
        // This notifies under the lock. Otherwise a thread between its check and its sleep would miss the
        // notification.
        let batches = locked(&self.batches);
        self.changed.notify_all();
        drop(batches);
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        locked(&self.queue.batches).waiting.retain(|number| *number != self.number);
        self.queue.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn batches_reach_the_gpu_one_at_a_time_in_order_of_arrival() {
        let (queue, order, at_once) = (GpuQueue::default(), Mutex::new(Vec::new()), AtomicUsize::new(0));
        let first = queue.wait(|| false);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (queue, order, at_once) = (&queue, &order, &at_once);
                scope.spawn(move || {
                    let entry = queue.wait(|| false);
                    assert_eq!(at_once.fetch_add(1, Ordering::SeqCst), 0);
                    order.lock().unwrap().push(thread);
                    at_once.fetch_sub(1, Ordering::SeqCst);
                    drop(entry);
                });
                while queue.batches.lock().unwrap().next < thread + 2 {
                    std::thread::yield_now();
                }
            }
            assert!(order.lock().unwrap().is_empty(), "the first batch has not left");
            drop(first);
        });
        assert_eq!(order.into_inner().unwrap(), [0, 1, 2, 3]);
    }

    #[test]
    fn a_batch_that_is_done_leaves_the_queue_early() {
        let (queue, is_done) = (GpuQueue::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let first = queue.wait(|| false);
            let done = scope.spawn(|| drop(queue.wait(|| is_done.load(Ordering::SeqCst))));
            let third = scope.spawn(|| drop(queue.wait(|| false)));
            while queue.batches.lock().unwrap().next < 3 {
                std::thread::yield_now();
            }
            is_done.store(true, Ordering::SeqCst);
            queue.notify();
            let until = feedline_core::deadline(Duration::from_secs(10));
            while !done.is_finished() {
                assert!(Instant::now() < until, "it waits for the first batch");
                std::thread::yield_now();
            }
            assert!(!third.is_finished() && queue.batches.lock().unwrap().waiting.len() == 2);
            drop(first);
        });
        assert!(queue.batches.lock().unwrap().waiting.is_empty());
    }
}
