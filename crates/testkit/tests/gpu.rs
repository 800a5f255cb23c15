//! A GPU test is never skipped silently: it is counted either as run or as not run.

use std::process::{Command, Stdio};

use feedline_testkit::gpu;

/// Set in the child process that acts as a GPU test.
const CHILD: &str = "FEEDLINE_TEST_GPU_CHILD";

#[test]
fn a_gpu_test_is_counted_with_and_without_a_gpu() {
    if std::env::var_os(CHILD).is_some() {
        let _ = gpu("an example");
        return;
    }
    // First with all devices hidden, then with the devices of this machine.
    let (ran, not_run) = run_gpu_test(Some("-1"));
    assert!(ran.is_empty(), "{ran}");
    assert!(not_run.starts_with("not run: cuda: an example ("), "{not_run:?}");
    let (ran, not_run) = run_gpu_test(None);
    assert_eq!(
        usize::from(ran == "ran: cuda: an example\n") + not_run.lines().count(),
        1,
        "{ran:?} {not_run:?}"
    );
}

/// Runs a GPU test in a child process with the `visible` devices. Returns the lists of tests that ran and
/// that did not.
fn run_gpu_test(visible: Option<&str>) -> (String, String) {
    let dir = std::env::temp_dir().join(format!("feedline-gpu-{}-{}", std::process::id(), visible.is_some()));
    std::fs::create_dir_all(&dir).expect("a folder");
    let (ran, not_run) = (dir.join("ran"), dir.join("not-run"));
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child.args(["--exact", "a_gpu_test_is_counted_with_and_without_a_gpu"]).env(CHILD, "1");
    child.env("FEEDLINE_RAN", &ran).env("FEEDLINE_NOT_RUN", &not_run);
    if let Some(visible) = visible {
        child.env("CUDA_VISIBLE_DEVICES", visible);
    }
    let status = child.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("it runs");
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let lists = (read(&ran), read(&not_run));
    std::fs::remove_dir_all(&dir).expect("the folder is removed");
    assert!(status.success());
    lists
}
