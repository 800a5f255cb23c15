//! Rows in the format of the benches.

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde_json::json;

use crate::measure::{Sides, median};
use crate::table::Form;

/// Prints rows and appends them to the `--json` file.
pub struct Report {
    file: Option<File>,
}

impl Report {
    /// Opens the file for appending.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn new(path: Option<&Path>) -> Result<Self, Box<dyn Error>> {
        let open = |path: &Path| {
            let file = File::options().create(true).append(true).open(path);
            file.map_err(|error| format!("cannot write the rows to {}: {error}", path.display()))
        };
        println!("{:<52} {:>10} {:>10} {:>6}", "ns per sample", "loader", "baseline", "ratio");
        Ok(Self { file: path.map(open).transpose()? })
    }

    /// Adds a row: the time per sample in excess of the baseline, as in the benchmark `tiny`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn add(
        &mut self,
        library: &str,
        version: &str,
        (form, batch, workers): (Form, usize, usize),
        sides: &Sides,
    ) -> Result<(), Box<dyn Error>> {
        let (value, baseline) =
            (median(&sides.pairs(|value, _| value)), median(&sides.pairs(|_, baseline| baseline)));
        let (over, ratio) =
            (sides.pairs(|value, baseline| value - baseline), median(&sides.pairs(|v, f| v / f)));
        println!(
            "{:<52} {value:>10.1} {baseline:>10.1} {ratio:>6.2}",
            format!("{library} {version}, {form}, batch {batch}, {workers} workers")
        );
        let row = json!({
            "bench": format!("{library}-tiny"),
            "parameters": { "form": form.to_string(), "batch": batch, "workers": workers },
            "value": median(&over), "min": over[0], "max": over[over.len() - 1],
            "unit": "ns/sample over", "baseline": baseline, "ratio": ratio, "target": "", "reached": null,
            "repetitions": over.len(), "device": "no device",
            "more": {
                "samples_per_s": 1e9 / value, "baseline_samples_per_s": 1e9 / baseline,
                "ns_per_sample": value,
                "versions": format!("{library} {version}"),
            },
        });
        let Some(file) = &mut self.file else { return Ok(()) };
        Ok(writeln!(file, "{row}")?)
    }
}

/// The version of `package` in the lock file.
///
/// # Errors
/// If the lock file has no such package.
pub fn version(package: &str) -> Result<String, Box<dyn Error>> {
    let lock = include_str!("../Cargo.lock");
    let name = format!("name = \"{package}\"\nversion = \"");
    let version = lock.split_once(&name).and_then(|(_, rest)| rest.split('"').next());
    Ok(version.ok_or_else(|| format!("{package} is not in Cargo.lock"))?.to_owned())
}
