//! Reports tests that did not run. Under an emulator, tests have longer time limits, and some do not run.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

/// Reports on standard error, past the test harness's capture, that `what` was not run, and why. Also appends
/// the line to the file that `FEEDLINE_NOT_RUN` names. A script reads this file.
pub fn not_run(what: &str, why: impl Display) {
    let line = format!("not run: {what} ({why})\n");
    // Failures are ignored, because a test that was not run must not fail when standard error is closed.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("FEEDLINE_NOT_RUN") {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

/// Whether an emulator runs this process (`FEEDLINE_EMULATED`, set by `ci/arm.sh`). If it does, reports that
/// `what` was not run, because times and resident memory are the emulator's.
pub fn emulated(what: &str) -> bool {
    let is_emulated = is_emulated();
    if is_emulated {
        not_run(what, "an emulator runs this");
    }
    is_emulated
}

/// `limit`, or ten times as long if an emulator runs this process.
pub fn time_limit(limit: Duration) -> Duration {
    if is_emulated() { limit * 10 } else { limit }
}

pub(crate) fn is_emulated() -> bool {
    std::env::var_os("FEEDLINE_EMULATED").is_some()
}
