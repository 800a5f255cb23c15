//! The trainer's files, cut or overwritten by another process while it trains.

use crate::trainer;

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use crate::trainer::{command, small_set, text};
use feedline_testkit::{watchdog::LIMIT, with_watchdog};
use tempfile::TempDir;

/// Blocks until the trainer has saved a checkpoint whose inode is not `last`.
///
/// # Panics
/// If the trainer ends first, or does not save in time.
fn next_checkpoint(child: &mut Child, path: &Path, last: Option<u64>) -> u64 {
    let start = Instant::now();
    loop {
        let saved = path.metadata().ok().map(|metadata| metadata.ino());
        if let Some(number) = saved.filter(|_| saved != last) {
            return number;
        }
        if let Some(status) = child.try_wait().expect("its state") {
            panic!("the trainer ended: {status}");
        }
        assert!(start.elapsed() < LIMIT, "no checkpoint in {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Trains, applies `change` to the files of the training set, and trains for many more epochs.
fn train_under(change: impl FnOnce(&Path)) {
    let (set, work) = (small_set(), TempDir::new().expect("a folder"));
    let checkpoint = work.path().join("model");
    let mut trainer = command(work.path());
    trainer.arg("--data").arg(set.path()).arg("--checkpoint").arg(&checkpoint).args([
        "--device",
        "host",
        "--batch",
        "32",
        "--hidden",
        "8",
        "--epochs",
        "9999999999",
        "--quiet",
    ]);
    let mut child = trainer.spawn().expect("the trainer starts");
    let mut last = next_checkpoint(&mut child, &checkpoint, None);
    change(set.path());
    // Batches read ahead are used up within two epochs.
    for _ in 0..20 {
        last = next_checkpoint(&mut child, &checkpoint, Some(last));
    }
    child.kill().expect("the trainer still runs");
    let output = child.wait_with_output().expect("its output");
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_file_that_is_cut_under_the_trainer_does_not_end_it() {
    with_watchdog(LIMIT, || {
        train_under(|set| {
            for name in ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"] {
                let file = File::options().write(true).open(set.join(name)).expect("the file");
                file.set_len(0).expect("a cut");
            }
        });
    });
}

#[test]
fn a_file_that_is_overwritten_under_the_trainer_changes_no_loss() {
    // Two runs of the same steps; in one, the images and labels are overwritten after the first epoch.
    let losses = |change: bool| {
        let (set, work) = (small_set(), TempDir::new().expect("a folder"));
        let mut trainer = command(work.path());
        trainer.arg("--data").arg(set.path()).args([
            "--device",
            "host",
            "--batch",
            "32",
            "--hidden",
            "8",
            "--epochs",
            "300",
            "--quiet",
            "--checkpoint",
            "model",
            "--json",
            "report",
        ]);
        let mut child = trainer.spawn().expect("the trainer starts");
        next_checkpoint(&mut child, &work.path().join("model"), None);
        for name in ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"].into_iter().filter(|_| change) {
            let file = File::options().write(true).open(set.path().join(name)).expect("the file");
            let bytes = file.metadata().expect("its size").len() - 16;
            file.write_all_at(&vec![3; bytes as usize], 16).expect("other bytes");
        }
        assert!(
            child.try_wait().expect("its state").is_none(),
            "the trainer was still running when the files changed"
        );
        assert_eq!(child.wait_with_output().expect("its output").status.code(), Some(0));
        let report = std::fs::read(work.path().join("report")).expect("the report");
        trainer::losses(&serde_json::from_slice(&report).expect("JSON"))
    };
    with_watchdog(LIMIT, move || {
        let (kept, overwritten) = (losses(false), losses(true));
        assert_eq!(kept.len(), 3000);
        assert!(kept == overwritten, "other losses");
    });
}
