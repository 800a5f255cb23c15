//! The report: its fields, and that it is bit-identical for any number of workers, slots and threads.

use crate::trainer::{SIDE, TEST, TRAIN, command, listing, losses, put, report, small_set, text, train};
use feedline_core::{BatchProof, BatchSampler, BatchSamplerOptions, LastBatch, Sampler, World};
use feedline_testkit::{watchdog::LIMIT, with_watchdog};
use serde_json::Value;

const BATCH: usize = 48;
const EPOCHS: u64 = 3;
const ARGUMENTS: [&str; 10] =
    ["--data", ".", "--device", "host", "--batch", "48", "--hidden", "32", "--epochs", "3"];

/// Bytes of one batch in a slot.
const SLAB: usize = (BATCH * SIDE * SIDE).next_multiple_of(256) + BATCH.next_multiple_of(256);

/// The order hash expected from the batch sampler.
fn order_hash(seed: u64, sampler: Sampler) -> String {
    let options = BatchSamplerOptions {
        len: TRAIN as u64,
        sampler,
        seed,
        batch: BATCH,
        last_batch: LastBatch::Drop,
        world: World::single(),
    };
    let batch_sampler = BatchSampler::new(options).unwrap();
    let (mut delivered, mut ids) = (feedline_core::Cursor::new(&batch_sampler, 0), Vec::new());
    for epoch in 0..EPOCHS {
        delivered.begin(epoch);
        for step in 0..batch_sampler.steps(epoch, 0) {
            batch_sampler.batch(epoch, 0, step, &mut ids);
            delivered.deliver(&batch_sampler, &BatchProof::of(epoch, &ids));
        }
    }
    format!("{:016x}", delivered.order_hash())
}

#[test]
fn the_report_has_every_field() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        let report = report(set.path(), &[&ARGUMENTS[..], &["--seed", "5", "--depth", "2"]].concat());
        let steps = EPOCHS * (TRAIN / BATCH) as u64;
        assert_eq!(
            (&report["device"], &report["transfer_mode"]),
            (&"host".into(), &"staged: host is not a GPU".into())
        );
        assert_eq!(report["steps"], steps);
        assert_eq!(losses(&report).len() as u64, steps);
        assert!(losses(&report).iter().all(|loss| loss.is_finite()));
        let between = |name: &str, low: f64, high: f64| {
            let value = report[name].as_f64().unwrap_or_else(|| panic!("{name} is {}", report[name]));
            assert!((low..=high).contains(&value), "{name} is {value}");
        };
        between("samples_per_s", 1.0, 1e9);
        between("wait_share", 0.0, 1.0);
        // Ten classes that are easy to learn; chance would give a tenth.
        between("test_accuracy", 0.5, 1.0);
        let hits = report["test_accuracy"].as_f64().unwrap() * TEST as f64;
        assert!((hits - hits.round()).abs() < 1e-6, "{hits} of {TEST} right");
        assert_eq!(report["peak_device_bytes"], 2 * SLAB);
        assert_eq!(report["peak_pinned_bytes"], 3 * SLAB);
        assert_eq!(report["order_hash"], order_hash(5, Sampler::Shuffle));
        assert_eq!(report["exactly_once"], true);
    });
}

/// With a budget for one device slot and one more host slot, the test set must not need more.
#[test]
fn the_depth_option_applies_to_the_test_set_too() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        let budget = (2 * SLAB).to_string();
        let more = ["--depth", "1", "--pinned-budget", &budget, "--steps", "2"];
        let report = report(set.path(), &[&ARGUMENTS[..], &more].concat());
        assert_eq!((&report["steps"], &report["peak_pinned_bytes"]), (&2.into(), &(2 * SLAB).into()));
        assert!(report["test_accuracy"].is_f64(), "{}", report["test_accuracy"]);
    });
}

/// Everything that must not depend on how the work is distributed.
fn result(report: &Value) -> (Vec<u32>, [Value; 4]) {
    let fields = ["order_hash", "test_accuracy", "steps", "proof"].map(|name| report[name].clone());
    (losses(report).into_iter().map(f32::to_bits).collect(), fields)
}

#[test]
fn losses_are_bit_equal_for_any_workers_and_depth() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        let of = |workers: &str, depth: &str| {
            result(&report(set.path(), &[&ARGUMENTS[..], &["--workers", workers, "--depth", depth]].concat()))
        };
        let first = of("1", "1");
        for workers in ["1", "2", "4"] {
            for depth in ["1", "4"] {
                assert_eq!(of(workers, depth), first, "{workers} workers, depth {depth}");
            }
        }
        let direct = report(set.path(), &[&ARGUMENTS[..], &["--transfer-mode", "zero-copy"]].concat());
        assert_eq!(direct["transfer_mode"], "zero-copy");
        assert_eq!(result(&direct), first, "zero-copy");
    });
}

/// Large enough that the matrix products run on all threads that the environment allows.
#[test]
fn losses_are_bit_equal_for_any_number_of_compute_threads() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        let of = |threads: &str| {
            let mut trainer = command(set.path());
            trainer.env("RAYON_NUM_THREADS", threads).args(["--data", ".", "--device", "host", "--quiet"]);
            train(trainer.args([
                "--batch",
                "160",
                "--hidden",
                "512",
                "--epochs",
                "2",
                "--json",
                "report.json",
            ]));
            let report = std::fs::read(set.path().join("report.json")).unwrap();
            result(&serde_json::from_slice(&report).unwrap())
        };
        let first = of("1");
        for threads in ["2", "3", "5"] {
            assert_eq!(of(threads), first, "{threads} threads");
        }
    });
}

#[test]
fn seeds_and_options_change_the_result() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        let of = |more: &[&str]| report(set.path(), &[&ARGUMENTS[..], more].concat());
        let one = of(&["--seed", "1"]);
        let two = of(&["--seed", "2"]);
        assert_ne!(one["order_hash"], two["order_hash"]);
        assert_ne!(losses(&one)[0], losses(&two)[0], "the first weights depend on the seed");
        let in_order = of(&["--no-shuffle"]);
        assert_eq!(in_order["order_hash"], order_hash(1, Sampler::Sequential));
        let adamw = of(&["--optimizer", "adamw"]);
        assert_eq!(adamw["order_hash"], one["order_hash"]);
        assert_ne!(losses(&adamw)[1], losses(&one)[1]);
        let short = of(&["--steps", "4"]);
        assert_eq!(losses(&short), losses(&one)[..4]);
    });
}

/// A report replaces an existing file completely, and leaves no other file.
#[test]
fn a_report_is_written_in_the_place_of_the_last() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        let before = listing(set.path());
        put(&set, "report.json", &[b'x'; 100_000]);
        report(set.path(), &ARGUMENTS);
        assert_eq!(listing(set.path()), before);
    });
}

#[test]
fn quiet_prints_nothing_and_without_a_terminal_there_is_no_bar() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        let quiet = train(command(set.path()).args(ARGUMENTS).arg("--quiet"));
        assert_eq!((text(&quiet.stdout), text(&quiet.stderr)), (String::new(), String::new()));

        let loud = train(command(set.path()).args(ARGUMENTS));
        assert_eq!(text(&loud.stderr), "", "a bar where there is no terminal");
        let said = text(&loud.stdout);
        assert!(said.contains("test accuracy") && said.contains("samples/s"), "{said}");
        assert!(!said.contains(['\u{1b}', '\r']), "{said:?}");
    });
}
