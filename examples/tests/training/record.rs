//! The trainer records a run: a poisoned file causes a spike of the loss, and the record names the file.

use std::fs::write;
use std::path::Path;

use feedline::record::file::RankRecord;
use feedline_core::random::key;
use feedline_datasets::OpenOptions;
use feedline_record::{Run, Verdict};
use feedline_testkit::{watchdog::LIMIT, with_watchdog};
use serde_json::json;
use tempfile::TempDir;

use crate::trainer::{command, losses, report, small_set, train};

/// Samples of a shard; the trainer takes four batches from each.
const SHARD: usize = 64;
const SHARDS: usize = 24;
/// The shard whose labels are wrong.
const POISONED: usize = 17;

/// A folder with a training set in shards, one of them poisoned, and a test set.
fn poisoned_set() -> TempDir {
    let dir = TempDir::new().expect("a folder");
    for (folder, shards) in [("train", SHARDS), ("test", 1)] {
        std::fs::create_dir(dir.path().join(folder)).expect("a folder");
        for shard in 0..shards {
            let is_poisoned = (folder, shard) == ("train", POISONED);
            shard_of(&dir.path().join(format!("{folder}/{shard:02}.safetensors")), shard, is_poisoned);
        }
    }
    dir
}

/// Writes a shard of patterns of ten classes.
fn shard_of(path: &Path, shard: usize, is_poisoned: bool) {
    let class = |i: usize| key(&[7, shard as u64, i as u64]) % 10;
    let pixel = |i: usize, k: usize| (key(&[2, class(i), k as u64]) % 250) as u8;
    let images: Vec<u8> = (0..SHARD).flat_map(|i| (0..64).map(move |k| pixel(i, k))).collect();
    let shift = if is_poisoned { 3 } else { 0 };
    let labels: Vec<u8> = (0..SHARD).map(|i| ((class(i) + shift) % 10) as u8).collect();
    let header = json!({
        "image": {"dtype": "U8", "shape": [SHARD, 8, 8], "data_offsets": [0, images.len()]},
        "label": {"dtype": "U8", "shape": [SHARD], "data_offsets": [images.len(), images.len() + SHARD]},
    });
    let header = header.to_string();
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &images, &labels].concat();
    write(path, file).expect("a file");
}

#[test]
fn a_poisoned_file_is_found_by_the_spike_that_it_makes() {
    with_watchdog(2 * LIMIT, || {
        let set = poisoned_set();
        let arguments = [
            "--data",
            ".",
            "--device",
            "host",
            "--batch",
            "16",
            "--hidden",
            "32",
            "--lr",
            "0.01",
            "--no-shuffle",
        ];
        let options = ["--epochs", "2", "--record", "run"];
        let found = report(set.path(), &[&arguments[..], &options].concat());
        let run = Run::open(set.path().join("run")).expect("a record");
        let noted: Vec<f32> = run.notes("loss").iter().map(|(_, loss)| *loss as f32).collect();
        assert_eq!(noted, losses(&found), "the loss of every step");
        assert_eq!(run.steps(), 0..2 * 4 * SHARDS as u64);

        let spikes = run.spikes("loss");
        let poisoned = (4 * POISONED as u64)..(4 * POISONED as u64 + 4);
        let in_epoch = |step: u64| step % (4 * SHARDS as u64);
        assert!(spikes.iter().all(|spike| poisoned.contains(&in_epoch(spike.step))), "{spikes:?}");
        assert!(spikes.len() >= 3, "{spikes:?}");
        let data = feedline_record::open(&run.header(0), None, &OpenOptions::default()).expect("the data");
        let mut replayer = run.replayer(data, 0);
        for spike in &spikes {
            let replayed = replayer.step(spike.step).expect("the batch");
            assert_eq!(replayed.verdict, Verdict::Equal);
            let file = format!("{POISONED}.safetensors");
            assert!(
                replayed.paths.iter().flatten().all(|path| path.ends_with(&file)),
                "{:?}",
                replayed.paths
            );
        }
    });
}

#[test]
fn a_resumed_run_continues_its_record_and_its_losses() {
    with_watchdog(2 * LIMIT, || {
        let set = small_set();
        let arguments =
            ["--data", ".", "--device", "host", "--batch", "16", "--hidden", "24", "--epochs", "4"];
        let whole = report(set.path(), &[&arguments[..], &["--record", "whole"]].concat());
        let saved = ["--checkpoint", "saved.ckpt", "--every", "7", "--record", "parts", "--quiet"];
        // Beyond the last checkpoint, so that steps are done again.
        train(command(set.path()).args(arguments).args(saved).args(["--steps", "33"]));
        std::fs::copy(set.path().join("saved.ckpt"), set.path().join("old.ckpt")).expect("a copy");
        train(
            command(set.path()).args(arguments).args(saved).args(["--resume", "old.ckpt", "--steps", "50"]),
        );
        train(command(set.path()).args(arguments).args(saved).args(["--resume", "old.ckpt"]));
        let [one, parts] = ["whole", "parts"].map(|name| Run::open(set.path().join(name)).expect("a record"));
        let compared = one.compare(&parts).expect("a comparison");
        assert!(compared.is_equal() && compared.equal_steps == 80, "{compared:?}");
        assert_eq!(one.notes("loss"), parts.notes("loss"));
        assert_eq!(one.notes("loss").len(), losses(&whole).len());
        let file = RankRecord::read(&set.path().join("parts/rank-0.rec")).expect("a record").expect("a file");
        assert!(file.segments.len() > 4, "two resumes within epochs");
    });
}
