//! The trainer as a process, and small data sets for it.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use feedline_core::random::key;
use tempfile::TempDir;

/// What a run of the trainer may take here; only a hang takes as long.
const LIMIT: Duration = Duration::from_secs(100);

/// The trainer's binary: beside this test's, or named by `FEEDLINE_MLP`. A whole `cargo test` builds it anew, one with
/// `--test` does not.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("FEEDLINE_MLP") {
        // Absolute: it runs in another folder.
        return std::path::absolute(path).expect("a path");
    }
    let this = std::env::current_exe().expect("this test's own path");
    let built = this.ancestors().nth(2).expect("the build folder").join("examples/mlp");
    let path = built.with_extension(std::env::consts::EXE_EXTENSION);
    assert!(path.exists(), "no {}: cargo build -p feedline-examples --example mlp", path.display());
    path
}

/// The trainer with arguments to come, in the folder `dir`.
pub fn command(dir: &Path) -> Command {
    let mut command = Command::new(binary());
    command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs it to its end.
///
/// # Panics
/// When it does not end in time; then it is killed.
pub fn run(command: &mut Command) -> Output {
    let mut child = command.spawn().expect("the trainer starts");
    let start = Instant::now();
    // What it writes fits a pipe, so nobody has to read on the way.
    while child.try_wait().expect("its state").is_none() {
        if start.elapsed() > LIMIT {
            child.kill().ok();
            panic!("the trainer still runs after {LIMIT:?}: {command:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().expect("its output")
}

/// Runs it, and asserts that it ends well.
pub fn train(command: &mut Command) -> Output {
    let output = run(command);
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    output
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Asserts that it ended with exit code 2 and one line on standard error, with each of `parts`; and nothing
/// else.
#[track_caller]
pub fn assert_says(output: &Output, parts: &[&str]) {
    let (said, line) = (text(&output.stderr), text(&output.stdout));
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(line, "", "something on standard output");
    assert!(
        said.starts_with("mlp: ") && said.ends_with('\n') && said.lines().count() == 1,
        "not one line: {said:?}"
    );
    for part in parts {
        assert!(said.contains(part), "no {part:?} in: {said}");
    }
}

/// Trains with `arguments` and a report, and returns the report.
pub fn report(dir: &Path, arguments: &[&str]) -> serde_json::Value {
    let path = dir.join("report.json");
    train(command(dir).args(["--quiet", "--json", "report.json"]).args(arguments));
    let report = std::fs::read(&path).expect("the report");
    std::fs::remove_file(path).expect("the report's removal");
    serde_json::from_slice(&report).expect("one JSON object")
}

/// The losses of a report, bit by bit.
pub fn losses(report: &serde_json::Value) -> Vec<f32> {
    report["losses"]
        .as_array()
        .expect("losses")
        .iter()
        .map(|loss| loss.as_f64().expect("a number") as f32)
        .collect()
}

/// An IDX file of bytes: `dims`, then `data`.
pub fn idx(dims: &[u32], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, dims.len() as u8];
    bytes.extend(dims.iter().flat_map(|dim| dim.to_be_bytes()));
    bytes.extend(data);
    bytes
}

/// Pixels of an image on each side.
pub const SIDE: usize = 8;
/// Images of the training set, and of the test set.
pub const TRAIN: usize = 320;
pub const TEST: usize = 70;

/// A folder with the four files of a small set of ten classes, each a pattern with noise; and room for the trainer's own.
pub fn small_set() -> TempDir {
    let dir = TempDir::new().expect("a folder");
    for (name, count) in [("train", TRAIN), ("t10k", TEST)] {
        let label = |i: usize| (key(&[1, i as u64]) % 10) as u8;
        let pixel = |i: usize, k: usize| {
            let (pattern, noise) =
                (key(&[2, u64::from(label(i)), k as u64]) % 200, key(&[3, i as u64, k as u64]) % 56);
            (pattern + noise) as u8
        };
        let images: Vec<u8> = (0..count).flat_map(|i| (0..SIDE * SIDE).map(move |k| pixel(i, k))).collect();
        let labels: Vec<u8> = (0..count).map(label).collect();
        let side = SIDE as u32;
        put(&dir, &format!("{name}-images-idx3-ubyte"), &idx(&[count as u32, side, side], &images));
        put(&dir, &format!("{name}-labels-idx1-ubyte"), &idx(&[count as u32], &labels));
    }
    dir
}

/// Writes a file of the folder.
pub fn put(dir: &TempDir, name: &str, bytes: &[u8]) {
    std::fs::write(dir.path().join(name), bytes).expect("a file");
}

/// The names and sizes of all in a folder; of what is none, nothing.
pub fn listing(dir: &Path) -> Vec<(String, u64)> {
    if !dir.is_dir() {
        return Vec::new();
    }
    let entries = std::fs::read_dir(dir).expect("the folder");
    let mut all: Vec<_> = entries
        .map(|entry| entry.expect("an entry"))
        .map(|entry| {
            (entry.file_name().to_string_lossy().into_owned(), entry.metadata().expect("its size").len())
        })
        .collect();
    all.sort();
    all
}
