//! The watchdog, seen from outside: this binary starts itself again with a test that hangs.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use feedline_testkit::{Census, Watchdog, watchdog, with_watchdog};

const HANG: &str = "FEEDLINE_TESTKIT_HANG";

/// Runs the test `name` of this binary in a process of its own, where it hangs; its output is captured by the harness.
fn hang(name: &str) -> Output {
    let binary = std::env::current_exe().unwrap();
    Command::new(binary).args(["--exact", name]).env(HANG, "1").output().unwrap()
}

fn hangs() -> bool {
    std::env::var_os(HANG).is_some()
}

#[test]
fn a_hang_is_ended_with_a_report() {
    if hangs() {
        let (_keep, never) = mpsc::channel::<()>();
        let stuck = move || {
            never.recv().ok();
        };
        let stuck = std::thread::Builder::new().name("fl-stuck".into()).spawn(stuck).unwrap();
        // The time begins when it hangs, however long the thread took to come there.
        until("it hangs", || {
            watchdog::threads().lines().any(|line| line.contains("fl-stuck") && line.contains("S (sleeping)"))
        });
        let _watchdog =
            Watchdog::with_dump(Duration::from_millis(200), "planned hang", || "slots: 0 free\n".into());
        stuck.join().unwrap();
    }
    let output = hang("a_hang_is_ended_with_a_report");
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
fn a_hang_is_named_after_its_test() {
    if hangs() {
        with_watchdog(Duration::from_millis(200), || {
            loop {
                std::thread::park();
            }
        });
    }
    let output = hang("a_hang_is_named_after_its_test");
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(report.contains("watchdog: \"a_hang_is_named_after_its_test\" still runs"), "{report}");
}

#[test]
fn a_dump_that_hangs_does_not_keep_the_process() {
    if hangs() {
        let dump = || loop {
            std::thread::park();
        };
        let _watchdog = Watchdog::with_dump(Duration::from_millis(50), "planned hang", dump);
        loop {
            std::thread::park();
        }
    }
    let output = hang("a_dump_that_hangs_does_not_keep_the_process");
    let report = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(6), "not aborted: {report}");
    assert!(report.contains("the test's own dump hangs too"), "{report}");
}

#[test]
fn who_still_works_gets_more_time() {
    const LIMIT: Duration = Duration::from_secs(2);
    if hangs() {
        let _watchdog = Watchdog::new(LIMIT, "planned work");
        let start = Instant::now();
        while start.elapsed() < LIMIT * 5 / 4 {
            std::hint::spin_loop();
        }
        return;
    }
    let output = hang("who_still_works_gets_more_time");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn who_works_for_ever_is_ended_too() {
    if hangs() {
        let _watchdog = Watchdog::new(Duration::from_millis(400), "planned work");
        loop {
            std::hint::spin_loop();
        }
    }
    let output = hang("who_works_for_ever_is_ended_too");
    let report = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(6), "not aborted: {report}");
    assert!(report.contains("watchdog: \"planned work\" still runs after"), "{report}");
}

#[test]
fn work_in_time_is_left_alone() {
    if !hangs() {
        // In a process of its own: the watchdogs of the other tests are no threads of it.
        assert!(hang("work_in_time_is_left_alone").status.success());
        return;
    }
    assert_eq!(with_watchdog(watchdog::LIMIT, || 7), 7);
    // Disarmed by its end, and gone.
    until("the watchdog is gone", || Census::of_threads("tk-watchdog").unwrap().threads.is_empty());
}

fn until(what: &str, happened: impl Fn() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < watchdog::LIMIT, "never: {what}");
        std::thread::yield_now();
    }
}
