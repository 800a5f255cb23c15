//! Consumers of DLPack from other projects: NumPy on the host under chaos, PyTorch on a GPU.
//!
//! `FEEDLINE_PYTHON` names the interpreter, `python3` by default.

use std::process::Command;

use feedline_testkit::{exclusive, not_run, with_watchdog};

const LIMIT: std::time::Duration = std::time::Duration::from_secs(300);

/// The last line of `batches.py`; `None` if there is no Python.
fn batches(kind: &str) -> Option<String> {
    let python = std::env::var_os("FEEDLINE_PYTHON").unwrap_or_else(|| "python3".into());
    // Cargo builds examples before tests, beside their folder.
    let mut library = std::env::current_exe().unwrap();
    library.pop();
    library.pop();
    let beside = library.join("examples/libdlpack_batches.so").into_os_string();
    let library = std::env::var_os("FEEDLINE_DLPACK_BATCHES").unwrap_or(beside);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/batches.py");
    let output = match Command::new(&python).arg(script).arg(library).args([kind, "1000"]).output() {
        Ok(output) => output,
        Err(error) => {
            let what = if kind == "cuda" { "dlpack and PyTorch on a GPU" } else { "dlpack and numpy" };
            not_run(what, error);
            return None;
        }
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    if let Some(why) = said.trim().strip_prefix("not run: ") {
        let (what, why) = why.split_once(" (").expect("a reason");
        not_run(what, why.trim_end_matches(')'));
        return None;
    }
    Some(said)
}

#[test]
#[cfg_attr(miri, ignore = "miri starts no processes")]
fn numpy_reads_the_right_bytes_under_chaos_and_keeps_its_batches() {
    let said = with_watchdog(LIMIT, || batches("cpu"));
    assert!(said.is_none_or(|said| said.starts_with("ok: 1000 batches")));
}

#[test]
fn pytorch_on_a_gpu_reads_the_right_bytes_on_its_streams() {
    let _alone = exclusive();
    if let Err(error) = feedline::Device::cuda(0) {
        return not_run("dlpack and PyTorch on a GPU", error);
    }
    let said = with_watchdog(LIMIT, || batches("cuda"));
    assert!(said.is_none_or(|said| said.starts_with("ok: 1000 batches")));
}
