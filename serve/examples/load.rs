//! Measures the server under load: throughput, p50 and p99, for pools of 1, 4 and 8 streams.
//!
//! `cargo run --release --example load`; server and clients share the machine.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use feedline::{Device, Error, ErrorKind, Result};
use feedline_mlp::{Init, Shape};
use feedline_serve::{Model, Pool, PoolOptions, Server, load};
use lexopt::prelude::{Long, Short, ValueExt as _};
use tokio::sync::oneshot;

const HELP: &str = "\
Measures the server of the example serve under load, with random weights.

usage: load [options]
  --device NAME       auto, cuda or host [auto]
  --streams LIST      pools to compare [1,4,8]
  --connections LIST  connections, each with one request at a time [16,64,256]
  --seconds N         of each measurement [3]
  --batch N           the most requests of a micro-batch [8]
  --delay-us N        how long the first of a micro-batch waits for others [0]
  --hidden N          hidden units of the model [512]
  --help";

struct Options {
    device: Device,
    streams: Vec<usize>,
    connections: Vec<usize>,
    seconds: Duration,
    batch: usize,
    delay: Duration,
    hidden: usize,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "load: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<()> {
    let usage = |error: lexopt::Error| Error::new(ErrorKind::Config, format!("{error}: see --help"));
    let Some(options) = parse().map_err(usage)? else {
        println!("{HELP}");
        return Ok(());
    };
    let (inputs, hidden, classes) = (784, options.hidden, 10);
    let layers = Shape { inputs, hidden, classes, batch: options.batch }.layers()?;
    let parameters = Init::Reference.parameters(&layers, layers[2].bias.end.next_multiple_of(64));
    let model = Model { inputs, hidden, classes, parameters };
    let failed = |error| Error::new(ErrorKind::Unavailable, "cannot start the server").caused_by(error);
    let runtime = tokio::runtime::Runtime::new().map_err(failed)?;
    println!("{}: batch {}, {:?}, hidden {hidden}", options.device, options.batch, options.delay);
    println!("streams  connections   answers/s    p50 us    p99 us  requests per batch  refused  lost");
    for &connections in &options.connections {
        for &streams in &options.streams {
            runtime.block_on(measure(&options, &model, streams, connections))?;
        }
    }
    Ok(())
}

async fn measure(options: &Options, model: &Model, streams: usize, connections: usize) -> Result<()> {
    let Options { batch, delay, .. } = *options;
    let pool = Pool::start(&options.device, model, PoolOptions { streams, batch, delay, queue: 1024 })?;
    let server = Server::bind(SocketAddr::from(([127, 0, 0, 1], 0)), pool).await?;
    let (address, metrics) = (server.address()?, server.pool().metrics().clone());
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    let body = Bytes::from((0..model.inputs).map(|at| at as u8).collect::<Vec<_>>());
    load::run(address, connections, Duration::from_millis(300), body.clone()).await;
    let (answered, batches) = (metrics.answered.get(), metrics.batches.get());
    let outcome = load::run(address, connections, options.seconds, body).await;
    let (answered, batches) = (metrics.answered.get() - answered, metrics.batches.get() - batches);
    let _ = stop.send(());
    let _ = server.await;
    println!(
        "{streams:>7}  {connections:>11}  {:>10.0}  {:>8}  {:>8}  {:>18.1}  {:>7}  {:>4}",
        outcome.rate(),
        outcome.quantile(0.5).as_micros(),
        outcome.quantile(0.99).as_micros(),
        answered as f64 / batches.max(1) as f64,
        outcome.refused,
        outcome.closed + outcome.other,
    );
    Ok(())
}

fn parse() -> Result<Option<Options>, lexopt::Error> {
    let (mut device, mut streams, mut connections) = ("auto".to_owned(), vec![1, 4, 8], vec![16, 64, 256]);
    let (mut seconds, mut batch, mut delay, mut hidden) = (3.0, 8, 0, 512);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("device") => device = parser.value()?.parse()?,
            Long("streams") => streams = list(&mut parser)?,
            Long("connections") => connections = list(&mut parser)?,
            Long("seconds") => seconds = parser.value()?.parse::<f64>()?.clamp(0.1, 3600.0),
            Long("batch") => batch = parser.value()?.parse::<u16>()?.max(1).into(),
            Long("delay-us") => delay = parser.value()?.parse::<u32>()?,
            Long("hidden") => hidden = parser.value()?.parse::<u16>()?.max(1).into(),
            Long("help") | Short('h') => return Ok(None),
            other => return Err(other.unexpected()),
        }
    }
    let device = match device.as_str() {
        "auto" => Device::best(),
        "cuda" => Device::cuda(0),
        "host" => Ok(Device::host()),
        other => return Err(format!("--device is \"{other}\": give auto, cuda or host").into()),
    };
    let device = device.map_err(|error| error.to_string())?;
    let (seconds, delay) = (Duration::from_secs_f64(seconds), Duration::from_micros(delay.into()));
    Ok(Some(Options { device, streams, connections, seconds, batch, delay, hidden }))
}

/// Numbers from 1 to 65,535, with commas between.
fn list(parser: &mut lexopt::Parser) -> Result<Vec<usize>, lexopt::Error> {
    let text: String = parser.value()?.parse()?;
    let number = |part: &str| part.parse::<std::num::NonZero<u16>>().map(|number| number.get().into());
    let numbers: Result<Vec<usize>, _> = text.split(',').map(number).collect();
    numbers.map_err(|error| format!("\"{text}\" is not a list of numbers: {error}").into())
}
