//! Runs the trainer as a process, on small data sets.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use feedline_core::random::key;
use tempfile::TempDir;

/// The time limit of a run; only a hang takes this long.
const LIMIT: Duration = Duration::from_secs(100);

/// The trainer's binary: `FEEDLINE_MLP`, or next to this test's binary. A full `cargo test` rebuilds
/// it, `cargo test
/// --test` does not.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("FEEDLINE_MLP") {
        // Absolute, because it runs in another folder.
        return std::path::absolute(path).expect("a path");
    }
    let this = std::env::current_exe().expect("this test's own path");
    let built = this.ancestors().nth(2).expect("the build folder").join("examples/mlp");
    let path = built.with_extension(std::env::consts::EXE_EXTENSION);
    assert!(path.exists(), "no {}: cargo build -p feedline-mlp --example mlp", path.display());
    path
}

/// A command that runs the trainer in the folder `dir`.
pub fn command(dir: &Path) -> Command {
    let mut command = Command::new(binary());
    command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a command to its end.
///
/// # Panics
/// If it does not end in time; then it is killed.
pub fn run(command: &mut Command) -> Output {
    let mut child = command.spawn().expect("the trainer starts");
    let start = Instant::now();
    // Its output fits the pipe's buffer, so it need not be read meanwhile.
    while child.try_wait().expect("its state").is_none() {
        if start.elapsed() > feedline_testkit::time_limit(LIMIT) {
            child.kill().ok();
            panic!("the trainer still runs after {LIMIT:?}: {command:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().expect("its output")
}

/// Runs a command and asserts that it succeeds.
pub fn train(command: &mut Command) -> Output {
    let output = run(command);
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    output
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Asserts exit code 2, one line on standard error that contains all `parts`, and no other output.
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

/// The losses of a report.
pub fn losses(report: &serde_json::Value) -> Vec<f32> {
    report["losses"]
        .as_array()
        .expect("losses")
        .iter()
        .map(|loss| loss.as_f64().expect("a number") as f32)
        .collect()
}

/// The bytes of an IDX file of u8 elements.
pub fn idx(dims: &[u32], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, dims.len() as u8];
    bytes.extend(dims.iter().flat_map(|dim| dim.to_be_bytes()));
    bytes.extend(data);
    bytes
}

/// Pixels per side of an image.
pub const SIDE: usize = 8;
/// Number of images in the training and the test set.
pub const TRAIN: usize = 320;
pub const TEST: usize = 70;

/// A folder with the four files of a small set of ten classes, each a pattern with noise. The trainer
/// may write there too.
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

/// Writes a file in the folder.
pub fn put(dir: &TempDir, name: &str, bytes: &[u8]) {
    std::fs::write(dir.path().join(name), bytes).expect("a file");
}

/// The names and sizes of the files in a folder; empty if there is no folder.
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
