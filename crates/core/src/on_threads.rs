//! The same work on several threads.

use std::panic::resume_unwind;
use std::thread::{Builder, scope};

/// Runs `work` on this thread and on up to `threads - 1` others called `name`, and returns all results, this
/// thread's first. If the system refuses threads, fewer run, so `work` must be able to do everything on one
/// thread.
///
/// # Panics
/// If `work` does, once every thread has ended.
pub fn on_threads<R: Send>(threads: usize, name: &str, work: impl Fn() -> R + Sync) -> Vec<R> {
    scope(|scope| {
        let spawn = |_| Builder::new().name(name.to_owned()).spawn_scoped(scope, &work).ok();
        let others: Vec<_> = (1..threads).map_while(spawn).collect();
        let mut all = vec![work()];
        all.extend(others.into_iter().map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic))));
        all
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::on_threads;

    #[test]
    fn every_thread_works_and_a_panic_goes_on_once_all_have_ended() {
        let count = AtomicUsize::new(0);
        let numbers = on_threads(4, "counts", || count.fetch_add(1, Ordering::Relaxed));
        assert_eq!((numbers.len(), numbers.iter().sum::<usize>()), (4, 6));
        assert_eq!(on_threads(0, "none", || 7), [7]);
        let panics = || {
            let number = count.fetch_add(1, Ordering::Relaxed);
            assert!(number != 5, "planned");
        };
        let panicked = std::panic::catch_unwind(|| on_threads(4, "panics", panics));
        assert!(panicked.is_err() && count.load(Ordering::Relaxed) == 8);
    }

    /// Runs in a process whose threads ask for an impossible stack size, so that it gets none.
    #[test]
    #[cfg_attr(miri, ignore = "miri starts no processes")]
    fn this_thread_does_all_the_work_if_the_system_refuses_others() {
        const NAME: &str = "on_threads::tests::this_thread_does_all_the_work_if_the_system_refuses_others";
        if std::env::var_os("FEEDLINE_TEST_NO_THREADS").is_some() {
            assert!(std::thread::Builder::new().spawn(|| ()).is_err(), "a thread was started");
            assert_eq!(
                on_threads(16, "refused", || std::thread::current().id()),
                [std::thread::current().id()]
            );
            println!("done without threads");
            return;
        }
        let mut child = Command::new(std::env::current_exe().expect("this program"));
        child.args(["--exact", NAME, "--nocapture", "--test-threads=1"]);
        child.env("FEEDLINE_TEST_NO_THREADS", "1").env("RUST_MIN_STACK", (1_u64 << 47).to_string());
        let output = child.output().expect("a process");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("done without threads"), "{output:?}");
    }
}
