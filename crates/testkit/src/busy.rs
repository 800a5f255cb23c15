//! Whether other work takes the machine's cores, for tests that measure time.

use std::fs;
use std::time::{Duration, Instant};

/// How long each core is tried.
const TRIAL: Duration = Duration::from_millis(100);

/// The share of that time that a thread may wait for a core on a quiet machine.
const QUIET: f64 = 0.02;

/// Whether threads of this process wait for a core; blocks for 100 ms.
///
/// A test that compares times asks after a failure: on a busy machine the times say nothing, and it reports
/// itself as not run. False where the system does not tell how long threads wait (Linux:
/// `/proc/thread-self/schedstat`).
pub fn is_machine_busy() -> bool {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let trials: Vec<_> = (0..cores).map(|_| std::thread::spawn(is_core_busy)).collect();
    trials.into_iter().any(|trial| trial.join().unwrap_or(false))
}

fn is_core_busy() -> bool {
    let (start, before) = (Instant::now(), waited());
    while start.elapsed() < TRIAL {
        std::hint::spin_loop();
    }
    match (before, waited()) {
        (Some(before), Some(after)) => (after - before).as_secs_f64() > QUIET * TRIAL.as_secs_f64(),
        _ => false,
    }
}

/// How long this thread has waited for a core since it started.
fn waited() -> Option<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}
