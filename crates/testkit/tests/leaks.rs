//! The census. One test only: it counts all threads and files of the process.

use std::fs::File;
use std::panic::catch_unwind;
use std::sync::mpsc;
use std::time::Duration;

use feedline_testkit::{Census, with_watchdog};

#[test]
fn what_is_left_behind_is_named() {
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
        assert_eq!(difference, format!("threads left: [\"fl-left-behind\"]; {files}"));
        assert_eq!(Census::of_threads("fl-").unwrap().threads, ["fl-left-behind"]);
        assert!(catch_unwind(|| before.assert_same()).is_err());
        assert!(catch_unwind(|| before.assert_same_threads()).is_err());

        // Back again: the thread ends while this looks, and is waited for.
        drop((file, stop));
        before.assert_same();
        thread.join().unwrap();
        assert_eq!(
            now.difference(&before).unwrap().split(';').next().unwrap(),
            "threads gone: [\"fl-left-behind\"]"
        );
    });
}
