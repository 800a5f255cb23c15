//! The watchdog, from outside: this binary runs itself again with a test that hangs. It reads signals and
//! `/proc`.
#![cfg(target_os = "linux")]

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use feedline_testkit::{Census, Watchdog, watchdog, with_watchdog};

const HANG: &str = "FEEDLINE_TESTKIT_HANG";

/// Runs the test `name` of this binary in a child process, where it hangs. Returns the output.
fn hang(name: &str) -> Output {
    let binary = std::env::current_exe().unwrap();
    Command::new(binary).args(["--exact", name]).env(HANG, "1").output().unwrap()
}

fn hangs() -> bool {
    std::env::var_os(HANG).is_some()
}

#[test]
fn a_hang_aborts_with_a_report() {
    if hangs() {
        let (_keep, never) = mpsc::channel::<()>();
        let stuck = move || {
            never.recv().ok();
        };
        let stuck = std::thread::Builder::new().name("fl-stuck".into()).spawn(stuck).unwrap();
        // The watchdog starts only when the thread hangs, however long the thread took to start.
        until("the thread hangs", || {
            watchdog::threads().lines().any(|line| line.contains("fl-stuck") && line.contains("S (sleeping)"))
        });
        let _watchdog =
            Watchdog::with_dump(Duration::from_millis(200), "planned hang", || "slots: 0 free\n".into());
        stuck.join().unwrap();
    }
    let output = hang("a_hang_aborts_with_a_report");
    let report = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(6), "not aborted: {report}");
    for part in
        ["watchdog: \"planned hang\" still runs after 200ms", "fl-stuck", "tk-watchdog", "slots: 0 free"]
    {
        assert!(report.contains(part), "no {part:?} in: {report}");
    }
    let stuck = report.lines().find(|line| line.contains("fl-stuck")).unwrap();
    assert!(stuck.contains("S (sleeping)"), "{stuck}");
}

#[test]
fn the_report_names_the_test() {
    if hangs() {
        with_watchdog(Duration::from_millis(200), || {
            loop {
                std::thread::park();
            }
        });
    }
    let output = hang("the_report_names_the_test");
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(report.contains("watchdog: \"the_report_names_the_test\" still runs"), "{report}");
}

#[test]
fn a_dump_that_hangs_does_not_prevent_the_abort() {
    if hangs() {
        let dump = || loop {
            std::thread::park();
        };
        let _watchdog = Watchdog::with_dump(Duration::from_millis(50), "planned hang", dump);
        loop {
            std::thread::park();
        }
    }
    let output = hang("a_dump_that_hangs_does_not_prevent_the_abort");
    let report = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(6), "not aborted: {report}");
    assert!(report.contains("the test's own dump hangs too"), "{report}");
}

#[test]
fn a_busy_test_gets_more_time() {
    const LIMIT: Duration = Duration::from_secs(2);
    if hangs() {
        let _watchdog = Watchdog::new(LIMIT, "planned work");
        let start = Instant::now();
        while start.elapsed() < LIMIT * 5 / 4 {
            std::hint::spin_loop();
        }
        return;
    }
    let output = hang("a_busy_test_gets_more_time");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_test_that_is_busy_for_ever_is_aborted() {
    if hangs() {
        let _watchdog = Watchdog::new(Duration::from_millis(400), "planned work");
        loop {
            std::hint::spin_loop();
        }
    }
    let output = hang("a_test_that_is_busy_for_ever_is_aborted");
    let report = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(6), "not aborted: {report}");
    assert!(report.contains("watchdog: \"planned work\" still runs after"), "{report}");
}

#[test]
fn work_that_ends_in_time_is_not_aborted() {
    if !hangs() {
        // In a child process, which has no watchdog threads of other tests.
        assert!(hang("work_that_ends_in_time_is_not_aborted").status.success());
        return;
    }
    assert_eq!(with_watchdog(watchdog::LIMIT, || 7), 7);
    // The watchdog is disarmed, and its thread ends.
    until("the watchdog's thread ends", || Census::of_threads("tk-watchdog").unwrap().threads.is_empty());
}

fn until(what: &str, happened: impl Fn() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < watchdog::LIMIT, "never: {what}");
        std::thread::yield_now();
    }
}
