//! The first step at which two runs differ, and the likely causes.

use serde_json::Value;

use feedline::Result;
use feedline::record::file::changed_files;

use crate::Run;

/// The outcome of a comparison of two runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// Number of equal steps that both runs have, from the first step on.
    pub equal_steps: u64,
    /// Number of steps of each run.
    pub steps: [u64; 2],
    /// The first step that differs; `None` if all steps that both runs have are equal.
    pub difference: Option<Difference>,
}

/// The first step at which two runs differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The number of the step.
    pub step: u64,
    /// The first rank that differs.
    pub rank: u32,
    /// The part of the step that differs.
    pub part: Part,
    /// The options in which the runs differ, each in a few words. They are the likely causes. Empty if all
    /// options are the same.
    pub causes: Vec<String>,
}

/// A part of a step that can differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The runs have different samples.
    Samples,
    /// The same samples, in another order or on other ranks.
    Order,
    /// The same samples with other bytes.
    Bytes {
        /// The sample, if only one row differs.
        sample: Option<u64>,
    },
}

impl Comparison {
    /// Whether the runs have the same steps.
    pub fn is_equal(&self) -> bool {
        self.difference.is_none() && self.steps[0] == self.steps[1]
    }
}

impl Run {
    /// Compares the steps of this run with the steps of `other` that have the same numbers.
    ///
    /// # Errors
    /// `Config` if the samples of a step that differs cannot be computed, because the sampler is missing.
    pub fn compare(&self, other: &Self) -> Result<Comparison> {
        let steps = [self, other].map(|run| run.steps().end - run.steps().start);
        let first = self.steps().start.max(other.steps().start);
        let mut equal_steps = 0;
        for step in first..self.steps().end.min(other.steps().end) {
            if let Some((rank, part)) = self.part(other, step)? {
                let causes = causes(self.header(step).as_json(), other.header(step).as_json());
                let difference = Some(Difference { step, rank, part, causes });
                return Ok(Comparison { equal_steps, steps, difference });
            }
            equal_steps += 1;
        }
        Ok(Comparison { equal_steps, steps, difference: None })
    }

    /// The first rank at which step `step` differs, and the part that differs.
    fn part(&self, other: &Self, step: u64) -> Result<Option<(u32, Part)>> {
        let world = self.header(step).world();
        for rank in 0..world.min(other.header(step).world()) {
            let (a, b) = (self.place(step, rank)?.step(), other.place(step, rank)?.step());
            if a.order != b.order {
                let [mut ids, mut others] = [self.all_ids(step)?, other.all_ids(step)?];
                ids.sort_unstable();
                others.sort_unstable();
                return Ok(Some((rank, if ids == others { Part::Order } else { Part::Samples })));
            }
            if let (Some(before), Some(now)) = (a.content, b.content)
                && before != now
            {
                let ids = self.ids(step, rank)?;
                let sample = before.changed_row(&now, ids.len()).map(|row| ids[row]);
                return Ok(Some((rank, Part::Bytes { sample })));
            }
        }
        // If one world is larger, its steps have samples on ranks that the other run does not have.
        let differs = world != other.header(step).world();
        Ok(differs.then_some((world.min(other.header(step).world()), Part::Samples)))
    }

    /// The samples of a step on all ranks.
    fn all_ids(&self, step: u64) -> Result<Vec<u64>> {
        let ranks = 0..self.header(step).world();
        Ok(ranks.map(|rank| self.ids(step, rank)).collect::<Result<Vec<_>>>()?.concat())
    }
}

/// The options that differ, in a few words each. Options that change the order come first.
fn causes(a: &Value, b: &Value) -> Vec<String> {
    let options = [
        ("seed", "seed"),
        ("sampler", "sampler"),
        ("world", "number of ranks"),
        ("batch", "batch size"),
        ("last_batch", "last batch"),
        ("skips", "skipped steps"),
        ("samples", "number of samples"),
    ];
    let mut causes: Vec<String> = options.iter().filter_map(|(key, what)| option(a, b, key, what)).collect();
    let files = changed_files(a, b);
    let is_other_data = a["fingerprint"] != b["fingerprint"];
    // Changed files are causes only if the data differs, because a copy of a file has another name or time.
    if is_other_data {
        causes.extend(files.into_iter().take(8).map(|file| format!("data: {file}")));
        if causes.is_empty() {
            causes.extend(option(a, b, "fingerprint", "fingerprint of the data"));
        }
    }
    let options = [
        ("draws_version", "version of random numbers"),
        ("transforms", "transforms"),
        ("map_batch", "map_batch"),
        ("spec", "fields"),
        ("feedline", "version of feedline"),
    ];
    causes.extend(options.iter().filter_map(|(key, what)| option(a, b, key, what)));
    causes
}

fn option(a: &Value, b: &Value, key: &str, what: &str) -> Option<String> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        // A sampler, with its sizes if it has any.
        Value::Object(parts) => {
            let sizes =
                parts.iter().filter(|(key, _)| *key != "kind").map(|(key, size)| format!(" {key} {size}"));
            format!(
                "{}{}",
                parts.get("kind").and_then(Value::as_str).unwrap_or_default(),
                sizes.collect::<String>()
            )
        }
        other => other.to_string(),
    };
    (a[key] != b[key]).then(|| format!("{what}: {} and {}", text(&a[key]), text(&b[key])))
}
