//! Rows of the benches' shape.

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde_json::json;

use crate::measure::{Sides, median};
use crate::table::Form;

/// Where rows go.
pub struct Report {
    file: Option<File>,
}

impl Report {
    /// Opens the file of rows, to append.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn new(path: Option<&Path>) -> Result<Self, Box<dyn Error>> {
        let open = |path: &Path| {
            let file = File::options().create(true).append(true).open(path);
            file.map_err(|error| format!("cannot write the rows to {}: {error}", path.display()))
        };
        println!("{:<52} {:>10} {:>10} {:>6}", "ns a sample", "loader", "floor", "ratio");
        Ok(Self { file: path.map(open).transpose()? })
    }

    /// Adds a row: the time a sample beyond the floor's, as the bench `tiny` has it.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn add(
        &mut self,
        library: &str,
        version: &str,
        (form, batch, workers): (Form, usize, usize),
        sides: &Sides,
    ) -> Result<(), Box<dyn Error>> {
        let (value, floor) = (median(&sides.pairs(|value, _| value)), median(&sides.pairs(|_, floor| floor)));
        let (over, ratio) = (sides.pairs(|value, floor| value - floor), median(&sides.pairs(|v, f| v / f)));
        println!(
            "{:<52} {value:>10.1} {floor:>10.1} {ratio:>6.2}",
            format!("{library} {version}, {form}, batch {batch}, {workers} workers")
        );
        let row = json!({
            "bench": format!("{library}-tiny"),
            "parameters": { "form": form.to_string(), "batch": batch, "workers": workers },
            "value": median(&over), "min": over[0], "max": over[over.len() - 1],
            "unit": "ns/sample over", "floor": floor, "ratio": ratio, "target": "", "reached": null,
            "repetitions": over.len(), "device": "no device",
            "more": {
                "samples_per_s": 1e9 / value, "floor_samples_per_s": 1e9 / floor, "ns_a_sample": value,
                "versions": format!("{library} {version}"),
            },
        });
        let Some(file) = &mut self.file else { return Ok(()) };
        Ok(writeln!(file, "{row}")?)
    }
}

/// The version of `package` that was built, from the lock file.
///
/// # Errors
/// A package that is not there.
pub fn version(package: &str) -> Result<String, Box<dyn Error>> {
    let lock = include_str!("../Cargo.lock");
    let name = format!("name = \"{package}\"\nversion = \"");
    let version = lock.split_once(&name).and_then(|(_, rest)| rest.split('"').next());
    Ok(version.ok_or_else(|| format!("{package} is not in Cargo.lock"))?.to_owned())
}
