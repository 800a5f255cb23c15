//! A test in a process of its own, for what belongs to a process: its memory, open files, environment.

use std::process::{Command, Stdio};

/// Whether this process runs `test` and nothing else, as it does if this function started it. If not, starts
/// this program again for that test, and returns `false` once it has passed: the caller returns then.
///
/// `prepare` sets variables of the new process. `test` is the test's path below the crate's root. Returns
/// `true` under an emulator, which cannot start a program again.
///
/// # Panics
/// If the test fails in the new process, or has another name.
pub fn own_process(test: &str, prepare: impl FnOnce(&mut Command)) -> bool {
    const TEST: &str = "FEEDLINE_OWN_PROCESS";
    if std::env::var_os(TEST).is_some_and(|running| running == test) || crate::not_run::is_emulated() {
        return true;
    }
    let mut process = Command::new(std::env::current_exe().expect("this program"));
    // Standard error goes past the test harness's capture, with what was not run.
    process
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(TEST, test)
        .stderr(Stdio::inherit());
    prepare(&mut process);
    let output = process.output().expect("a process");
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    assert!(output.status.success() && said.contains("running 1 test"), "{test} failed in its own process");
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_runs_in_a_process_with_its_variables_and_a_wrong_name_is_an_error() {
        const NAME: &str =
            "own_process::tests::a_test_runs_in_a_process_with_its_variables_and_a_wrong_name_is_an_error";
        let set = |process: &mut Command| {
            process.env("FEEDLINE_TEST_OWN", "1");
        };
        if own_process(NAME, set) {
            let is_set = std::env::var_os("FEEDLINE_TEST_OWN").is_some();
            assert!(is_set || crate::not_run::is_emulated(), "the variable is not set");
            return;
        }
        assert!(std::panic::catch_unwind(|| own_process("own_process::other", set)).is_err());
    }
}
