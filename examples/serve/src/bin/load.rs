//! Measures a server under load: throughput, p50 and p99.
//!
//! ```sh
//! cargo run --release --bin load -- --server 127.0.0.1:8080   # the server that listens there
//! cargo run --release --bin load                              # compares servers of its own
//! ```
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use feedline::{Error, ErrorKind, Result};
use feedline_examples::program;
use feedline_mlp::{Init, Shape};
use feedline_serve::{Model, Pool, PoolOptions, Server, load};
use lexopt::prelude::{Long, Short, ValueExt as _};
use tokio::sync::oneshot;

const HELP: &str = "\
Measures a server under load: throughput, p50 and p99.

usage: load --server ADDR [options]    measures the server that listens there
       load [options]                  compares servers of its own, with random weights, on this machine
  --connections LIST  connections, each with one request at a time [16,64,256]
  --seconds N         of each measurement [3]
  --inputs N          pixels of a request [784]

for servers of its own:
  --device NAME       auto, cuda or host [auto]
  --streams LIST      pools to compare [1,4,8]
  --batch N           maximum number of requests of a micro-batch [8]
  --delay-us N        how long the first of a micro-batch waits for others [0]
  --hidden N          hidden units of the model [512]
  --help";

struct Options {
    server: Option<SocketAddr>,
    device: String,
    inputs: usize,
    streams: Vec<usize>,
    connections: Vec<usize>,
    seconds: Duration,
    batch: usize,
    delay: Duration,
    hidden: usize,
}

fn main() -> ExitCode {
    program::main("load", HELP, parse().map_err(program::usage), run)
}

fn run(options: Options) -> Result<()> {
    let failed = |error| Error::new(ErrorKind::Unavailable, "cannot start a runtime").with_source(error);
    let runtime = tokio::runtime::Runtime::new().map_err(failed)?;
    match options.server {
        Some(address) => runtime.block_on(measure_server(&options, address)),
        None => runtime.block_on(compare(&options)),
    }
}

/// Measures a server that is already running.
async fn measure_server(options: &Options, address: SocketAddr) -> Result<()> {
    println!("the server at {address}");
    println!("{COLUMNS}");
    for &connections in &options.connections {
        println!("{}", measure(options, address, connections).await?);
    }
    Ok(())
}

/// Measures servers of this process with several numbers of streams.
async fn compare(options: &Options) -> Result<()> {
    let (inputs, hidden, classes) = (options.inputs, options.hidden, 10);
    let layers = Shape { inputs, hidden, classes, batch: options.batch }.layers()?;
    let parameters = Init::Reference.parameters(&layers, layers[2].bias.end.next_multiple_of(64));
    let model = Model { inputs, hidden, classes, parameters };
    let device = program::device(&options.device)?;
    let Options { batch, delay, .. } = *options;
    println!("{device}: batch {batch}, {delay:?}, hidden {hidden}");
    println!("streams  {COLUMNS}");
    for &connections in &options.connections {
        for &streams in &options.streams {
            let pool = Pool::start(&device, &model, PoolOptions { streams, batch, delay, queue: 1024 })?;
            let server = Server::bind(SocketAddr::from(([127, 0, 0, 1], 0)), pool).await?;
            let address = server.address()?;
            let (stop, stopped) = oneshot::channel::<()>();
            let stop_server = async {
                let _ = stopped.await;
            };
            let server = tokio::spawn(server.run(stop_server, Duration::from_secs(30)));
            let row = measure(options, address, connections).await;
            let _ = stop.send(());
            let _ = server.await;
            println!("{streams:>7}  {}", row?);
        }
    }
    Ok(())
}

const COLUMNS: &str = "connections   answers/s    p50 us    p99 us  requests per batch  refused  lost";

/// Measures the server at `address`; returns the row of a table.
async fn measure(options: &Options, address: SocketAddr, connections: usize) -> Result<String> {
    let body = Bytes::from((0..options.inputs).map(|at| at as u8).collect::<Vec<_>>());
    let counters = async || {
        let counted = load::counters(address, ["serve_accepted_total", "serve_batches_total"]).await;
        let why =
            format!("no server of the example answers at {address}: start it with serve --listen {address}");
        counted.ok_or_else(|| Error::new(ErrorKind::Unavailable, why))
    };
    counters().await?;
    load::run(address, connections, Duration::from_millis(300), body.clone()).await;
    let before = counters().await?;
    let outcome = load::run(address, connections, options.seconds, body).await;
    let after = counters().await?;
    if outcome.answered == 0 && outcome.other > 0 {
        let why = format!("the server at {address} refuses {} pixels: give its --inputs", options.inputs);
        return Err(Error::new(ErrorKind::Config, why));
    }
    let [accepted, batches] = [0, 1].map(|at| after[at].saturating_sub(before[at]));
    Ok(format!(
        "{connections:>11}  {:>10.0}  {:>8}  {:>8}  {:>18.1}  {:>7}  {:>4}",
        outcome.rate(),
        outcome.quantile(0.5).as_micros(),
        outcome.quantile(0.99).as_micros(),
        accepted as f64 / batches.max(1) as f64,
        outcome.refused,
        outcome.closed + outcome.other,
    ))
}

fn parse() -> Result<Option<Options>, lexopt::Error> {
    let (mut device, mut streams, mut connections) = ("auto".to_owned(), vec![1, 4, 8], vec![16, 64, 256]);
    let (mut server, mut inputs) = (None, 784);
    let (mut seconds, mut batch, mut delay, mut hidden) = (3.0, 8, 0, 512);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("server") => server = Some(parser.value()?.parse()?),
            Long("inputs") => inputs = parser.value()?.parse::<u16>()?.max(1).into(),
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
    let (seconds, delay) = (Duration::from_secs_f64(seconds), Duration::from_micros(delay.into()));
    Ok(Some(Options { server, device, inputs, streams, connections, seconds, batch, delay, hidden }))
}

/// Numbers from 1 to 65,535, separated by commas.
fn list(parser: &mut lexopt::Parser) -> Result<Vec<usize>, lexopt::Error> {
    let text: String = parser.value()?.parse()?;
    let number = |part: &str| part.parse::<std::num::NonZero<u16>>().map(|number| number.get().into());
    let numbers: Result<Vec<usize>, _> = text.split(',').map(number).collect();
    numbers.map_err(|error| format!("\"{text}\" is not a list of numbers: {error}").into())
}
