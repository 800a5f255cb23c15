//! The thread pool for large host operators.
//!
//! A host operator runs on its stream's thread and waits for its parts. If they ran in rayon's global
//! pool, a program that trains on threads of that pool would deadlock: the threads wait for the stream,
//! and the stream for the threads.

use std::sync::OnceLock;

use feedline_core::{Error, ErrorKind, Result};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Elements per part; smaller work stays on the calling thread. A parallel call costs some ten
/// microseconds, about the time of the simplest of these loops over this number of elements.
pub(super) const CHUNK: usize = 64 * 1024;

/// Runs `work` for each of `parts`; several parts run on the pool.
///
/// The calling thread only waits. A thread of any rayon pool runs all parts itself: while it waited,
/// rayon would let it run other work of its pool, which may need a lock that the thread already holds.
pub(crate) fn each<T: Send>(parts: impl Iterator<Item = T>, work: impl Fn(T) + Send + Sync) {
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

/// The number of parts that run at the same time.
pub(crate) fn threads() -> usize {
    pool().map_or(1, ThreadPool::current_num_threads)
}

/// Calls `next` again and again on threads of a pool until it returns `false`, for up to `most` calls at the
/// same time, while the calling thread runs `own`; returns when all have ended. With `beside_gpu` it is the
/// pool for pictures, which serves one caller after the other.
///
/// Without the pool, and on a thread of another one, the calling thread does all of it, `own` first.
#[cfg(feature = "nvjpeg")]
pub(crate) fn until_none_is_left<R>(
    most: usize,
    beside_gpu: bool,
    next: impl Fn() -> bool + Sync,
    own: impl FnOnce() -> R,
) -> R {
    let pool = if beside_gpu { pictures() } else { started() };
    match pool.as_ref().ok().filter(|_| rayon::current_thread_index().is_none()) {
        Some(pool) => pool.in_place_scope(|scope| {
            let next = &next;
            for _ in 0..most.min(pool.current_num_threads()) {
                scope.spawn(move |_| while next() {});
            }
            own()
        }),
        None => {
            let result = own();
            while next() {}
            result
        }
    }
}

/// Starts the threads if needed, so that a failure to start them is an error here instead of a slow run
/// later.
///
/// # Errors
/// `Unavailable` if the system refuses a thread.
pub(crate) fn start_threads() -> Result<()> {
    started().as_ref().map(drop).map_err(Error::clone)
}

/// The same for those that decode pictures.
#[cfg(feature = "nvjpeg")]
pub(crate) fn start_picture_threads() -> Result<()> {
    start_threads()?;
    pictures().as_ref().map(drop).map_err(Error::clone)
}

/// The pool; `None` if it could not start.
fn pool() -> Option<&'static ThreadPool> {
    started().as_ref().ok()
}

/// The pool of the process, started once and never stopped: one thread per core, or `RAYON_NUM_THREADS`.
fn started() -> &'static Result<ThreadPool> {
    static POOL: OnceLock<Result<ThreadPool>> = OnceLock::new();
    POOL.get_or_init(|| start("kernel", 0))
}

/// Threads for pictures beside a GPU that decodes too, on half of the cores. A picture takes milliseconds,
/// and the GPU would wait as long for the files of the next batch if the same threads served both; and those
/// that feed it need cores: with three of them and a pool on 16, 12, 9 and 6 of 16 cores, `Decode::Auto`
/// decoded 20,000, 24,200, 24,300 and 24,000 pictures/s (H200, bench `jpeg-gpu`).
#[cfg(feature = "nvjpeg")]
fn pictures() -> &'static Result<ThreadPool> {
    static POOL: OnceLock<Result<ThreadPool>> = OnceLock::new();
    POOL.get_or_init(|| start("picture", threads().div_ceil(2)))
}

/// Starts a pool; 0 threads are one per core.
fn start(name: &'static str, threads: usize) -> Result<ThreadPool> {
    let pool = ThreadPoolBuilder::new().num_threads(threads);
    pool.thread_name(move |index| format!("{name}-{index}")).build().map_err(|error| {
        let why = "cannot start the compute threads: raise the limit of processes (ulimit -u) or \
                   lower RAYON_NUM_THREADS";
        Error::new(ErrorKind::Unavailable, why).caused_by(error)
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
