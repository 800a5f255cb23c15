//! Independent branches of a model on streams of their own, against the same model on one stream.
//!
//! `cargo run --release --example branches`; the model is in `src/branches.rs`.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Instant;

use feedline::device::BackendKind;
use feedline::{Device, Error, ErrorKind, Result};
use feedline_examples::branches::{Model, Sizes, Times};
use feedline_examples::program;
use lexopt::prelude::{Long, Short, ValueExt};

const HELP: &str = "\
Trains a model with independent branches: on one stream, then with a stream for each branch.

usage: branches [options]
  --device NAME  auto, cuda or host [auto]
  --branches N   branches [4 on a GPU, 2 on the host]
  --rows N       rows of a batch [512 on a GPU, 192 on the host]
  --width N      units of each layer [1024 on a GPU, 128 on the host]
  --steps N      steps of each measurement [200]
  --help";

/// The number of turns in which both versions run.
const ROUNDS: usize = 5;

fn main() -> ExitCode {
    program::main("branches", HELP, parse().map_err(program::usage), run)
}

fn run((device, sizes, steps): (Device, Sizes, usize)) -> Result<()> {
    println!("{}: {sizes:?}", device.name());
    let mut ways = [Model::new(&device, sizes, false)?, Model::new(&device, sizes, true)?];
    // The best of several turns each: a passing load affects both.
    let mut best = [f64::INFINITY; 2];
    for _ in 0..ROUNDS {
        for (model, best) in ways.iter_mut().zip(&mut best) {
            let start = Instant::now();
            (0..steps).try_for_each(|_| model.step())?;
            model.synchronize()?;
            *best = best.min(start.elapsed().as_secs_f64() * 1e6 / steps as f64);
        }
    }
    let [one, own] = &ways;
    println!("branch   forward, ms          backward, ms   (on own streams, since the step began)");
    for (number, [forward, backward]) in own.times()?.iter().enumerate() {
        let [a, b] = [forward, backward].map(|[start, end]| format!("{start:.3} to {end:.3}"));
        println!("{number:>6}   {a:<18}   {b}");
    }
    println!("branches at a time: {:.2}; on one stream {:.2}", at_a_time(own)?, at_a_time(one)?);
    let same = one.state()? == own.state()?;
    println!(
        "one stream {:.1} us per step, own streams {:.1}: {:.2} times as fast",
        best[0],
        best[1],
        best[0] / best[1]
    );
    println!("loss {:.4}, the same weights: {same}", own.state()?.0);
    let why = "after the same steps, the weights of one stream and of own streams differ";
    if same { Ok(()) } else { Err(Error::new(ErrorKind::Device, why)) }
}

/// How many branches run at a time, on average over both passes.
fn at_a_time(model: &Model) -> Result<f32> {
    let times = model.times()?;
    let (mut busy, mut whole) = (0.0, 0.0);
    for pass in 0..2 {
        let of = |at: usize| times.iter().map(move |times: &Times| times[pass][at]);
        busy += of(1).sum::<f32>() - of(0).sum::<f32>();
        whole += of(1).fold(0.0, f32::max) - of(0).fold(f32::INFINITY, f32::min);
    }
    Ok(busy / whole.max(1e-6))
}

fn number(parser: &mut lexopt::Parser) -> Result<usize, lexopt::Error> {
    Ok(parser.value()?.parse::<u16>()?.max(1).into())
}

fn parse() -> Result<Option<(Device, Sizes, usize)>, lexopt::Error> {
    let (mut device, mut steps) = ("auto".to_owned(), 200);
    let (mut branches, mut rows, mut width) = (None, None, None);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("branches") => branches = Some(number(&mut parser)?),
            Long("rows") => rows = Some(number(&mut parser)?),
            Long("width") => width = Some(number(&mut parser)?),
            Long("steps") => steps = number(&mut parser)?,
            Long("device") => device = parser.value()?.parse()?,
            Long("help") | Short('h') => return Ok(None),
            other => return Err(other.unexpected()),
        }
    }
    let device = program::device(&device).map_err(|error| error.to_string())?;
    let is_gpu = device.kind() == BackendKind::Cuda;
    let default = |gpu, host| if is_gpu { gpu } else { host };
    let sizes = Sizes {
        branches: branches.unwrap_or(default(4, 2)),
        rows: rows.unwrap_or(default(512, 192)),
        width: width.unwrap_or(default(1024, 128)),
    };
    Ok(Some((device, sizes, steps)))
}
