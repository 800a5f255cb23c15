//! The threads of large host operators: a pool of this crate's own.
//!
//! An operator of the host device runs on its stream's thread and waits for its parts. If the parts ran in
//! rayon's global pool, a program that trains on the threads of that pool would deadlock: its threads would
//! wait for the stream, and the stream for its threads.

use std::sync::OnceLock;

use feedline_core::{Error, ErrorKind, Result};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Elements that a thread takes at a time; work of fewer stays on the calling thread. A parallel call costs some ten
/// microseconds, about what the simplest of these loops needs for as many elements.
pub(super) const CHUNK: usize = 64 * 1024;

/// Does `work` for each of `parts`, on the threads of the pool where there are several parts.
///
/// The calling thread waits and does nothing else meanwhile. A thread of a rayon pool does all parts itself:
/// while it waits, rayon would let it run other jobs of its pool, and one of them may need a lock that it
/// holds.
pub(super) fn each<T: Send>(parts: impl Iterator<Item = T>, work: impl Fn(T) + Send + Sync) {
    let mut parts = parts.peekable();
    let Some(first) = parts.next() else { return };
    match pool().filter(|_| parts.peek().is_some() && rayon::current_thread_index().is_none()) {
        Some(pool) => {
            let all: Vec<T> = std::iter::once(first).chain(parts).collect();
            pool.install(|| all.into_par_iter().for_each(work));
        }
        None => std::iter::once(first).chain(parts).for_each(work),
    }
}

/// How many parts can be done at a time.
pub(super) fn threads() -> usize {
    pool().map_or(1, ThreadPool::current_num_threads)
}

/// Starts the threads, if they do not run yet, so that a system that gives none is an error here and not a slow run later.
///
/// # Errors
/// `Unavailable` when the system refuses a thread.
pub(crate) fn start_threads() -> Result<()> {
    started().as_ref().map(drop).map_err(Error::clone)
}

/// The pool; `None` where the system gives no threads.
fn pool() -> Option<&'static ThreadPool> {
    started().as_ref().ok()
}

/// One pool per process, started once and never ended. It has a thread per core, or as many as `RAYON_NUM_THREADS` says.
fn started() -> &'static Result<ThreadPool> {
    static POOL: OnceLock<Result<ThreadPool>> = OnceLock::new();
    POOL.get_or_init(|| {
        ThreadPoolBuilder::new().thread_name(|index| format!("kernel-{index}")).build().map_err(|error| {
            let why = "cannot start the threads that compute: raise the limit of processes (ulimit -u), or \
                       set RAYON_NUM_THREADS to fewer";
            Error::new(ErrorKind::Unavailable, why).caused_by(error)
        })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, Mutex};

    use super::*;

    /// The names of the threads that did `count` parts, each of which waits until `at_once` are in progress.
    fn threads_of(count: usize, at_once: usize) -> Vec<Option<String>> {
        let (names, barrier) = (Mutex::new(Vec::new()), Barrier::new(at_once));
        each(0..count, |_| {
            barrier.wait();
            names.lock().unwrap().push(std::thread::current().name().map(str::to_owned));
        });
        names.into_inner().unwrap()
    }

    fn are_the_pools(names: &[Option<String>]) -> bool {
        names.iter().all(|name| name.as_ref().is_some_and(|name| name.starts_with("kernel-")))
    }

    #[test]
    fn several_parts_go_to_the_pool_and_one_stays() {
        assert_eq!(threads_of(0, 1), []);
        assert_eq!(threads_of(1, 1), [std::thread::current().name().map(str::to_owned)]);
        let parts = threads().max(2);
        let names = threads_of(parts, threads());
        assert!(names.len() == parts && are_the_pools(&names), "{names:?}");
    }

    #[test]
    fn on_a_thread_of_another_pool_all_parts_stay() {
        let other = ThreadPoolBuilder::new().thread_name(|_| "other".into()).num_threads(2).build().unwrap();
        let names = other.install(|| threads_of(5, 1));
        assert_eq!(names, vec![Some("other".to_owned()); 5]);
    }
}
