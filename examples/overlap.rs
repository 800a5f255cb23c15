//! Measures what overlapping decode, copy and compute gains, against the formula.
//!
//! `cargo run --release --example overlap -- --svg overlap.svg`
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use feedline::{Device, Error, ErrorKind, Result};
use feedline_examples::overlap::{Measured, Stages, measure};
use feedline_examples::program;
use lexopt::prelude::{Long, Short, ValueExt};

const HELP: &str = "\
Measures a loop that decodes, copies and computes one after the other, against the loader.

usage: overlap [options]
  --device NAME   auto, cuda or host [auto]
  --steps N       steps of each measurement [100]
  --unit-us T     the stages take 1, 2 or 4 times as long [1000 on the host, 200 on a GPU]
  --svg FILE      write a plot
  --help

The formula for the speed-up is (D + T + C) / max(D, T, C), with the times of the three stages.";

/// The stage times of the grid, in units.
const GRID: [[u32; 3]; 10] = [
    [1, 1, 1],
    [2, 1, 1],
    [1, 2, 1],
    [1, 1, 2],
    [2, 2, 1],
    [2, 1, 2],
    [1, 2, 2],
    [4, 1, 1],
    [1, 4, 1],
    [1, 1, 4],
];

struct Options {
    device: Device,
    steps: usize,
    unit: Duration,
    svg: Option<PathBuf>,
}

fn main() -> ExitCode {
    program::main("overlap", HELP, parse().map_err(program::usage).flatten(), run)
}

fn run(options: Options) -> Result<()> {
    println!("{}, {} steps", options.device.name(), options.steps);
    println!("   decode      copy   compute  one by one  overlapped  speed-up  formula");
    let mut points = Vec::new();
    for [decode, copy, compute] in GRID {
        let [decode, copy, compute] = [decode, copy, compute].map(|units| units * options.unit);
        let measured = measure(&options.device, Stages { decode, copy, compute }, options.steps)?;
        let Measured { stages, one_by_one, overlapped } = measured;
        let us = [stages.decode, stages.copy, stages.compute, one_by_one, overlapped];
        let [decode, copy, compute, one_by_one, overlapped] = us.map(|time| time.as_secs_f64() * 1e6);
        println!(
            "{decode:>6.0} us {copy:>6.0} us {compute:>6.0} us {one_by_one:>8.0} us {overlapped:>8.0} us \
             {:>9.2} {:>8.2}",
            measured.speed_up(),
            stages.speed_up()
        );
        points.push(measured);
    }
    if let Some(worst) = points.iter().min_by(|a, b| a.stages.speed_up().total_cmp(&b.stages.speed_up())) {
        println!("least to gain: {}", worst.stages.advice());
    }
    if let Some(path) = &options.svg {
        std::fs::write(path, plot(&points)).map_err(|error| {
            Error::new(ErrorKind::Data, "cannot write the plot").with_source(error).at_path(path)
        })?;
    }
    Ok(())
}

fn parse() -> Result<Result<Option<Options>>, lexopt::Error> {
    let (mut device, mut steps, mut unit, mut svg) = ("auto".to_owned(), 100, None, None);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("device") => device = parser.value()?.parse()?,
            Long("steps") => steps = parser.value()?.parse::<u32>()?.max(1) as usize,
            Long("unit-us") => {
                unit = Some(Duration::from_micros(parser.value()?.parse::<u32>()?.max(1).into()))
            }
            Long("svg") => svg = Some(parser.value()?.parse()?),
            Long("help") | Short('h') => return Ok(Ok(None)),
            other => return Err(other.unexpected()),
        }
    }
    let device = match device.as_str() {
        "auto" => Device::best(),
        "cuda" => Device::cuda(0),
        "host" => Ok(Device::new_host()),
        other => return Err(format!("--device is \"{other}\": give auto, cuda or host").into()),
    };
    Ok(device.map(|device| {
        let is_host = device.kind() == feedline::device::BackendKind::Host;
        let unit = unit.unwrap_or(Duration::from_micros(if is_host { 1000 } else { 200 }));
        Some(Options { device, steps, unit, svg })
    }))
}

/// The measured speed-up over the formula's, with the line where they are equal.
fn plot(points: &[Measured]) -> String {
    const SIDE: f64 = 420.0;
    const LEFT: f64 = 60.0;
    let at = |speed_up: f64| (speed_up - 0.8) / 2.4 * SIDE;
    let (x, y) = (|s: f64| LEFT + at(s), |s: f64| 20.0 + SIDE - at(s));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n<style>text {{ fill: #333 }} .grid {{ \
         stroke: \
         #ddd }} .bg {{ fill: #fff }} @media (prefers-color-scheme: dark) {{ text {{ fill: #ddd }} .grid {{ \
         stroke: #444 }} .bg {{ fill: #1b1b1f }} }}</style>\n<rect class=\"bg\" width=\"100%\" \
         height=\"100%\"/>\n",
        w = LEFT + SIDE + 150.0,
        h = SIDE + 80.0
    );
    for tick in [1.0, 1.5, 2.0, 2.5, 3.0] {
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{x0}\" y1=\"{y0}\" x2=\"{x1}\" y2=\"{y0}\"/><line class=\"grid\" \
             x1=\"{xt}\" y1=\"20\" x2=\"{xt}\" y2=\"{yb}\"/><text x=\"{tx}\" y=\"{ty}\" text-anchor=\"end\">\
             {tick:.1}</text><text x=\"{xt}\" y=\"{by}\" text-anchor=\"middle\">{tick:.1}</text>",
            x0 = LEFT,
            x1 = LEFT + SIDE,
            y0 = y(tick),
            xt = x(tick),
            yb = 20.0 + SIDE,
            tx = LEFT - 8.0,
            ty = y(tick) + 4.0,
            by = 40.0 + SIDE,
        );
    }
    let _ = writeln!(
        svg,
        "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"#888\" stroke-dasharray=\"4 4\"/>\n<text \
         x=\"{}\" \
         y=\"{}\" text-anchor=\"middle\">speed-up of the formula (D + T + C) / max(D, T, C)</text>\n<text \
         transform=\"translate(18 {}) rotate(-90)\" text-anchor=\"middle\">measured speed-up</text>",
        x(0.8),
        y(0.8),
        x(3.2),
        y(3.2),
        LEFT + SIDE / 2.0,
        SIDE + 66.0,
        20.0 + SIDE / 2.0
    );
    let stages = [("decode", "#3b7dd8"), ("copy", "#d9822b"), ("compute", "#3a9d5d")];
    for (index, (name, colour)) in stages.into_iter().enumerate() {
        let (lx, ly) = (LEFT + SIDE + 16.0, 40.0 + 22.0 * index as f64);
        let _ = writeln!(
            svg,
            "<circle cx=\"{lx}\" cy=\"{ly}\" r=\"5\" fill=\"{colour}\"/><text x=\"{}\" \
             y=\"{}\">{name}-bound</text>",
            lx + 12.0,
            ly + 4.0
        );
        for point in points.iter().filter(|point| point.stages.longest() == name) {
            let _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"5\" fill=\"{colour}\" fill-opacity=\"0.8\"/>",
                x(point.stages.speed_up()),
                y(point.speed_up())
            );
        }
    }
    svg + "</svg>\n"
}
