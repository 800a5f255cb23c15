//! The store that rank 0 serves if the launcher serves none.
//!
//! Each client has a thread. All memory, threads and waits are bounded, since anybody who reaches the port
//! can connect.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use feedline_core::{Error, ErrorKind, Result, deadline};

use super::entries::Entries;
use super::{MAGIC, listen, put_bytes, read_bytes, request};
use crate::timed::Timed;

/// The maximum number of clients, one per rank. More wait until one leaves.
const MAX_CLIENTS: usize = 4096;

/// The maximum number of connections that have not sent their hello. More wait.
const MAX_PENDING: usize = 64;

/// How long a new connection may take to send its hello.
const HELLO_LIMIT: Duration = Duration::from_secs(2);

/// How long a client may take to send the rest of a request, and to take the answer.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);

/// The pause after an error of the system, such as no free file descriptor.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// The maximum number of keys in one question.
const MAX_KEYS: u64 = 1024;

/// A store, served by threads of this process until it is dropped.
///
/// It holds up to 64 MiB of keys and values; a client that sends more is disconnected.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
    address: SocketAddr,
}

#[derive(Debug, Default)]
struct Shared {
    entries: Mutex<Entries>,
    clients: Mutex<Clients>,
    /// A client has left or sent its hello, or the server ends.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Clients {
    /// Open connections, each with a thread.
    open: HashMap<u64, Arc<TcpStream>>,
    /// Clients among them that have not sent their hello.
    pending: usize,
    next: u64,
    is_closed: bool,
}

impl Server {
    /// Serves a store on `port` of this machine, which the other ranks know as `host`. Port 0 takes any free
    /// port.
    ///
    /// # Errors
    /// `Unavailable` if the port is taken.
    pub fn start(host: &str, port: u16) -> Result<Self> {
        let refuse = |error: io::Error| {
            let why = format!(
                "rank 0 cannot listen on port {port}: another program or run uses it, so set MASTER_PORT to \
                 a free port on all ranks"
            );
            Error::new(ErrorKind::Unavailable, why).with_source(error)
        };
        let listener = listen(host, port).map_err(refuse)?;
        let address = listener.local_addr().map_err(refuse)?;
        let shared = Arc::new(Shared::default());
        let accepting = {
            let shared = shared.clone();
            let accept = move || accept(&listener, &shared);
            std::thread::Builder::new().name("fl-dist-store".to_owned()).spawn(accept).map_err(refuse)?
        };
        Ok(Self { shared, accepting: Some(accepting), address })
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut clients = self.shared.clients();
        clients.is_closed = true;
        for connection in clients.open.values() {
            let _ = connection.shutdown(Shutdown::Both);
        }
        drop(clients);
        self.shared.changed.notify_all();
        // Wakes the accepting thread, unless it has ended already.
        let mut address = self.address;
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        let will_end = match TcpStream::connect_timeout(&address, Duration::from_secs(1)) {
            Ok(_) => true,
            Err(error) => error.kind() == io::ErrorKind::ConnectionRefused,
        };
        if let Some(accepting) = self.accepting.take().filter(|_| will_end) {
            let _ = accepting.join();
        }
    }
}

impl Shared {
    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until there is room for a client. Returns false if the server ends.
    fn wait_for_room(&self) -> bool {
        let is_full = |clients: &mut Clients| {
            let full = clients.open.len() >= MAX_CLIENTS || clients.pending >= MAX_PENDING;
            full && !clients.is_closed
        };
        let clients = self.changed.wait_while(self.clients(), is_full);
        !clients.unwrap_or_else(PoisonError::into_inner).is_closed
    }

    /// Sleeps, without holding the lock, after an error of the system. Returns early when the server ends.
    fn pause(&self) {
        let is_open = |clients: &mut Clients| !clients.is_closed;
        drop(self.changed.wait_timeout_while(self.clients(), ERROR_PAUSE, is_open));
    }

    /// Starts the thread of a client.
    fn admit(self: &Arc<Self>, connection: TcpStream) -> io::Result<()> {
        let connection = Arc::new(connection);
        let client = {
            let mut clients = self.clients();
            if clients.is_closed {
                return Ok(());
            }
            clients.next += 1;
            clients.pending += 1;
            let number = clients.next;
            clients.open.insert(number, connection.clone());
            Client { shared: self.clone(), number, is_pending: true }
        };
        let serve = move || {
            let mut client = client;
            // A client that disconnects or breaks the protocol ends its own connection.
            let _ = client.serve(&connection);
        };
        let thread = std::thread::Builder::new().name("fl-dist-client".to_owned()).stack_size(256 << 10);
        thread.spawn(serve).map(drop)
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while shared.wait_for_room() {
        let admitted = listener.accept().and_then(|(connection, _)| shared.admit(connection));
        if admitted.is_err() {
            shared.pause();
        }
    }
}

/// One connection. Dropping it makes room for another one.
struct Client {
    shared: Arc<Shared>,
    number: u64,
    is_pending: bool,
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut clients = self.shared.clients();
        clients.pending -= usize::from(self.is_pending);
        // Closes the connection, once its thread has dropped it too.
        clients.open.remove(&self.number);
        drop(clients);
        self.shared.changed.notify_all();
    }
}

impl Client {
    /// Answers requests until the client leaves.
    fn serve(&mut self, connection: &TcpStream) -> io::Result<()> {
        connection.set_nodelay(true)?;
        let mut hello = [0; 5];
        Timed { connection, deadline: deadline(HELLO_LIMIT) }.read_exact(&mut hello)?;
        if hello[0] != request::VALIDATE || hello[1..] != MAGIC.to_le_bytes() {
            return Err(io::Error::other("not a client of a store"));
        }
        self.is_pending = false;
        self.shared.clients().pending -= 1;
        self.shared.changed.notify_all();
        loop {
            // A rank may be silent between requests for as long as it runs.
            connection.set_read_timeout(None)?;
            let (mut kind, mut between) = ([0], connection);
            between.read_exact(&mut kind)?;
            let mut timed = Timed { connection, deadline: deadline(REQUEST_LIMIT) };
            self.answer(kind[0], &mut timed)?;
        }
    }

    fn answer(&self, kind: u8, connection: &mut Timed<'_>) -> io::Result<()> {
        match kind {
            request::SET => {
                let (key, value) = (read_bytes(connection)?, read_bytes(connection)?);
                self.shared.entries().set(key, value)
            }
            request::GET => {
                let key = read_bytes(connection)?;
                let mut answer = Vec::new();
                put_bytes(&mut answer, self.shared.entries().get(&key).unwrap_or_default());
                connection.write_all(&answer)
            }
            request::ADD => {
                let key = read_bytes(connection)?;
                let mut number = [0; 8];
                connection.read_exact(&mut number)?;
                let sum = self.shared.entries().add(key, i64::from_le_bytes(number))?;
                connection.write_all(&sum.to_le_bytes())
            }
            request::CHECK => {
                let mut count = [0; 8];
                connection.read_exact(&mut count)?;
                let count = u64::from_le_bytes(count);
                if count > MAX_KEYS {
                    return Err(io::Error::other("a question for too many keys"));
                }
                let mut all = true;
                for _ in 0..count {
                    let key = read_bytes(connection)?;
                    all &= self.shared.entries().get(&key).is_some();
                }
                connection.write_all(&[u8::from(!all)])
            }
            _ => Err(io::Error::other("an unknown request")),
        }
    }
}
