//! The client of a store.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use feedline_core::{Error, ErrorKind, Result};

use super::{MAGIC, put_bytes, read_bytes, request};

/// The longest pause between two attempts to connect, or two looks at a key.
const PAUSE: Duration = Duration::from_millis(50);

/// The longest wait for one answer; a server answers at once.
const ANSWER: Duration = Duration::from_secs(10);

/// A connection to a store: keys and values that all ranks share.
///
/// ```
/// use std::time::Duration;
/// use feedline_dist::{Server, Store};
/// let server = Server::start("127.0.0.1", 0)?;
/// let store = Store::connect("127.0.0.1", server.port(), "my-run", Duration::from_secs(5))?;
/// store.set("greeting", b"hello")?;
/// assert_eq!(store.get("greeting", Duration::from_secs(5))?, b"hello");
/// assert_eq!((store.add("count", 2)?, store.add("count", 1)?), (2, 3));
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Store {
    connection: Mutex<TcpStream>,
    /// `host:port`, for errors.
    at: String,
    prefix: String,
}

impl Store {
    /// Connects to the store at `host:port`, which may start later, and puts all keys under `prefix`. Blocks
    /// for at most `limit`.
    ///
    /// # Errors
    /// `Unavailable` if there is no store within the limit; the message says what to check.
    pub fn connect(host: &str, port: u16, prefix: &str, limit: Duration) -> Result<Self> {
        let (at, deadline) = (format!("{host}:{port}"), Instant::now() + limit);
        let mut connection = connect(host, port, deadline).map_err(|error| {
            let why = format!(
                "no rank 0 at {at} within {limit:?}: check that it has started, and that MASTER_ADDR and \
                 MASTER_PORT are its host and a port that this host reaches"
            );
            Error::new(ErrorKind::Unavailable, why).caused_by(error)
        })?;
        let mut hello = vec![request::VALIDATE];
        hello.extend(MAGIC.to_le_bytes());
        connection.write_all(&hello).map_err(|error| broken(&at, error))?;
        Ok(Self { connection: Mutex::new(connection), at, prefix: prefix.to_owned() })
    }

    /// Sets `key`. Once it returns, every client sees the value.
    ///
    /// # Errors
    /// `Unavailable` if the store has ended.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        let mut asked = self.ask(request::SET, key);
        put_bytes(&mut asked, value);
        // The protocol has no answer to this request, so the answer to the next one shows that it was served.
        asked.extend(self.check(key));
        self.send(&asked, read_check).map(drop)
    }

    /// The value of `key`. Blocks until it is set, for at most `limit`.
    ///
    /// # Errors
    /// `Timeout` if it is not set within the limit; `Unavailable` if the store has ended.
    pub fn get(&self, key: &str, limit: Duration) -> Result<Vec<u8>> {
        let deadline = Instant::now() + limit;
        let mut pause = Duration::from_millis(1);
        while !self.has(key)? {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let why = format!("the store at {} has no \"{key}\" after {limit:?}", self.at);
                return Err(Error::new(ErrorKind::Timeout, why));
            }
            // The protocol's own wait cannot be given up without losing the connection.
            std::thread::sleep(pause.min(left));
            pause = (2 * pause).min(PAUSE);
        }
        self.send(&self.ask(request::GET, key), read_bytes)
    }

    /// Whether `key` is set.
    ///
    /// # Errors
    /// `Unavailable` if the store has ended.
    pub fn has(&self, key: &str) -> Result<bool> {
        self.send(&self.check(key), read_check)
    }

    /// Adds `number` to `key`, which counts as 0 if it is not set, and returns the sum.
    ///
    /// # Errors
    /// `Unavailable` if the store has ended.
    pub fn add(&self, key: &str, number: i64) -> Result<i64> {
        let mut asked = self.ask(request::ADD, key);
        asked.extend(number.to_le_bytes());
        self.send(&asked, |connection| {
            let mut sum = [0; 8];
            connection.read_exact(&mut sum)?;
            Ok(i64::from_le_bytes(sum))
        })
    }

    /// The begin of a request about `key`.
    fn ask(&self, kind: u8, key: &str) -> Vec<u8> {
        let mut asked = vec![kind];
        put_bytes(&mut asked, self.full(key).as_bytes());
        asked
    }

    /// The question whether `key` is set.
    fn check(&self, key: &str) -> Vec<u8> {
        let mut asked = vec![request::CHECK];
        asked.extend(1u64.to_le_bytes());
        put_bytes(&mut asked, self.full(key).as_bytes());
        asked
    }

    /// torch's own keys begin with a slash too, so that tools for its stores show ours.
    fn full(&self, key: &str) -> String {
        format!("/feedline/{}/{key}", self.prefix)
    }

    fn send<T>(&self, asked: &[u8], answer: impl FnOnce(&mut TcpStream) -> io::Result<T>) -> Result<T> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection
            .write_all(asked)
            .and_then(|()| answer(&mut connection))
            .map_err(|error| broken(&self.at, error))
    }
}

fn read_check(connection: &mut TcpStream) -> io::Result<bool> {
    let mut answer = [0];
    connection.read_exact(&mut answer)?;
    Ok(answer[0] == 0)
}

fn broken(at: &str, error: io::Error) -> Error {
    let why = format!("the store at {at} does not answer: rank 0 or the launcher has ended");
    Error::new(ErrorKind::Unavailable, why).caused_by(error)
}

/// Connects to `host:port`, again and again until `deadline`.
pub(crate) fn connect(host: &str, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let mut pause = Duration::from_millis(1);
    loop {
        let error = match attempt(host, port, deadline) {
            Ok(connection) => return Ok(connection),
            Err(error) => error,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(error);
        }
        std::thread::sleep(pause.min(left));
        pause = (2 * pause).min(PAUSE);
    }
}

fn attempt(host: &str, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    // The name is looked up each time: that of a pod appears once it runs.
    for address in (host, port).to_socket_addrs()? {
        match connect_once(address, deadline) {
            Ok(connection) => return Ok(connection),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn connect_once(address: SocketAddr, deadline: Instant) -> io::Result<TcpStream> {
    let left = deadline.saturating_duration_since(Instant::now());
    let connection = TcpStream::connect_timeout(&address, left.clamp(Duration::from_millis(1), ANSWER))?;
    // A port without a listener can be given to this very connection, which then talks to itself.
    if connection.local_addr()? == connection.peer_addr()? {
        return Err(io::Error::other("nothing listens there"));
    }
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(ANSWER))?;
    connection.set_write_timeout(Some(ANSWER))?;
    Ok(connection)
}
