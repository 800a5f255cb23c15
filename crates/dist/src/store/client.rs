//! The client of a store.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use feedline_core::{Error, ErrorKind, Result, deadline};

use super::{MAGIC, MAX_LEN, put_bytes, read_bytes, request};
use crate::config;
use crate::timed::Timed;

/// The maximum pause between two attempts to connect, or two checks of a key.
const MAX_PAUSE: Duration = Duration::from_millis(50);

/// The maximum wait for one answer, or for one attempt to connect. A server answers at once.
const MAX_ANSWER: Duration = Duration::from_secs(10);

/// The minimum wait for one answer: a round trip on a slow network.
const MIN_ANSWER: Duration = Duration::from_millis(500);

/// A connection to a store: keys and values that all ranks share.
///
/// A question that gets no answer closes the connection: a late answer would be read as the answer to the
/// next question. Every later call returns the first error.
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
    /// The connection, or the error that closed it.
    connection: Mutex<Result<TcpStream>>,
    /// `host:port`, for errors.
    address: String,
    prefix: String,
    /// How long one answer may take.
    answer_limit: Duration,
}

impl Store {
    /// Connects to the store at `host:port`, which may start later, and puts all keys under `prefix`. Blocks
    /// for at most `limit`, without the time that the system takes to look up `host`.
    ///
    /// The store may take `limit` for each later answer, from half a second to ten seconds.
    ///
    /// # Errors
    /// `Unavailable` if nothing answers there within the limit.
    pub fn connect(host: &str, port: u16, prefix: &str, limit: Duration) -> Result<Self> {
        let (address, deadline) = (format!("{host}:{port}"), deadline(limit));
        let connection = connect(host, port, deadline).map_err(|error| {
            let why = format!(
                "no rank 0 at {address} within {limit:?}: check that it has started, and that MASTER_ADDR \
                 and MASTER_PORT are its host and a port that this host reaches"
            );
            Error::new(ErrorKind::Unavailable, why).with_source(error)
        })?;
        let answer_limit = limit.clamp(MIN_ANSWER, MAX_ANSWER);
        let mut hello = vec![request::VALIDATE];
        hello.extend(MAGIC.to_le_bytes());
        let connection = Mutex::new(Ok(connection));
        let store = Self { connection, address, prefix: prefix.to_owned(), answer_limit };
        store.send(&hello, deadline, |_| Ok(()))?;
        Ok(store)
    }

    /// Sets `key`. Once it returns, every client sees the value. Blocks until the store has answered.
    ///
    /// # Errors
    /// `Config` if the key or the value exceeds 1 MiB; `Unavailable` if the store does not answer, or has no
    /// room left.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.set_by(key, value, deadline(self.answer_limit))
    }

    /// Like [`set`](Self::set), until `deadline`.
    pub(crate) fn set_by(&self, key: &str, value: &[u8], deadline: Instant) -> Result<()> {
        check_len("the value of ", key, value.len())?;
        let mut question = self.question(request::SET, key)?;
        put_bytes(&mut question, value);
        // The protocol has no answer to this request. The answer to the next one shows that it was served.
        question.extend(self.check(key)?);
        self.send(&question, deadline, read_check).map(drop)
    }

    /// The value of `key`. Blocks until it is set, for at most `limit`; a store that does not answer at all
    /// is given up after the limit or half a second, whichever is longer.
    ///
    /// # Errors
    /// `Timeout` if the key is not set within the limit; `Unavailable` if the store does not answer.
    pub fn get(&self, key: &str, limit: Duration) -> Result<Vec<u8>> {
        let until = deadline(limit);
        let answer_by = || until.min(deadline(self.answer_limit));
        let (check, mut pause) = (self.check(key)?, Duration::from_millis(1));
        while !self.send(&check, answer_by(), read_check)? {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let why = format!("the store at {} has no \"{key}\" after {limit:?}", self.address);
                return Err(Error::new(ErrorKind::Timeout, why));
            }
            // The protocol's own request to wait cannot be cancelled without losing the connection.
            std::thread::sleep(pause.min(left));
            pause = (2 * pause).min(MAX_PAUSE);
        }
        self.send(&self.question(request::GET, key)?, answer_by(), |answer| read_bytes(answer))
    }

    /// Whether `key` is set. Blocks until the store has answered.
    ///
    /// # Errors
    /// `Config` if the key exceeds 1 MiB; `Unavailable` if the store does not answer.
    pub fn has(&self, key: &str) -> Result<bool> {
        self.send(&self.check(key)?, deadline(self.answer_limit), read_check)
    }

    /// Adds `number` to `key`, which counts as 0 if it is not set, and returns the sum. Blocks until the
    /// store has answered.
    ///
    /// # Errors
    /// `Config` if the key exceeds 1 MiB; `Unavailable` if the store does not answer, or has no room left.
    pub fn add(&self, key: &str, number: i64) -> Result<i64> {
        let mut question = self.question(request::ADD, key)?;
        question.extend(number.to_le_bytes());
        self.send(&question, deadline(self.answer_limit), |answer| {
            let mut sum = [0; 8];
            answer.read_exact(&mut sum)?;
            Ok(i64::from_le_bytes(sum))
        })
    }

    /// A request with `key` as its first field.
    fn question(&self, kind: u8, key: &str) -> Result<Vec<u8>> {
        let mut question = vec![kind];
        put_bytes(&mut question, self.full(key)?.as_bytes());
        Ok(question)
    }

    /// The question whether `key` is set.
    fn check(&self, key: &str) -> Result<Vec<u8>> {
        let mut question = vec![request::CHECK];
        question.extend(1u64.to_le_bytes());
        put_bytes(&mut question, self.full(key)?.as_bytes());
        Ok(question)
    }

    /// The key in the store. torch's own keys begin with a slash too, so tools for its stores show ours.
    fn full(&self, key: &str) -> Result<String> {
        let full = format!("/feedline/{}/{key}", self.prefix);
        check_len("", key, full.len()).map(|()| full)
    }

    /// Sends a question and reads its answer. Any failure closes the connection.
    fn send<T>(
        &self,
        question: &[u8],
        answer_by: Instant,
        answer: impl FnOnce(&mut Timed<'_>) -> io::Result<T>,
    ) -> Result<T> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let open = connection.as_ref().map_err(Error::clone)?;
        let mut timed = Timed { connection: open, deadline: answer_by.max(deadline(MIN_ANSWER)) };
        timed.write_all(question).and_then(|()| answer(&mut timed)).map_err(|error| {
            let why = format!(
                "the store at {} does not answer: rank 0 or the launcher has ended, or the store is full",
                self.address
            );
            let error = Error::new(ErrorKind::Unavailable, why).with_source(error);
            *connection = Err(error.clone());
            error
        })
    }
}

fn read_check(answer: &mut Timed<'_>) -> io::Result<bool> {
    let mut byte = [0];
    answer.read_exact(&mut byte)?;
    Ok(byte[0] == 0)
}

/// Refuses a key, or the value of `key`, that is too long.
fn check_len(what: &str, key: &str, len: usize) -> Result<()> {
    if len <= MAX_LEN {
        return Ok(());
    }
    let key: String = key.chars().take(40).collect();
    Err(config(format!("{what}\"{key}\" has {len} bytes: a store takes at most {MAX_LEN}")))
}

/// Connects to `host:port`; retries until `deadline`.
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
        pause = (2 * pause).min(MAX_PAUSE);
    }
}

fn attempt(host: &str, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    // Looks the name up each time: a pod's name appears only once it runs.
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
    let connection = TcpStream::connect_timeout(&address, left.clamp(Duration::from_millis(1), MAX_ANSWER))?;
    // The system may give a port without a listener to this very connection, which then talks to itself.
    if connection.local_addr()? == connection.peer_addr()? {
        return Err(io::Error::other("nothing listens there"));
    }
    connection.set_nodelay(true)?;
    Ok(connection)
}
