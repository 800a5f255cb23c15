//! Serves a trained MLP over HTTP, from a pool of streams.
//!
//! ```sh
//! cargo run --release --example mlp -- --checkpoint mlp.ckpt
//! cargo run --release --bin serve -- --checkpoint mlp.ckpt
//! head -c 784 /dev/zero | curl --data-binary @- http://127.0.0.1:8080/predict
//! ```
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use feedline::{Device, Error, ErrorKind, Result};
use feedline_examples::program;
use feedline_mlp::sealed::read_parameters;
use feedline_serve::{Model, Pool, PoolOptions, Server};
use lexopt::prelude::{Long, Short, ValueExt as _};
use tokio::signal::unix::{SignalKind, signal};

const HELP: &str = "\
Serves a checkpoint of the example mlp over HTTP. Ctrl-C or SIGTERM ends it after the last answer.

usage: serve --checkpoint FILE [options]
  --listen ADDR      [127.0.0.1:8080]
  --device NAME      auto, cuda or host [auto]
  --streams N        streams, each with a copy of the model [4]
  --batch N          maximum number of requests of a micro-batch [64]
  --delay-us N       how long the first request of a micro-batch waits for others [200]
  --queue N          maximum number of requests that wait; more are refused with 429 [1024]
  --drain-limit S    seconds for the answers to clients that are slow at the end [30]
  --inputs N         pixels of the model [784]
  --hidden N         its hidden units [512]
  --classes N        its classes [10]
  --help

POST /predict with one byte per pixel, GET /metrics, GET /health";

struct Options {
    checkpoint: PathBuf,
    listen: SocketAddr,
    device: Device,
    pool: PoolOptions,
    drain_limit: Duration,
    sizes: [usize; 3],
}

fn main() -> ExitCode {
    program::main("serve", HELP, parse().map_err(program::usage), run)
}

fn run(options: Options) -> Result<()> {
    let [inputs, hidden, classes] = options.sizes;
    let model = Model { inputs, hidden, classes, parameters: read_parameters(&options.checkpoint)? };
    let pool = Pool::start(&options.device, &model, options.pool)?;
    let failed = |error| Error::new(ErrorKind::Unavailable, "cannot start the server").with_source(error);
    let runtime = tokio::runtime::Runtime::new().map_err(failed)?;
    let served = runtime.block_on(async {
        let (mut term, mut int) = (
            signal(SignalKind::terminate()).map_err(failed)?,
            signal(SignalKind::interrupt()).map_err(failed)?,
        );
        let server = Server::bind(options.listen, pool).await?;
        println!("listening on {}, {}", server.address()?, options.device);
        let metrics = server.pool().metrics().clone();
        let stop = async {
            tokio::select! { _ = term.recv() => (), _ = int.recv() => () }
        };
        let cut = server.run(stop, options.drain_limit).await;
        println!("drained: {} accepted, {} answered", metrics.accepted.get(), metrics.answered.get());
        if cut > 0 {
            println!(
                "closed {cut} connections of clients that sent or read nothing for {:?}",
                options.drain_limit
            );
        }
        Ok(())
    });
    runtime.shutdown_background();
    served
}

fn parse() -> Result<Option<Options>, lexopt::Error> {
    let (mut checkpoint, mut device) = (None, "auto".to_owned());
    let mut listen = SocketAddr::from(([127, 0, 0, 1], 8080));
    let mut pool = PoolOptions { streams: 4, batch: 64, delay: Duration::from_micros(200), queue: 1024 };
    let (mut sizes, mut drain_limit) = ([784, 512, 10], Duration::from_secs(30));
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("checkpoint") => checkpoint = Some(parser.value()?.into()),
            Long("listen") => listen = parser.value()?.parse()?,
            Long("device") => device = parser.value()?.parse()?,
            Long("streams") => pool.streams = number(&mut parser)?,
            Long("batch") => pool.batch = number(&mut parser)?,
            Long("delay-us") => pool.delay = Duration::from_micros(parser.value()?.parse::<u32>()?.into()),
            Long("queue") => pool.queue = number(&mut parser)?,
            Long("drain-limit") => drain_limit = Duration::from_secs(parser.value()?.parse::<u32>()?.into()),
            Long("inputs") => sizes[0] = number(&mut parser)?,
            Long("hidden") => sizes[1] = number(&mut parser)?,
            Long("classes") => sizes[2] = number(&mut parser)?,
            Long("help") | Short('h') => return Ok(None),
            other => return Err(other.unexpected()),
        }
    }
    let checkpoint = checkpoint.ok_or("--checkpoint is missing: train one with mlp --checkpoint FILE")?;
    let device = program::device(&device).map_err(|error| error.to_string())?;
    Ok(Some(Options { checkpoint, listen, device, pool, drain_limit, sizes }))
}

/// A number from 1 to 65,535.
fn number(parser: &mut lexopt::Parser) -> Result<usize, lexopt::Error> {
    Ok(parser.value()?.parse::<std::num::NonZero<u16>>()?.get().into())
}
