//! `feedline spikes`: the steps whose noted value differs much from its neighbours, and a page with their
//! samples.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;

use crate::Outcome;
use feedline_core::speaks_python;
use feedline_record::{Run, SkipRange, Spike, spikes_page};
use lexopt::prelude::{Long, Value, ValueExt as _};
use serde_json::json;

use super::common::{Data, long, run};

pub const COMMAND: super::Command = super::Command {
    name: "spikes",
    about: "finds the steps whose loss leaves its neighbours, and shows their samples as a page",
    help: || {
        "\
usage: feedline spikes RUN [options]
  --name NAME   the noted value [loss]
  --html FILE   writes a page with the curve, and the samples of each spike side by side
  --data PATH   the data, if it is not where the record says
  --test, --fill    as for inspect
  --json        prints one JSON object
"
        .to_owned()
    },
    run: spikes,
};

/// The files of some samples, and how many of the samples each file has.
type Files = Vec<(String, usize)>;

/// Max files listed per spike.
const FILES: usize = 3;

fn spikes(mut parser: lexopt::Parser) -> Result<Outcome, Box<dyn Error>> {
    let (mut folder, mut name, mut html, mut data, mut json) =
        (None, "loss".to_owned(), None::<PathBuf>, Data::default(), false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("name") => name = parser.value()?.string()?,
            Long("html") => html = Some(parser.value()?.into()),
            Long("json") => json = true,
            Value(value) if folder.is_none() => folder = Some(value.into()),
            argument => data.take(long(argument)?, &mut parser)?,
        }
    }
    let run = run(folder)?;
    if run.notes(&name).is_empty() {
        let names = run.names().join(", ");
        let has = if names.is_empty() { "it has no values".into() } else { format!("it has {names}") };
        return Err(format!("{}: the record has no value {name:?}: {has}", run.folder().display()).into());
    }
    let spikes = run.spikes(&name);
    let skips = run.skip_ranges(&spikes)?;
    if let Some(path) = &html {
        let header = run.header(run.steps().start);
        let ranks = 0..header.world();
        let mut replayers = Vec::new();
        for rank in ranks {
            replayers.push(run.replayer(data.open(&header)?, rank));
        }
        let page = spikes_page(&run, &name, &spikes, |step| {
            replayers.iter_mut().map(|replayer| replayer.step(step)).collect()
        })?;
        std::fs::write(path, page)
            .map_err(|error| format!("{}: cannot write the page: {error}", path.display()))?;
    }
    let files = files(&run, &data, &spikes)?;
    let text = if json { as_json(&spikes, &skips, &files) } else { as_text(&name, &spikes, &skips, &files) };
    Ok(Outcome { text, differs: !spikes.is_empty() })
}

/// For each spike, the files of its samples with their number of samples, the largest number first; empty if
/// the data is not known.
fn files(run: &Run, data: &Data, spikes: &[Spike]) -> Result<Vec<Files>, Box<dyn Error>> {
    let header = run.header(run.steps().start);
    if spikes.is_empty() || !data.is_known(&header) {
        return Ok(vec![Vec::new(); spikes.len()]);
    }
    let loader = data.open(&header)?.build_host()?;
    let set = loader.dataset();
    let mut all = Vec::new();
    for spike in spikes {
        let mut counts = BTreeMap::<String, usize>::new();
        for rank in 0..run.header(spike.step).world() {
            for id in run.ids(spike.step, rank)? {
                if let Some(path) = set.as_ref().and_then(|set| set.path(id)) {
                    *counts.entry(path.display().to_string()).or_default() += 1;
                }
            }
        }
        let mut files = Vec::from_iter(counts);
        files.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        all.push(files);
    }
    Ok(all)
}

fn as_text(name: &str, spikes: &[Spike], skips: &[SkipRange], files: &[Files]) -> String {
    if spikes.is_empty() {
        return format!("no step leaves its neighbours in {name}\n");
    }
    let mut text = String::new();
    for (Spike { step, value, before }, files) in spikes.iter().zip(files) {
        text += &format!("step {step}: {}\n", says(name, *value, *before));
        for (file, samples) in files.iter().take(FILES) {
            text += &format!("  {samples} samples of {file}\n");
        }
        if files.len() > FILES {
            text += &format!("  and of {} other files\n", files.len() - FILES);
        }
    }
    text + "to resume without them:\n" + &resume(skips)
}

/// The value and its neighbours, of which there may be too few.
fn says(name: &str, value: f64, before: f64) -> String {
    if before.is_finite() {
        format!("{name} is {value:.4}, and was about {before:.4} before")
    } else {
        format!("{name} is {value:.4}, and too few values around it are finite to compare with")
    }
}

/// The options that skip the steps, in the user's language.
fn resume(skips: &[SkipRange]) -> String {
    if !speaks_python() {
        let call = |SkipRange { epoch, steps }: &SkipRange| {
            format!("  .skip({epoch}, {}..{})\n", steps.start, steps.end)
        };
        return skips.iter().map(call).collect();
    }
    // The dict has one range per epoch.
    let mut epochs = BTreeMap::<u64, std::ops::Range<u64>>::new();
    let mut is_joined = false;
    for SkipRange { epoch, steps } in skips {
        let of_epoch = epochs.entry(*epoch).or_insert_with(|| steps.clone());
        is_joined |= of_epoch.start != steps.start;
        of_epoch.end = steps.end;
    }
    let ranges: Vec<_> = epochs
        .iter()
        .map(|(epoch, steps)| format!("{epoch}: range({}, {})", steps.start, steps.end))
        .collect();
    let joined = if is_joined { "  (one range per epoch: it also skips the steps in between)\n" } else { "" };
    format!("  skip={{{}}}\n{joined}", ranges.join(", "))
}

fn as_json(spikes: &[Spike], skips: &[SkipRange], files: &[Files]) -> String {
    let spike = |(spike, files): (&Spike, &Files)| {
        let files: serde_json::Map<_, _> =
            files.iter().map(|(file, samples)| (file.clone(), json!(samples))).collect();
        json!({"step": spike.step, "value": spike.value, "before": spike.before, "files": files})
    };
    let spikes: Vec<_> = spikes.iter().zip(files).map(spike).collect();
    let skips: Vec<_> = skips
        .iter()
        .map(|skip| json!({"epoch": skip.epoch, "from": skip.steps.start, "to": skip.steps.end}))
        .collect();
    format!("{}\n", json!({"spikes": spikes, "skip": skips}))
}
