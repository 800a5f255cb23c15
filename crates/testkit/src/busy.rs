//! For tests that measure time: the CPU time of the test's own thread, and whether other work takes the
//! cores.

use std::fs;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Clock ticks per second of the kernel's accounts, on every Linux.
const TICKS: f64 = 100.0;

/// Max CPU time of other work, in cores, that leaves a measurement valid.
const QUIET: f64 = 0.05;

/// The CPU time of the calling thread so far. Use it for limits on work of one thread, because other work of
/// the machine does not count. Only Linux has this time. On other systems it is the time since the first
/// call.
pub fn cpu_time() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    // On Linux, the file has nanoseconds on a core, nanoseconds in the queue of a core, and the number of
    // time slices.
    let stat = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ns = stat.and_then(|stat| stat.split_whitespace().next()?.parse().ok());
    ns.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

/// Watches how much CPU time other processes and a hypervisor use while a test measures.
///
/// A test that compares times checks this after a failure. If there was other work, its times mean nothing,
/// and the test ends [as not run](Self::not_run).
#[derive(Debug)]
pub struct OtherWork {
    start: Instant,
    before: Option<f64>,
    was_present: AtomicBool,
}

impl OtherWork {
    /// Starts to watch.
    pub fn watch() -> Self {
        Self { start: Instant::now(), before: seconds(), was_present: AtomicBool::new(false) }
    }

    /// The average number of cores that other work has taken since [`watch`](Self::watch). It is 0 on systems
    /// without this number; Linux has it.
    pub fn cores(&self) -> f64 {
        match (self.before, seconds()) {
            (Some(before), Some(after)) => (after - before) / self.start.elapsed().as_secs_f64(),
            _ => 0.0,
        }
    }

    /// Whether other programs took so much time that a measurement means nothing. Once true, it stays true,
    /// because the other work may end before the next call.
    pub fn is_present(&self) -> bool {
        let is_present = self.cores() > QUIET;
        self.was_present.fetch_or(is_present, Ordering::Relaxed) || is_present
    }

    /// Returns [`is_present`](Self::is_present). If it is true, reports that `what` was not run. `.ci/run`
    /// looks for this reason in the report, and runs such tests once more without other work.
    pub fn not_run(&self, what: &str) -> bool {
        let is_present = self.is_present();
        if is_present {
            crate::not_run(what, "other work takes the cores: times say nothing");
        }
        is_present
    }
}

/// CPU seconds that the machine has used since it started, without those of this process.
fn seconds() -> Option<f64> {
    let all = fs::read_to_string("/proc/stat").ok()?;
    let mut fields = all.lines().next()?.split_whitespace().skip(1).map(|field| field.parse::<u64>().ok());
    // user, nice, system, idle, iowait, irq, softirq, steal
    let mut all = [0; 8];
    for ticks in &mut all {
        *ticks = fields.next()??;
    }
    let [user, nice, system, _, _, irq, softirq, steal] = all;
    let own = fs::read_to_string("/proc/self/stat").ok()?;
    // The name may contain spaces, and ends with the last parenthesis. Fields 14 to 17 of proc(5) are utime,
    // stime, cutime and cstime.
    let own = own.rsplit_once(')')?.1.split_whitespace().skip(11).take(4);
    let own = own.map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(((user + nice + system + irq + softirq + steal) as f64 - own as f64) / TICKS)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_work_of_another_process_is_seen() {
        if seconds().is_none() {
            return crate::not_run("other work is seen", "the system has no /proc");
        }
        let mut other = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let watch = OtherWork::watch();
        let start = Instant::now();
        // Ends once other work is seen. On a busy machine this is at once.
        while !watch.is_present() && start.elapsed() < Duration::from_secs(30) {
            std::thread::yield_now();
        }
        let is_present = watch.is_present();
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(is_present);
        // Other work is reported even if it took only a small part of the time since then.
        let later = OtherWork { was_present: AtomicBool::new(true), before: None, ..OtherWork::watch() };
        assert!(later.cores() == 0.0 && later.is_present());
    }
}
