//! Runs independent parts of a test at the same time.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The max number of parts that run at the same time. Parts that build a pipeline mostly wait for its threads
/// to run, and wait long on a busy machine. There, four parts at once take little longer than one.
pub const AT_ONCE: usize = 4;

/// Runs `part` for each of `items`, for up to [`AT_ONCE`] items at the same time. Returns the results in the
/// order of the items.
///
/// ```
/// assert_eq!(feedline_testkit::at_once(&[3, 1, 2], |item| item * item), [9, 1, 4]);
/// ```
///
/// # Panics
/// With the panic of a part, after all running parts have ended.
pub fn at_once<T: Sync, R: Send>(items: &[T], part: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let run = || {
        let taken = std::iter::from_fn(|| {
            let index = next.fetch_add(1, Ordering::Relaxed);
            items.get(index).map(|item| (index, item))
        });
        taken.map(|(index, item)| (index, part(item))).collect::<Vec<_>>()
    };
    let mut results = std::thread::scope(|scope| {
        let name = std::thread::current().name().unwrap_or("unnamed").to_owned();
        let threads: Vec<_> = (0..AT_ONCE.min(items.len()))
            .map(|_| {
                std::thread::Builder::new().name(name.clone()).spawn_scoped(scope, run).expect("a thread")
            })
            .collect();
        let ended =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        ended.flatten().collect::<Vec<_>>()
    });
    results.sort_by_key(|&(index, _)| index);
    results.into_iter().map(|(_, result)| result).collect()
}
