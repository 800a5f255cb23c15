//! The example `tokens`: it learns a text that repeats itself, and ends with one line if it cannot begin.

use std::process::{Command, Output};

use crate::program::example;

fn tokens(arguments: &[&str]) -> Output {
    Command::new(example("tokens")).args(arguments).output().expect("a process")
}

#[test]
fn a_text_that_repeats_itself_is_learnt() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "the quick brown fox jumps over a lazy dog\n".repeat(400)).unwrap();
    let output = tokens(&[file.path().to_str().unwrap(), "400"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Two lines of validation: after 250 steps, and at the end.
    let shares: Vec<f64> =
        text.lines().filter_map(|line| line.split(' ').rev().nth(5)?.parse().ok()).collect();
    assert!(shares.len() == 2 && shares[1] > 99.0, "{text}");
}

#[test]
fn what_is_wrong_is_one_line() {
    let empty = tempfile::NamedTempFile::new().unwrap();
    let empty = empty.path().to_str().unwrap();
    for (arguments, part) in [
        (&[][..], "give the path"),
        (&["/nowhere"], "/nowhere"),
        (&[empty], "zero"),
        (&[empty, "many"], "how many"),
    ] {
        let output = tokens(arguments);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]), "{line}");
        assert!(line.starts_with("tokens: ") && line.contains(part) && line.lines().count() == 1, "{line}");
    }
}
