//! `feedline sightings`: when, where and how often a sample was seen.

use std::error::Error;

use crate::Outcome;
use feedline_record::How;
use lexopt::prelude::{Long, Value, ValueExt as _};
use serde_json::json;

use super::common::open_run;

pub const COMMAND: super::Command = super::Command {
    name: "sightings",
    about: "says when and where a sample was seen, and how often",
    help: || {
        "\
usage: feedline sightings SAMPLE RUN... [--json]
  SAMPLE is the number of the sample in its data set
"
        .to_owned()
    },
    run: sightings,
};

fn sightings(mut parser: lexopt::Parser) -> Result<Outcome, Box<dyn Error>> {
    let (mut sample, mut runs, mut json) = (None, Vec::new(), false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("json") => json = true,
            Value(value) if sample.is_none() => sample = Some(value.parse::<u64>()?),
            Value(folder) => runs.push(open_run(folder)?),
            argument => return Err(argument.unexpected().into()),
        }
    }
    let Some(sample) = sample else { return Err("there is no sample: give its number, see --help".into()) };
    if runs.is_empty() {
        return Err("there is no run: give the folder of its record, see --help".into());
    }
    let mut text = String::new();
    let (mut is_known, mut last) = (false, None);
    for run in &runs {
        // This record cannot be read without its sampler. Others may be readable.
        let seen = match run.sightings(sample) {
            Ok(seen) => seen,
            Err(error) if runs.len() > 1 => {
                let said = if json {
                    format!(
                        "{}\n",
                        json!({"run": run.folder(), "sample": sample, "error": error.to_string()})
                    )
                } else {
                    format!("{}: not known: {error}\n", run.folder().display())
                };
                text += &said;
                last = Some(error);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        is_known = true;
        let times = seen.iter().filter(|seen| !matches!(seen.how, How::ReplacedBy(_))).count();
        let folder = run.folder().display();
        if json {
            let rows = seen.iter().map(|seen| {
                let (instead_of, replaced_by) = match seen.how {
                    How::Drawn => (None, None),
                    How::InPlaceOf(other) => (Some(other), None),
                    How::ReplacedBy(other) => (None, Some(other)),
                };
                json!({
                    "step": seen.step, "epoch": seen.epoch, "rank": seen.rank, "row": seen.row,
                    "in_place_of": instead_of, "replaced_by": replaced_by,
                })
            });
            let rows: Vec<_> = rows.collect();
            text += &format!(
                "{}\n",
                json!({"run": run.folder(), "sample": sample, "times": times, "seen": rows})
            );
            continue;
        }
        let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
        text += &format!("{folder}: sample {sample} was seen {times}\n");
        for seen in seen {
            let how = match seen.how {
                How::Drawn => String::new(),
                How::InPlaceOf(other) => format!(", in place of sample {other}, which could not be read"),
                How::ReplacedBy(other) => {
                    format!(", but could not be read: sample {other} came in its place")
                }
            };
            text += &format!(
                "  step {}, epoch {}, rank {}, row {}{how}\n",
                seen.step, seen.epoch, seen.rank, seen.row
            );
        }
    }
    match last {
        Some(error) if !is_known => Err(error.into()),
        _ => Ok(Outcome::done(text)),
    }
}
