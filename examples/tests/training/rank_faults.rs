//! A rank that is killed or stopped ends the others within the limit, and the run resumes exactly.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::trainer::{losses, small_set, text};
use crate::world::{World, report};
use feedline_core::Random;
use feedline_testkit::{watchdog::LIMIT, with_watchdog};
use serde_json::Value;

const SIZE: usize = 4;
const KILLS: usize = 20;
const SAVED: &str = "saved.ckpt";
const ARGUMENTS: [&str; 18] = [
    "--data",
    ".",
    "--device",
    "host",
    "--batch",
    "4",
    "--hidden",
    "24",
    "--epochs",
    "12",
    "--seed",
    "3",
    "--checkpoint",
    SAVED,
    "--every",
    "7",
    "--rank-limit",
    "20",
];

/// The others end as soon as the connections of a killed rank close; the rest is for a loaded machine.
const SOON: Duration = Duration::from_secs(15);

/// Everything that a kill must not change; losses by their bits.
fn result(report: &Value) -> (Vec<u32>, [Value; 5]) {
    let fields =
        ["order_hash", "test_accuracy", "steps", "proof", "exactly_once"].map(|name| report[name].clone());
    (losses(report).into_iter().map(f32::to_bits).collect(), fields)
}

fn resume(dir: &Path) -> &'static [&'static str] {
    if dir.join(SAVED).exists() { &["--resume", SAVED] } else { &[] }
}

/// Waits until there is a checkpoint, or a rank has ended.
fn wait_for_a_checkpoint(dir: &Path, world: &mut World) {
    while !dir.join(SAVED).exists() && world.running().count() == SIZE {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Asserts that all ranks but `gone` ended with an error; one of them names `gone`, or it had not joined yet.
#[track_caller]
fn assert_named(world: World, gone: usize) {
    let outputs = world.outputs();
    let name = format!("rank {gone} ");
    for (rank, output) in outputs.iter().enumerate().filter(|(rank, _)| *rank != gone) {
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "rank {rank} after the loss of rank {gone}: {said}");
        // Before it has joined, a lost rank 0 is a store that cannot be reached.
        assert!(
            said.contains(&name) || said.contains("rank 0 or the launcher has ended"),
            "rank {rank} does not name rank {gone}: {said}"
        );
    }
}

#[test]
fn of_four_ranks_one_is_killed_at_twenty_random_moments() {
    with_watchdog(5 * LIMIT, || {
        let set = small_set();
        let start = Instant::now();
        let whole = result(&report(set.path(), SIZE, &ARGUMENTS));
        let mut length = start.elapsed();
        assert_eq!((whole.0.len(), &whole.1[4]), (240, &Value::Bool(true)));
        std::fs::remove_file(set.path().join(SAVED)).unwrap();

        let seed = RandomState::new().hash_one(0);
        let mut random = Random::from_key(seed);
        let (mut kills, mut from_saved, mut slowest) = (0, 0, Duration::ZERO);
        while kills < KILLS {
            let arguments = [&ARGUMENTS[..], &["--quiet"], resume(set.path())].concat();
            let mut world = World::start(set.path(), SIZE, &arguments);
            if kills % 2 == 1 {
                wait_for_a_checkpoint(set.path(), &mut world);
            }
            std::thread::sleep(length.mul_f64(random.uniform()));
            let victim = (random.uniform() * SIZE as f64) as usize % SIZE;
            let ended = world.running().count() < SIZE;
            world.ranks[victim].kill().expect("the kill");
            let killed = Instant::now();
            if ended {
                // The kill came after the end of the run: try again.
                world.wait(&[], SOON);
                length = length.mul_f64(0.8);
            } else {
                // If the world was about to end, the other ranks may end without an error.
                world.wait(&[], Duration::from_secs(20) + SOON);
                slowest = slowest.max(killed.elapsed());
                (kills, from_saved) = (kills + 1, from_saved + usize::from(set.path().join(SAVED).exists()));
            }
            if ended || kills % 4 == 0 {
                let more = [&ARGUMENTS[..], resume(set.path())].concat();
                assert!(
                    result(&report(set.path(), SIZE, &more)) == whole,
                    "after {kills} kills, seed {seed}"
                );
                std::fs::remove_file(set.path().join(SAVED)).unwrap();
            }
        }
        eprintln!(
            "{kills} kills in runs of {length:?}, {from_saved} with a checkpoint; others ended in {slowest:?}"
        );
        assert!(from_saved >= KILLS / 2, "the kills came too early, seed {seed}");
    });
}

#[test]
fn the_others_name_the_rank_that_was_killed() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        for victim in [0, 1, 3] {
            let endless = [&ARGUMENTS[..], &["--epochs", "1000000", "--quiet"]].concat();
            let mut world = World::start(set.path(), SIZE, &endless);
            wait_for_a_checkpoint(set.path(), &mut world);
            world.ranks[victim].kill().expect("the kill");
            world.wait(&[], SOON);
            assert_named(world, victim);
            std::fs::remove_file(set.path().join(SAVED)).unwrap();
        }
    });
}

#[test]
fn the_others_name_the_rank_that_is_stopped() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        for victim in [0, 2] {
            let stuck = [&ARGUMENTS[..16], &["--rank-limit", "3", "--epochs", "1000000", "--quiet"]].concat();
            let mut world = World::start(set.path(), SIZE, &stuck);
            wait_for_a_checkpoint(set.path(), &mut world);
            world.signal(victim, "STOP");
            world.wait(&[victim], Duration::from_secs(3) + SOON);
            world.ranks[victim].kill().expect("the kill");
            assert_named(world, victim);
            std::fs::remove_file(set.path().join(SAVED)).unwrap();
        }
    });
}
