//! One row of results, as JSON and as a printed line.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;

use feedline::report::{Account, Cause};
use feedline::{Error, ErrorKind, Result};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::measure::{Figures, Sides};
use crate::options::Options;

/// The target of a row.
#[derive(Clone, Copy)]
pub enum Target {
    /// Upper bound of the ratio.
    RatioAtMost(f64),
    /// Lower bound of the ratio.
    RatioAtLeast(f64),
    /// Upper bound of the value.
    AtMost(f64),
    /// Lower bound of the value.
    AtLeast(f64),
    /// No target.
    None,
}

/// One measurement and its baseline.
#[derive(Serialize)]
pub struct Row {
    pub bench: &'static str,
    pub parameters: Map<String, Value>,
    pub value: f64,
    pub min: f64,
    pub max: f64,
    pub unit: &'static str,
    pub baseline: Option<f64>,
    pub ratio: Option<f64>,
    pub target: String,
    pub reached: Option<bool>,
    pub repetitions: usize,
    pub device: String,
    /// Additional figures of the same measurement.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub more: Map<String, Value>,
    /// Whether this is a smoke run, whose figures mean nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub smoke: bool,
}

/// The share of each cause in a loader's time; causes without a share are left out.
pub fn shares(run: &Account) -> BTreeMap<String, f64> {
    let shares = Cause::ALL.map(|cause| (cause.to_string(), run.share(cause)));
    shares.into_iter().filter(|(_, share)| *share > 0.0).collect()
}

/// The measured part of a row.
pub struct Entry {
    pub parameters: Value,
    pub value: Figures,
    pub unit: &'static str,
    pub baseline: Option<f64>,
    pub ratio: Option<f64>,
    pub target: Target,
    pub more: Value,
}

impl Entry {
    /// Both sides in `unit`, where `of` makes a figure of seconds per step, and the ratio of their speeds.
    pub fn of(sides: &Sides, unit: &'static str, of: impl Fn(f64) -> f64) -> Self {
        Self {
            parameters: Value::Null,
            baseline: Some(of(sides.baseline.median())),
            value: sides.value.map(of),
            unit,
            ratio: Some(1.0 / sides.ratio.median()),
            target: Target::None,
            more: Value::Null,
        }
    }
}

/// Prints rows and appends them to the `--json` file.
pub struct Report {
    file: Option<File>,
    device: String,
    smoke: bool,
    head: bool,
    sweep: Option<(&'static str, u64)>,
}

impl Report {
    /// Opens the `--json` file for appending.
    ///
    /// # Errors
    /// `Config` if the file cannot be written.
    pub fn new(options: &Options) -> Result<Self> {
        let open = |path: &std::path::PathBuf| {
            let file = File::options().create(true).append(true).open(path);
            file.map_err(|error| unwritten(error.into()).at_path(path))
        };
        let file = options.json.as_ref().map(open).transpose()?;
        Ok(Self { file, device: options.device.name(), smoke: options.smoke, head: true, sweep: None })
    }

    /// Marks the following rows as one point of a sweep (quantity, value); `None` ends the sweep.
    pub fn sweep(&mut self, point: Option<(&'static str, u64)>) {
        self.sweep = point;
    }

    /// Adds a row.
    ///
    /// # Errors
    /// `Config` if the file cannot be written.
    pub fn add(&mut self, bench: &'static str, entry: Entry) -> Result<()> {
        let Entry { parameters, value: figures, unit, baseline, ratio, target, more } = entry;
        let value = figures.median();
        let (target, reached) = match target {
            Target::RatioAtMost(bar) => (format!("ratio <= {bar}"), ratio.map(|r| r <= bar)),
            Target::RatioAtLeast(bar) => (format!("ratio >= {bar}"), ratio.map(|r| r >= bar)),
            Target::AtMost(bar) => (format!("<= {bar} {unit}"), Some(value <= bar)),
            Target::AtLeast(bar) => (format!(">= {bar} {unit}"), Some(value >= bar)),
            Target::None => (String::new(), None),
        };
        // The targets apply to the benchmark's own points, not to sweeps.
        let (target, reached) = if self.sweep.is_some() { (String::new(), None) } else { (target, reached) };
        let map = |value| if let Value::Object(map) = value { map } else { Map::new() };
        let (mut parameters, mut more) = (map(parameters), map(more));
        if let Some((quantity, x)) = self.sweep {
            // Tells several rows of one point apart.
            let what = parameters.get("transfer_mode").or_else(|| parameters.get("what")).cloned();
            more.append(&mut parameters);
            // Includes the baseline's memory: both sides are still alive.
            more.insert("rss_bytes".into(), resident_bytes().into());
            parameters = map(json!({ "of": bench, "what": what, "sweep": quantity, "x": x }));
            parameters.retain(|_, value| !value.is_null());
        }
        let row = Row {
            bench: if self.sweep.is_some() { "scale" } else { bench },
            parameters,
            value,
            min: figures.min(),
            max: figures.max(),
            unit,
            baseline,
            ratio,
            target,
            reached,
            repetitions: figures.len(),
            device: self.device.clone(),
            more,
            smoke: self.smoke,
        };
        self.print(&row);
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut line = serde_json::to_vec(&row).map_err(|error| unwritten(error.into()))?;
        line.push(b'\n');
        file.write_all(&line).map_err(|error| unwritten(error.into()))
    }

    fn print(&mut self, row: &Row) {
        if std::mem::take(&mut self.head) {
            println!(
                "{:<34} {:>10} {:>10} {:>6}  {:<14} target",
                "on ".to_owned() + &self.device,
                "value",
                "baseline",
                "ratio",
                "unit"
            );
        }
        let of = |x: Option<f64>| x.map_or("-".to_owned(), short);
        let parameters: Vec<_> = row.parameters.values().map(|v| v.to_string().replace('"', "")).collect();
        let name = format!("{} {}", row.bench, parameters.join(" "));
        let verdict = match row.reached {
            Some(true) => "reached",
            Some(false) => "MISSED",
            None => "",
        };
        let (value, baseline, ratio) =
            (short(row.value), of(row.baseline), row.ratio.map_or("-".into(), |r| format!("{r:.2}")));
        println!(
            "{name:<34} {value:>10} {baseline:>10} {ratio:>6}  {:<14} {} {verdict}",
            row.unit, row.target
        );
    }
}

/// Resident bytes of this process; `None` where `/proc` does not have it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Four significant digits.
fn short(x: f64) -> String {
    let digits = if x == 0.0 { 0 } else { 3 - x.abs().log10().floor() as i32 };
    format!("{x:.*}", digits.clamp(0, 4) as usize)
}

fn unwritten(error: Box<dyn std::error::Error + Send + Sync>) -> Error {
    Error::new(ErrorKind::Config, "cannot write the rows: set --json to a writable file").with_source(error)
}
