//! Several ranks train like one process with the same global batch.

use crate::trainer;

use std::time::Duration;

use crate::trainer::{TRAIN, command, losses, small_set, text};
use crate::world::{World, free_port, report};
use feedline_testkit::{watchdog::LIMIT, with_watchdog};
use serde_json::Value;

const ARGUMENTS: [&str; 8] = ["--data", ".", "--device", "host", "--hidden", "24", "--seed", "3"];
const SAVED: &str = "saved.ckpt";

fn arguments<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&ARGUMENTS[..], more].concat()
}

/// Asserts that two runs delivered the same samples, and have the same losses up to the order of float
/// additions.
#[track_caller]
fn assert_alike(one: &Value, two: &Value) {
    let (left, right) = (losses(one), losses(two));
    assert_eq!(left.len(), right.len());
    for (step, (left, right)) in left.iter().zip(&right).enumerate() {
        assert!((left - right).abs() <= 1e-4 * left, "step {step}: {left} and {right}");
    }
    for report in [one, two] {
        assert_eq!(report["exactly_once"], Value::Bool(true));
    }
    assert_eq!(one["proof"], two["proof"]);
    assert_eq!(one["test_accuracy"], two["test_accuracy"]);
}

/// Everything that must be the same when the same world runs again; losses by their bits.
fn result(report: &Value) -> (Vec<u32>, [Value; 5]) {
    let fields =
        ["order_hash", "test_accuracy", "steps", "proof", "exactly_once"].map(|name| report[name].clone());
    (losses(report).into_iter().map(f32::to_bits).collect(), fields)
}

#[test]
fn worlds_of_1_2_and_4_have_the_same_losses_and_deliver_every_sample_once() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        for optimizer in ["sgd", "adamw"] {
            let more = |batch| arguments(&["--batch", batch, "--epochs", "3", "--optimizer", optimizer]);
            let alone = report(set.path(), 1, &more("32"));
            assert_eq!((losses(&alone).len(), alone["world"].as_u64()), (3 * TRAIN / 32, Some(1)));
            for (size, batch) in [(2, "16"), (4, "8")] {
                let several = report(set.path(), size, &more(batch));
                assert_eq!(several["world"].as_u64(), Some(size as u64));
                assert_alike(&alone, &several);
            }
        }
    });
}

#[test]
fn gradients_that_travel_early_are_the_same() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        let more = arguments(&["--batch", "16", "--epochs", "2"]);
        let late = report(set.path(), 2, &more);
        let early = report(set.path(), 2, &[&more[..], &["--bucket-mib", "0"]].concat());
        assert_eq!(result(&late), result(&early));
    });
}

#[test]
fn the_order_depends_on_the_world_only_and_not_on_workers() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        let more = |workers| arguments(&["--batch", "8", "--epochs", "2", "--workers", workers]);
        assert_eq!(result(&report(set.path(), 4, &more("1"))), result(&report(set.path(), 4, &more("3"))));
    });
}

/// 70 test samples: with batches of 17 on 4 ranks, two of the ranks have no sample in the last step.
#[test]
fn the_test_set_is_shared_out_and_its_hits_are_summed() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        let alone = report(set.path(), 1, &arguments(&["--batch", "68", "--epochs", "4"]));
        let several = report(set.path(), 4, &arguments(&["--batch", "17", "--epochs", "4"]));
        assert_alike(&alone, &several);
    });
}

#[test]
fn a_run_resumes_with_the_same_world_bit_for_bit() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        // 20 steps an epoch; the checkpoints are taken within one, at its end and at the end of the run.
        let more = ["--batch", "8", "--epochs", "3"];
        let whole = result(&report(set.path(), 2, &arguments(&more)));
        for stop in ["7", "20", "33", "60"] {
            let part = [&more[..], &["--checkpoint", SAVED, "--steps", stop]].concat();
            report(set.path(), 2, &arguments(&part));
            let rest = [&more[..], &["--resume", SAVED]].concat();
            assert!(result(&report(set.path(), 2, &arguments(&rest))) == whole, "stopped after {stop}");
        }
    });
}

#[test]
fn a_run_resumes_with_other_worlds() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        let whole = report(set.path(), 1, &arguments(&["--batch", "32", "--epochs", "3"]));
        // 10 steps an epoch in every part.
        let mut resume: &[&str] = &[];
        for (size, batch, stop) in
            [(4, "8", "3"), (2, "16", "10"), (1, "32", "14"), (4, "8", "27"), (2, "16", "30")]
        {
            let part = ["--batch", batch, "--epochs", "3", "--steps", stop, "--checkpoint", SAVED];
            let part = report(set.path(), size, &arguments(&[&part[..], resume].concat()));
            assert_eq!(part["exactly_once"], Value::Bool(true), "up to step {stop}");
            resume = &["--resume", SAVED];
            if stop == "30" {
                assert_alike(&whole, &part);
            }
        }
    });
}

#[test]
fn an_interrupt_of_any_rank_stops_all_after_the_same_step() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        let more = arguments(&["--batch", "8", "--epochs", "100000", "--checkpoint", SAVED, "--every", "10"]);
        for pressed in [&[2][..], &[0, 1, 2]] {
            let mut world = World::start(set.path(), 3, &more);
            while !set.path().join(SAVED).exists() {
                assert_eq!(world.running().count(), 3, "a rank ended early");
                std::thread::sleep(Duration::from_millis(5));
            }
            pressed.iter().for_each(|rank| world.signal(*rank, "INT"));
            world.wait(&[], Duration::from_secs(30));
            let outputs = world.outputs();
            let said: Vec<_> = outputs.iter().map(|output| text(&output.stderr)).collect();
            let steps = said.iter().map(|said| said.split(';').next().unwrap_or_default());
            assert!(outputs.iter().all(|output| output.status.code() == Some(130)), "{said:?}");
            assert!(steps.clone().all(|step| step.starts_with("mlp: interrupted after step ")), "{said:?}");
            assert_eq!(steps.collect::<std::collections::BTreeSet<_>>().len(), 1, "{said:?}");
            std::fs::remove_file(set.path().join(SAVED)).unwrap();
        }
    });
}

#[test]
fn ranks_with_different_options_are_told_so() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        let port = free_port().to_string();
        let rank = |rank: &str, batch: &str| {
            let mut command = command(set.path());
            command.args(arguments(&["--batch", batch, "--quiet"]));
            command.envs([
                ("MASTER_ADDR", "127.0.0.1"),
                ("MASTER_PORT", &port),
                ("WORLD_SIZE", "2"),
                ("RANK", rank),
            ]);
            command.spawn().unwrap()
        };
        let mut world = World { ranks: vec![rank("0", "8"), rank("1", "16")] };
        world.wait(&[], Duration::from_secs(60));
        for output in world.outputs() {
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(
                said.contains("rank 1 has \"--batch 16") && said.contains("rank 0 has \"--batch 8"),
                "{said}"
            );
        }
    });
}

#[test]
fn a_rank_that_never_comes_is_named() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        let mut command = command(set.path());
        command.args(arguments(&["--rank-limit", "1"])).envs([("RANK", "0"), ("WORLD_SIZE", "3")]);
        command.envs([("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &free_port().to_string())]);
        trainer::assert_says(&trainer::run(&mut command), &["ranks 1 and 2 of 3 did not join within 1s"]);
    });
}
