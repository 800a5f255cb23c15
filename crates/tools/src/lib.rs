//! Programs that read every format, and how they end.
//!
//! They are a package of their own because they are built with every format of `feedline-datasets`.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

pub mod commands;
pub mod inspect;
pub mod pack;

/// The exit codes of a program that compares nothing, for `--help`.
const EXIT: &str = "exit code: 0 done, 2 an error, on one line: what is wrong and where\n";

/// The result of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The text for standard output.
    pub text: String,
    /// Whether it names a difference: the exit code is 1.
    pub differs: bool,
}

impl Outcome {
    /// An outcome without a difference.
    pub fn done(text: String) -> Self {
        Self { text, differs: false }
    }
}

/// As [`end_with`], for a program that compares nothing.
pub fn end(program: &str, result: Result<String, Box<dyn std::error::Error>>) -> ExitCode {
    end_with(program, result.map(Outcome::done))
}

/// As [`exit_code`], for `main`.
pub fn end_with(program: &str, result: Result<Outcome, Box<dyn std::error::Error>>) -> ExitCode {
    ExitCode::from(exit_code(program, result))
}

/// Prints the result of `program` and returns 0, or 1 if it names a difference; or prints a one-line error
/// and returns 2.
pub fn exit_code(program: &str, result: Result<Outcome, Box<dyn std::error::Error>>) -> u8 {
    let printed = match result {
        Ok(Outcome { text, differs }) => {
            std::io::stdout().write_all(text.as_bytes()).map(|()| differs).map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    let error = match printed {
        Ok(differs) => return u8::from(differs),
        Err(error) => error,
    };
    // Not `eprintln`, which panics where standard error is closed: the exit code still shows the result.
    let _ = writeln!(std::io::stderr(), "{program}: {}", error.replace(char::is_control, " "));
    2
}
