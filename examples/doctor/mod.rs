//! Inspects the machine, and reports what will limit training on it and what to change.

mod advice;
mod gpu;
mod host;
mod libraries;

use std::error::Error;
use std::path::PathBuf;

use feedline_core::named;
use feedline_report::{Diagnosis, Profile};
use lexopt::prelude::{Long, Short, ValueExt};
use serde::Serialize;

const HELP: &str = "\
Looks at the machine, and says what will limit training on it and what to change. Needs no GPU.

usage: feedline doctor [options]
  --data FOLDER   measure reads there [the folder for temporary files]
  --profile FILE  say what limited the run whose service times are there: SAVED_BY
  --json          print one JSON object
  --help

Takes a few seconds and up to 0.5 GB of memory.
";

/// The text of `--help`.
pub(crate) fn help() -> String {
    HELP.replace("SAVED_BY", named("mlp --profile FILE", "loader.report().save_profile(FILE)"))
}

/// All findings. Unknown ones are null.
#[derive(Debug, Serialize)]
struct Findings {
    host: host::Host,
    gpu: Option<gpu::Gpu>,
    /// The reason why there is no GPU.
    no_gpu: Option<String>,
    libraries: Vec<libraries::Library>,
    advice: Vec<String>,
    /// The diagnosis of the run of `--profile`.
    run: Option<Diagnosis>,
}

/// The findings as text, or as JSON.
pub(crate) fn run(mut parser: lexopt::Parser) -> Result<String, Box<dyn Error>> {
    let (mut json, mut folder, mut run) = (false, std::env::temp_dir(), None);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("json") => json = true,
            Long("data") => {
                folder = PathBuf::from(parser.value()?);
                if !folder.is_dir() {
                    return Err(format!("--data {}: give a folder that exists", folder.display()).into());
                }
            }
            Long("profile") => {
                run = Some(Diagnosis::of_profile(&Profile::read(parser.value()?.parse::<PathBuf>()?)?));
            }
            Long("help") | Short('h') => return Ok(help() + "\nexit code: 0 done, 2 an error\n"),
            other => return Err(format!("{}: see --help", other.unexpected()).into()),
        }
    }
    let (gpu, no_gpu) = match gpu::Gpu::look() {
        Ok(gpu) => (Some(gpu), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let (host, libraries) = (host::Host::look(&folder), libraries::look());
    let advice = advice::advise(&host, gpu.as_ref(), &libraries);
    let findings = Findings { host, gpu, no_gpu, libraries, advice, run };
    Ok(if json { serde_json::to_string_pretty(&findings)? + "\n" } else { findings.text() })
}

impl Findings {
    fn text(&self) -> String {
        let mut lines = self.host.lines();
        match (&self.gpu, &self.no_gpu) {
            (Some(gpu), _) => lines.extend(gpu.lines()),
            (None, why) => lines.push(("GPU", format!("none: {}", why.as_deref().unwrap_or("not found")))),
        }
        for library in &self.libraries {
            let path = library.path.as_ref().map(|path| path.display().to_string());
            lines.push((library.name, path.unwrap_or_else(|| format!("missing: {}", library.missing))));
        }
        let mut text: String = lines.iter().map(|(name, value)| format!("{name:<18} {value}\n")).collect();
        text += "\n";
        text.extend(self.advice.iter().map(|advice| format!("- {advice}\n")));
        text.extend(self.run.iter().map(|run| format!("- The run of --profile is {run}.\n")));
        text
    }
}
