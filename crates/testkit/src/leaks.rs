//! Finds threads, open files and locked memory that a test leaks.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Once;
use std::time::{Duration, Instant};

/// The limit is long, because threads end slowly on a loaded machine. Only a failing test waits for all of
/// it.
const LIMIT: Duration = Duration::from_secs(30);

/// The resources of the process at one moment, read from `/proc/self`.
///
/// Take a census before and a census after the work, and compare them. If other tests of the binary run at
/// the same time, count only threads with a certain name, by [`of_threads`](Self::of_threads).
///
/// Two censuses are compared by the identities of the threads, because names change. A new thread has its
/// parent's name until it runs, which can take long on a busy machine. A thread that lived at the first
/// census is never a leak, whatever its name was.
#[derive(Clone, Debug)]
pub struct Census {
    limit: Duration,
    prefix: String,
    /// Every thread of the process, whatever its name.
    all: Vec<Thread>,
    /// Names of the threads, sorted. The kernel keeps the first 15 bytes of a name.
    pub threads: Vec<String>,
    /// Number of open file descriptors.
    pub files: usize,
    /// KiB of memory that the process has locked or pinned. Memory that a GPU driver pins is not included;
    /// the device stats count it.
    pub locked_kib: u64,
    /// KiB of resident memory. It is noisy, so [`assert_same`](Self::assert_same) does not compare it.
    pub resident_kib: u64,
}

/// One thread of the process.
#[derive(Clone, Debug)]
struct Thread {
    /// The kernel's id, and the start time in ticks, because ids are used again.
    identity: (u64, u64),
    name: String,
}

impl Thread {
    /// Reads the thread of a folder of `/proc/self/task`. `None` if the thread has ended, even if it is still
    /// listed.
    fn read(folder: &Path) -> Option<Self> {
        let stat = fs::read_to_string(folder.join("stat")).ok()?;
        // The format is that of proc(5): id, name in parentheses, state, and so on. The name may contain
        // blanks and parentheses. The start time is the 22nd field.
        let (id, rest) = stat.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        let has_ended = matches!(fields.next()?, "X" | "Z");
        let identity = (id.parse().ok()?, fields.nth(18)?.parse().ok()?);
        (!has_ended).then(|| Self { identity, name: name.to_owned() })
    }
}

impl Census {
    /// Takes a census of all threads.
    ///
    /// # Errors
    /// When `/proc` cannot be read. On a system without `/proc`, reports that leak checks did not run.
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
        let mut all = Vec::new();
        for task in fs::read_dir("/proc/self/task")? {
            // A thread can end between listing and reading.
            all.extend(Thread::read(&task?.path()));
        }
        let named = all.iter().map(|thread| &thread.name).filter(|name| name.starts_with(prefix));
        let mut threads: Vec<_> = named.cloned().collect();
        threads.sort();
        // A sanitizer opens pipes to its symbolizer, even for a suppressed report, and keeps these pipes
        // open.
        let has_sanitizer = std::env::var_os("FEEDLINE_TSAN").is_some();
        Ok(Self {
            limit: LIMIT,
            prefix: prefix.to_owned(),
            all,
            threads,
            files: if has_sanitizer { 0 } else { fs::read_dir("/proc/self/fd")?.count() },
            locked_kib: kib("VmLck") + kib("VmPin"),
            resident_kib: kib("VmRSS"),
        })
    }

    /// The census of a system without `/proc`, where every check passes. Reports once that leak checks did
    /// not run.
    fn unknown(prefix: &str) -> Self {
        static REPORT: Once = Once::new();
        REPORT.call_once(|| crate::not_run("leak checks", "only Linux has /proc"));
        let prefix = prefix.to_owned();
        let (all, threads) = (Vec::new(), Vec::new());
        Self { limit: LIMIT, prefix, all, threads, files: 0, locked_kib: 0, resident_kib: 0 }
    }

    /// Describes the difference to a later census as one line. `None` if no thread is new, no more files are
    /// open, and the locked memory is the same. A thread that has ended is not a leak, because it may belong
    /// to an earlier test.
    pub fn difference(&self, later: &Self) -> Option<String> {
        let mut parts: Vec<String> = self.new_threads(later).into_iter().collect();
        // Fewer files are no leak: the standard library and the allocator briefly open files of /proc and
        // /sys.
        if self.files < later.files {
            parts.push(format!("{} open files, not {}", later.files, self.files));
        }
        if self.locked_kib != later.locked_kib {
            parts.push(format!("{} KiB locked, not {}", later.locked_kib, self.locked_kib));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// The threads with the prefix that live at `later` and did not live at this census.
    fn new_threads(&self, later: &Self) -> Option<String> {
        let lived = |thread: &Thread| self.all.iter().any(|one| one.identity == thread.identity);
        let is_new = |thread: &&Thread| thread.name.starts_with(&self.prefix) && !lived(thread);
        let mut names: Vec<_> = later.all.iter().filter(is_new).map(|thread| &thread.name).collect();
        names.sort();
        (!names.is_empty()).then(|| format!("leaked threads: {names:?}"))
    }

    /// Sets how long [`assert_same`](Self::assert_same) waits for leftovers to end. Default: 30 seconds.
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
        self.assert_no(Self::difference);
    }

    /// Like [`assert_same`](Self::assert_same), for threads only.
    ///
    /// # Panics
    /// If there are new threads, with their names.
    #[track_caller]
    pub fn assert_no_new_threads(&self) {
        self.assert_no(Self::new_threads);
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
