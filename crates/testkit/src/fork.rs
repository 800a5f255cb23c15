//! Runs work in a forked child of the test process, to test that it does not hang there.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// How a forked child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    /// The work returned this value.
    Returned(bool),
    /// The work panicked, or a signal ended the child.
    Failed,
    /// The child still ran after the limit, and was killed.
    Hung,
}

/// Forks the process and runs `work` in the child. The child then exits without running destructors. Waits
/// for the child for at most `limit`.
///
/// The child has only the forking thread. So a lock that another thread holds at the fork stays locked for
/// ever in the child. `work` must not print, and must not take a lock that another thread may hold.
///
/// # Panics
/// If the fork fails.
pub fn in_a_fork(limit: Duration, work: impl FnOnce() -> bool) -> Child {
    // SAFETY: the child runs only `work` and leaves by `_exit`. It may allocate: glibc's allocator handles
    // its locks at a fork.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "cannot fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        let code = catch_unwind(AssertUnwindSafe(work)).map_or(2, i32::from);
        // SAFETY: `_exit` ends the child at once, without running destructors or flushing buffers inherited
        // from the parent.
        unsafe { libc::_exit(code) };
    }
    let start = Instant::now();
    let mut status = 0;
    loop {
        // SAFETY: `child` is a child of this process that has not been waited for, and `status` is writable.
        let ended = unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) };
        match ended {
            0 if start.elapsed() < limit => std::thread::sleep(Duration::from_millis(1)),
            0 => {
                // SAFETY: the child has not been waited for, so its process id is not reused.
                unsafe { libc::kill(child, libc::SIGKILL) };
                // SAFETY: as above; the child was killed, so this returns.
                unsafe { libc::waitpid(child, &mut status, 0) };
                return Child::Hung;
            }
            _ if ended == child && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) < 2 => {
                return Child::Returned(libc::WEXITSTATUS(status) == 1);
            }
            _ => return Child::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_how_the_child_ended() {
        let long = Duration::from_secs(60);
        let parent = std::process::id();
        assert_eq!(in_a_fork(long, || std::process::id() != parent), Child::Returned(true));
        assert_eq!(in_a_fork(long, || false), Child::Returned(false));
        assert_eq!(in_a_fork(long, || std::panic::resume_unwind(Box::new(0))), Child::Failed);
        assert_eq!(
            in_a_fork(Duration::from_millis(50), || loop {
                std::thread::park()
            }),
            Child::Hung
        );
    }
}
