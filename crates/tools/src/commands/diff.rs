//! `feedline diff`: the first step at which two runs differ, and why.

use std::error::Error;
use std::path::PathBuf;

use crate::Outcome;
use feedline_record::{Comparison, Difference, Part};
use lexopt::prelude::{Long, Value};
use serde_json::json;

use super::common::open_run;

pub const COMMAND: super::Command = super::Command {
    name: "diff",
    about: "says at which step two runs part, and why",
    help: || "usage: feedline diff RUN RUN [--json]\n".to_owned(),
    run: diff,
};

fn diff(mut parser: lexopt::Parser) -> Result<Outcome, Box<dyn Error>> {
    let (mut runs, mut json) = (Vec::new(), false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("json") => json = true,
            Value(folder) if runs.len() < 2 => runs.push(PathBuf::from(folder)),
            argument => return Err(argument.unexpected().into()),
        }
    }
    let [first, second] = &runs[..] else { return Err("give the folders of two records, see --help".into()) };
    let compared = open_run(first)?.compare(&open_run(second)?)?;
    let text = if json { as_json(&compared) } else { as_text(&compared) };
    Ok(Outcome { text, differs: !compared.is_equal() })
}

fn part(difference: &Difference) -> String {
    match difference.part {
        Part::Samples => "other samples".into(),
        Part::Order => "the same samples in another order, or on other ranks".into(),
        Part::Bytes { sample: Some(sample) } => format!("sample {sample} has other bytes"),
        Part::Bytes { sample: None } => "several samples have other bytes".into(),
    }
}

fn as_text(compared: &Comparison) -> String {
    let [first, second] = compared.steps;
    let Some(difference) = &compared.difference else {
        return match first.abs_diff(second) {
            0 => format!("equal: {} steps\n", compared.equal_steps),
            more => {
                let which = if first > second { "first" } else { "second" };
                format!("equal for {} steps; the {which} run has {more} more\n", compared.equal_steps)
            }
        };
    };
    let mut text = format!("step {}, rank {}: {}\n", difference.step, difference.rank, part(difference));
    if difference.causes.is_empty() {
        text += "  the options of both runs are the same\n";
    }
    difference.causes.iter().for_each(|cause| text += &format!("  {cause}\n"));
    text
}

fn as_json(compared: &Comparison) -> String {
    let difference = compared.difference.as_ref().map(|difference| {
        let sample = if let Part::Bytes { sample } = difference.part { sample } else { None };
        json!({
            "step": difference.step,
            "rank": difference.rank,
            "part": match difference.part {
                Part::Samples => "samples",
                Part::Order => "order",
                Part::Bytes { .. } => "bytes",
            },
            "sample": sample,
            "causes": difference.causes,
        })
    });
    let object = json!({
        "equal": compared.is_equal(),
        "equal_steps": compared.equal_steps,
        "steps": compared.steps,
        "difference": difference,
    });
    format!("{object}\n")
}
