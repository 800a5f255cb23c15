//! Programs that read every format, and how they end.
//!
//! They are a package of their own because they are built with every format of `feedline-datasets`.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

pub mod inspect;

/// Prints the result of `program` and returns 0, or prints a one-line error and returns 2.
pub fn end(program: &str, result: Result<String, Box<dyn std::error::Error>>) -> ExitCode {
    let printed = match result {
        Ok(text) => std::io::stdout().write_all(text.as_bytes()).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let Err(error) = printed else { return ExitCode::SUCCESS };
    // Not `eprintln`, which panics where standard error is closed: the exit code still shows the result.
    let _ = writeln!(std::io::stderr(), "{program}: {}", error.replace(char::is_control, " "));
    ExitCode::from(2)
}
