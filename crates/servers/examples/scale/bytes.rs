//! Bytes per second of one connection over loopback, beside pyarrow's own Flight and a TCP stream.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use feedline::filler::BatchContent;
use feedline::record::field_hash;
use feedline::{Dataset, InMemory};
use feedline_core::Layout;
use feedline_decode::ticket::{Data, Ticket};
use feedline_decode::{Server, Servers};

use crate::{Options, row};

fn set(rows: usize, row_bytes: usize) -> feedline::Result<InMemory> {
    let bytes: Vec<u8> = (0..rows * row_bytes).map(|at| (at % 251) as u8).collect();
    InMemory::new().field("x", [row_bytes], bytes)
}

/// Serves the set until standard input ends.
pub fn serve(rows: usize, row_bytes: usize) -> Result<(), Box<dyn Error>> {
    let server = Server::new()
        .dataset(set(rows, row_bytes)?)
        .workers(1)
        .shared(4 << 30)
        .memory(8 << 30)
        .bind("127.0.0.1:0")?;
    println!("{}", server.address());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Another process, which is killed with this; its first line of output.
struct Process(Child, String);

impl Process {
    fn start(command: &mut Command) -> std::io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        Ok(Self(child, line.trim().to_owned()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// A server in a process of its own, and the request to send it.
struct Asked {
    server: Process,
    servers: Servers,
    ticket: Ticket,
    layout: Layout,
    slab: Vec<u8>,
}

impl Asked {
    fn new(options: &Options) -> Result<Self, Box<dyn Error>> {
        let &Options { rows, row_bytes, .. } = options;
        let mut command = Command::new(std::env::current_exe()?);
        let sizes = ["--rows".to_owned(), rows.to_string(), "--row-bytes".to_owned(), row_bytes.to_string()];
        let server = Process::start(command.args(sizes).arg("--serve"))?;
        let servers = Servers::new([&server.1])?;
        let set = set(rows, row_bytes)?;
        let data = Data::new(set.spec(), set.len(), set.fingerprint(), "");
        let ticket =
            Ticket { data, seed: 0, epoch: 0, ids: (0..rows as u64).rev().collect(), draws: Vec::new() };
        let layout = Layout::new(set.spec(), rows)?;
        let slab = vec![0; layout.bytes()];
        Ok(Self { server, servers, ticket, layout, slab })
    }

    /// Fills the slab; returns whether its rows have the hashes that the server states.
    fn fetch(&mut self, is_hashed: bool) -> feedline::Result<bool> {
        let Self { servers, ticket, layout, slab, .. } = self;
        let rows = ticket.ids.len();
        let outcome = servers.fetch(ticket, &mut feedline_core::Rows::new(layout, slab, rows))?;
        if !is_hashed {
            return Ok(true);
        }
        let mut content = BatchContent::new();
        let bytes = layout.spec().fields()[0].row_bytes();
        slab.chunks_exact(bytes)
            .take(rows)
            .enumerate()
            .for_each(|(row, bytes)| content.add(row, field_hash(0, bytes)));
        Ok(content == outcome.content)
    }
}

/// Compares a batch with the set.
pub fn check(options: &Options) -> Result<(), Box<dyn Error>> {
    let mut asked = Asked::new(options)?;
    assert!(asked.fetch(true)?, "the hashes are those of the rows");
    let bytes = options.row_bytes;
    for (index, &id) in asked.ticket.ids.iter().enumerate() {
        let want = (id as usize * bytes..).take(bytes).map(|at| (at % 251) as u8);
        assert!(asked.slab[index * bytes..][..bytes].iter().copied().eq(want), "sample {id}");
    }
    println!("checked: every byte of a batch of {} rows", options.rows);
    Ok(())
}

pub fn measure(options: &Options) -> Result<(), Box<dyn Error>> {
    let gigabytes = |batches: usize| (batches * options.rows * options.row_bytes) as f64 / 1e9;
    let tcp = tcp(options)?;
    row("one TCP stream", &format!("{:.2} GB/s", gigabytes(tcp.0) / tcp.1), "", "");
    let whole = pyarrow(options, options.rows);
    let pieces = pyarrow(options, ((1 << 20) / options.row_bytes).clamp(1, options.rows));
    let best = [&whole, &pieces].into_iter().flatten().copied().reduce(f64::max);
    for (name, rate) in [("messages of a batch", whole), ("messages of 1 MiB", pieces)] {
        let rate = rate.map_or("not measured".to_owned(), |rate| format!("{rate:.2} GB/s"));
        row(&format!("pyarrow's server and client, {name}"), &rate, "", "");
    }
    let mut asked = Asked::new(options)?;
    for (is_hashed, name) in [(false, "feedline-decode into a slot"), (true, "the same, and its rows hashed")]
    {
        let (mut batches, mut start) = (0, Instant::now());
        let mut cpu = [Duration::ZERO; 2];
        let now =
            |asked: &Asked| ["self".to_owned(), asked.server.0.id().to_string()].map(|id| cpu_time(&id));
        // The first batch is decoded; those after it are only sent.
        while batches < 2 || start.elapsed() < options.limit {
            assert!(asked.fetch(is_hashed)?, "the hashes are those of the rows");
            batches += 1;
            if batches == 1 {
                (start, cpu) = (Instant::now(), now(&asked));
            }
        }
        let (sent, time) = (gigabytes(batches - 1), start.elapsed().as_secs_f64());
        let [own, other] = now(&asked);
        let per = |time: Duration, before: Duration| time.saturating_sub(before).as_secs_f64() / sent;
        let compared = best.map_or("pyarrow not measured".to_owned(), |best| {
            format!("{:.2} of pyarrow's best", sent / time / best)
        });
        let cpu =
            format!("CPU per GB: trainer {:.2} s, server {:.2} s", per(own, cpu[0]), per(other, cpu[1]));
        row(name, &format!("{:.2} GB/s", sent / time), &compared, &cpu);
    }
    Ok(())
}

/// The CPU time of a process, which Linux counts in hundredths of a second.
fn cpu_time(process: &str) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = after.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}

/// Batches of one TCP stream, and seconds.
fn tcp(options: &Options) -> std::io::Result<(usize, f64)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let bytes = options.rows * options.row_bytes;
    std::thread::spawn(move || {
        let batch = vec![1; bytes];
        if let Ok((mut stream, _)) = listener.accept() {
            while stream.write_all(&batch).is_ok() {}
        }
    });
    let (mut stream, mut batch) = (TcpStream::connect(address)?, vec![0; bytes]);
    stream.read_exact(&mut batch)?;
    let (mut batches, start) = (0, Instant::now());
    while start.elapsed() < options.limit {
        stream.read_exact(&mut batch)?;
        batches += 1;
    }
    Ok((batches, start.elapsed().as_secs_f64()))
}

const PYARROW_SERVER: &str = r#"
import sys, numpy, pyarrow as pa, pyarrow.flight as flight
rows, row, message = (int(text) for text in sys.argv[1:])
values = pa.array(numpy.arange(message * row, dtype=numpy.uint64).astype(numpy.uint8))
batch = pa.record_batch([pa.FixedSizeListArray.from_arrays(values, row)], names=["x"])
table = pa.Table.from_batches([batch] * (rows // message))
class Server(flight.FlightServerBase):
    def do_get(self, context, ticket):
        return flight.RecordBatchStream(table)
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

/// Gigabytes per second of pyarrow's server and client with `message` rows per message; `None` without
/// pyarrow.
fn pyarrow(options: &Options, message: usize) -> Option<f64> {
    let python = std::env::var("FEEDLINE_PYTHON").unwrap_or_else(|_| "python3".into());
    let sizes = [options.rows, options.row_bytes, message].map(|size| size.to_string());
    let server = Process::start(Command::new(&python).args(["-c", PYARROW_SERVER]).args(sizes)).ok()?;
    let port = Some(&server.1).filter(|port| !port.is_empty())?;
    let seconds = options.limit.as_secs_f64().to_string();
    let client = Command::new(&python).args(["-c", PYARROW_CLIENT, port, &seconds]).output().ok()?;
    let text = String::from_utf8_lossy(&client.stdout);
    let mut numbers = text.split_whitespace().filter_map(|number| number.parse::<f64>().ok());
    let (rows, seconds) = (numbers.next()?, numbers.next()?);
    Some(rows * options.row_bytes as f64 / 1e9 / seconds)
}
