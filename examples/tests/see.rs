//! The programs that look at a run or a machine: `doctor`, `whatif`, and the files that `mlp` writes for
//! them.

mod program;
mod trainer;

use std::process::{Command, Output};

use feedline_testkit::{watchdog::LIMIT, with_watchdog};
use program::example;
use serde_json::Value;
use trainer::{small_set, text, train};

/// Runs the example `name`.
fn run(name: &str, arguments: &[&str]) -> Output {
    Command::new(example(name)).args(arguments).output().expect("a process")
}

#[test]
fn doctor_works_on_any_machine_and_its_json_is_whole() {
    with_watchdog(LIMIT, || {
        let output = run("doctor", &["--json"]);
        assert!(output.status.success(), "{output:?}");
        let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert!(found["host"]["usable_cores"].as_u64() >= Some(1));
        assert_eq!(found["libraries"].as_array().map(Vec::len), Some(5));
        assert_ne!(found["gpu"].is_null(), found["no_gpu"].is_null(), "{found}");
        assert!(!found["advice"].as_array().expect("advice").is_empty());
        let plain = run("doctor", &[]);
        assert!(plain.status.success() && text(&plain.stdout).contains("page-lock limit"));
        assert_eq!(run("doctor", &["--what"]).status.code(), Some(2));
    });
}

#[test]
fn a_run_leaves_a_trace_a_page_and_service_times_that_whatif_reads() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        let mut command = trainer::command(set.path());
        command.args(["--trace", "t.json", "--profile", "p.json", "--report", "r.html"]);
        train(&mut command);
        let read = |name: &str| std::fs::read_to_string(set.path().join(name)).expect("a file");
        let trace: Value = serde_json::from_str(&read("t.json")).expect("JSON");
        assert!(trace["traceEvents"].as_array().is_some_and(|events| events.len() > 10));
        let page = read("r.html");
        assert!(page.starts_with("<!doctype html>") && page.contains("compute stream"));
        let profile = set.path().join("p.json");
        let profile = profile.to_str().expect("a name");
        let output = run("whatif", &[profile, "--workers", "2", "--step-us", "1000", "--json"]);
        assert!(output.status.success(), "{output:?}");
        let predicted: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let rate = predicted["asked"]["batches_per_s"].as_f64().expect("a rate");
        // The last steps, as many as there are slots, are not waited for.
        assert!(rate > 500.0 && rate < 1050.0, "a step of 1 ms: {predicted}");
        let wrong = run("whatif", &["t.json", "--workers", "0"]);
        assert_eq!(wrong.status.code(), Some(2));
    });
}
