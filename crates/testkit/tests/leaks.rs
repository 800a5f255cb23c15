//! The census. The only test of its binary, because it counts all threads and files of the process.
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use feedline_testkit::{Census, with_watchdog};

#[test]
fn leaked_threads_and_files_are_reported() {
    with_watchdog(Duration::from_secs(60), || {
        let before = Census::take().unwrap();
        before.assert_same();

        let (stop, stopped) = mpsc::channel::<()>();
        let (start, started) = mpsc::channel();
        let idle = move || {
            start.send(()).ok();
            stopped.recv().ok();
        };
        let thread = std::thread::Builder::new().name("fl-left-behind".into()).spawn(idle).unwrap();
        started.recv().unwrap();
        let file = File::open("/proc/self/status").unwrap();

        let now = Census::take().unwrap();
        let difference = before.difference(&now).unwrap();
        let files = format!("{} open files, not {}", before.files + 1, before.files);
        assert_eq!(difference, format!("leaked threads: [\"fl-left-behind\"]; {files}"));
        assert_eq!(Census::of_threads("fl-").unwrap().threads, ["fl-left-behind"]);
        let at_once = before.clone().with_limit(Duration::from_millis(50));
        assert!(catch_unwind(|| at_once.assert_same()).is_err());
        assert!(catch_unwind(|| at_once.assert_no_new_threads()).is_err());

        // `assert_same` waits for the thread, which ends meanwhile.
        drop((file, stop));
        before.assert_same();
        thread.join().unwrap();
        // The thread existed at `now`, like a thread of an earlier test that is about to end.
        now.assert_no_new_threads();
        now.assert_same();

        a_thread_without_its_name_is_counted_once();
    });
}

/// On a busy machine, a thread that was started before the first census may get its name only after it.
fn a_thread_without_its_name_is_counted_once() {
    let (stop, stopped) = mpsc::channel::<()>();
    let (started, start) = mpsc::channel();
    let idle = move || {
        started.send(fs::read_link("/proc/thread-self").unwrap()).unwrap();
        stopped.recv().ok();
    };
    let thread = std::thread::Builder::new().name("its-parent".into()).spawn(idle).unwrap();
    let folder = Path::new("/proc").join(start.recv().unwrap());
    let before = Census::of_threads("fl-").unwrap().with_limit(Duration::from_millis(50));
    assert!(before.threads.is_empty(), "{before:?}");
    fs::write(folder.join("comm"), "fl-late").unwrap();
    assert_eq!(Census::of_threads("fl-").unwrap().threads, ["fl-late"]);
    before.assert_same();
    before.assert_no_new_threads();
    drop(stop);
    thread.join().unwrap();
}
