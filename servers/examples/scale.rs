//! Measures decode servers on one machine: how the rate grows with servers, bytes per second beside pyarrow's
//! own Flight server and beside a TCP stream, and the waits with one slow server of eight.
//!
//!     cargo run --release --example scale [SECONDS]
//!
//! `FEEDLINE_PYTHON` names an interpreter with pyarrow, `python3` by default.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline::filler::BatchContent;
use feedline::record::field_hash;
use feedline::{Context, DType, Dataset, InMemory, Loader, ReadError, Row, Spec, Workers};
use feedline_core::{Layout, Rows};
use feedline_decode::ticket::{Data, Ticket};
use feedline_decode::{Running, Server, Servers};

/// Samples that take a time to decode, during which the thread sleeps.
struct Waits {
    spec: Spec,
    time: Duration,
}

impl Waits {
    fn new(time: Duration) -> feedline::Result<Self> {
        Ok(Self { spec: Spec::new().field("x", DType::U8, [1 << 10])?, time })
    }
}

impl Dataset for Waits {
    fn len(&self) -> u64 {
        1 << 20
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        std::thread::sleep(self.time);
        row.bytes_mut(0).fill(id as u8);
        Ok(())
    }
}

const DECODE: Duration = Duration::from_millis(20);
const BATCH: usize = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let seconds: f64 = std::env::args().nth(1).map_or(Ok(5.0), |seconds| seconds.parse())?;
    let limit = Duration::from_secs_f64(seconds);
    println!("cores: {}", std::thread::available_parallelism()?);
    growth(limit)?;
    slow_server(limit)?;
    bytes(limit)
}

/// A server with one thread whose samples take `time`.
fn server(time: Duration) -> feedline::Result<Running> {
    Server::new().dataset(Waits::new(time)?).workers(1).bind("127.0.0.1:0")
}

/// Rows per second for `limit`, and the wait for each batch. The first second is not counted.
fn consume(servers: &[Running], second: bool, limit: Duration) -> feedline::Result<(f64, Vec<Duration>)> {
    let addresses = servers.iter().map(|server| server.address().to_string());
    let builder =
        Loader::builder(Waits::new(DECODE)?).batch_size(BATCH).shuffle(7).workers(Workers::Count(1));
    let builder = match servers {
        [] => builder,
        _ => builder.filler(Servers::new(addresses)?.in_flight(3 * servers.len()).second_requests(second)),
    };
    let mut loader = builder.build_host()?;
    let (start, mut counted, mut rows, mut waits) = (Instant::now(), None, 0, Vec::new());
    let mut asked = Instant::now();
    for batch in loader.epoch(0)? {
        let count = batch?.len();
        if let Some(from) = counted {
            rows += count;
            waits.push(asked.elapsed());
            if Instant::duration_since(&Instant::now(), from) > limit {
                break;
            }
        } else if start.elapsed() > Duration::from_secs(1) {
            counted = Some(Instant::now());
        }
        asked = Instant::now();
    }
    let report = loader.report().filler.map(|filler| format!("; {filler}")).unwrap_or_default();
    println!("    {} batches counted{report}", waits.len());
    let time = counted.map_or(limit, |from| from.elapsed());
    Ok((rows as f64 / time.as_secs_f64(), waits))
}

/// The rate with one worker of the trainer and more and more servers of one thread each.
fn growth(limit: Duration) -> feedline::Result<()> {
    println!("decode of 20 ms per sample, one worker and so many servers of one thread each:");
    for count in [0, 1, 2, 4, 8, 16] {
        let servers = (0..count).map(|_| server(DECODE)).collect::<feedline::Result<Vec<_>>>()?;
        let (rate, _) = consume(&servers, true, limit)?;
        let linear = rate * DECODE.as_secs_f64() / (count + 1) as f64;
        println!("  {count:>2} servers: {rate:>7.1} samples/s, {linear:.3} of linear");
    }
    Ok(())
}

/// The waits for batches where one of eight servers is ten times slower.
fn slow_server(limit: Duration) -> feedline::Result<()> {
    println!("eight servers, one of them ten times slower; the wait for a batch:");
    for second in [false, true] {
        let times = (0..8).map(|index| if index == 0 { 10 * DECODE } else { DECODE });
        let servers = times.map(server).collect::<feedline::Result<Vec<_>>>()?;
        let (rate, mut waits) = consume(&servers, second, 2 * limit)?;
        waits.sort_unstable();
        let at = |share: f64| 1e3 * waits[((waits.len() - 1) as f64 * share) as usize].as_secs_f64();
        let with = if second { "with" } else { "without" };
        println!(
            "  {with} second requests: {rate:.1} samples/s, p50 {:.0} ms, p99 {:.0} ms, max {:.0} ms",
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
    Ok(())
}

/// Rows of a megabyte, so that nothing but the way counts.
const ROWS: usize = 32;
const ROW: usize = 1 << 20;

fn bytes(limit: Duration) -> Result<(), Box<dyn Error>> {
    println!("batches of {} MB, one connection over loopback:", (ROWS * ROW) >> 20);
    let rate = |name: &str, batches: usize, time: Duration| {
        let gigabytes = (batches * ROWS * ROW) as f64 / 1e9;
        println!("  {name}: {:.2} GB/s", gigabytes / time.as_secs_f64());
    };
    let tcp = tcp(limit)?;
    rate("one TCP stream", tcp.0, tcp.1);
    let set = Arc::new(InMemory::new().field(
        "x",
        [ROW],
        (0..ROWS * ROW).map(|at| (at % 251) as u8).collect::<Vec<_>>(),
    )?);
    let server = Server::new().dataset(set.clone()).workers(1).shared(1 << 30).bind("127.0.0.1:0")?;
    let servers = Servers::new([server.address().to_string()])?;
    let data = Data::new(set.spec(), set.len(), set.fingerprint(), "");
    let ticket = Ticket { data, seed: 0, epoch: 0, ids: (0..ROWS as u64).collect() };
    let layout = Layout::new(set.spec(), ROWS)?;
    let mut slab = vec![0; layout.bytes()];
    for (is_hashed, name) in
        [(false, "feedline-decode, into a slot"), (true, "the same, and its rows hashed")]
    {
        let (mut batches, mut start) = (0, Instant::now());
        let cpu = cpu_time();
        // The first batch is decoded; those after it are only sent.
        while batches < 2 || start.elapsed() < limit {
            let outcome = servers.fetch(&ticket, &mut Rows::new(&layout, &mut slab, ROWS))?;
            if is_hashed {
                let mut content = BatchContent::new();
                slab.chunks_exact(ROW)
                    .take(ROWS)
                    .enumerate()
                    .for_each(|(row, bytes)| content.add(row, field_hash(0, bytes)));
                assert_eq!(content, outcome.content, "the bytes arrived");
            }
            batches += 1;
            if batches == 1 {
                start = Instant::now();
            }
        }
        rate(name, batches - 1, start.elapsed());
        let gigabytes = ((batches - 1) * ROWS * ROW) as f64 / 1e9;
        println!("    CPU of both sides: {:.2} s per GB", (cpu_time() - cpu).as_secs_f64() / gigabytes);
    }
    pyarrow(limit)
}

/// The CPU time of this process.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = after.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    // Linux counts in hundredths of a second.
    Duration::from_millis(10 * ticks)
}

fn tcp(limit: Duration) -> std::io::Result<(usize, Duration)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        let batch = vec![1; ROWS * ROW];
        if let Ok((mut stream, _)) = listener.accept() {
            while stream.write_all(&batch).is_ok() {}
        }
    });
    let (mut stream, mut batch) = (TcpStream::connect(address)?, vec![0; ROWS * ROW]);
    stream.read_exact(&mut batch)?;
    let (mut batches, start) = (0, Instant::now());
    while start.elapsed() < limit {
        stream.read_exact(&mut batch)?;
        batches += 1;
    }
    Ok((batches, start.elapsed()))
}

const PYARROW_SERVER: &str = r#"
import sys, numpy, pyarrow as pa, pyarrow.flight as flight
rows, row = int(sys.argv[1]), int(sys.argv[2])
values = pa.array(numpy.arange(rows * row, dtype=numpy.uint64).astype(numpy.uint8))
batch = pa.record_batch([pa.FixedSizeListArray.from_arrays(values, row)], names=["x"])
class Server(flight.FlightServerBase):
    def do_get(self, context, ticket):
        return flight.RecordBatchStream(pa.Table.from_batches([batch]))
server = Server("grpc://127.0.0.1:0")
print(server.port, flush=True)
server.serve()
"#;

const PYARROW_CLIENT: &str = r#"
import sys, time, pyarrow.flight as flight
client = flight.connect("grpc://127.0.0.1:" + sys.argv[1])
limit, count = float(sys.argv[2]), 0
client.do_get(flight.Ticket(b"")).read_all()
start = time.monotonic()
while time.monotonic() - start < limit:
    count += client.do_get(flight.Ticket(b"")).read_all().num_rows
print(count, time.monotonic() - start)
"#;

fn pyarrow(limit: Duration) -> Result<(), Box<dyn Error>> {
    let python = std::env::var("FEEDLINE_PYTHON").unwrap_or_else(|_| "python3".into());
    let (rows, row) = (ROWS.to_string(), ROW.to_string());
    let server =
        Command::new(&python).args(["-c", PYARROW_SERVER, &rows, &row]).stdout(Stdio::piped()).spawn();
    let Ok(mut server) = server else {
        println!("  pyarrow: not run, no {python}");
        return Ok(());
    };
    let mut port = String::new();
    if let Some(output) = server.stdout.take() {
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut port)?;
    }
    let seconds = limit.as_secs_f64().to_string();
    let client = Command::new(&python).args(["-c", PYARROW_CLIENT, port.trim(), &seconds]).output()?;
    server.kill()?;
    server.wait()?;
    let text = String::from_utf8_lossy(&client.stdout);
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    match numbers[..] {
        [rows, seconds] => {
            println!("  pyarrow's server and client: {:.2} GB/s", rows * ROW as f64 / 1e9 / seconds)
        }
        _ => println!("  pyarrow: not run, {python} has no pyarrow"),
    }
    Ok(())
}
