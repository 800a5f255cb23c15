//! If the system refuses a thread, or space for the built-in digits, the trainer prints one line with the
//! remedy.

use crate::drawn;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use crate::trainer::{binary, listing, run, small_set, text};
use feedline_testkit::{not_run, watchdog::LIMIT, with_watchdog};

/// Whether this process can start others as any user.
fn can_change_the_user() -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    root && ["setpriv", "prlimit"].map(|tool| Command::new(tool).arg("--version").output().is_ok())
        == [true; 2]
}

#[test]
fn a_thread_that_cannot_be_started_is_reported_in_one_line() {
    with_watchdog(LIMIT, || {
        if !can_change_the_user() {
            not_run(
                "limits of threads",
                "only root, with setpriv and prlimit, can run the trainer as a separate user",
            );
            return;
        }
        let set = small_set();
        let mlp = set.path().join("mlp");
        std::fs::copy(binary(), &mlp).expect("a copy that any user may run");
        std::fs::set_permissions(set.path(), PermissionsExt::from_mode(0o755)).expect("a folder for all");
        let before = listing(set.path());
        let arguments =
            ["--data", ".", "--device", "host", "--workers", "2", "--batch", "160", "--epochs", "1"];
        // An unused user id, because the limit counts the processes of a user.
        let user = (50_000 + std::process::id() % 10_000).to_string();
        let mut refused = 0;
        for processes in 1.. {
            let mut limited = Command::new("setpriv");
            limited.args(["--reuid", &user, "--clear-groups", "prlimit"]);
            limited.arg(format!("--nproc={processes}")).arg(&mlp).args(arguments);
            limited.current_dir(set.path()).stdin(std::process::Stdio::null());
            limited.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
            let output = run(&mut limited);
            let said = text(&output.stderr);
            if output.status.success() {
                assert_eq!(said, "", "with {processes} processes");
                break;
            }
            assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{processes}: {said}");
            assert!(said.starts_with("mlp: cannot start "), "{processes}: {said}");
            // The loader adds the text about decode workers.
            assert!(said.contains("ulimit -u") || said.contains("workers"), "{processes}: {said}");
            refused += 1;
        }
        // At least two streams, the transfer thread, two workers and the thread that waits for Ctrl-C.
        assert!(refused >= 6, "it ran with {refused} processes");
        assert_eq!(listing(set.path()), before);
    });
}

#[test]
fn digits_that_cannot_be_drawn_are_an_error_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "in the way").unwrap();
    let error = drawn::draw(&file.join("digits"), true).unwrap_err().to_string();
    for part in
        ["cannot draw the built-in digits", "make their folder writable", "--data DIR", "/file/digits"]
    {
        assert!(error.contains(part), "no {part:?} in: {error}");
    }
}
