//! The program `feedline` on the records of runs: in another process, with the files of each format.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use feedline::record::{RecordOptions, Recorder};
use feedline::{Dataset, Loader, World};
use feedline_datasets::{Bounded, PackOptions, open, pack};
use feedline_report::Profile;
use serde_json::Value;

use crate::run::{npy, write};

fn feedline(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_feedline")).args(arguments).output().expect("run feedline")
}

/// Runs the program and checks its exit code; returns its output.
#[track_caller]
fn prints(code: i32, arguments: &[&str]) -> String {
    let output = feedline(arguments);
    let (text, error) = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).into();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}{error}");
    assert_eq!(error.is_empty(), code < 2, "{error}");
    if code == 2 { error } else { text }
}

#[track_caller]
fn json(code: i32, arguments: &[&str]) -> Value {
    let text = prints(code, &[arguments, &["--json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The samples of the file at `path`.
fn set(path: &Path, max: Option<usize>) -> Box<dyn Dataset> {
    let reader = open(path).unwrap();
    match max {
        Some(max) => Box::new(Bounded::limited(reader, max).unwrap()),
        None => Box::new(Bounded::new(reader).unwrap()),
    }
}

/// Records two epochs over `data` on each rank, with the first id of a batch as its loss.
fn record(run: &Path, data: &Path, max: Option<usize>, world: u32) {
    for rank in 0..world {
        let options = RecordOptions { data: Some(data.to_path_buf()), ..RecordOptions::default() };
        let recorder = Recorder::new(run, options);
        let builder = Loader::builder(set(data, max)).batch_size(5).shuffle().seed(3).record(&recorder);
        let mut loader = builder.world(World::new(rank, world).unwrap()).build_host().unwrap();
        for epoch in 0..2 {
            for batch in loader.epoch(epoch).unwrap() {
                recorder.note("loss", batch.unwrap().ids()[0] as f64).unwrap();
            }
        }
    }
}

/// A table of 40 rows in each format of tables, and arrays. Each comes with the max items of its ragged
/// field.
fn files(folder: &Path) -> Vec<(PathBuf, Option<usize>)> {
    let lines = (0..40).map(|id: usize| format!("{id},{}.5,\"{}\"\n", id * 3, "ab".repeat(1 + id % 7)));
    let csv = write(folder, "a.csv", lines.collect::<String>().as_bytes());
    let lines = (0..40).map(|id: usize| format!("{{\"a\": {id}, \"b\": \"{}\"}}\n", "ab".repeat(1 + id % 7)));
    let jsonl = write(folder, "a.jsonl", lines.collect::<String>().as_bytes());
    pack(&*open(&csv).unwrap(), folder.join("packed.arrow"), PackOptions::default(), |_| ()).unwrap();
    let parts = PackOptions { shard_bytes: Some(900) };
    pack(&*open(&csv).unwrap(), folder.join("packed"), parts, |_| ()).unwrap();
    let numbers = Vec::from_iter((0..40 * 6).map(|at| (at % 256) as u8));
    let one = write(folder, "a.npy", &npy("|u1", "False", "(40, 6)", &numbers));
    for shard in 0..4 {
        let part = &numbers[shard * 60..(shard + 1) * 60];
        write(folder, &format!("shards/{shard}.npy"), &npy("|u1", "False", "(10, 6)", part));
    }
    let text = (0..40).map(|id| format!("line {id}\n")).collect::<String>();
    vec![
        (csv, Some(20)),
        (jsonl, Some(20)),
        (folder.join("packed.arrow"), Some(20)),
        (folder.join("packed"), Some(20)),
        (one, None),
        (folder.join("shards"), None),
        (write(folder, "a.txt", text.as_bytes()), Some(20)),
    ]
}

#[test]
fn runs_over_files_are_replayed_by_another_process_and_saved() {
    let folder = tempfile::tempdir().unwrap();
    for (index, (data, max)) in files(folder.path()).into_iter().enumerate() {
        for world in [1, 4] {
            let run = folder.path().join(format!("run-{index}-{world}"));
            record(&run, &data, max, world);
            let steps = Vec::from_iter([0, 1, 3].map(|step| step.to_string()));
            for step in &steps {
                let saved = folder.path().join("saved");
                let arguments = [
                    "replay",
                    run.to_str().unwrap(),
                    "--step",
                    step,
                    "--save",
                    saved.to_str().unwrap(),
                    "--json",
                ];
                let text = prints(0, &arguments);
                let batches =
                    Vec::from_iter(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
                assert_eq!(batches.len(), world as usize);
                for batch in &batches {
                    assert_eq!(batch["verdict"], "equal", "{}: {batch}", data.display());
                    let file = saved.join(format!("step-{step}-rank-{}.safetensors", batch["rank"]));
                    // The file, read without `feedline replay`.
                    let saved = feedline_datasets::safetensors::open(&file);
                    let rows = batch["rows"].as_array().unwrap().len();
                    match max {
                        None => assert_eq!(saved.unwrap().len(), rows as u64),
                        Some(_) => assert!(file.metadata().unwrap().len() > 8 * rows as u64),
                    }
                }
            }
            let verified = json(0, &["verify", data.to_str().unwrap(), "--against", run.to_str().unwrap()]);
            assert_eq!((&verified["samples"], &verified["equal"]), (&Value::from(40), &Value::from(true)));
        }
    }
}

#[test]
fn a_flipped_byte_is_named_by_replay_and_verify_with_exit_code_1() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    let (data, run) = (folder.path().join("shards"), folder.path().join("run"));
    record(&run, &data, None, 1);
    let manifest = folder.path().join("manifest");
    let [data, run, manifest] = [&data, &run, &manifest].map(|path| path.to_str().unwrap());
    prints(0, &["verify", data, "--write-manifest", manifest]);
    let shard = folder.path().join("shards/2.npy");
    let mut bytes = std::fs::read(&shard).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 8;
    std::fs::write(&shard, bytes).unwrap();
    for against in [run, manifest] {
        let verified = json(1, &["verify", data, "--against", against]);
        assert_eq!(verified["changed"], serde_json::json!([{"sample": 29, "file": shard}]));
        let text = prints(1, &["verify", data, "--against", against]);
        assert_eq!(
            text,
            format!("sample 29 has changed, in {}\n1 of 40 samples have changed\n", shard.display())
        );
    }
    let seen = json(0, &["sightings", "29", run]);
    assert_eq!(seen["times"], 2);
    let step = seen["seen"][1]["step"].to_string();
    let replayed = json(1, &["replay", run, "--step", &step]);
    assert_eq!(replayed["changed"], serde_json::json!({"sample": 29, "file": shard}));
    let text = prints(1, &["replay", run, "--step", &step]);
    assert!(text.contains(&format!("sample 29 has changed since the run, in {}", shard.display())), "{text}");
    let page = folder.path().join("page.html");
    prints(1, &["replay", run, "--from", "0", "--to", "15", "--html", page.to_str().unwrap()]);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<h2>Step 15</h2>") && page.matches("sample 29 has changed").count() == 2);
    let others = prints(0, &["sightings", "3", run]);
    assert!(others.contains("was seen 2 times"), "{others}");
}

#[test]
fn two_runs_are_compared_and_spikes_are_written_as_a_page() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    let data = folder.path().join("shards");
    let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
    record(&one, &data, None, 1);
    record(&two, &data, None, 2);
    let [one, two] = [&one, &two].map(|path| path.to_str().unwrap());
    assert_eq!(prints(0, &["diff", one, one]), "equal: 16 steps\n");
    let difference = json(1, &["diff", one, two]);
    assert_eq!(
        (&difference["difference"]["step"], &difference["difference"]["causes"][0]),
        (&Value::from(0), &Value::from("number of ranks: 1 and 2"))
    );
    // The losses are ids: too few steps to judge.
    assert_eq!(prints(0, &["spikes", one]), "no step leaves its neighbours in loss\n");
    let page = folder.path().join("page.html");
    json(0, &["spikes", one, "--html", page.to_str().unwrap()]);
    assert!(std::fs::read_to_string(page).unwrap().starts_with("<!doctype html>"));
}

#[test]
fn a_spike_is_listed_with_its_files_and_the_steps_to_skip() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    let (data, run) = (folder.path().join("shards"), folder.path().join("run"));
    let options = RecordOptions { data: Some(data.clone()), ..RecordOptions::default() };
    let recorder = Recorder::new(&run, options);
    let builder = Loader::builder(set(&data, None)).batch_size(2).record(&recorder);
    let mut loader = builder.build_host().unwrap();
    for batch in loader.epoch(0).unwrap() {
        // The samples 22 to 24 are poisoned.
        let spikes = batch.unwrap().ids().iter().any(|id| (22..24).contains(id));
        recorder.note("loss", if spikes { 7.0 } else { 1.0 }).unwrap();
    }
    drop((loader, recorder));
    let run = run.to_str().unwrap();
    let shard = data.join("2.npy").display().to_string();
    let expected = format!(
        "step 11: loss is 7.0000, and was about 1.0000 before\n  2 samples of {shard}\n\
         to resume without them:\n  .skip(0, 11..12)\n"
    );
    assert_eq!(prints(1, &["spikes", run]), expected);
    let found = json(1, &["spikes", run]);
    assert_eq!((&found["spikes"][0]["files"][&shard], &found["skip"][0]["from"]), (&2.into(), &11.into()));
}

#[test]
fn the_machine_is_inspected_and_other_settings_are_predicted() {
    let found = json(0, &["doctor"]);
    assert!(found["host"]["usable_cores"].as_u64() >= Some(1), "{found}");
    assert_ne!(found["gpu"].is_null(), found["no_gpu"].is_null(), "{found}");

    let folder = tempfile::tempdir().unwrap();
    let ((data, max), profile) = (files(folder.path()).remove(0), folder.path().join("profile.json"));
    let mut loader = Loader::builder(set(&data, max)).batch_size(5).build_host().unwrap();
    loader.epoch(0).unwrap().for_each(|batch| drop(batch.unwrap()));
    Profile::new(&loader).write(&profile).unwrap();
    let predicted = json(0, &["whatif", profile.to_str().unwrap(), "--step-us", "1000"]);
    // The last steps, one per slot, are not waited for.
    let rate = predicted["asked"]["batches_per_s"].as_f64().unwrap();
    assert!(rate > 500.0 && rate < 1050.0, "a step of 1 ms: {predicted}");
}

#[test]
fn what_is_wrong_is_one_line_with_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    let (data, run) = (folder.path().join("shards"), folder.path().join("run"));
    record(&run, &data, None, 1);
    let run = run.to_str().unwrap();
    let cases: [(&[&str], &str); 11] = [
        (&["replay", run, "--from", "3", "--to", "2"], "--from 3 is after --to 2"),
        (&["repeat"], "no command \"repeat\""),
        (&["replay", run], "there is no step"),
        (&["replay", run, "--step", "99"], "it has the steps 0 to 15"),
        (&["replay", run, "--step", "0", "--rank", "1"], "it has the ranks 0 to 0"),
        (&["replay", "/nowhere", "--step", "0"], "there is no record of a run here"),
        (&["replay", run, "--step", "0", "--data", "/nowhere"], "/nowhere"),
        (&["spikes", run, "--name", "accuracy"], "it has loss"),
        (&["diff", run, "--every"], "--every"),
        (&["doctor", "--every"], "--every"),
        (&["whatif", "/nowhere"], "/nowhere"),
    ];
    for (arguments, part) in cases {
        let line = prints(2, arguments);
        assert!(line.starts_with("feedline: ") && line.matches('\n').count() == 1, "{line}");
        assert!(line.contains(part), "{part}: {line}");
    }
    for command in ["replay", "diff", "sightings", "spikes", "verify", "doctor", "whatif"] {
        assert!(prints(0, &[]).contains(command) && prints(0, &["--help"]).contains(command));
        assert!(prints(0, &[command, "--help"]).contains("--json"), "{command}");
    }
}

/// Records an epoch of `builder`, whose data is at `data`.
fn record_of(builder: feedline::LoaderBuilder, run: &Path, data: &Path) {
    let recorder =
        Recorder::new(run, RecordOptions { data: Some(data.to_path_buf()), ..RecordOptions::default() });
    let mut loader = builder.record(&recorder).build_host().unwrap();
    loader.epoch(0).unwrap().for_each(|batch| drop(batch.unwrap()));
}

#[test]
fn a_sample_is_looked_for_in_every_run_although_one_needs_its_sampler() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    let data = folder.path().join("shards");
    let [plain, weighted] = ["plain", "weighted"].map(|name| folder.path().join(name));
    record(&plain, &data, None, 1);
    let sampler = feedline::Sampler::weighted(&[1.0; 40]).unwrap();
    record_of(Loader::builder(set(&data, None)).batch_size(5).sampler(sampler), &weighted, &data);
    let [plain, weighted] = [&plain, &weighted].map(|run| run.to_str().unwrap());
    for runs in [[plain, weighted], [weighted, plain]] {
        let text = prints(0, &["sightings", "7", runs[0], runs[1]]);
        assert!(text.contains(&format!("{plain}: sample 7 was seen 2 times")), "{text}");
        assert!(text.contains(&format!("{weighted}: not known: ")) && text.contains("weighted"), "{text}");
        let lines = prints(0, &["sightings", "7", runs[0], runs[1], "--json"]);
        let found: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [of_plain, of_weighted] = [plain, weighted].map(|run| {
            found.iter().find(|found| found["run"] == run).unwrap_or_else(|| panic!("{run}: {lines}"))
        });
        assert_eq!(of_plain["times"], 2);
        assert!(of_weighted["error"].as_str().unwrap().contains("Run::with_sampler"), "{lines}");
    }
    let line = prints(2, &["sightings", "7", weighted]);
    assert!(line.contains("Run::with_sampler"), "{line}");
}

#[test]
fn a_run_over_samples_in_another_form_says_how_to_replay_it() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    let other = |data: &Path, run: &str, max, spec: feedline::Spec, value: fn(u64) -> f32| {
        let samples = set(data, max).len();
        let made = feedline::from_fn(samples, spec, move |id, row, _| {
            row.field_mut::<f32>(0)?[0] = value(id);
            Ok(())
        });
        let run = folder.path().join(run);
        record_of(Loader::builder(made).batch_size(5), &run, data);
        run.to_str().unwrap().to_owned()
    };
    let spec = |name: &str| feedline::Spec::new().field(name, feedline::DType::F32, []).unwrap();
    // A table in another form, texts that are no numbers, and other values under the same names.
    let csv = folder.path().join("a.csv");
    let numbers = write(folder.path(), "x.npy", &npy("<f4", "False", "(40, )", &[0; 160]));
    let form = other(&csv, "form", Some(20), spec("income"), |id| id as f32);
    let texts = other(&folder.path().join("a.txt"), "texts", Some(20), spec("text"), |id| id as f32);
    for run in [&form, &texts] {
        let line = prints(2, &["replay", run, "--step", "1"]);
        assert!(line.contains("replayer(Loader::builder(SET), RANK).step(N)"), "{line}");
    }
    let name = open(&numbers).unwrap().spec().fields()[0].name().to_owned();
    let values = other(&numbers, "values", None, spec(&name), |id| id as f32 + 1.0);
    let text = prints(1, &["replay", &values, "--step", "1"]);
    assert!(text.contains("if no file has changed") && text.contains("replayer("), "{text}");
    let text = prints(1, &["verify", numbers.to_str().unwrap(), "--against", &values]);
    assert!(text.contains("no sample is that of the run") && text.contains("replayer("), "{text}");
}

#[test]
fn every_command_says_where_a_kill_has_cut_the_record() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    let (data, run) = (folder.path().join("shards"), folder.path().join("run"));
    record(&run, &data, None, 1);
    let file = run.join("rank-0.rec");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, [&bytes, &[1, 0, 0][..]].concat()).unwrap();
    let [run, data] = [&run, &data].map(|path| path.to_str().unwrap());
    let commands: [&[&str]; 5] = [
        &["replay", run, "--step", "0"],
        &["diff", run, run],
        &["sightings", "3", run],
        &["spikes", run],
        &["verify", data, "--against", run],
    ];
    for arguments in commands {
        for arguments in [arguments.to_vec(), [arguments, &["--json"]].concat()] {
            let output = feedline(&arguments);
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.code().is_some_and(|code| code < 2), "{arguments:?}: {said}");
            let cut = format!("{}: a kill has cut the record: its last 3 bytes", file.display());
            assert!(said.contains(&cut) && said.contains("step 15"), "{arguments:?}: {said}");
        }
    }
    // A damaged one ends every command.
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 8;
    std::fs::write(&file, damaged).unwrap();
    for arguments in commands {
        let line = prints(2, arguments);
        assert!(line.contains("the record is damaged at step") && line.contains("rank-0.rec"), "{line}");
    }
}

/// A run of 20 steps whose loss at `step` is `value`.
fn run_with(folder: &Path, step: usize, value: f64) -> PathBuf {
    let data = write(folder, "n.npy", &npy("|u1", "False", "(40, 1)", &[0; 40]));
    let run = folder.join(format!("run-{step}-{value}"));
    let options = RecordOptions { data: Some(data.clone()), ..RecordOptions::default() };
    let recorder = Recorder::new(&run, options);
    let mut loader = Loader::builder(set(&data, None)).batch_size(2).record(&recorder).build_host().unwrap();
    for (number, batch) in loader.epoch(0).unwrap().enumerate() {
        drop(batch.unwrap());
        recorder.note("loss", if number == step || value.is_nan() { value } else { 1.0 }).unwrap();
    }
    run
}

#[test]
fn the_steps_to_skip_are_shown_in_the_words_of_python() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_with(folder.path(), 11, 7.0);
    let output = crate::words::python(&["spikes", run.to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.ends_with("to resume without them:\n  skip={0: range(11, 12)}\n"), "{text}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn losses_that_are_all_nan_have_no_value_before() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_with(folder.path(), 0, f64::NAN);
    let text = prints(1, &["spikes", run.to_str().unwrap()]);
    let line = "step 3: loss is NaN, and too few values around it are finite to compare with\n";
    assert!(text.contains(line) && !text.contains("about NaN"), "{text}");
}

#[test]
fn a_folder_that_does_not_exist_is_wrong_input_of_the_doctor() {
    let error = prints(2, &["doctor", "--data", "/nowhere/at/all"]);
    assert_eq!(error, "feedline: --data /nowhere/at/all: give a folder that exists\n");
}

#[test]
fn every_help_has_one_usage_of_one_form_and_the_exit_codes_once() {
    let commands = ["inspect", "pack", "replay", "diff", "sightings", "spikes", "verify", "doctor", "whatif"];
    for command in commands {
        let help = prints(0, &[command, "--help"]);
        assert!(help.contains(&format!("\nusage: feedline {command} ")), "{help}");
        assert_eq!((help.matches("usage: ").count(), help.matches("exit code").count()), (1, 1), "{help}");
        assert!(help.contains("exit code: 0 equal, or done; 1 a difference, which is named; 2 an error"));
    }
}
