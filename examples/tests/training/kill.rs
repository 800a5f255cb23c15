//! A trainer that is killed at any moment continues from its last checkpoint with the same results.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use crate::trainer::{command, listing, losses, report, small_set};
use feedline_core::Random;
use feedline_testkit::{watchdog::LIMIT, with_watchdog};
use serde_json::Value;

const KILLS: usize = 20;
const SAVED: &str = "saved.ckpt";
const ARGUMENTS: [&str; 16] = [
    "--data",
    ".",
    "--device",
    "host",
    "--batch",
    "16",
    "--hidden",
    "24",
    "--epochs",
    "24",
    "--seed",
    "3",
    "--checkpoint",
    SAVED,
    "--every",
    "7",
];

/// Everything that a kill must not change; losses by their bits.
fn result(report: &Value) -> (Vec<u32>, [Value; 5]) {
    let fields =
        ["order_hash", "test_accuracy", "steps", "proof", "exactly_once"].map(|name| report[name].clone());
    (losses(report).into_iter().map(f32::to_bits).collect(), fields)
}

/// The arguments to resume, if there is a checkpoint.
fn resume(dir: &Path) -> &'static [&'static str] {
    if dir.join(SAVED).exists() { &["--resume", SAVED] } else { &[] }
}

/// Waits until there is a checkpoint, or the run has ended.
fn wait_for_a_checkpoint(dir: &Path, child: &mut Child) {
    while !dir.join(SAVED).exists() && child.try_wait().expect("its state").is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The measured length of a run only places the kills. If the machine becomes faster, more kills come
/// after the end and are drawn again; if it becomes slower, more come before the first step, so every
/// other kill first waits for a checkpoint.
#[test]
fn killed_at_twenty_random_moments_it_ends_with_the_same_bits() {
    with_watchdog(5 * LIMIT, || {
        let set = small_set();
        let data = listing(set.path());
        let start = Instant::now();
        let whole = result(&report(set.path(), &ARGUMENTS));
        let mut length = start.elapsed();
        assert_eq!((whole.0.len(), &whole.1[4]), (480, &Value::Bool(true)));
        std::fs::remove_file(set.path().join(SAVED)).unwrap();

        let seed = RandomState::new().hash_one(0);
        let mut random = Random::from_key(seed);
        let (mut kills, mut chain, mut longest, mut from_saved) = (0, 0, 0, 0);
        while kills < KILLS {
            let mix = [
                ["--workers", "1", "--depth", "1"],
                ["--workers", "2", "--depth", "4"],
                ["--workers", "4", "--depth", "2"],
            ];
            let mut trainer = command(set.path());
            trainer.args(ARGUMENTS).arg("--quiet").args(resume(set.path())).args(mix[kills % 3]);
            let mut child = trainer.spawn().expect("the trainer");
            if kills % 2 == 1 {
                wait_for_a_checkpoint(set.path(), &mut child);
            }
            std::thread::sleep(length.mul_f64(random.uniform()));
            let ended = child.try_wait().expect("its state").is_some();
            child.kill().expect("the kill");
            child.wait().expect("its end");
            if !ended {
                (kills, chain) = (kills + 1, chain + 1);
                longest = longest.max(chain);
                from_saved += usize::from(set.path().join(SAVED).exists());
            }
            if ended {
                length = length.mul_f64(0.8);
            }
            // Every third run, and a run that has ended, is completed, and a new one begins.
            if ended || kills % 3 == 0 {
                let more = [resume(set.path()), &["--workers", "3", "--depth", "3"]].concat();
                let report = report(set.path(), &[&ARGUMENTS[..], &more].concat());
                assert!(result(&report) == whole, "killed {chain} times, seed {seed}: {report}");
                std::fs::remove_file(set.path().join(SAVED)).unwrap();
                assert_eq!(listing(set.path()), data, "something is left next to the checkpoint");
                chain = 0;
            }
        }
        eprintln!(
            "{kills} kills in runs of {length:?}, at most {longest} in one, {from_saved} with a checkpoint"
        );
        assert!(longest >= 2 && from_saved >= KILLS / 2, "the kills came too early, seed {seed}");
    });
}
