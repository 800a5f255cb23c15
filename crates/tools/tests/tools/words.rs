//! The commands in the words of Python.

use std::process::{Command, Output};

/// What `python -m feedline` prints. The words are those of a whole process, so this is one of its own.
pub(crate) fn python(arguments: &[&str]) -> Output {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--ignored", "--exact", "words::command", "--nocapture", "--quiet"]);
    let mut output = program.env("ARGUMENTS", arguments.join("\n")).output().unwrap();
    // Between the lines of the test's own process.
    let text = String::from_utf8(output.stdout).unwrap();
    let mut parts = text.split("<<<");
    output.stdout = parts.nth(1).expect("the command has run").as_bytes().to_vec();
    output
}

#[test]
#[ignore = "started as a process, because the words are those of the whole process"]
fn command() {
    let Ok(arguments) = std::env::var("ARGUMENTS") else { return };
    feedline_core::speak_python();
    print!("<<<");
    let ran = feedline_tools::commands::run(arguments.lines().map(Into::into).collect());
    let code = feedline_tools::exit_code("feedline", ran);
    println!("<<<");
    std::process::exit(code.into());
}
