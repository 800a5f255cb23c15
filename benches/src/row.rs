//! One row of figures: as JSON for machines, as a line for people.

use std::fs::File;
use std::io::Write;

use feedline::{Error, ErrorKind, Result};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::measure::Figures;
use crate::options::Options;

/// What must be reached, and of what.
#[derive(Clone, Copy)]
pub enum Target {
    /// The ratio is to be this or less.
    RatioAtMost(f64),
    /// The ratio is to be this or more.
    RatioAtLeast(f64),
    /// The value is to be this or less.
    AtMost(f64),
    /// The value is to be this or more.
    AtLeast(f64),
    /// Nothing was set.
    None,
}

/// One measured thing beside its floor.
#[derive(Serialize)]
pub struct Row {
    pub bench: &'static str,
    pub parameters: Map<String, Value>,
    pub value: f64,
    pub min: f64,
    pub max: f64,
    pub unit: &'static str,
    pub floor: Option<f64>,
    pub ratio: Option<f64>,
    pub target: String,
    pub reached: Option<bool>,
    pub repetitions: usize,
    pub device: String,
    /// Further figures of the same measurement.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub more: Map<String, Value>,
    /// A short run that shows only that the benchmark works.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub smoke: bool,
}

/// The figures of a row to be.
pub struct Entry {
    pub parameters: Value,
    pub value: Figures,
    pub unit: &'static str,
    pub floor: Option<f64>,
    pub ratio: Option<f64>,
    pub target: Target,
    pub more: Value,
}

/// Where rows go.
pub struct Report {
    file: Option<File>,
    device: String,
    smoke: bool,
    head: bool,
    sweep: Option<(&'static str, u64)>,
}

impl Report {
    /// Opens the file of rows, to append.
    ///
    /// # Errors
    /// `Config` for a file that cannot be written.
    pub fn new(options: &Options) -> Result<Self> {
        let open = |path: &std::path::PathBuf| {
            let file = File::options().create(true).append(true).open(path);
            file.map_err(|error| unwritten(error.into()).at_path(path))
        };
        let file = options.json.as_ref().map(open).transpose()?;
        Ok(Self { file, device: options.device.name(), smoke: options.smoke, head: true, sweep: None })
    }

    /// Until told otherwise, rows are the point of a sweep over a quantity at a value of it.
    pub fn sweep(&mut self, point: Option<(&'static str, u64)>) {
        self.sweep = point;
    }

    /// Adds a row.
    ///
    /// # Errors
    /// `Config` for a file that cannot be written.
    pub fn add(&mut self, bench: &'static str, entry: Entry) -> Result<()> {
        let Entry { parameters, value: figures, unit, floor, ratio, target, more } = entry;
        let value = figures.median();
        let (target, reached) = match target {
            Target::RatioAtMost(bar) => (format!("ratio <= {bar}"), ratio.map(|r| r <= bar)),
            Target::RatioAtLeast(bar) => (format!("ratio >= {bar}"), ratio.map(|r| r >= bar)),
            Target::AtMost(bar) => (format!("<= {bar} {unit}"), Some(value <= bar)),
            Target::AtLeast(bar) => (format!(">= {bar} {unit}"), Some(value >= bar)),
            Target::None => (String::new(), None),
        };
        // The bars are set for the benchmark's own points.
        let (target, reached) = if self.sweep.is_some() { (String::new(), None) } else { (target, reached) };
        let map = |value| if let Value::Object(map) = value { map } else { Map::new() };
        let (mut parameters, mut more) = (map(parameters), map(more));
        if let Some((quantity, x)) = self.sweep {
            // A benchmark that has several rows a point says which is which.
            let what = parameters.get("transfer_mode").or_else(|| parameters.get("what")).cloned();
            more.append(&mut parameters);
            // What the process holds: the measured side and its floor, as they are still alive.
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
            floor,
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
                "floor",
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
        let (value, floor, ratio) =
            (short(row.value), of(row.floor), row.ratio.map_or("-".into(), |r| format!("{r:.2}")));
        println!("{name:<34} {value:>10} {floor:>10} {ratio:>6}  {:<14} {} {verdict}", row.unit, row.target);
    }
}

/// Bytes of this process that are in memory; nothing where the system does not say.
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
    Error::new(ErrorKind::Config, "cannot write the rows: give --json a file that can be written")
        .caused_by(error)
}
