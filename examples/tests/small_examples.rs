//! The small examples: each runs to its end and prints what its first lines promise.

mod program;

use std::process::Command;

use program::example;

/// The lines that an example prints, on the host.
fn run(name: &str) -> Vec<String> {
    let output = Command::new(example(name)).env("CUDA_VISIBLE_DEVICES", "").output();
    let output = output.expect("a process");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{name} ends with {}: {error}", output.status);
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn own_dataset_is_checked_and_delivered() {
    let lines = run("own_dataset");
    assert_eq!(lines.first().unwrap(), "64 samples checked, 0 faults");
    assert_eq!(lines.last().unwrap(), "1000 samples delivered");
    let points = &lines[1..lines.len() - 1];
    assert_eq!(points.len(), 1000_usize.div_ceil(64));
    let number = |text: &str| text.split(' ').nth(1).unwrap().parse::<f32>().unwrap();
    for point in points {
        let (x, y) = point.split_once(", ").unwrap();
        assert_eq!(number(x) * number(x), number(y), "{point}");
    }
}

#[test]
fn validation_falls_and_the_resumed_run_ends_bit_equal() {
    let lines = run("validation");
    let losses = |lines: &[String]| -> Vec<(String, f64)> {
        let parts = lines.iter().map(|line| line.split_once(": validation loss ").unwrap());
        parts.map(|(epoch, loss)| (epoch.to_owned(), loss.parse().unwrap())).collect()
    };
    let whole = losses(&lines[..3]);
    assert_eq!(lines[3], "resumed from epoch 1");
    let resumed = losses(&lines[4..6]);
    assert!(whole[2].1 < 0.01 && whole[2].1 < whole[0].1, "{whole:?}");
    assert_eq!(resumed, whole[1..]);
    assert!(lines[6].ends_with("resumed bit-equal: true") && lines.len() == 7, "{lines:?}");
}

#[test]
fn check_my_loop_finds_the_missing_wait_and_nothing_else() {
    let lines = run("check_my_loop");
    assert_eq!(lines[0], "with the wait: no race in 20 schedules");
    for part in [
        "without it: race",
        "\"fill\" on stream",
        "\"cleaner\"",
        "what \"step\" on stream",
        "wait for an event",
    ] {
        assert!(lines[1].contains(part), "no {part:?} in: {}", lines[1]);
    }
    assert_eq!(lines.len(), 2);
}
