//! Runs the examples.
#![allow(dead_code)] // each test binary uses a part

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The example `name`, which Cargo builds before tests, beside their folder.
pub(crate) fn example(name: &str) -> Command {
    let mut program = std::env::current_exe().unwrap();
    program.pop();
    program.pop();
    Command::new(program.join("examples").join(name))
}

pub(crate) fn run(name: &str, arguments: &[&str]) -> Output {
    let output = example(name).args(arguments).output();
    output.expect("run the example (cargo build -p feedline-tools --examples)")
}

pub(crate) fn write(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, bytes).unwrap();
    path
}

/// A `.npy` file of this header and content.
pub(crate) fn npy(descr: &str, fortran: &str, shape: &str, content: &[u8]) -> Vec<u8> {
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}");
    while !(10 + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let length = (header.len() as u16).to_le_bytes();
    [&b"\x93NUMPY\x01\x00"[..], &length, header.as_bytes(), content].concat()
}

/// The real files beside the repository.
pub(crate) fn shared() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    if !folder.is_dir() {
        feedline_testkit::not_run("the real files", format!("there is no folder {}", folder.display()));
        return None;
    }
    Some(folder)
}
