//! `feedline whence`: when, where and how often a sample was seen.

use std::error::Error;

use feedline_record::{How, Run};
use feedline_tools::Outcome;
use lexopt::prelude::{Long, Value, ValueExt as _};
use serde_json::json;

pub const COMMAND: crate::Command = crate::Command {
    name: "whence",
    about: "says when and where a sample was seen, and how often",
    help: "\
usage: feedline whence SAMPLE RUN... [--json]
  SAMPLE is the number of the sample in its data set
",
    run: whence,
};

fn whence(mut parser: lexopt::Parser) -> Result<Outcome, Box<dyn Error>> {
    let (mut sample, mut runs, mut json) = (None, Vec::new(), false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("json") => json = true,
            Value(value) if sample.is_none() => sample = Some(value.parse::<u64>()?),
            Value(folder) => runs.push(Run::open(folder)?),
            argument => return Err(argument.unexpected().into()),
        }
    }
    let Some(sample) = sample else { return Err("there is no sample: give its number, see --help".into()) };
    if runs.is_empty() {
        return Err("there is no run: give the folder of its record, see --help".into());
    }
    let mut text = String::new();
    for run in &runs {
        let seen = run.whence(sample)?;
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
    Ok(Outcome::done(text))
}
