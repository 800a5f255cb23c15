//! The example trainer learns the same with and without servers, and after a resume with others.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use feedline_testkit::with_watchdog;
use serde_json::Value;

use crate::processes::Process;

const LIMIT: Duration = Duration::from_secs(300);

/// `cargo test` builds it, `cargo test --test` does not.
fn program() -> PathBuf {
    let this = std::env::current_exe().expect("this test's own path");
    let built = this.ancestors().nth(2).expect("the build folder").join("examples/mlp");
    assert!(built.exists(), "no {}: cargo build --example mlp", built.display());
    built
}

/// Trains on `data` in `folder`, and returns the report.
fn train(folder: &Path, data: &Path, servers: &[&Process], more: &[&str]) -> Value {
    let mut command = Command::new(program());
    command.current_dir(folder).arg("--data").arg(data);
    command.args(["--device", "host", "--workers", "1", "--batch", "16", "--hidden", "16"]);
    command.args(["--epochs", "3", "--quiet", "--json", "report.json"]).args(more);
    if !servers.is_empty() {
        let list: Vec<_> = servers.iter().map(|server| server.address.as_str()).collect();
        command.args(["--servers", &list.join(",")]);
    }
    let output = command.output().expect("the trainer");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&std::fs::read(folder.join("report.json")).expect("a report")).expect("JSON")
}

/// Figures of a report that must not depend on servers.
fn learnt(report: &Value) -> [&Value; 5] {
    assert_eq!(report["exactly_once"], true);
    ["losses", "order_hash", "proof", "steps", "test_accuracy"].map(|name| &report[name])
}

/// A pseudo-random byte.
fn byte(seed: usize) -> u8 {
    ((seed as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// MNIST's four files, with small images.
fn digits(folder: &Path) -> PathBuf {
    let data = folder.join("digits");
    std::fs::create_dir(&data).unwrap();
    for (name, count) in [("train", 240_u32), ("t10k", 40)] {
        let labels: Vec<u8> = (0..count as usize).map(|index| byte(index) % 10).collect();
        let pixels =
            labels.iter().enumerate().flat_map(|(index, &label)| [20 * label, 255 - label, byte(index), 7]);
        let images = [&[0, 0, 8, 3][..], &[count, 2, 2].map(u32::to_be_bytes).concat()].concat();
        let images: Vec<u8> = images.into_iter().chain(pixels).collect();
        let labels = [&[0, 0, 8, 1][..], &count.to_be_bytes(), &labels].concat();
        std::fs::write(data.join(format!("{name}-images-idx3-ubyte")), images).unwrap();
        std::fs::write(data.join(format!("{name}-labels-idx1-ubyte")), labels).unwrap();
    }
    data
}

/// A folder per class with pictures of various sizes.
fn pictures(folder: &Path) -> PathBuf {
    let data = folder.join("pictures");
    for index in 0..180 {
        let class = data.join(format!("class{}", index % 3));
        std::fs::create_dir_all(&class).unwrap();
        let side = 128 + 4 * (index % 5) as u32;
        let size = 54 + 3 * side * side;
        let mut file = b"BM".to_vec();
        file.extend(
            [size, 0, 54, 40, side, side, 1 | 24 << 16, 0, 3 * side * side, 0, 0, 0, 0]
                .map(u32::to_le_bytes)
                .concat(),
        );
        file.extend((0..3 * side * side).map(|at| byte(at as usize / 97 + index)));
        std::fs::write(class.join(format!("{index}.bmp")), file).unwrap();
    }
    data
}

#[test]
fn the_trainer_learns_the_same_from_0_1_and_4_servers_and_workers() {
    with_watchdog(LIMIT, || {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        for data in [digits(folder), pictures(folder)] {
            let processes: Vec<_> = (0..4).map(|_| Process::start(&data, &[])).collect();
            // Cursor and checksums, in any order, then model and losses.
            let saved = |name: &str| {
                let bytes = std::fs::read(folder.join(name)).expect("a checkpoint");
                let len = u64::from_le_bytes(*bytes.first_chunk().expect("a length")) as usize;
                let head: Value = serde_json::from_slice(&bytes[8..8 + len]).expect("JSON");
                (head, bytes[8 + len..].to_vec())
            };
            let alone = train(folder, &data, &[], &["--checkpoint", "alone"]);
            for count in [1, 4] {
                let servers: Vec<_> = processes.iter().take(count).collect();
                let served = train(folder, &data, &servers, &["--checkpoint", "served"]);
                assert_eq!(learnt(&served), learnt(&alone), "{count} servers, {}", data.display());
                assert!(saved("served") == saved("alone"), "{count} servers, {}", data.display());
                let filler = &served["stalls"]["filler"];
                assert_eq!(filler["rejected"], 0, "{filler}");
                assert!(data.ends_with("digits") || filler["batches"].as_u64() > Some(0), "{filler}");
            }
        }
    });
}

#[test]
fn the_trainer_resumes_with_another_set_of_servers() {
    with_watchdog(LIMIT, || {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let data = pictures(folder);
        let processes: Vec<_> = (0..3).map(|_| Process::start(&data, &[])).collect();
        let whole = train(folder, &data, &[], &[]);
        let saves = ["--checkpoint", "run.ckpt"];
        let resumes = ["--checkpoint", "run.ckpt", "--resume", "run.ckpt"];
        train(folder, &data, &[&processes[0]], &[&saves[..], &["--steps", "7"]].concat());
        train(folder, &data, &[], &[&resumes[..], &["--steps", "15"]].concat());
        let resumed = train(folder, &data, &[&processes[1], &processes[2]], &resumes);
        assert_eq!(learnt(&resumed), learnt(&whole));
    });
}

#[test]
fn servers_that_cannot_be_asked_are_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let data = digits(folder.path());
    let cases: [(&[&str], &str); 3] = [
        (&["--servers", "127.0.0.1:1"], "--servers without --data"),
        (&["--data", data.to_str().unwrap(), "--servers", "nowhere"], "write HOST:PORT"),
        (&["--data", data.to_str().unwrap(), "--servers", "a:1", "--token-file", "/nowhere"], "/nowhere"),
    ];
    for (arguments, says) in cases {
        let mut command = Command::new(program());
        let output = command.current_dir(folder.path()).args(["--device", "host"]).args(arguments).output();
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(says) && text.lines().count() == 1, "{arguments:?}: {text}");
    }
}
