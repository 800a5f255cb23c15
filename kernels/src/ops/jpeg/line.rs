//! The batches that wait for the GPU, which decodes one at a time.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};

use super::locked;

/// Batches in the order in which they came. The first one is the GPU's; the CPU decodes pictures of the
/// others.
///
/// The chip's JPEG engines serve one call after the other, and two calls at a time make each other slower:
/// 18,400 pictures/s by two threads, 19,600 in turns (H200, bench `jpeg-gpu`, chroma not interpolated).
#[derive(Debug, Default)]
pub(super) struct Line {
    batches: Mutex<Batches>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Batches {
    waiting: VecDeque<u64>,
    next: u64,
}

/// A batch's place in the line; it leaves when this is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    line: &'a Line,
    number: u64,
}

impl Line {
    /// Blocks until this batch is the first in line, or `is_done`: check it again with
    /// [`changed`](Self::changed).
    pub(super) fn wait(&self, is_done: impl Fn() -> bool) -> Turn<'_> {
        let mut batches = locked(&self.batches);
        let number = batches.next;
        batches.next += 1;
        batches.waiting.push_back(number);
        let waits = |batches: &mut Batches| batches.waiting.front() != Some(&number) && !is_done();
        let batches = self.moved.wait_while(batches, waits).unwrap_or_else(PoisonError::into_inner);
        drop(batches);
        Turn { line: self, number }
    }

    /// Lets those who wait look again whether they are done.
    pub(super) fn changed(&self) {
        // Nobody is between looking and waiting while this thread has the lock.
        let batches = locked(&self.batches);
        self.moved.notify_all();
        drop(batches);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        locked(&self.line.batches).waiting.retain(|number| *number != self.number);
        self.line.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn batches_have_their_turn_one_at_a_time_in_the_order_in_which_they_came() {
        let (line, order, at_once) = (Line::default(), Mutex::new(Vec::new()), AtomicUsize::new(0));
        let first = line.wait(|| false);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (line, order, at_once) = (&line, &order, &at_once);
                scope.spawn(move || {
                    let turn = line.wait(|| false);
                    assert_eq!(at_once.fetch_add(1, Ordering::SeqCst), 0);
                    order.lock().unwrap().push(thread);
                    at_once.fetch_sub(1, Ordering::SeqCst);
                    drop(turn);
                });
                while line.batches.lock().unwrap().next < thread + 2 {
                    std::thread::yield_now();
                }
            }
            assert!(order.lock().unwrap().is_empty(), "the first batch has not left");
            drop(first);
        });
        assert_eq!(order.into_inner().unwrap(), [0, 1, 2, 3]);
    }

    #[test]
    fn a_batch_that_is_done_leaves_without_its_turn() {
        let (line, is_done) = (Line::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let first = line.wait(|| false);
            let done = scope.spawn(|| drop(line.wait(|| is_done.load(Ordering::SeqCst))));
            let third = scope.spawn(|| drop(line.wait(|| false)));
            while line.batches.lock().unwrap().next < 3 {
                std::thread::yield_now();
            }
            is_done.store(true, Ordering::SeqCst);
            line.changed();
            let until = feedline_core::deadline(Duration::from_secs(10));
            while !done.is_finished() {
                assert!(Instant::now() < until, "it waits for its turn");
                std::thread::yield_now();
            }
            assert!(!third.is_finished() && line.batches.lock().unwrap().waiting.len() == 2);
            drop(first);
        });
        assert!(line.batches.lock().unwrap().waiting.is_empty());
    }
}
