//! The programs that inspect a run or a machine: `doctor`, `whatif`, and the files that `mlp` writes for
//! them.

use crate::trainer;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use crate::program::example;
use crate::trainer::{small_set, text, train};
use feedline_testkit::{not_run, watchdog::LIMIT, with_watchdog};
use serde_json::Value;

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
        // The last steps, one per slot, are not waited for.
        assert!(rate > 500.0 && rate < 1050.0, "a step of 1 ms: {predicted}");
        let wrong = run("whatif", &["t.json", "--workers", "0"]);
        assert_eq!(wrong.status.code(), Some(2));
    });
}

/// A run in which two servers filled 80 of 100 batches: the doctor names what limits it, and whatif asks for
/// others.
#[test]
fn doctor_and_whatif_know_the_servers_of_a_run() {
    with_watchdog(LIMIT, || {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("p.json");
        let path = path.to_str().expect("a name");
        let setup = serde_json::json!({
            "workers": 1, "host_slots": 12, "device_slots": 3, "batch_size": 1, "batch_bytes": 1000,
            "is_source": false, "is_zero_copy": false,
        });
        // The worker decodes a fifth of the batches, in 20 ms.
        let times = serde_json::json!({
            "read_ns": 0, "decode_ns": 4_000_000, "submit_ns": 0, "copy_ns": 0, "step_ns": 1000,
            "device_ns": 0,
        });
        for (network_ns, limit) in [(80_000_000, "the servers limit"), (1_200_000_000, "the link limits")] {
            let filler = serde_json::json!({
                "batches": 80, "returned": 0, "rejected": 0, "retries": 0, "hedges": 0,
                "service_ns": 1_600_000_000, "network_ns": network_ns, "servers": 2,
            });
            let servers = serde_json::json!({ "filler": filler, "batches": 100, "wall_ns": 400_000_000 });
            let profile = serde_json::json!({ "setup": setup, "samples": [times], "servers": servers });
            std::fs::write(path, profile.to_string()).expect("a file");
            let doctor = text(&run("doctor", &["--profile", path]).stdout);
            let found = doctor.contains(limit) && doctor.contains("2 servers filled 80 % of the batches");
            assert!(found, "{doctor}");
            let asked = text(&run("whatif", &[path, "--servers", "4"]).stdout);
            assert!(
                asked.contains("batches of servers") && asked.contains("predicted change: +7"),
                "{asked}"
            );
            let none = text(&run("whatif", &[path, "--servers", "0"]).stdout);
            assert!(none.contains("predicted change: -8"), "{none}");
        }
    });
}

/// The text, the JSON and the page of a run show the same share of waiting.
#[test]
fn a_run_says_once_how_long_it_waited() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        let mut command = trainer::command(set.path());
        let output = train(command.args(["--json", "j.json", "--report", "r.html"]));
        let read = |name: &str| std::fs::read_to_string(set.path().join(name)).expect("a file");
        let report: Value = serde_json::from_str(&read("j.json")).expect("JSON");
        let waited = report["wait_share"].as_f64().expect("a share");
        let run = &report["stalls"]["run"];
        let ns = |value: &Value| value.as_u64().expect("nanoseconds") as f64;
        let causes = run["causes"].as_object().expect("causes");
        let waits =
            causes.iter().filter(|(cause, _)| !["consumer", "no_device_slot"].contains(&cause.as_str()));
        let share =
            waits.map(|(_, time)| ns(time)).sum::<f64>() / (ns(&run["until_ns"]) - ns(&run["from_ns"]));
        assert!((waited - share).abs() < 1e-9, "{waited} {share}");
        let said = format!("waited         {:.1} % of the time for data", 100.0 * waited);
        assert!(text(&output.stdout).contains(&said), "{said}: {output:?}");
        let json = read("j.json");
        let digits =
            json.split_once("\"wait_share\":").and_then(|(_, rest)| rest.split_once(',')).expect("it");
        assert!(read("r.html").contains(&format!("\"waited\":{},", digits.0)), "{}", digits.0);
        let diagnosis = report["diagnosis"].as_str().expect("a text");
        let named = format!("the consumer waits {:.0} % of the time", 100.0 * waited);
        assert!(
            diagnosis.contains(&named) || diagnosis.starts_with("too few batches"),
            "{named}: {diagnosis}"
        );
    });
}

/// Opens `page` in Chromium with one more argument.
fn browse(browser: &str, folder: &Path, page: &Path, argument: &str, dark: bool) -> Output {
    let mut command = Command::new(browser);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]);
    command.args(["--disable-component-update", "--disable-sync", "--disable-quic", "--no-first-run"]);
    // Chromium's names of the two colour schemes: 0 is dark, 1 is light.
    command.arg(format!("--blink-settings=preferredColorScheme={}", if dark { 0 } else { 1 }));
    command.arg(format!("--user-data-dir={}", folder.join("browser").display()));
    command.args(["--window-size=1120,1500", argument]).arg(format!("file://{}", page.display()));
    command.current_dir(folder).output().expect("a process")
}

/// The colours of a picture, and the one in its corner.
fn colours(path: &Path) -> (BTreeSet<[u8; 3]>, [u8; 3]) {
    let file = std::io::BufReader::new(std::fs::File::open(path).expect("a screenshot"));
    let mut reader = png::Decoder::new(file).read_info().expect("a PNG");
    let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
    let frame = reader.next_frame(&mut pixels).expect("pixels");
    let channels = frame.color_type.samples();
    let pixels = pixels[..frame.buffer_size()].chunks_exact(channels);
    let mut colours = pixels.map(|pixel| [pixel[0], pixel[1], pixel[2]]);
    let corner = colours.clone().next().expect("a pixel");
    (colours.by_ref().collect(), corner)
}

#[test]
fn a_browser_draws_the_report_page_in_light_and_dark() {
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let answers =
        |name: &&&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    let Some(browser) = browsers.iter().find(answers) else {
        return not_run("the report page in a browser", "no Chromium");
    };
    with_watchdog(LIMIT, || {
        let set = small_set();
        let mut command = trainer::command(set.path());
        train(command.args(["--report", "r.html"]));
        let page = set.path().join("r.html");
        let dom = browse(browser, set.path(), &page, "--dump-dom", false);
        let dom = text(&dom.stdout).split("<script>").next().expect("a part").to_owned();
        assert!(!dom.contains("NaN") && !dom.contains("undefined") && !dom.contains("Infinity"), "{dom}");
        // Its script has filled the diagnosis, the table of the eight causes and the timeline.
        assert!(!dom.contains("id=\"diagnosis\"></div>"), "{dom}");
        assert_eq!(dom.matches("class=\"dot\" style").count(), 8, "{dom}");
        assert!(dom.contains("compute stream</text>") && dom.matches("<rect").count() > 10, "{dom}");
        for (dark, background) in [(false, [0xFF; 3]), (true, [0x16, 0x17, 0x1B])] {
            let name = if dark { "dark.png" } else { "light.png" };
            let argument = format!("--screenshot={name}");
            let output = browse(browser, set.path(), &page, &argument, dark);
            let (colours, corner) = colours(&set.path().join(name));
            assert_eq!(corner, background, "{name}: {output:?}");
            // Text, cards, and the colours of the causes.
            assert!(colours.len() > 50, "{name} has {} colours", colours.len());
        }
    });
}
