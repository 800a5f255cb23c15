//! `feedline verify`: compares a data set with a record or a manifest, and lists the changes.

use std::error::Error;
use std::path::{Path, PathBuf};

use crate::Outcome;
use feedline::{Loader, LoaderBuilder};
use feedline_datasets::{Bounded, open_with};
use feedline_record::{ChangedSample, Manifest, Verified, other_form};
use lexopt::prelude::{Long, Value};
use serde_json::json;

use super::common::{Data, long, number, open_run, progress};

pub const COMMAND: super::Command = super::Command {
    name: "verify",
    about: "reads a data set against a run or a manifest, and names the samples that have changed",
    help: || {
        "\
usage: feedline verify DATA --against RUN|MANIFEST [options]
       feedline verify DATA --write-manifest FILE [options]
  --against PATH           the record of a run, or a manifest
  --write-manifest FILE    writes a hash of each sample, 8 bytes each, to verify the data by later
  --max-items N            max items of a field that varies in size, for a manifest [1048576]
  --test, --fill           as for inspect
  --json                   prints one JSON object
"
        .to_owned()
    },
    run: verify,
};

fn verify(mut parser: lexopt::Parser) -> Result<Outcome, Box<dyn Error>> {
    let (mut path, mut against, mut write, mut max, mut data, mut json) =
        (None::<PathBuf>, None::<PathBuf>, None::<PathBuf>, 1 << 20, Data::default(), false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("against") => against = Some(parser.value()?.into()),
            Long("write-manifest") => write = Some(parser.value()?.into()),
            Long("max-items") => max = usize::try_from(number(&mut parser)?)?,
            Long("json") => json = true,
            Value(value) if path.is_none() => path = Some(value.into()),
            argument => data.take(long(argument)?, &mut parser)?,
        }
    }
    let path = path.ok_or("there is no data: give a file or a folder, see --help")?;
    let show = |bar: &indicatif::ProgressBar, done: u64, all: u64| {
        bar.set_length(all);
        bar.set_position(done);
    };
    if let Some(file) = write {
        let bar = progress("samples");
        let manifest = Manifest::of(samples(&path, &data, max)?, |done, all| show(&bar, done, all))?;
        manifest.save(&file)?;
        bar.finish_and_clear();
        return Ok(Outcome::done(format!("{}\n", file.display())));
    }
    let against =
        against.ok_or("there is nothing to compare with: give --against RUN, or --write-manifest FILE")?;
    let manifest = if against.is_dir() { None } else { Manifest::open(&against)? };
    let bar = progress(if manifest.is_some() { "samples" } else { "steps" });
    let verified = match manifest {
        Some(manifest) => manifest.verify(samples(&path, &data, max)?, |done, all| show(&bar, done, all))?,
        None => {
            let run = open_run(&against)?;
            let builder = data.open_at(&run.header(run.steps().start), &path)?;
            run.verify(&builder, |done, all| show(&bar, done, all))?
        }
    };
    bar.finish_and_clear();
    let text = if json { as_json(&verified) } else { as_text(&verified) };
    Ok(Outcome { text, differs: !verified.is_equal() })
}

/// A loader of all samples at `path`.
fn samples(path: &Path, data: &Data, max: usize) -> feedline::Result<LoaderBuilder> {
    let reader = open_with(path, &data.options())?;
    Ok(Loader::builder(Bounded::limited(reader, max)?))
}

fn as_text(verified: &Verified) -> String {
    let mut text = String::new();
    let mut list = |samples: &[ChangedSample], what: &str| {
        for ChangedSample { sample, path } in samples {
            let file = path.as_ref().map_or_else(String::new, |path| format!(", in {}", path.display()));
            text += &format!("sample {sample} {what}{file}\n");
        }
    };
    list(&verified.changed, "has changed");
    list(&verified.suspected, "may have changed");
    if verified.samples == 0 && !verified.suspected.is_empty() {
        text += &format!("no sample is that of the run: if no file has changed, {}\n", other_form());
    }
    for step in &verified.other_samples {
        text += &format!("step {step} has other samples than in the run\n");
    }
    if verified.not_compared > 0 {
        text +=
            &format!("{} steps have no hash of their bytes, and were not compared\n", verified.not_compared);
    }
    let changed = verified.changed.len();
    if verified.is_equal() {
        text + &format!("equal: {} samples\n", verified.samples)
    } else {
        text + &format!("{changed} of {} samples have changed\n", verified.samples)
    }
}

fn as_json(verified: &Verified) -> String {
    let list = |samples: &[ChangedSample]| -> Vec<_> {
        samples.iter().map(|of| json!({"sample": of.sample, "file": of.path})).collect()
    };
    let object = json!({
        "equal": verified.is_equal(),
        "samples": verified.samples,
        "changed": list(&verified.changed),
        "suspected": list(&verified.suspected),
        "other_samples": verified.other_samples,
        "not_compared": verified.not_compared,
    });
    format!("{object}\n")
}
