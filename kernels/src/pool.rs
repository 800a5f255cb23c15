//! The thread pool of large host operators, `kernel-N`: one per process, with one thread per core or
//! `RAYON_NUM_THREADS` of them. It starts at first use and never stops.
//!
//! A host operator runs on its stream's thread and waits for its parts. If they ran in rayon's global
//! pool, a program that trains on threads of that pool would deadlock: the threads wait for the stream,
//! and the stream for the threads.

use std::sync::OnceLock;

use feedline_core::{Error, ErrorKind, Result};
use rayon_core::{ThreadPool, ThreadPoolBuilder};

/// Elements per part; smaller work stays on the calling thread. A parallel call costs about ten
/// microseconds, as long as the simplest of these loops takes for this number of elements.
pub(crate) const CHUNK: usize = 64 * 1024;

/// Runs `work` for each of `parts`; several parts run on the pool. Blocks until all are done.
///
/// A thread of any rayon pool runs all parts itself: while it waited, rayon would let it run other work of
/// its pool, which may need a lock that the thread already holds.
pub fn each<T: Send>(parts: impl Iterator<Item = T>, work: impl Fn(T) + Send + Sync) {
    let mut parts = parts.peekable();
    let Some(first) = parts.next() else { return };
    match pool()
        .as_ref()
        .ok()
        .filter(|_| parts.peek().is_some() && rayon_core::current_thread_index().is_none())
    {
        Some(pool) => {
            let work = &work;
            pool.in_place_scope(|scope| {
                std::iter::once(first).chain(parts).for_each(|part| scope.spawn(move |_| work(part)));
            });
        }
        None => std::iter::once(first).chain(parts).for_each(work),
    }
}

/// The number of threads of the pool; 1 if it could not start.
pub fn threads() -> usize {
    pool().as_ref().map_or(1, ThreadPool::current_num_threads)
}

/// Starts the pool if needed, so that a failure to start it is an error here instead of a slow run later.
///
/// # Errors
/// `Unavailable` if the system refuses a thread.
pub fn start() -> Result<()> {
    pool().as_ref().map(drop).map_err(Error::clone)
}

/// The pool, started if needed; an `Unavailable` error if the system refused a thread.
pub fn pool() -> &'static Result<ThreadPool> {
    static POOL: OnceLock<Result<ThreadPool>> = OnceLock::new();
    POOL.get_or_init(|| new_pool("kernel", 0))
}

/// Starts another pool with threads `name-N`; 0 threads mean one per core.
///
/// # Errors
/// `Unavailable` if the system refuses a thread.
pub fn new_pool(name: &'static str, threads: usize) -> Result<ThreadPool> {
    let pool = ThreadPoolBuilder::new().num_threads(threads);
    pool.thread_name(move |index| format!("{name}-{index}")).build().map_err(|error| {
        let why = "cannot start the compute threads: raise the limit of processes (ulimit -u) or \
                   lower RAYON_NUM_THREADS";
        Error::new(ErrorKind::Unavailable, why).with_source(error)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, Mutex};

    use super::*;

    /// The names of the threads that ran `count` parts; each part waits until `at_once` parts are running.
    fn threads_of(count: usize, at_once: usize) -> Vec<Option<String>> {
        let (names, barrier) = (Mutex::new(Vec::new()), Barrier::new(at_once));
        each(0..count, |_| {
            barrier.wait();
            names.lock().unwrap().push(std::thread::current().name().map(str::to_owned));
        });
        names.into_inner().unwrap()
    }

    fn all_in_pool(names: &[Option<String>]) -> bool {
        names.iter().all(|name| name.as_ref().is_some_and(|name| name.starts_with("kernel-")))
    }

    #[test]
    fn several_parts_run_on_the_pool_and_one_on_the_caller() {
        assert_eq!(threads_of(0, 1), []);
        assert_eq!(threads_of(1, 1), [std::thread::current().name().map(str::to_owned)]);
        let parts = threads().max(2);
        let names = threads_of(parts, threads());
        assert!(names.len() == parts && all_in_pool(&names), "{names:?}");
    }

    #[test]
    fn a_thread_of_another_pool_runs_all_parts_itself() {
        let other = ThreadPoolBuilder::new().thread_name(|_| "other".into()).num_threads(2).build().unwrap();
        let names = other.install(|| threads_of(5, 1));
        assert_eq!(names, vec![Some("other".to_owned()); 5]);
    }
}
