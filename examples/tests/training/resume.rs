//! A stopped trainer continues from its checkpoint, bit for bit. A checkpoint that does not fit or is
//! damaged is refused, and nothing is overwritten.

use std::path::Path;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use crate::trainer::{command, idx, listing, losses, put, report, run, small_set, text, train};
use feedline_testkit::{watchdog::LIMIT, with_watchdog};
use serde_json::Value;
use tempfile::TempDir;

/// 20 steps per epoch.
const ARGUMENTS: [&str; 8] = ["--data", ".", "--device", "host", "--batch", "16", "--hidden", "24"];
const EPOCHS: &str = "4";
const STEPS: u64 = 80;
const SAVED: &str = "saved.ckpt";

fn arguments<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&ARGUMENTS[..], &["--epochs", EPOCHS], more].concat()
}

/// Everything that stopping and resuming must not change; losses by their bits.
fn result(report: &Value) -> (Vec<u32>, [Value; 5]) {
    let fields =
        ["order_hash", "test_accuracy", "steps", "proof", "exactly_once"].map(|name| report[name].clone());
    (losses(report).into_iter().map(f32::to_bits).collect(), fields)
}

/// The result of a run that was never stopped.
fn uninterrupted(set: &TempDir, more: &[&str]) -> (Vec<u32>, [Value; 5]) {
    let result = result(&report(set.path(), &arguments(more)));
    assert_eq!((result.0.len() as u64, &result.1[4]), (STEPS, &Value::Bool(true)));
    result
}

#[test]
fn a_run_resumes_bit_for_bit_from_any_step_with_any_workers_and_depth() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        let whole = uninterrupted(&set, &[]);
        // Within an epoch, at its first and last step, at its boundary, and at the end of the run.
        for (index, stop) in [1, 7, 19, 20, 21, 40, 59, 79, 80].into_iter().enumerate() {
            let stop = stop.to_string();
            train(command(set.path()).args(arguments(&["--quiet", "--steps", &stop, "--checkpoint", SAVED])));
            let (workers, depth) = [("1", "1"), ("2", "3"), ("4", "2")][index % 3];
            let more = ["--resume", SAVED, "--workers", workers, "--depth", depth];
            assert_eq!(result(&report(set.path(), &arguments(&more))), whole, "stopped after {stop} steps");
        }
    });
}

#[test]
fn a_restored_run_is_stopped_and_restored_again_with_adamw_too() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        for optimizer in ["sgd", "adamw"] {
            let more = ["--optimizer", optimizer, "--seed", "9"];
            let whole = uninterrupted(&set, &more);
            let mut resume: &[&str] = &[];
            for stop in ["3", "20", "33", "34", "60", "80"] {
                let stop = [&more[..], &["--quiet", "--steps", stop, "--checkpoint", SAVED], resume].concat();
                train(command(set.path()).args(arguments(&stop)));
                resume = &["--resume", SAVED];
            }
            let more = [&more[..], resume].concat();
            assert_eq!(result(&report(set.path(), &arguments(&more))), whole, "{optimizer}");
            std::fs::remove_file(set.path().join(SAVED)).unwrap();
        }
    });
}

/// Starts a long run that saves every few steps, and waits for its first checkpoint.
fn long_run(set: &TempDir) -> Child {
    let mut trainer = command(set.path());
    trainer.args(ARGUMENTS).args(["--epochs", "1000000", "--checkpoint", SAVED, "--every", "7"]);
    let child = trainer.spawn().expect("the trainer");
    let start = Instant::now();
    while !set.path().join(SAVED).exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "it saves nothing");
        std::thread::sleep(Duration::from_millis(1));
    }
    child
}

fn interrupt(child: Child, signal: &str) -> Output {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill");
    assert!(sent.success());
    child.wait_with_output().expect("its output")
}

#[test]
fn an_interrupt_saves_the_run_says_so_in_one_line_and_ends_with_130() {
    with_watchdog(LIMIT, || {
        for signal in ["-INT", "-TERM"] {
            let set = small_set();
            let before = listing(set.path());
            let output = interrupt(long_run(&set), signal);
            let others: Vec<_> = listing(set.path()).into_iter().filter(|(name, _)| name != SAVED).collect();
            assert_eq!(others, before, "something is left next to the checkpoint");
            assert_eq!(output.status.code(), Some(130), "{signal}: {}", text(&output.stderr));
            let said = text(&output.stderr);
            assert_eq!((said.lines().count(), text(&output.stdout)), (1, String::new()), "{said}");
            let step: u64 = said
                .strip_prefix("mlp: interrupted after step ")
                .and_then(|rest| rest.split(';').next()?.parse().ok())
                .unwrap_or_else(|| panic!("{said}"));
            assert!(said.contains(SAVED) && said.contains("--resume"), "{said}");

            // The checkpoint was taken at that step, and the run continues as if it had never been
            // interrupted.
            let further = (step + 30).to_string();
            let long = [&ARGUMENTS[..], &["--epochs", "1000000", "--steps", &further]].concat();
            let whole = result(&report(set.path(), &long));
            let saved = [&long[..], &["--resume", SAVED]].concat();
            assert_eq!(result(&report(set.path(), &saved)), whole, "after {step} steps");
        }
    });
}

/// Runs the trainer with arguments that it must refuse, and returns its message. Nothing in the folder
/// may change.
#[track_caller]
fn refused(set: &TempDir, more: &[&str]) -> String {
    let before = (listing(set.path()), std::fs::read(set.path().join(SAVED)).expect("a checkpoint"));
    let output =
        run(command(set.path()).args(arguments(&["--checkpoint", SAVED, "--resume", SAVED])).args(more));
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()), "{said}");
    assert!(said.starts_with("mlp: ") && said.lines().count() == 1, "{said:?}");
    let after = (listing(set.path()), std::fs::read(set.path().join(SAVED)).expect("a checkpoint"));
    assert!(before == after, "something was written: {said}");
    said
}

/// A set with a checkpoint of its first 25 steps.
fn saved() -> TempDir {
    let set = small_set();
    train(command(set.path()).args(arguments(&["--quiet", "--steps", "25", "--checkpoint", SAVED])));
    set
}

#[test]
fn a_damaged_checkpoint_is_refused() {
    with_watchdog(LIMIT, || {
        let set = saved();
        let whole = std::fs::read(set.path().join(SAVED)).unwrap();
        let header = 8 + u64::from_le_bytes(*whole.first_chunk().unwrap()) as usize;
        for len in [0, 1, 8, 40, header - 1, header, header + 1, whole.len() / 2, whole.len() - 1] {
            put(&set, SAVED, &whole[..len]);
            let said = refused(&set, &[]);
            assert!(
                said.contains("cannot read the checkpoint") && said.contains(SAVED),
                "{len} bytes: {said}"
            );
        }
        put(&set, SAVED, &[&whole[..], &[0]].concat());
        refused(&set, &[]);
        // One flipped bit, in places all over the header and the data.
        let places =
            (0..24).map(|n| n * header / 24).chain((0..16).map(|n| header + n * (whole.len() - header) / 16));
        for place in places {
            let mut torn = whole.clone();
            torn[place] ^= 4;
            put(&set, SAVED, &torn);
            refused(&set, &[]);
        }
        put(&set, SAVED, &whole);
        train(command(set.path()).args(arguments(&["--quiet", "--resume", SAVED])));
    });
}

#[test]
fn a_checkpoint_that_does_not_fit_is_refused_with_what_to_do() {
    with_watchdog(LIMIT, || {
        let set = saved();
        for (more, parts) in [
            (&["--seed", "2"][..], &["the cursor has seed 1, this run has seed 2", "use the cursor's"][..]),
            (&["--no-shuffle"], &["another order of the samples"]),
            (&["--hidden", "25"], &["the saved model has another size or optimizer"]),
            (&["--optimizer", "adamw"], &["the saved model has another size or optimizer"]),
            (&["--batch", "7"], &[]),
            (&["--epochs", "1"], &["in epoch 2 after 25 steps, beyond --epochs and --steps"]),
            (&["--steps", "24"], &["in epoch 2 after 25 steps, beyond --epochs and --steps"]),
        ] {
            if parts.is_empty() {
                // Another batch size may continue.
                let copy = [&["--quiet", "--resume", SAVED], more].concat();
                train(command(set.path()).args(arguments(&copy)));
                continue;
            }
            let said = refused(&set, more);
            assert!(parts.iter().all(|part| said.contains(part)), "{more:?}: {said}");
        }

        // Another data set: one image fewer.
        let other = small_set();
        std::fs::copy(set.path().join(SAVED), other.path().join(SAVED)).unwrap();
        shorten(other.path());
        assert!(refused(&other, &[]).contains("the cursor belongs to another data set"));

        // A newer version.
        let bytes = std::fs::read(set.path().join(SAVED)).unwrap();
        let version = br#"{\"version\":"#;
        let at =
            bytes.windows(version.len()).position(|part| part == version).expect("a version") + version.len();
        let mut newer = bytes;
        newer[at] = b'9';
        put(&set, SAVED, &newer);
        let said = refused(&set, &[]);
        assert!(
            said.contains("the cursor has version 9, and this feedline resumes from version 5")
                && said.contains("newer"),
            "{said}"
        );

        // A safetensors file from another program.
        put(&set, SAVED, &[&2_u64.to_le_bytes()[..], b"{}"].concat());
        assert!(refused(&set, &[]).contains("it is not a checkpoint of this trainer"));
    });
}

/// Removes the last image and its label from the training set.
fn shorten(dir: &Path) {
    for (name, dims, bytes) in
        [("train-images-idx3-ubyte", vec![319, 8, 8], 64), ("train-labels-idx1-ubyte", vec![319], 1)]
    {
        let whole = std::fs::read(dir.join(name)).unwrap();
        let head = 4 + 4 * dims.len();
        std::fs::write(dir.join(name), idx(&dims, &whole[head..whole.len() - bytes])).unwrap();
    }
}

#[test]
fn a_finished_run_that_is_resumed_reports_the_same_again() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        let whole = result(&report(set.path(), &arguments(&["--checkpoint", SAVED])));
        for _ in 0..2 {
            let again = ["--resume", SAVED, "--checkpoint", SAVED];
            assert_eq!(result(&report(set.path(), &arguments(&again))), whole);
        }
    });
}
