//! The store that rank 0 serves where the launcher serves none.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use feedline_core::{Error, ErrorKind, Result};

use super::{MAGIC, listen, put_bytes, read_bytes, request};

/// The most keys in one question.
const MAX_KEYS: u64 = 1024;

/// A store, served by threads of this process until it is dropped.
#[derive(Debug)]
pub struct Server {
    port: u16,
    shared: Arc<Mutex<Shared>>,
    accepting: Option<JoinHandle<()>>,
    /// Its own address, to wake the accepting thread.
    address: std::net::SocketAddr,
}

#[derive(Debug, Default)]
struct Shared {
    values: HashMap<Vec<u8>, Vec<u8>>,
    /// Open connections, each with a thread.
    open: HashMap<u64, TcpStream>,
    next: u64,
    closed: bool,
}

impl Server {
    /// Serves a store on `port` for those who know this machine as `host`. Port 0 takes any free one.
    ///
    /// # Errors
    /// `Unavailable` if the port is taken.
    pub fn start(host: &str, port: u16) -> Result<Self> {
        let refuse = |error: io::Error| {
            let why = format!(
                "rank 0 cannot listen on port {port}: another program or run uses it, so set MASTER_PORT to \
                 a free port on all ranks"
            );
            Error::new(ErrorKind::Unavailable, why).caused_by(error)
        };
        let listener = listen(host, port).map_err(refuse)?;
        let address = listener.local_addr().map_err(refuse)?;
        let shared = Arc::new(Mutex::new(Shared::default()));
        let accepting = {
            let shared = shared.clone();
            let accept = move || accept(&listener, &shared);
            std::thread::Builder::new().name("fl-dist-store".to_owned()).spawn(accept).map_err(refuse)?
        };
        Ok(Self { port: address.port(), shared, accepting: Some(accepting), address })
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        {
            let mut shared = lock(&self.shared);
            shared.closed = true;
            for connection in shared.open.values() {
                let _ = connection.shutdown(Shutdown::Both);
            }
        }
        // The accepting thread sees `closed` once it has accepted this connection.
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(if address.is_ipv4() {
                std::net::Ipv4Addr::LOCALHOST.into()
            } else {
                std::net::Ipv6Addr::LOCALHOST.into()
            });
        }
        let woken = TcpStream::connect_timeout(&address, std::time::Duration::from_secs(1));
        if let Some(accepting) = self.accepting.take().filter(|_| woken.is_ok()) {
            let _ = accepting.join();
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &TcpListener, shared: &Arc<Mutex<Shared>>) {
    loop {
        let accepted = listener.accept();
        let mut state = lock(shared);
        if state.closed {
            return;
        }
        let Ok((connection, _)) = accepted else { continue };
        let (id, Ok(other)) = (state.next, connection.try_clone()) else { continue };
        state.next += 1;
        state.open.insert(id, other);
        drop(state);
        let served = shared.clone();
        let serve = move || {
            // A client that breaks off or breaks the protocol ends its own connection.
            let _ = serve(&connection, &served);
            lock(&served).open.remove(&id);
        };
        if std::thread::Builder::new().name("fl-dist-client".to_owned()).spawn(serve).is_err() {
            lock(shared).open.remove(&id);
        }
    }
}

/// Answers one client until it leaves.
fn serve(mut connection: &TcpStream, shared: &Mutex<Shared>) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut hello = [0; 5];
    connection.read_exact(&mut hello)?;
    if hello[0] != request::VALIDATE || hello[1..] != MAGIC.to_le_bytes() {
        return Err(io::Error::other("this is no client of a store"));
    }
    loop {
        let mut kind = [0];
        connection.read_exact(&mut kind)?;
        match kind[0] {
            request::SET => {
                let (key, value) = (read_bytes(&mut connection)?, read_bytes(&mut connection)?);
                lock(shared).values.insert(key, value);
            }
            request::GET => {
                let key = read_bytes(&mut connection)?;
                let mut answer = Vec::new();
                put_bytes(&mut answer, lock(shared).values.get(&key).map_or(&[], Vec::as_slice));
                connection.write_all(&answer)?;
            }
            request::ADD => {
                let key = read_bytes(&mut connection)?;
                let mut number = [0; 8];
                connection.read_exact(&mut number)?;
                let sum = add(&mut lock(shared).values, key, i64::from_le_bytes(number));
                connection.write_all(&sum.to_le_bytes())?;
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
                    let key = read_bytes(&mut connection)?;
                    all &= lock(shared).values.contains_key(&key);
                }
                connection.write_all(&[u8::from(!all)])?;
            }
            _ => return Err(io::Error::other("an unknown request")),
        }
    }
}

/// Numbers are kept as decimal text.
fn add(values: &mut HashMap<Vec<u8>, Vec<u8>>, key: Vec<u8>, number: i64) -> i64 {
    let before = values.get(&key).and_then(|text| std::str::from_utf8(text).ok()?.parse::<i64>().ok());
    let sum = before.unwrap_or(0).wrapping_add(number);
    values.insert(key, sum.to_string().into_bytes());
    sum
}
