//! Records from a TCP socket.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use feedline_core::source::{Next, Shard, Source};
use feedline_core::{Context, ReadError, Result, Row, Spec};

use super::{decode, record, spec};

/// How long a read waits for bytes before it says that there are none now.
const WAIT: Duration = Duration::from_millis(20);

/// Shards that a [`Server`] sends: asked for by number and record, then record after record behind its length.
#[derive(Clone, Debug)]
pub struct Socket {
    spec: Spec,
    address: SocketAddr,
    shards: u64,
}

impl Socket {
    /// The shards of `server`.
    ///
    /// # Errors
    /// None in practice: the spec is fixed.
    pub fn new(server: &Server) -> Result<Self> {
        Ok(Self { spec: spec()?, address: server.address, shards: server.shards })
    }
}

struct Connection {
    stream: TcpStream,
    number: u64,
    /// What has come of the next record and its length.
    come: Vec<u8>,
}

impl Source for Socket {
    fn shards(&self) -> u64 {
        self.shards
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn open(&self, _epoch: u64, shard: u64, offset: u64) -> Result<Box<dyn Shard>, ReadError> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(WAIT))?;
        writeln!(stream, "{shard} {offset}")?;
        Ok(Box::new(Connection { stream, number: offset, come: Vec::new() }))
    }

    fn decode(&self, record: &[u8], row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        decode(record, row, context)
    }
}

impl Connection {
    /// Waits a little for the first `len` bytes of the record and its length; whether they are there.
    fn fetch(&mut self, len: usize) -> Result<bool, ReadError> {
        while self.come.len() < len {
            let mut more = [0; 64];
            let room = more.len().min(len - self.come.len());
            match self.stream.read(&mut more[..room]) {
                Ok(0) => return Err("the connection ended in the midst of a shard".into()),
                Ok(got) => self.come.extend(&more[..got]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

impl Shard for Connection {
    fn offset(&self) -> u64 {
        self.number
    }

    fn read(&mut self, record: &mut Vec<u8>) -> Result<Next, ReadError> {
        if !self.fetch(1)? {
            return Ok(Next::Later);
        }
        // A record has a place at least: a length of 0 is the end.
        let len = usize::from(self.come[0]);
        if len == 0 {
            return Ok(Next::End);
        }
        if !self.fetch(1 + len)? {
            return Ok(Next::Later);
        }
        record.extend_from_slice(&self.come[1..]);
        self.come.clear();
        self.number += 1;
        Ok(Next::Record)
    }
}

/// Sends made-up records on a port of this machine, until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shards: u64,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Shard `n` has `lens[n]` records. With `stalling`, records come in halves, and not all at once.
    ///
    /// # Errors
    /// What the network says.
    pub fn start(lens: impl Into<Vec<u64>>, stalling: bool) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, lens) = (listener.local_addr()?, lens.into());
        let (shards, over) = (lens.len() as u64, Arc::new(AtomicBool::new(false)));
        let ended = over.clone();
        let serve = move || {
            // One connection after the other: a reader has one at a time, and a reader that went away ends its own.
            for stream in listener.incoming().take_while(|_| !ended.load(Ordering::SeqCst)).flatten() {
                let _ = send(stream, &lens, stalling);
            }
        };
        let thread = std::thread::Builder::new().name("tk-server".into()).spawn(serve)?;
        Ok(Self { address, shards, over, thread: Some(thread) })
    }
}

fn send(mut stream: TcpStream, lens: &[u64], stalling: bool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut asked = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut asked)?;
    let mut numbers = asked.split_whitespace().map_while(|number| number.parse::<u64>().ok());
    let (Some(shard), Some(first)) = (numbers.next(), numbers.next()) else { return Ok(()) };
    for number in first..lens.get(shard as usize).copied().unwrap_or(0) {
        let record = record(shard, number);
        let bytes = [&[record.len() as u8], &record[..]].concat();
        let (now, later) = bytes.split_at(if stalling { bytes.len() / 2 } else { bytes.len() });
        stream.write_all(now)?;
        if stalling && number % 8 == 0 {
            std::thread::sleep(WAIT + Duration::from_millis(5));
        }
        stream.write_all(later)?;
    }
    stream.write_all(&[0])
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // The thread stands in `accept`: one more connection lets it look.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
