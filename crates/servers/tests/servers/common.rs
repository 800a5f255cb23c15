//! Runs to compare, and a proxy that damages connections.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use feedline::filler::FillerReport;
use feedline::{Cursor, Dataset, Loader, LoaderBuilder, Workers};
use feedline_decode::{Running, Server, Servers};

pub const BATCH: usize = 8;

/// A server of `set` at any port, with two threads.
pub fn serve(set: &Arc<impl Dataset>) -> Running {
    Server::new().dataset(set.clone()).workers(2).bind("127.0.0.1:0").expect("a server")
}

/// The servers at `addresses`, with short limits.
pub fn servers<'a>(addresses: impl IntoIterator<Item = &'a SocketAddr>) -> Servers {
    let servers = Servers::new(addresses.into_iter().map(ToString::to_string)).expect("servers");
    servers.timeout(Duration::from_secs(3)).in_flight(6)
}

pub fn builder(set: &Arc<impl Dataset>) -> LoaderBuilder {
    Loader::builder(set.clone()).batch_size(BATCH).shuffle().seed(7).epochs(2).workers(Workers::Count(1))
}

/// The output of a run: ids and bytes of each batch, and the cursor at the end.
#[derive(Debug, PartialEq)]
pub struct Delivered {
    pub batches: Vec<(Vec<u64>, Vec<u8>)>,
    pub cursor: Cursor,
}

/// Two epochs of `builder`, and the work of the servers; `each` is called before each batch.
pub fn run_with<T: ?Sized>(
    builder: LoaderBuilder<T>,
    mut each: impl FnMut(usize),
) -> (Delivered, Option<FillerReport>) {
    let mut loader = builder.build_host().expect("a loader");
    let mut batches = Vec::new();
    for epoch in 0..2 {
        for batch in loader.epoch(epoch).expect("an epoch") {
            let batch = batch.expect("a batch");
            batches.push((batch.ids().to_vec(), batch.field::<u8>("bytes").expect("bytes").to_vec()));
            each(batches.len());
        }
    }
    let cursor = loader.cursor();
    (Delivered { batches, cursor }, loader.report().filler)
}

pub fn run<T: ?Sized>(builder: LoaderBuilder<T>) -> (Delivered, Option<FillerReport>) {
    run_with(builder, |_| {})
}

/// Repeats the run until servers have filled a batch: on a busy machine, quick workers may leave none for
/// them.
pub fn until_filled<T>(mut run: impl FnMut() -> (T, Option<FillerReport>)) -> (T, FillerReport) {
    loop {
        if let (delivered, Some(report)) = run()
            && report.batches > 0
        {
            return (delivered, report);
        }
    }
}

/// Connections to a server, which can be stopped, slowed, cut and damaged.
pub struct Proxy {
    pub address: SocketAddr,
    state: Arc<State>,
}

struct State {
    to: Mutex<Option<SocketAddr>>,
    is_stopped: AtomicBool,
    delay_us: AtomicU64,
    /// Bytes of answers until the connection is cut, or until a bit is flipped.
    cut_after: AtomicU64,
    flip_after: AtomicU64,
    /// Bytes of requests until a bit is flipped.
    flip_request_after: AtomicU64,
    is_closed: AtomicBool,
}

impl Proxy {
    pub fn new(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State {
            to: Mutex::new(Some(to)),
            is_stopped: AtomicBool::new(false),
            delay_us: AtomicU64::new(0),
            cut_after: AtomicU64::new(u64::MAX),
            flip_after: AtomicU64::new(u64::MAX),
            flip_request_after: AtomicU64::new(u64::MAX),
            is_closed: AtomicBool::new(false),
        });
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.is_closed.load(SeqCst) {
                    return;
                }
                let to = *shared.to.lock().expect("the address");
                let Some(Ok(server)) = to.map(TcpStream::connect) else { continue };
                let both = [client.try_clone().zip_ok(server.try_clone()), Some((server, client))];
                for (index, (from, to)) in both.into_iter().flatten().enumerate() {
                    let shared = shared.clone();
                    std::thread::spawn(move || shared.copy(from, to, index == 1));
                }
            }
        });
        Self { address, state }
    }

    /// New connections go to `to`, or nowhere.
    pub fn set_server(&self, to: Option<SocketAddr>) {
        *self.state.to.lock().expect("the address") = to;
    }

    /// Passes nothing on, as a stopped process.
    pub fn stop(&self, is_stopped: bool) {
        self.state.is_stopped.store(is_stopped, SeqCst);
    }

    /// Holds up each piece of an answer.
    pub fn delay(&self, delay: Duration) {
        self.state.delay_us.store(delay.as_micros() as u64, SeqCst);
    }

    /// Cuts the connection that passes the next `bytes` bytes.
    pub fn cut_after(&self, bytes: u64) {
        self.state.cut_after.store(bytes, SeqCst);
    }

    /// Flips a bit of a request after the next `bytes` bytes.
    pub fn flip_request_after(&self, bytes: u64) {
        self.state.flip_request_after.store(bytes, SeqCst);
    }

    /// Flips a bit after the next `bytes` bytes.
    pub fn flip_after(&self, bytes: u64) {
        self.state.flip_after.store(bytes, SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.is_closed.store(true, SeqCst);
        drop(TcpStream::connect(self.address));
    }
}

impl State {
    fn copy(&self, mut from: TcpStream, mut to: TcpStream, is_answer: bool) {
        let mut bytes = vec![0; 16 << 10];
        let _ = (from.set_nodelay(true), to.set_nodelay(true));
        let _ = from.set_read_timeout(Some(Duration::from_millis(20)));
        while !self.is_closed.load(SeqCst) {
            if self.is_stopped.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(2));
                continue;
            }
            let len = match from.read(&mut bytes) {
                Ok(0) => break,
                Ok(len) => len,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                Err(_) => break,
            };
            if !is_answer && let Some(at) = passed(&self.flip_request_after, len) {
                bytes[at] ^= 1 << (at % 8);
            }
            if is_answer {
                std::thread::sleep(Duration::from_micros(self.delay_us.load(SeqCst)));
                if let Some(at) = passed(&self.flip_after, len) {
                    bytes[at] ^= 1 << (at % 8);
                }
                if let Some(at) = passed(&self.cut_after, len) {
                    let _ = to.write_all(&bytes[..at]);
                    break;
                }
            }
            if to.write_all(&bytes[..len]).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}

/// Counts `len` bytes down; returns the place among them at which the count ends.
fn passed(left: &AtomicU64, len: usize) -> Option<usize> {
    let before = left.load(SeqCst);
    if before == u64::MAX {
        return None;
    }
    let is_here = before < len as u64;
    left.store(if is_here { u64::MAX } else { before - len as u64 }, SeqCst);
    is_here.then_some(before as usize)
}

/// Joins two results into one.
trait ZipOk<T> {
    fn zip_ok<U>(self, other: std::io::Result<U>) -> Option<(T, U)>;
}

impl<T> ZipOk<T> for std::io::Result<T> {
    fn zip_ok<U>(self, other: std::io::Result<U>) -> Option<(T, U)> {
        self.ok().zip(other.ok())
    }
}
