//! What a test leaves behind: threads, open files, page-locked memory.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// What the process holds at one moment, read from `/proc/self`.
///
/// Compare two around a piece of work. Other tests of the same binary start and end threads of their own: where they
/// run at the same time, count only the threads of a name, with [`of_threads`](Self::of_threads). A thread that is just
/// being started goes by its parent's name for a moment: take the first census when all threads that stay do run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Census {
    prefix: String,
    /// Names of the threads, sorted. The kernel keeps the first 15 bytes of a name.
    pub threads: Vec<String>,
    /// Open file descriptors.
    pub files: usize,
    /// KiB of memory that the process has locked or pinned. Memory that a GPU's driver page-locks is not in it: the
    /// device's ledger counts that.
    pub locked_kib: u64,
    /// KiB of resident memory; noisy, so [`assert_same`](Self::assert_same) does not compare it.
    pub resident_kib: u64,
}

impl Census {
    /// Takes stock of all threads.
    ///
    /// # Errors
    /// A machine without `/proc`.
    pub fn take() -> io::Result<Self> {
        Self::of_threads("")
    }

    /// Takes stock, of the threads whose name begins with `prefix` only.
    ///
    /// # Errors
    /// A machine without `/proc`.
    pub fn of_threads(prefix: &str) -> io::Result<Self> {
        let status = fs::read_to_string("/proc/self/status")?;
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        let mut threads = Vec::new();
        for task in fs::read_dir("/proc/self/task")? {
            // A thread can end between the listing and the reading.
            let Ok(name) = fs::read_to_string(task?.path().join("comm")) else { continue };
            let name = name.trim_end();
            if name.starts_with(prefix) {
                threads.push(name.to_owned());
            }
        }
        threads.sort();
        // A sanitizer opens pipes to its symbolizer in mid-run, for a report that is suppressed too, and keeps them.
        let watched = std::env::var_os("FEEDLINE_TSAN").is_some();
        Ok(Self {
            prefix: prefix.to_owned(),
            threads,
            files: if watched { 0 } else { fs::read_dir("/proc/self/fd")?.count() },
            locked_kib: kib("VmLck") + kib("VmPin"),
            resident_kib: kib("VmRSS"),
        })
    }

    /// What a later census has that this one has not, in one line; `None` when threads and locked memory agree and
    /// no more files are open.
    pub fn difference(&self, later: &Self) -> Option<String> {
        self.with_threads(self.thread_difference(later), later)
    }

    /// What is there later and was not before. A thread of an earlier test that was on its way out is nothing left behind.
    fn left_behind(&self, later: &Self) -> Option<String> {
        let threads =
            self.thread_difference(later).filter(|difference| difference.starts_with("threads left"));
        self.with_threads(threads, later)
    }

    fn with_threads(&self, threads: Option<String>, later: &Self) -> Option<String> {
        let mut parts: Vec<String> = threads.into_iter().collect();
        // Fewer are no leak: the standard library and the allocator open files of /proc and /sys for a moment.
        if self.files < later.files {
            parts.push(format!("{} open files, not {}", later.files, self.files));
        }
        if self.locked_kib != later.locked_kib {
            parts.push(format!("{} KiB locked, not {}", later.locked_kib, self.locked_kib));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    fn thread_difference(&self, later: &Self) -> Option<String> {
        let mut more = later.threads.clone();
        let mut fewer = Vec::new();
        for name in &self.threads {
            match more.iter().position(|other| other == name) {
                Some(at) => drop(more.remove(at)),
                None => fewer.push(name),
            }
        }
        let mut parts = Vec::new();
        if !more.is_empty() {
            parts.push(format!("threads left: {more:?}"));
        }
        if !fewer.is_empty() {
            parts.push(format!("threads gone: {fewer:?}"));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// Asserts that the process holds again what it held then.
    ///
    /// A thread that was joined may stand in `/proc` for a moment, so this looks again for up to half a minute.
    ///
    /// # Panics
    /// When it still holds something else, with the [`difference`](Self::difference).
    #[track_caller]
    pub fn assert_same(&self) {
        self.assert_no(Self::left_behind);
    }

    /// Like [`assert_same`](Self::assert_same), of the threads alone.
    ///
    /// # Panics
    /// When there are other threads, with their names.
    #[track_caller]
    pub fn assert_same_threads(&self) {
        self.assert_no(Self::thread_difference);
    }

    #[track_caller]
    fn assert_no(&self, difference: impl Fn(&Self, &Self) -> Option<String>) {
        // Only a test that fails waits as long: on a loaded machine a thread takes its time to go.
        const PATIENCE: Duration = Duration::from_secs(30);
        let start = Instant::now();
        loop {
            let difference = match Self::of_threads(&self.prefix) {
                Ok(now) => difference(self, &now),
                Err(error) => Some(format!("cannot read /proc: {error}")),
            };
            let Some(difference) = difference else { return };
            assert!(start.elapsed() < PATIENCE, "something was left behind: {difference}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
