//! Tests that must not run beside any other test of the binary. They count threads and open files, or use a
//! GPU.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};

static ONE: Mutex<()> = Mutex::new(());

thread_local! {
    /// The lock, if this thread holds it, and how often this thread has taken it.
    static HELD: RefCell<Option<(MutexGuard<'static, ()>, usize)>> = const { RefCell::new(None) };
}

/// Blocks other callers of [`exclusive`] until it is dropped on the thread that called `exclusive`.
#[derive(Debug)]
#[must_use]
pub struct Exclusive(PhantomData<*const ()>);

/// Waits until no other thread of this process holds an [`Exclusive`]. A thread may hold several.
///
/// A GPU opens files that a census of another test would count. Work of other tests on the GPU delays results
/// that a test expects in time. So [`gpu()`](crate::gpu()) takes this lock too, until the thread of its test
/// ends.
pub fn exclusive() -> Exclusive {
    HELD.with_borrow_mut(|held| match held {
        Some((_, times)) => *times += 1,
        None => *held = Some((ONE.lock().unwrap_or_else(PoisonError::into_inner), 1)),
    });
    Exclusive(PhantomData)
}

impl Exclusive {
    /// Holds the lock until the calling thread ends.
    pub(crate) fn until_thread_ends(self) {
        std::mem::forget(self);
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        // While the thread ends, `HELD` no longer exists. Its lock is released anyway.
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some((_, times)) = held.as_mut() {
                *times -= 1;
                if *times == 0 {
                    *held = None;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn one_thread_at_a_time_holds_it_and_that_one_may_take_it_again() {
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for index in 0..8 {
                let (inside, most) = (&inside, &most);
                scope.spawn(move || {
                    for _ in 0..200 {
                        let outer = exclusive();
                        let inner = exclusive();
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        drop(outer);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(inner);
                    }
                    if index % 2 == 0 {
                        exclusive().until_thread_ends();
                    }
                });
            }
        });
        assert_eq!(most.load(Ordering::SeqCst), 1);
    }
}
