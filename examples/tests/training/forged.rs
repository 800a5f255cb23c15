//! A checkpoint that was edited and sealed with a new checksum is refused with one clear line. Whatever
//! it holds, the trainer does not panic, hang, or train from a position that its proof does not cover.

use crate::checkpoint;

use std::collections::HashMap;
use std::process::Output;

use crate::trainer::{assert_says, command, put, run, small_set, text, train};
use feedline_core::Random;
use feedline_testkit::{watchdog::LIMIT, with_watchdog};
use safetensors::SafeTensors;
use serde_json::Value;
use tempfile::TempDir;

const SAVED: &str = "saved.ckpt";
const FORGED: &str = "forged.ckpt";
const ARGUMENTS: [&str; 9] = ["--data", ".", "--device", "host", "--batch", "16", "--hidden", "8", "--quiet"];

/// A set with a checkpoint after 25 steps of 16 samples: in the second epoch, at position 80.
struct Saved {
    set: TempDir,
    bytes: Vec<u8>,
}

impl Saved {
    fn new(optimizer: &str) -> Self {
        let set = small_set();
        let more = ["--epochs", "3", "--steps", "25", "--checkpoint", SAVED, "--optimizer", optimizer];
        train(command(set.path()).args(ARGUMENTS).args(more));
        let bytes = std::fs::read(set.path().join(SAVED)).expect("the checkpoint");
        Self { set, bytes }
    }

    fn notes(&self) -> HashMap<String, String> {
        let (_, header) = SafeTensors::read_metadata(&self.bytes).expect("a header");
        header.metadata().clone().expect("notes")
    }

    /// Writes the checkpoint with other notes and resumes from it.
    fn resume(&self, notes: HashMap<String, String>, more: &[&str]) -> Output {
        let tensors = SafeTensors::deserialize(&self.bytes).expect("tensors");
        let views = tensors.iter().collect();
        put(&self.set, FORGED, &checkpoint::seal(views, notes).expect("a file"));
        let mut trainer = command(self.set.path());
        trainer.args(ARGUMENTS).args(["--epochs", "3", "--resume", FORGED, "--json", "report.json"]);
        run(trainer.args(more))
    }

    /// The notes with `value` at the JSON pointer `field` of `note`; an empty pointer replaces the
    /// whole note.
    fn with(&self, note: &str, field: &str, value: Value) -> HashMap<String, String> {
        let mut notes = self.notes();
        let text = notes.get_mut(note).unwrap_or_else(|| panic!("no {note}"));
        let mut json: Value = serde_json::from_str(text).expect("JSON");
        *json.pointer_mut(field).unwrap_or_else(|| panic!("no {field} in {text}")) = value;
        *text = json.to_string();
        notes
    }
}

#[test]
fn an_unchanged_resealed_checkpoint_is_accepted() {
    with_watchdog(LIMIT, || {
        for optimizer in ["sgd", "adamw"] {
            let saved = Saved::new(optimizer);
            let output = saved.resume(saved.notes(), &["--optimizer", optimizer]);
            assert!(output.status.success(), "{}", text(&output.stderr));
        }
    });
}

#[test]
fn each_changed_field_is_refused_with_one_clear_line() {
    with_watchdog(LIMIT, || {
        let (sgd, adamw) = (Saved::new("sgd"), Saved::new("adamw"));
        let max = u64::MAX;
        let endless = ["--epochs", "18446744073709551615"];
        for (note, field, value, more, part) in [
            (
                "cursor",
                "/epoch",
                max.into(),
                &[][..],
                "is in epoch 18446744073709551615 after 25 steps, beyond",
            ),
            (
                "cursor",
                "/epoch",
                max.into(),
                &endless,
                "is in epoch 18446744073709551615 after 25 steps, beyond",
            ),
            ("cursor", "/epoch", (max - 1).into(), &endless, "the checkpoint contradicts itself"),
            ("cursor", "/epoch", 0.into(), &[], "the checkpoint contradicts itself"),
            ("cursor", "/epoch", 2.into(), &[], "the checkpoint contradicts itself"),
            ("cursor", "/position", 96.into(), &[], "the checkpoint contradicts itself"),
            ("cursor", "/position", max.into(), &[], "beyond the 320 of an epoch"),
            ("cursor", "/offset", 1.into(), &[], "at offset 1 of a shard, but a data set has no shards"),
            ("cursor", "/offset", max.into(), &[], "of a shard, but a data set has no shards"),
            ("cursor", "/rank", 1.into(), &[], "the cursor contradicts itself"),
            ("cursor", "/proof/count", 401.into(), &[], "it says 400 samples, but its cursor counts 401"),
            ("cursor", "/proof/sum", "0x1".into(), &[], "the checkpoint contradicts itself"),
            ("expected", "/count", max.into(), &[], "the checkpoint contradicts itself"),
            ("expected", "/sum", "0x1".into(), &[], "the checkpoint contradicts itself"),
            ("bad_samples", "/given/count", 1.into(), &[], "not one substitute for each replaced sample"),
            (
                "samples",
                "",
                max.into(),
                &[],
                "it says 18446744073709551615 samples, but its cursor counts 400",
            ),
            ("samples", "", "many".into(), &[], "\"samples\" is"),
            ("steps", "", 1.into(), &[], "its optimizer has counted 1 steps, and should have 0"),
            ("steps", "", ((1_u64 << 32) + 25).into(), &[], "\"steps\" is 4294967321: number too large"),
        ] {
            let what = format!("{note}{field} = {value}");
            let output = sgd.resume(sgd.with(note, field, value), more);
            assert!(text(&output.stderr).contains(part), "{what}: {}", text(&output.stderr));
            assert_says(&output, &[part]);
        }
        for steps in [0, 24, (1 << 32) + 25, max] {
            let output = adamw.resume(adamw.with("steps", "", steps.into()), &["--optimizer", "adamw"]);
            assert_says(&output, &["steps", FORGED]);
        }
    });
}

#[test]
fn random_values_in_all_fields_end_in_a_proved_run_or_one_clear_line() {
    with_watchdog(LIMIT, || {
        let saved = Saved::new("sgd");
        let mut fields = vec![("steps".to_owned(), String::new()), ("samples".to_owned(), String::new())];
        for note in ["cursor", "bad_samples", "expected"] {
            let json: Value = serde_json::from_str(&saved.notes()[note]).expect("JSON");
            leaves(&json, String::new(), &mut |field| fields.push((note.to_owned(), field)));
        }
        assert!(fields.len() >= 22, "{fields:?}");
        let mut random = Random::from_key(22);
        let (mut refused, mut taken) = (0, 0);
        for (note, field) in fields.iter().cycle().take(5 * fields.len()) {
            let bits = random.next_u64();
            let value: Value = match random.below(6) {
                0 => 0.into(),
                1 => u64::MAX.into(),
                2 => (bits >> random.below(64)).into(),
                3 => format!("{bits:#x}").into(),
                4 => (1_u64 << random.below(64)).into(),
                _ => [Value::Null, Value::Bool(true), (-1).into(), 0.5.into(), "x".into()]
                    [random.below(5) as usize]
                    .clone(),
            };
            let what = format!("{note}{field} = {value}");
            let _ = std::fs::remove_file(saved.set.path().join("report.json"));
            let output = saved.resume(saved.with(note, field, value), &[]);
            match output.status.code() {
                Some(0) => {
                    let report = std::fs::read(saved.set.path().join("report.json")).expect("the report");
                    let report: Value = serde_json::from_slice(&report).expect("JSON");
                    assert_eq!(report["exactly_once"], true, "{what}");
                    taken += 1;
                }
                _ => {
                    let said = text(&output.stderr);
                    assert!(output.status.code() == Some(2) && said.lines().count() == 1, "{what}: {said}");
                    refused += 1;
                }
            }
        }
        assert!(refused > taken, "{refused} refused, {taken} taken");
    });
}

/// Calls `each` with the JSON pointer of every value that is not an object.
fn leaves(json: &Value, at: String, each: &mut impl FnMut(String)) {
    match json {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| leaves(value, format!("{at}/{name}"), each));
        }
        _ => each(at),
    }
}
