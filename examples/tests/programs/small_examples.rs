//! The small examples: each runs to its end, and prints the lines that its first comment promises.

use std::process::Command;

use feedline_testkit::OtherWork;

use crate::program::example;

/// The lines that an example prints, on the host.
fn run(name: &str) -> Vec<String> {
    run_with(name, &[])
}

fn run_with(name: &str, arguments: &[&str]) -> Vec<String> {
    // Some write a data set into the folder that they run in.
    let folder = tempfile::tempdir().expect("a folder");
    let mut program = Command::new(example(name));
    let program = program.args(arguments).current_dir(&folder).env("CUDA_VISIBLE_DEVICES", "");
    let output = program.output().expect("a process");
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
fn device_map_delivers_the_digits_as_floats() {
    let lines = run("device_map");
    let ink = lines[0].strip_prefix("mean ink of 10000 images: ").and_then(|text| text.strip_suffix(" of 1"));
    // The example `own_kernel` finds the same ink, of 255.
    let ink = ink.unwrap_or_else(|| panic!("{lines:?}")).parse::<f64>().unwrap() * 255.0;
    assert!((30.0..37.0).contains(&ink), "{ink}");
    assert!(lines.len() == 2 && lines[1].contains("the consumer waits "), "{lines:?}");
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

#[test]
fn branches_on_own_streams_overlap_and_give_the_same_weights() {
    // The times belong to the last step, during which other processes may have had the cores.
    let other_work = OtherWork::watch();
    let overlapped = (0..20).any(|_| {
        let lines = run_with("branches", &["--steps", "5"]);
        assert!(lines.last().unwrap().ends_with("the same weights: true"), "{lines:?}");
        let text = lines.iter().find_map(|line| line.strip_prefix("branches at a time: ")).unwrap();
        let (own, one) = text.split_once("; on one stream ").unwrap();
        let [own, one] = [own, one].map(|number| number.parse::<f64>().unwrap());
        // On one stream, at most one branch runs at a time.
        assert!(one <= 1.01, "{text}");
        own > 1.1
    });
    if !overlapped && other_work.not_run("branches that overlap") {
        return;
    }
    assert!(overlapped, "the branches ran one after the other in 20 runs");
}

#[test]
fn a_schedule_on_streams_gives_the_output_of_one_stream() {
    let lines = run("schedule");
    let ops: Vec<_> = lines.iter().filter(|line| line.starts_with("op ")).collect();
    assert_eq!(ops.len(), 11);
    let streams = |number: &str| ops.iter().filter(|op| op.contains(&format!("stream {number},"))).count();
    assert!(["0", "1", "2"].map(streams).into_iter().all(|ops| ops >= 2), "{lines:?}");
    // An op after its parent on the same stream needs no event.
    assert!(ops[0].contains(" 0 events") && ops[10].contains(" 1 events"), "{lines:?}");
    assert!(lines.contains(&"the same output: true".to_owned()), "{lines:?}");
    assert_eq!(lines.last().unwrap(), "no race in 10 schedules of the simulator");
}

#[test]
fn the_loop_of_the_readme_runs_as_it_stands_in_an_empty_folder() {
    let (readme, program) = (include_str!("../../../README.md"), include_str!("../../readme.rs"));
    let (_, block) = readme.split_once("```rust,no_run\n").expect("the loop");
    let (block, _) = block.split_once("```").expect("its end");
    let (_, program) = program.split_once("#![forbid(unsafe_code)]\n\n").expect("the program");
    assert_eq!(block, program, "the README and examples/readme.rs differ");
    let lines = run("readme");
    assert!(lines[0].contains("samples checked, 0 faults"), "{lines:?}");
}
