//! Finds what a test leaks: threads, open files, locked memory.

use std::fs;
use std::io;
use std::sync::Once;
use std::time::{Duration, Instant};

/// Long, because threads end slowly on a loaded machine. Only a failing test waits for all of it.
const LIMIT: Duration = Duration::from_secs(30);

/// The resources of the process at one moment, read from `/proc/self`.
///
/// Take one before and one after the work, and compare them. If other tests of the binary run at the same
/// time, count only threads of a name, with [`of_threads`](Self::of_threads). A new thread briefly has its
/// parent's name, so take the first census when all long-lived threads run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Census {
    limit: Duration,
    prefix: String,
    /// Names of the threads, sorted. The kernel keeps the first 15 bytes of a name.
    pub threads: Vec<String>,
    /// Number of open file descriptors.
    pub files: usize,
    /// KiB of memory that the process has locked or pinned. Does not include memory pinned by a GPU driver,
    /// which the device stats count.
    pub locked_kib: u64,
    /// KiB of resident memory; noisy, so [`assert_same`](Self::assert_same) does not compare it.
    pub resident_kib: u64,
}

impl Census {
    /// Takes a census of all threads.
    ///
    /// # Errors
    /// When `/proc` cannot be read. On a system that has none, reports that leak checks did not run.
    pub fn take() -> io::Result<Self> {
        Self::of_threads("")
    }

    /// Takes a census that counts only threads whose name begins with `prefix`.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn of_threads(prefix: &str) -> io::Result<Self> {
        if cfg!(not(target_os = "linux")) {
            return Ok(Self::unknown(prefix));
        }
        let status = fs::read_to_string("/proc/self/status")?;
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        let mut threads = Vec::new();
        for task in fs::read_dir("/proc/self/task")? {
            // A thread can end between listing and reading.
            let Ok(name) = fs::read_to_string(task?.path().join("comm")) else { continue };
            let name = name.trim_end();
            if name.starts_with(prefix) {
                threads.push(name.to_owned());
            }
        }
        threads.sort();
        // A sanitizer opens pipes to its symbolizer, even for a suppressed report, and keeps them open.
        let has_sanitizer = std::env::var_os("FEEDLINE_TSAN").is_some();
        Ok(Self {
            limit: LIMIT,
            prefix: prefix.to_owned(),
            threads,
            files: if has_sanitizer { 0 } else { fs::read_dir("/proc/self/fd")?.count() },
            locked_kib: kib("VmLck") + kib("VmPin"),
            resident_kib: kib("VmRSS"),
        })
    }

    /// The census of a system without `/proc`, where every check passes. Reports once that there is none.
    fn unknown(prefix: &str) -> Self {
        static REPORT: Once = Once::new();
        REPORT.call_once(|| crate::not_run("leak checks", "only Linux has /proc"));
        let prefix = prefix.to_owned();
        Self { limit: LIMIT, prefix, threads: Vec::new(), files: 0, locked_kib: 0, resident_kib: 0 }
    }

    /// The difference to a later census, as one line. `None` if threads and locked memory are the same and no
    /// more files are open.
    pub fn difference(&self, later: &Self) -> Option<String> {
        self.with_threads(self.thread_difference(later), later)
    }

    /// Like [`difference`](Self::difference), but ignores threads that ended: they may belong to an earlier
    /// test.
    fn leaks(&self, later: &Self) -> Option<String> {
        let threads =
            self.thread_difference(later).filter(|difference| difference.starts_with("leaked threads"));
        self.with_threads(threads, later)
    }

    fn with_threads(&self, threads: Option<String>, later: &Self) -> Option<String> {
        let mut parts: Vec<String> = threads.into_iter().collect();
        // Fewer files are fine: the standard library and the allocator briefly open files of /proc and /sys.
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
            parts.push(format!("leaked threads: {more:?}"));
        }
        if !fewer.is_empty() {
            parts.push(format!("ended threads: {fewer:?}"));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// This census with another time that [`assert_same`](Self::assert_same) waits for the end of what is
    /// left; 30 seconds by default.
    pub fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Asserts that nothing was leaked since this census.
    ///
    /// Repeats the check up to its limit, because a joined thread may stay in `/proc` for a moment.
    ///
    /// # Panics
    /// If there is a leak, with the [`difference`](Self::difference).
    #[track_caller]
    pub fn assert_same(&self) {
        self.assert_no(Self::leaks);
    }

    /// Like [`assert_same`](Self::assert_same), for threads only; a missing thread fails too.
    ///
    /// # Panics
    /// If the threads differ, with their names.
    #[track_caller]
    pub fn assert_same_threads(&self) {
        self.assert_no(Self::thread_difference);
    }

    #[track_caller]
    fn assert_no(&self, difference: impl Fn(&Self, &Self) -> Option<String>) {
        let start = Instant::now();
        loop {
            let difference = match Self::of_threads(&self.prefix) {
                Ok(now) => difference(self, &now),
                Err(error) => Some(format!("cannot read /proc: {error}")),
            };
            let Some(difference) = difference else { return };
            assert!(start.elapsed() < self.limit, "the test leaked: {difference}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
