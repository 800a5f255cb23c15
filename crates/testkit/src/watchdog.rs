//! The end of a test that hangs: say where every thread is, then abort.

use std::fs;
use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// What every test may take; more is a hang, unless the test still works.
pub const LIMIT: Duration = Duration::from_secs(120);

/// A test that still works is given this many times its limit.
const MOST: u32 = 5;

/// The share of a core above which a process works. Little, because most tests hand work from thread to thread: where ten
/// others want each core, every such step waits for its turn, and the test still goes on.
const WORKS: f64 = 0.002;

/// Aborts the process when it is not dropped in time.
///
/// A slow or loaded machine is no hang: a process that uses the processor when its time is over, or whose children did,
/// gets more, up to five times the limit.
///
/// The report goes straight to standard error, past the capture of the test harness: every thread's name, state and
/// place in the kernel (its system call and wait channel; its kernel stack where the kernel shows it), then what the
/// test has to say. Dropping disarms it.
///
/// ```
/// use feedline_testkit::Watchdog;
/// use std::time::Duration;
/// let _watchdog = Watchdog::with_dump(Duration::from_secs(60), "example", || "2 slots free".to_owned());
/// ```
#[derive(Debug)]
pub struct Watchdog {
    // Dropped with the value: the thread sees the end and goes.
    _guarded: Sender<()>,
}

impl Watchdog {
    /// Watches over `name` for `limit` from now.
    pub fn new(limit: Duration, name: &str) -> Self {
        Self::with_dump(limit, name, String::new)
    }

    /// The same; the report ends with what `dump` returns, such as the table of slots. `dump` must not block on a lock
    /// that a hanging thread may hold; it has five seconds.
    ///
    /// # Panics
    /// When the machine gives no thread: then nothing would watch.
    pub fn with_dump(limit: Duration, name: &str, dump: impl FnOnce() -> String + Send + 'static) -> Self {
        let (guarded, ended) = channel();
        let name = name.to_owned();
        let (awake, started) = channel();
        let watch = move || {
            awake.send(()).ok();
            watch(&ended, limit, &name, dump);
        };
        let thread = std::thread::Builder::new().name("tk-watchdog".into()).spawn(watch);
        assert!(thread.is_ok(), "cannot start the watchdog's thread: {thread:?}");
        // It has its name before a census is taken: until then it goes by that of this thread.
        started.recv().ok();
        Self { _guarded: guarded }
    }
}

/// Runs `work` under a [`Watchdog`] called after the current thread, which the test harness names after the test.
pub fn with_watchdog<R>(limit: Duration, work: impl FnOnce() -> R) -> R {
    let thread = std::thread::current();
    let _watchdog = Watchdog::new(limit, thread.name().unwrap_or("unnamed"));
    work()
}

fn watch(ended: &Receiver<()>, limit: Duration, name: &str, dump: impl FnOnce() -> String + Send + 'static) {
    let ended_in = |time| ended.recv_timeout(time) != Err(RecvTimeoutError::Timeout);
    // Whether it works is looked at in the last part of its time, and of each time more.
    let look = limit / 8;
    let mut waited = limit - look;
    if ended_in(waited) {
        return;
    }
    loop {
        let before = processor_time();
        if ended_in(look) {
            return;
        }
        waited += look;
        let used = processor_time().saturating_sub(before);
        if used <= look.mul_f64(WORKS) || waited >= limit * MOST {
            break;
        }
    }
    say(&format!("\nwatchdog: \"{name}\" still runs after {waited:?}\n{}", threads()));
    let (said, heard) = channel();
    std::thread::spawn(move || said.send(dump()));
    say(&heard
        .recv_timeout(Duration::from_secs(5))
        .unwrap_or_else(|_| "(the test's own dump hangs too)".into()));
    say("\n");
    std::process::abort();
}

/// What this process has had of the processor, and its children that have ended; zero where `/proc` does not say.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name, in brackets, may hold blanks. Behind it the 12th to 15th word are hundredths of a second.
    let words = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(4);
    Duration::from_millis(words.filter_map(|word| word.parse::<u64>().ok()).sum::<u64>() * 10)
}

/// Writes to the real standard error: the test harness captures what `eprint` writes, and an abort loses it.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// A table of this process's threads, one a line, with kernel stacks below where they can be read.
pub fn threads() -> String {
    let mut column = String::from("thread  name             state        system call        waits in\n");
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return column + "(no /proc/self/task here)\n" };
    for task in tasks.flatten() {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let status = read("status");
        let state =
            status.lines().find_map(|line| line.strip_prefix("State:")).unwrap_or("?").trim().to_owned();
        // The first two words: the number of the call and its first argument; or "running".
        let call = read("syscall").split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        let line = format!(
            "{:<7} {:<16} {state:<12} {call:<18} {}\n",
            task.file_name().to_string_lossy(),
            read("comm").trim(),
            read("wchan").trim()
        );
        column += &line;
        for frame in read("stack").lines() {
            column += &format!("          {frame}\n");
        }
    }
    column
}
