//! Fork detection: a forked child has none of its parent's threads.

/// The number of forks between the first call and this one, counted along the chain from parent to child. The
/// number differs in a forked child. It is always 0 on Windows, where no process forks.
///
/// This is an atomic load. Reading the process id instead takes 200 ns per batch. A child that a raw system
/// call creates, without the C library, is not detected.
pub fn forks() -> u64 {
    count::forks()
}

#[cfg(all(unix, not(miri)))]
mod count {
    use std::sync::Once;
    use std::sync::atomic::{AtomicU64, Ordering};

    static FORKS: AtomicU64 = AtomicU64::new(0);

    pub(super) fn forks() -> u64 {
        static WATCH: Once = Once::new();
        WATCH.call_once(|| {
            // SAFETY: the handler is a function of this program that does one atomic addition, which is
            // allowed after a fork. An error means that there is no memory for the handler; then forks are
            // not detected.
            unsafe { libc::pthread_atfork(None, None, Some(count)) };
        });
        FORKS.load(Ordering::Relaxed)
    }

    extern "C" fn count() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Windows has no forks; Miri has neither forks nor `pthread_atfork`.
#[cfg(not(all(unix, not(miri))))]
mod count {
    pub(super) fn forks() -> u64 {
        0
    }
}
