//! Aborts a test that hangs, after it has reported where every thread is.

use std::fs;
use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The time limit of every test. A test that takes longer hangs, unless it still uses the processor.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Factor by which a test may exceed its limit while it still uses the processor.
const MOST: u32 = 5;

/// The share of a core above which a process counts as busy. It is small because most tests hand work from
/// thread to thread. With ten other threads per core, each such step waits long, but the test still makes
/// progress.
const BUSY: f64 = 0.002;

/// Aborts the process if it is not dropped in time.
///
/// A slow or loaded machine is not a hang. So while the process or its children use the processor, the limit
/// is extended, up to five times.
///
/// The report goes to standard error, past the capture of the test harness. For every thread, it has the
/// name, the state and the position in the kernel (system call, wait channel, and kernel stack if readable).
/// Then comes the test's own dump. Dropping the watchdog disarms it.
///
/// ```
/// use feedline_testkit::Watchdog;
/// use std::time::Duration;
/// let _watchdog = Watchdog::with_dump(Duration::from_secs(60), "example", || "2 slots free".to_owned());
/// ```
#[derive(Debug)]
pub struct Watchdog {
    // This is dropped first. The thread then sees the channel close, and ends.
    guarded: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A thread that is still running when the process ends would look like a leak.
impl Drop for Watchdog {
    fn drop(&mut self) {
        self.guarded = None;
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl Watchdog {
    /// Watches the test `name` for `limit` from now.
    pub fn new(limit: Duration, name: &str) -> Self {
        Self::with_dump(limit, name, String::new)
    }

    /// Like [`new`](Self::new), but the report ends with the text that `dump` returns, such as the states of
    /// the slots. `dump` should not block on a lock that a hanging thread may hold. It has five seconds.
    ///
    /// # Panics
    /// If the thread cannot be started.
    pub fn with_dump(limit: Duration, name: &str, dump: impl FnOnce() -> String + Send + 'static) -> Self {
        let (guarded, ended) = channel();
        let (name, limit) = (name.to_owned(), crate::time_limit(limit));
        let (awake, started) = channel();
        let watch = move || {
            awake.send(()).ok();
            watch(&ended, limit, &name, dump);
        };
        let thread = std::thread::Builder::new().name("tk-watchdog".into()).spawn(watch);
        let thread = thread.expect("the watchdog's thread");
        // Waits until the thread has its name, because a census must not count it under the name of this
        // thread.
        started.recv().ok();
        Self { guarded: Some(guarded), thread: Some(thread) }
    }
}

/// Runs `work` under a [`Watchdog`] with the name of the current thread. The test harness names this thread
/// after the test.
pub fn with_watchdog<R>(limit: Duration, work: impl FnOnce() -> R) -> R {
    let thread = std::thread::current();
    let _watchdog = Watchdog::new(limit, thread.name().unwrap_or("unnamed"));
    work()
}

fn watch(ended: &Receiver<()>, limit: Duration, name: &str, dump: impl FnOnce() -> String + Send + 'static) {
    let ended_in = |time| ended.recv_timeout(time) != Err(RecvTimeoutError::Timeout);
    // Processor use is measured in the last eighth of the limit, and in each extension.
    let interval = limit / 8;
    let mut waited = limit - interval;
    if ended_in(waited) {
        return;
    }
    loop {
        let before = processor_time();
        if ended_in(interval) {
            return;
        }
        waited += interval;
        let used = processor_time().saturating_sub(before);
        if used <= interval.mul_f64(BUSY) || waited >= limit * MOST {
            break;
        }
    }
    print(&format!("\nwatchdog: \"{name}\" still runs after {waited:?}\n{}", threads()));
    let (send, receive) = channel();
    std::thread::spawn(move || send.send(dump()));
    print(
        &receive
            .recv_timeout(Duration::from_secs(5))
            .unwrap_or_else(|_| "(the test's own dump hangs too)".into()),
    );
    print("\n");
    std::process::abort();
}

/// The processor time of this process and its ended children; zero if `/proc` is not readable.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name, in parentheses, may contain blanks. The 12th to 15th word after it are in hundredths of a
    // second.
    let words = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(4);
    Duration::from_millis(words.filter_map(|word| word.parse::<u64>().ok()).sum::<u64>() * 10)
}

/// Writes to the real standard error. The test harness captures `eprint`, and an abort would lose the
/// captured text.
fn print(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// A table of this process's threads, one per line, each followed by its kernel stack if readable.
pub fn threads() -> String {
    let mut table = String::from("thread  name             state        system call        waits in\n");
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return table + "(no /proc/self/task here)\n" };
    for task in tasks.flatten() {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let status = read("status");
        let state =
            status.lines().find_map(|line| line.strip_prefix("State:")).unwrap_or("?").trim().to_owned();
        // The first two words are the number of the system call and its first argument, or "running".
        let call = read("syscall").split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        let line = format!(
            "{:<7} {:<16} {state:<12} {call:<18} {}\n",
            task.file_name().to_string_lossy(),
            read("comm").trim(),
            read("wchan").trim()
        );
        table += &line;
        for frame in read("stack").lines() {
            table += &format!("          {frame}\n");
        }
    }
    table
}
