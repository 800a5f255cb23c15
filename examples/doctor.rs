//! Inspects the machine, and reports what will limit training on it and what to change.
//!
//! `cargo run --release --example doctor [-- --json] [--data FOLDER]`
#![forbid(unsafe_code)]

#[path = "doctor/advice.rs"]
mod advice;
#[path = "doctor/gpu.rs"]
mod gpu;
#[path = "doctor/host.rs"]
mod host;
#[path = "doctor/libraries.rs"]
mod libraries;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use lexopt::prelude::{Long, Short, ValueExt};
use serde::Serialize;

const HELP: &str = "\
Looks at the machine, and says what will limit training on it and what to change. Needs no GPU.

usage: doctor [options]
  --data FOLDER   measure reads there [the folder for temporary files]
  --json          print one JSON object
  --help

Takes a few seconds and up to 0.5 GB of memory. exit code: 0, also without a GPU; 2 for a wrong option";

/// All findings. Unknown ones are null.
#[derive(Debug, Serialize)]
struct Findings {
    host: host::Host,
    gpu: Option<gpu::Gpu>,
    /// The reason why there is no GPU.
    no_gpu: Option<String>,
    libraries: Vec<libraries::Library>,
    advice: Vec<String>,
}

fn main() -> ExitCode {
    let (mut json, mut folder) = (false, std::env::temp_dir());
    let mut parser = lexopt::Parser::from_env();
    loop {
        match parser.next() {
            Ok(None) => break,
            Ok(Some(Long("json"))) => json = true,
            Ok(Some(Long("data"))) => match parser.value().and_then(|value| value.parse::<PathBuf>()) {
                Ok(path) => folder = path,
                Err(error) => return usage(&error.to_string()),
            },
            Ok(Some(Long("help") | Short('h'))) => return print(HELP),
            Ok(Some(other)) => return usage(&other.unexpected().to_string()),
            Err(error) => return usage(&error.to_string()),
        }
    }
    let (gpu, no_gpu) = match gpu::Gpu::look() {
        Ok(gpu) => (Some(gpu), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let (host, libraries) = (host::Host::look(&folder), libraries::look());
    let advice = advice::advise(&host, gpu.as_ref(), &libraries);
    let findings = Findings { host, gpu, no_gpu, libraries, advice };
    if json {
        print(&serde_json::to_string_pretty(&findings).unwrap_or_default())
    } else {
        print(&findings.text())
    }
}

fn usage(why: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "doctor: {why}: see --help");
    ExitCode::from(2)
}

/// Prints; a closed pipe is not an error.
fn print(text: &str) -> ExitCode {
    let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
    ExitCode::SUCCESS
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
        text
    }
}
