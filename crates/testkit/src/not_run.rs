//! Tests that did not run, said aloud.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

/// Says on standard error, past the test harness's capture, that `what` was not run and why; appends the line to the file
/// named by `FEEDLINE_NOT_RUN`, where a script counts them.
pub fn not_run(what: &str, why: impl Display) {
    let line = format!("not run: {what} ({why})\n");
    // Said as far as can be: a test that was not run must not fail for a closed standard error.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("FEEDLINE_NOT_RUN") {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}
