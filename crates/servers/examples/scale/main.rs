//! Measures decode servers on one machine: how the rate grows with servers, the waits with one slow server of
//! eight, and bytes per second beside pyarrow's own Flight and one TCP stream. Checks values first.
//!
//!     cargo run --release --example scale -- [options]
//!
//! The program needs no file of this tree. `FEEDLINE_PYTHON` names an interpreter with pyarrow, `python3` by
//! default; without pyarrow its rows say "not measured".
#![forbid(unsafe_code)]

mod bytes;
mod growth;

use std::error::Error;
use std::time::Duration;

use lexopt::prelude::{Long, Short, ValueExt};

const HELP: &str = "\
usage: scale [options]
  --servers LIST      numbers of servers [0,1,2,4,8,16,32,64]
  --seconds S         length of each measurement [5]
  --decode-ms T       decode of a sample, simulated by waiting [20]
  --rows N            rows of a batch whose bytes are measured [32]
  --row-bytes N       bytes of such a row [1048576]
  --only PART         growth, slow or bytes";

struct Options {
    servers: Vec<usize>,
    limit: Duration,
    decode: Duration,
    rows: usize,
    row_bytes: usize,
    only: Option<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut options = Options {
        servers: vec![0, 1, 2, 4, 8, 16, 32, 64],
        limit: Duration::from_secs(5),
        decode: Duration::from_millis(20),
        rows: 32,
        row_bytes: 1 << 20,
        only: None,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("servers") => {
                let list = parser.value()?.string()?;
                options.servers = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
            }
            Long("seconds") => options.limit = Duration::from_secs_f64(parser.value()?.parse()?),
            Long("decode-ms") => {
                options.decode = Duration::from_secs_f64(1e-3 * parser.value()?.parse::<f64>()?)
            }
            Long("rows") => options.rows = parser.value()?.parse::<usize>()?.max(1),
            Long("row-bytes") => options.row_bytes = parser.value()?.parse::<usize>()?.max(1),
            Long("only") => options.only = Some(parser.value()?.string()?),
            // A process of this program that serves the bytes.
            Long("serve") => return bytes::serve(options.rows, options.row_bytes),
            Long("help") | Short('h') => {
                println!("{HELP}");
                return Ok(());
            }
            other => return Err(format!("{}: see --help", other.unexpected()).into()),
        }
    }
    growth::check()?;
    bytes::check(&options)?;
    println!(
        "{} cores; decode of {:?} per sample, one thread per server and one worker; batches of {} x {} bytes",
        std::thread::available_parallelism()?,
        options.decode,
        options.rows,
        options.row_bytes
    );
    println!("| what | rate | compared | more |");
    println!("| --- | --- | --- | --- |");
    let is_asked = |part: &str| options.only.as_deref().is_none_or(|only| only == part);
    if is_asked("growth") {
        growth::growth(&options)?;
    }
    if is_asked("slow") {
        growth::slow_server(&options)?;
    }
    if is_asked("bytes") {
        bytes::measure(&options)?;
    }
    Ok(())
}

/// Prints a row of the table.
fn row(what: &str, rate: &str, compared: &str, more: &str) {
    println!("| {what} | {rate} | {compared} | {more} |");
}
